"""Lets a stream of a cluster run as the catalog says, from one place of its own group on.

The group of a stream and that of the catalog do not advance together on all nodes. Were the configuration
taken from the catalog, nodes would decide differently about the same message. So whoever leads the stream
says in its group from where on the new one counts.

Rules: the leader looks whether the stream runs as the catalog says when it begins to lead, when the catalog
changes, and now and then. Messages of origins are submitted as the configuration is: none is on its way then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edged.core.commands import ASSIGNED, Configure
from edged.core.retention import LIMITS
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.server.jetstream.stream import Stream

Stored = dict[str, Any]


def runs_as(running: Stored, wanted: Stored) -> bool:
    """Whether two stored configurations are the same but for the nodes that have the stream."""
    return _unassigned(running) == _unassigned(wanted)


def _unassigned(config: Stored) -> Stored:
    """What a configuration says of the stream itself."""
    return {name: value for name, value in config.items() if name not in ASSIGNED}


async def configure(stream: Stream) -> None:
    """Let a stream that this node leads run as the catalog says."""
    try:
        async with stream.lock:
            while stream.is_leading and not runs_as(stream.machine.config, stream.entry.config):
                await _configure(stream, stream.entry.config)
    except StoreError as error:
        # It is tried again before long, here or by who leads then.
        server = stream.jetstream.server
        server.log.warn("a stream cannot be configured yet", stream=stream.name, error=str(error))
    finally:
        stream.is_being_configured = False
        stream.jetstream.changed()


async def _configure(stream: Stream, wanted: Stored) -> None:
    """Raises StoreError."""
    jetstream = stream.jetstream
    await stream.origins.rest()
    holds = stream.origins.holds()
    if wanted.get("retention") != LIMITS:
        stream.consumers.become_known()
    try:
        await jetstream.commit(stream.group, Configure(_unassigned(wanted)))
    finally:
        # Its origins rest until then.
        stream.reconfigure()
    kept = stream.origins.hold_names()
    for hold in holds:
        if hold.name not in kept:
            hold.release()
    jetstream.advisories.stream_action(stream, "UPDATED", "modify")
