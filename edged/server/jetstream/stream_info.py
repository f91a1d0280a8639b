"""How a stream is described: its configuration, its state and where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from edged.core.gotime import format_rfc3339
from edged.core.stream_rules import with_server
from edged.server.jetstream.figures import consumer_count
from edged.server.monitoring.answers import shown
from edged.server.monitoring.gojson import text
from edged.version import NATS_VERSION

if TYPE_CHECKING:
    from edged.server.jetstream.stream import Stream

Document = dict[str, Any]

LOST_MAX: Final = 1_000_000
"""How many lost messages are named."""


@dataclass(frozen=True, slots=True)
class StateDetails:
    """What is shown of a stream's state only to whoever asks for it."""

    subjects: Mapping[str, int] = field(default_factory=dict)
    with_deleted: bool = False


def described(
    stream: Stream,
    with_cluster: bool = True,
    details: StateDetails | None = None,
    alternates: Sequence[Document] = (),
) -> Document:
    """What STREAM.INFO shows. In a cluster it is always shown who has the stream."""
    document: Document = {
        "config": with_server(stream.config, NATS_VERSION).document(),
        "created": format_rfc3339(stream.created_ns),
        "state": state(stream, details),
    }
    domain = stream.jetstream.options.domain
    if domain:
        document["domain"] = domain
    cluster = stream.jetstream.cluster
    if cluster is not None:
        document["cluster"] = cluster.cluster_document(stream.group)
    elif with_cluster:
        document["cluster"] = {"leader": stream.jetstream.server.name}
    document.update(stream.origins.described())
    if alternates:
        document["alternates"] = list(alternates)
    document["ts"] = format_rfc3339(stream.jetstream.server.now_ns())
    return document


def listed(stream: Stream) -> Document:
    """What STREAM.LIST shows, which leaves out what is the same for all."""
    document = described(stream, with_cluster=False)
    document["config"] = stream.config.document()
    return document


def state(stream: Stream, details: StateDetails | None = None) -> Document:
    """The figures of a stream."""
    log = stream.log
    # A stream that never held a message begins with 0, unless its configuration says otherwise.
    is_untouched = log.last_seq == 0 and not log.message_count
    first_seq = min(stream.config.first_seq, 1) if is_untouched else log.first_seq
    document: Document = {
        "messages": log.message_count,
        "bytes": log.bytes,
        "first_seq": first_seq,
        "first_ts": format_rfc3339(log.first_ts_ns if log.message_count else None),
        "last_seq": log.last_seq,
        "last_ts": format_rfc3339(log.last_ts_ns or None),
    }
    optional: Document = {"num_subjects": log.subject_count, "num_deleted": log.deleted_count}
    if details is not None:
        optional = {
            "num_subjects": log.subject_count,
            "subjects": details.subjects,
            "num_deleted": log.deleted_count,
        }
        if details.with_deleted:
            optional |= {"deleted": stream.reads.deleted_seqs(), "lost": _lost(stream)}
    return {**document, **shown(optional), "consumer_count": consumer_count(stream)}


def subjects_of(stream: Stream, filter_: str, offset: int, limit: int) -> tuple[int, dict[str, int]]:
    """How many subjects match, and a page of them with their numbers of messages."""
    found = sorted(stream.log.subjects((filter_.encode(),)))
    return len(found), {text(subject): count for subject, count in found[offset : offset + limit]}


def _lost(stream: Stream) -> Document:
    """What was stored and cannot be read any more; how large it was is not known."""
    seqs = [seq for lost in stream.log.lost for seq in range(lost.first_seq, lost.last_seq + 1)]
    return {"msgs": seqs[:LOST_MAX], "bytes": 0} if seqs else {}
