"""Who leads a replicated stream hands out from runners, copies that run ahead: nodes agree on the rest."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core import commands
from edged.core.commands import ACK, ACK_ALL, GIVEN_UP, TERM, Ack, Dispatch, PutConsumer
from edged.core.stream_machine import StreamMachine
from edged.store.memory_log import MemoryLog
from tests.examples import examples

NOW_NS = 1_800_000_000 * 10**9
REPLICATED: dict[str, Any] = {"name": "S", "subjects": ["s.>"], "edged.peers": [1, 2, 3]}


def stream(**config: Any) -> StreamMachine:
    return StreamMachine(MemoryLog(), {**REPLICATED, **config})


def publish(machine: StreamMachine, count: int = 1) -> None:
    for _ in range(count):
        machine.append_run(NOW_NS, [(b"s.a", None, -1, b"")], 0, 0, [0])


def shared(machine: StreamMachine) -> Any:
    """What every node must agree on."""
    kept = [seq for seq in range(1, machine.log.last_seq + 1) if machine.log.has(seq)]
    return machine.snapshot(), kept


def test_handing_out_changes_the_runner_and_the_command_changes_both() -> None:
    machine = stream()
    publish(machine, 3)
    machine.apply(PutConsumer(1, "c", {"ack_policy": "explicit"}))
    runner = machine.table.run_ahead(1)
    first = runner.hand_out((1, 2), NOW_NS)
    assert (list(runner.pending), list(machine.consumers[1].pending)) == ([1, 2], [])
    machine.apply(Dispatch(1, NOW_NS, (1, 2), first))
    assert list(machine.consumers[1].pending) == [1, 2]
    machine.apply(Ack(1, ACK, (1,)))
    assert list(machine.consumers[1].pending) == list(runner.pending) == [2]


def test_deliveries_that_were_never_committed_are_forgotten_with_the_leadership() -> None:
    machine = stream()
    publish(machine, 3)
    machine.apply(PutConsumer(1, "c", {"ack_policy": "explicit"}))
    machine.table.run_ahead(1).hand_out((1, 2, 3), NOW_NS)
    machine.table.stop_runners()
    assert machine.table.run_ahead(1).delivered == machine.consumers[1].delivered == (0, 0)


def test_delivery_of_another_leader_is_news_to_a_runner() -> None:
    machine = stream()
    publish(machine, 3)
    machine.apply(PutConsumer(1, "c", {"ack_policy": "explicit"}))
    runner = machine.table.run_ahead(1)
    machine.apply(Dispatch(1, NOW_NS, (1, 2), 1))
    assert list(runner.pending) == [1, 2]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 3)),
        st.tuples(st.just("put"), st.integers(1, 3)),
        st.tuples(st.just("remove"), st.integers(1, 3)),
        st.tuples(st.just("hand out"), st.integers(1, 3)),
        st.tuples(st.just("again"), st.integers(1, 3)),
        st.tuples(st.just("tell"), st.just(0)),
        st.tuples(st.sampled_from([ACK, ACK_ALL, TERM, GIVEN_UP]), st.integers(1, 3)),
        st.tuples(st.just("reset"), st.integers(1, 3)),
        st.tuples(st.just("delete"), st.integers(1, 12)),
        st.tuples(st.just("purge"), st.integers(1, 12)),
        st.tuples(st.just("change of leader"), st.just(0)),
    ),
    max_size=60,
)


class Pair:
    """A leader and a follower, to which the same commands are applied."""

    def __init__(self, config: dict[str, Any], has_acks: bool) -> None:
        self.nodes = [stream(**config), stream(**config)]
        self.has_acks = has_acks
        # Deliveries that the leader has not told of yet.
        self.untold: list[Dispatch] = []

    def apply(self, command: Any) -> None:
        outcomes = [node.apply(command) for node in self.nodes]
        assert outcomes[0] == outcomes[1]

    def step(self, what: Any, number: int) -> None:
        leader = self.nodes[0]
        if what == "publish":
            for node in self.nodes:
                publish(node, number)
        elif what == "put":
            policy = "explicit" if self.has_acks else "none"
            is_new = number not in leader.consumers
            self.apply(PutConsumer(number, f"c{number}", {"ack_policy": policy}))
            if is_new:
                leader.table.run_ahead(number)
        elif what == "delete":
            self.apply(commands.Delete(number, False))
        elif what == "purge":
            self.apply(commands.Purge(number, b"", 0))
        elif what == "tell":
            self.tell()
        elif what == "change of leader":
            self.untold.clear()
            leader.table.stop_runners()
            self.nodes.reverse()
            for consumer in self.nodes[0].consumers:
                self.nodes[0].table.run_ahead(consumer)
        elif number in leader.consumers:
            self.serve(what, number)

    def serve(self, what: Any, number: int) -> None:
        leader = self.nodes[0]
        consumer = leader.table.runners[number]
        if what == "remove":
            self.tell()
            self.apply(commands.RemoveConsumer(number))
        elif what == "hand out":
            seq = leader.log.next_matching((), consumer.next_seq)
            if seq is not None:
                first = consumer.hand_out((seq,), NOW_NS)
                self.untold.append(Dispatch(number, NOW_NS, (seq,), first))
        elif what == "again":
            if consumer.pending:
                seqs = (next(iter(consumer.pending)),)
                first = consumer.hand_out_again(seqs, NOW_NS)
                self.untold.append(Dispatch(number, NOW_NS, seqs, first))
        elif what == "reset":
            self.tell()
            self.apply(commands.ResetConsumer(number, 0))
        elif consumer.pending:
            self.tell()
            self.apply(Ack(number, what, (next(iter(consumer.pending)),)))

    def tell(self) -> None:
        untold, self.untold = self.untold, []
        for command in untold:
            self.apply(command)


@given(
    steps,
    st.sampled_from([{}, {"retention": "interest"}, {"max_msgs": 4}, {"max_msgs": 3, "discard": "new"}]),
    st.booleans(),
)
@settings(max_examples=examples(400))
def test_nodes_agree_after_every_command_whatever_the_leader_has_handed_out(
    walk: list[tuple[Any, int]], config: dict[str, Any], has_acks: bool
) -> None:
    pair = Pair(config, has_acks)
    for what, number in walk:
        pair.step(what, number)
        assert shared(pair.nodes[0]) == shared(pair.nodes[1]), (what, number)
    pair.tell()
    for number, consumer in pair.nodes[0].consumers.items():
        # With everything told, the runner is what all nodes have. Only where the floor was when nothing was
        # pending, and whether nothing was handed out since a reset, depend on what was purged between.
        ahead, behind = pair.nodes[0].table.runners[number].snapshot(), consumer.snapshot()
        assert ahead[2][:2] == behind[2][:2]
        assert ahead[3][:2] == behind[3][:2]
        assert [*ahead[:2], *ahead[4:]] == [*behind[:2], *behind[4:]]
