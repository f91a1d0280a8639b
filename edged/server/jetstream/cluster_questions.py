"""What nodes of a cluster ask each other about streams, to make one answer of what several know.

A body is a dict whose `what` names the question; an answer is a dict. Both hold only what msgpack can carry.
A node that asks itself answers in the same way.

Rules: an answer is given by whoever leads the stream in question; what others are asked is missing in theirs.
Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, Final

import trio

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.ports import CallFailed
from edged.server.jetstream.configuring import runs_as
from edged.server.jetstream.distant_readers import answer_reader
from edged.server.jetstream.figures import consumer_count
from edged.server.jetstream.relay import LEADERLESS_S, PATIENCE_S
from edged.server.jetstream.stream_info import described, listed

if TYPE_CHECKING:
    from edged.server.jetstream.jetstream import JetStream
    from edged.server.jetstream.stream import Stream

GATHER_S: Final = 2.0
"""How long one answer waits for what several nodes are asked."""

Body = dict[str, Any]


async def answer_question(jetstream: JetStream, body: Body) -> Body:
    """What only the leader of a stream knows."""
    what = body["what"]
    if what == "describe":
        return await _describe(jetstream, body)
    if what == "gone":
        return await _gone(jetstream, body["group"])
    if what in ("origin", "read", "release"):
        return await answer_reader(_led(jetstream, body["group"]), body)
    found = [_led(jetstream, group) for group in body["groups"]]
    streams = [stream for stream in found if stream is not None]
    if what == "list":
        return {"streams": [[stream.group, listed(stream)] for stream in streams]}
    if what == "uses":
        uses = [list(astuple(use)) for stream in streams for use in stream.consumers.uses()]
        return {"uses": uses, "is_known": bool(streams)}
    assert what == "figures", what
    return {"streams": [[stream.group, [stream.log.bytes, consumer_count(stream)]] for stream in streams]}


async def _describe(jetstream: JetStream, body: Body) -> Body:
    """A stream, once it is led here and configured as asked for."""
    with trio.move_on_after(PATIENCE_S):
        while True:
            change = jetstream.change
            stream = _led(jetstream, body["group"])
            if stream is not None and _runs_as_asked(stream, body["config"]):
                return {"document": described(stream)}
            if stream is None and jetstream.cluster is not None and jetstream.cluster.leader(body["group"]):
                # Somebody else is to be asked.
                break
            await change.wait()
    return {"document": None}


async def _gone(jetstream: JetStream, group: int) -> Body:
    """Answer when a stream is served here no more."""
    with trio.move_on_after(LEADERLESS_S):
        while group in jetstream.by_group:
            await jetstream.change.wait()
    return {}


def _runs_as_asked(stream: Stream, config: Body | None) -> bool:
    if config is None:
        return True
    return not stream.is_being_configured and runs_as(stream.machine.config, config)


def _led(jetstream: JetStream, group: int) -> Stream | None:
    stream = jetstream.by_group.get(group)
    return stream if stream is not None and stream.is_leading else None


# --- asking ---


async def ask(jetstream: JetStream, node: int, body: Body) -> Body:
    """Ask a node, which may be this one. Raises CallFailed."""
    cluster = jetstream.cluster
    assert cluster is not None
    if node == cluster.node:
        return await answer_question(jetstream, body)
    return await cluster.call(node, "api", body)


async def ask_leader(jetstream: JetStream, group: int, body: Body, answered: str) -> Body:
    """Ask whoever leads a group until the answer has a field. Raises ApiFailure when nobody can tell."""
    cluster = jetstream.cluster
    assert cluster is not None
    with trio.move_on_after(PATIENCE_S):
        while True:
            change = jetstream.change
            node = cluster.leader(group)
            if node:
                try:
                    answer = await ask(jetstream, node, body)
                except CallFailed:
                    answer = {}
                if answer.get(answered):
                    return answer
            with trio.move_on_after(LEADERLESS_S):
                await change.wait()
    raise ApiFailure(api_errors.CLUSTER_NOT_AVAILABLE)


async def wait_gone(jetstream: JetStream, node: int, group: int) -> None:
    """Wait until the node that led a stream which is removed answers for it no more, but not for long."""
    with trio.move_on_after(LEADERLESS_S), suppress(CallFailed):
        # Who cannot be reached answers nobody.
        if node:
            await ask(jetstream, node, {"what": "gone", "group": group})


async def describe(jetstream: JetStream, group: int, config: Body | None = None) -> Body:
    """How the leader of a stream describes it, once it is configured so. Raises ApiFailure."""
    body = {"what": "describe", "group": group, "config": config}
    document: Body = (await ask_leader(jetstream, group, body, "document"))["document"]
    return document


async def ask_leaders(jetstream: JetStream, groups: Iterable[int], what: str) -> dict[int, Any]:
    """What the leaders of streams say of them, by group; those are missing that nobody told in time."""
    cluster = jetstream.cluster
    assert cluster is not None
    by_node: dict[int, list[int]] = {}
    for group in groups:
        by_node.setdefault(cluster.leader(group), []).append(group)
    by_node.pop(0, None)
    found: dict[int, Any] = {}

    async def gather(node: int, of_node: list[int]) -> None:
        try:
            answer = await ask(jetstream, node, {"what": what, "groups": of_node})
        except CallFailed:
            return
        found.update(answer["streams"])

    with trio.move_on_after(GATHER_S):
        async with trio.open_nursery() as nursery:
            for node, of_node in by_node.items():
                nursery.start_soon(gather, node, of_node)
    return found
