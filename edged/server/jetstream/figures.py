"""How much is stored and reserved, as the API and monitoring show it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edged.server.jetstream.jetstream import JetStream
    from edged.server.jetstream.stream import Stream

Document = dict[str, Any]


def used_bytes(streams: Iterable[Stream]) -> tuple[int, int]:
    """What streams take, in memory and on disk."""
    memory_bytes = file_bytes = 0
    for stream in streams:
        if stream.entry.is_in_memory:
            memory_bytes += stream.log.bytes
        else:
            file_bytes += stream.log.bytes
    return memory_bytes, file_bytes


def reserved_bytes(streams: Iterable[Stream]) -> tuple[int, int]:
    """What streams may grow to because they say so, in memory and on disk."""
    memory_bytes = file_bytes = 0
    for stream in streams:
        size = max(stream.config.max_bytes, 0)
        if stream.entry.is_in_memory:
            memory_bytes += size
        else:
            file_bytes += size
    return memory_bytes, file_bytes


def consumer_count(stream: Stream) -> int:
    """How many consumers a stream has, as far as clients see them. Who does not lead serves none of them."""
    consumers = stream.consumers if stream.is_leading else stream.machine.consumers.values()
    return sum(not consumer.config.direct for consumer in consumers)


def server_figures(jetstream: JetStream) -> Document:
    """What all accounts have together, as monitoring shows it."""
    streams = list(jetstream.streams())
    memory_bytes, file_bytes = used_bytes(streams)
    memory_reserved, file_reserved = reserved_bytes(streams)
    return {
        "memory": memory_bytes,
        "storage": file_bytes,
        "reserved_memory": memory_reserved,
        "reserved_storage": file_reserved,
    }


def stream_figures(streams: list[Stream], *, led: bool = False) -> Document:
    """How much there is of everything; with `led` also what this server leads."""
    leading = [stream for stream in streams if stream.is_leading]
    consumers_led = sum(consumer_count(stream) for stream in leading)
    return {
        "streams": len(streams),
        **({"streams_leader": len(leading)} if led and leading else {}),
        "consumers": sum(consumer_count(stream) for stream in streams),
        **({"consumers_leader": consumers_led} if led and consumers_led else {}),
        "messages": sum(stream.log.message_count for stream in streams),
        "bytes": sum(stream.log.bytes for stream in streams),
    }
