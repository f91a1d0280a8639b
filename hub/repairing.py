"""Asks other nodes for messages that this one has lost, and answers when they ask.

Rules: a few streams at a time, for each one question under way. After every answer there is a pause as long
as it took, so that a repair has at most about half of a link and of the disks; clients and consensus have
the rest. Whoever does not answer is asked again, in another round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from hub.limits import REPAIRS_MAX
from hub.links.control import CallFailed
from hub.replication.questions import Question, answer
from hub.replication.repairs import Repairs

if TYPE_CHECKING:
    from edged.server.server import Server
    from hub.links.links import Links
    from hub.raft.members import NodeId
    from hub.replication.repair import Repair
    from hub.replication.replicas import Replicas

REPAIR: Final = "repair"
LOOK_S: Final = 1.0
"""How often lost messages are looked for, and how long a round waits for the next."""
CALL_S: Final = 10.0
PAUSE_S: Final = 0.005


class Repairing:
    """Of one node."""

    def __init__(self, server: Server, links: Links, replicas: Replicas) -> None:
        self._server = server
        self._links = links
        self._replicas = replicas
        self._repairs = Repairs(replicas, self._begun, self._ended)
        self._active: set[int] = set()
        self._wake = trio.Event()

    @property
    def methods(self) -> dict[str, Any]:
        """What other nodes may call."""
        return {REPAIR: self._answer}

    async def run(self) -> None:
        """Look after lost messages, forever."""
        async with trio.open_nursery() as nursery:
            while True:
                self._repairs.look()
                for group, repair in self._repairs.under_way.items():
                    if group not in self._active and len(self._active) < REPAIRS_MAX:
                        self._active.add(group)
                        nursery.start_soon(self._repair, repair)
                self._server.flush()
                self._wake = trio.Event()
                with trio.move_on_after(LOOK_S):
                    await self._wake.wait()

    async def _repair(self, repair: Repair) -> None:
        """One round, in which everybody is asked."""
        try:
            repair.begin_round()
            while (asked := repair.ask()) is not None:
                began_s = trio.current_time()
                await self._ask(repair, *asked)
                await trio.sleep(max(PAUSE_S, trio.current_time() - began_s))
            done = trio.Event()
            repair.end_round(done.set)
            self._server.flush()
            await done.wait()
            self._repairs.postpone(repair)
            if repair.is_over:
                self._wake.set()
        finally:
            self._active.discard(repair.group)

    async def _ask(self, repair: Repair, node: NodeId, question: Question) -> None:
        try:
            document = await self._links.call(node, REPAIR, question.document(), CALL_S)
        except CallFailed as failure:
            repair.failed(str(failure))
            return
        done = trio.Event()
        repair.answered(question, document, done.set)
        self._server.flush()
        await done.wait()

    async def _answer(self, sender: NodeId, body: dict[str, Any]) -> dict[str, Any]:
        """Another node lacks messages."""
        try:
            question = Question.of_document(body)
        except ValueError as error:
            raise CallFailed(str(error)) from error
        self._replicas.asked(sender, question.group)
        found = answer(self._replicas.store, question)
        if found is None:
            raise CallFailed("there is no copy of that stream here")
        return found.document()

    # --- for operators ---

    def _begun(self, repair: Repair) -> None:
        entry, wanted = repair.entry, repair.wanted()
        assert entry is not None, repair.group
        if wanted:
            self._server.log.warn(
                "messages are lost here: the other nodes are asked for them",
                account=entry.account,
                stream=entry.name,
                first_seq=wanted[0].start,
                last_seq=wanted[-1].stop - 1,
                ranges=len(wanted),
            )
        else:
            # Not even which messages are lost is known.
            self._server.log.warn(
                "the index of a segment is lost here: the copy of this node comes anew from whoever leads",
                account=entry.account,
                stream=entry.name,
            )

    def _ended(self, repair: Repair) -> None:
        entry = repair.entry
        if entry is None:
            return
        self._server.log.info(
            "a stream has what there is of it again",
            account=entry.account,
            stream=entry.name,
            put_back=repair.put_back,
            without_message=repair.gone,
            lost=repair.lost,
        )
