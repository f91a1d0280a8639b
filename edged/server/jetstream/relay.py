"""Lets the node answer a request that can: the leader of the catalog, or of the stream that it is about.

Any node takes requests of its clients. One that does not lead passes a request on and gives the client the
answer that comes back; one that believes wrongly that another leads has it passed on once more. What nodes
ask each other besides, to make one answer of what several know, is in cluster_questions.py.

Rules: a request is answered within PATIENCE_S or refused for now, whatever becomes of it. One that was sent
to another node and has no answer is repeated only if it changes nothing. While nobody leads a request waits a
moment for somebody to. Requests about one stream that change something wait for each other, others do not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from edged.core import api_errors
from edged.core.limits import API_CALLS_MAX, API_HOPS_MAX
from edged.ports import CallFailed
from edged.server.jetstream.api_request import ApiRequest, Document
from edged.server.jetstream.api_service import Reply, refused, serve
from edged.server.jetstream.stream_first import missing_stream
from edged.store.errors import LeadershipLost, NotLeader
from edged.store.group import CATALOG

if TYPE_CHECKING:
    from edged.ports import Cluster
    from edged.server.jetstream.jetstream import JetStream

PATIENCE_S: Final = 4.0
"""Clients usually wait for five seconds."""
LEADERLESS_S: Final = 0.5
"""How long a request waits for somebody to lead."""

Body = dict[str, Any]


class Relay:
    """Of one node of a cluster."""

    def __init__(self, jetstream: JetStream, cluster: Cluster) -> None:
        self._jetstream = jetstream
        self._cluster = cluster
        # How many requests of own clients are being dealt with.
        self.begun = 0
        self._end = trio.Event()

    # --- bounds ---

    async def room(self) -> None:
        """Wait until one more request can be dealt with."""
        while self.begun >= API_CALLS_MAX:
            self._end = trio.Event()
            await self._end.wait()

    def ended(self) -> None:
        """One request less is being dealt with."""
        self.begun -= 1
        self._end.set()
        self._jetstream.server.tasks_waiting = True

    # --- requests ---

    async def answer(self, request: ApiRequest, hops: int = 0) -> Reply:
        """What a request comes to, here or elsewhere. `hops` nodes had it before."""
        with trio.move_on_after(PATIENCE_S):
            while True:
                change = self._jetstream.change
                reply = await self._try(request, hops)
                if reply is not None:
                    return reply
                with trio.move_on_after(LEADERLESS_S) as patience:
                    await change.wait()
                if patience.cancelled_caught:
                    break
        return refused(request, api_errors.CLUSTER_NOT_AVAILABLE)

    async def _try(self, request: ApiRequest, hops: int) -> Reply | None:
        """The answer; None if nobody leads who could give it."""
        group, node = self._who_answers(request)
        if node == self._cluster.node:
            if not (request.endpoint.is_everywhere or await self._is_sure(group)):
                return None
            missing = missing_stream(request)
            if missing is not None:
                return refused(request, missing)
            try:
                return _told(request, await serve(request, self._lock_for(request)))
            except NotLeader:
                return None
            except LeadershipLost:
                return refused(request, api_errors.CLUSTER_NOT_AVAILABLE)
        if not node or hops >= API_HOPS_MAX:
            return None
        try:
            answer = await self._cluster.call(node, "api", _passed_on(request, hops + 1))
        except CallFailed:
            return None if request.endpoint.is_reading else refused(request, api_errors.CLUSTER_NOT_AVAILABLE)
        request.answer_headers.extend((bytes(key), bytes(value)) for key, value in answer["headers"])
        document: Document | None = answer["document"]
        if document is not None and "api" in document:
            # What clients of this node have asked, and not those of the one that answers.
            document["api"] |= {"total": request.account.requests, "errors": request.account.errors}
        return Reply(document, answer["is_failed"])

    async def answers_of_others(self, request: ApiRequest, tell: Callable[[Reply], None]) -> None:
        """What all other nodes say to a request that each answers for itself, as they say it."""

        async def ask(node: int) -> None:
            # Who does not answer is not there.
            with suppress(CallFailed):
                answer = await self._cluster.call(node, "api", _passed_on(request, API_HOPS_MAX))
                tell(Reply(answer["document"], answer["is_failed"]))

        async with trio.open_nursery() as nursery:
            for node in self._cluster.nodes_up():
                nursery.start_soon(ask, node)

    def _who_answers(self, request: ApiRequest) -> tuple[int, int]:
        """The group that is asked, and who is to answer for it; 0 when nobody leads who could.

        Of a stream unknown here others may know.
        """
        cluster, group = self._cluster, CATALOG
        if request.endpoint.is_everywhere:
            return group, cluster.node
        if not request.endpoint.is_meta and request.arguments:
            group = request.account.group_of(request.arguments[0]) or CATALOG
        if cluster.leads(group):
            return group, cluster.node
        node = cluster.leader(group)
        # Who has just begun to lead may not know everything yet.
        return group, 0 if node == cluster.node else node

    async def _is_sure(self, group: int) -> bool:
        """Whether this node, which leads a group, is the one that does; a majority is asked if need be."""
        if self._cluster.is_sure(group):
            return True
        answered = trio.Event()
        answers: list[bool] = []

        def done(is_certain: bool) -> None:
            answers.append(is_certain)
            answered.set()
            self._jetstream.server.tasks_waiting = True

        self._cluster.make_sure(group, done)
        self._jetstream.server.flush()
        await answered.wait()
        return answers[0]

    def _lock_for(self, request: ApiRequest) -> trio.Lock:
        stream = None
        if not request.endpoint.is_meta and request.arguments:
            stream = request.account.streams.get(request.arguments[0])
        return self._jetstream.catalog_lock if stream is None else stream.lock


def _told(request: ApiRequest, reply: Reply) -> Reply:
    """What a client hears of it: whoever speaks to a consumer that is not there hears nothing."""
    error = (reply.document or {}).get("error")
    is_nobody = request.endpoint.is_private and error == api_errors.CONSUMER_NOT_FOUND.document()
    return Reply(None, is_failed=True) if is_nobody else reply


def _passed_on(request: ApiRequest, hops: int) -> Body:
    return {
        "what": "request",
        "account": request.account.account.name,
        "subject": request.subject,
        "headers": request.headers,
        "body": request.body,
        "client": request.client(),
        "hops": hops,
    }
