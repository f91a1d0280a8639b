"""Consumers against a naive model: handing out, settling, removals, crashes and replays in any order.

What is submitted is applied later, and a crash may come at any time between: then only a part of the journal
is left. Deliveries are told to the journal late, sometimes after acknowledgements of the same messages.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import msgpack
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edged.core import commands
from edged.core.commands import ACK, ACK_ALL, GIVEN_UP, TERM, Ack, Command, Dispatch
from edged.core.consumer_machine import ConsumerMachine
from edged.core.stream_machine import StreamMachine
from edged.store.memory_log import MemoryLog
from tests.examples import examples

START_NS = 1_800_000_000 * 10**9
PLACES = st.integers(0, 30)
POLICIES = st.sampled_from(["explicit", "explicit", "explicit", "all", "none"])
FILTERS = st.sampled_from([[], [], [], ["a"], ["b"], ["a", "b"]])
KINDS = st.sampled_from([ACK, ACK, ACK, TERM, GIVEN_UP])
STARTS = st.sampled_from(["all", "all", "all", "new", "last_per_subject"])

Entry = Command | bytes


class NaiveConsumer:
    """Sets, and nothing clever."""

    def __init__(self, filters: list[str], policy: str, start: int, chosen: set[int] | None = None) -> None:
        self.filters = [one.encode() for one in filters]
        self.policy = policy
        self.reach = start - 1
        # The messages before the last one of the stream that it wants, when it began with the last of each.
        self.chosen = chosen
        self.chosen_to = max(chosen, default=0) if chosen is not None else 0
        self.pending: set[int] = set()
        self.settled: set[int] = set()
        self.given_up: set[int] = set()
        self.counts: dict[int, int] = {}
        self.deliveries = 0
        self.has_given_up = False

    def wants(self, seq: int, subject: bytes) -> bool:
        if self.chosen is not None and seq <= self.chosen_to and seq not in self.chosen:
            return False
        return not self.filters or subject in self.filters

    def fresh(self, messages: dict[int, bytes]) -> list[int]:
        return [
            seq
            for seq, subject in sorted(messages.items())
            if seq > self.reach and self.wants(seq, subject) and seq not in self.settled
        ]

    def needs(self, seq: int, subject: bytes) -> bool:
        if seq in self.settled or not self.wants(seq, subject):
            return False
        return seq > self.reach or seq in self.pending or seq in self.given_up

    def settle(self, kind: int, seqs: tuple[int, ...]) -> None:
        if kind == ACK_ALL:
            seqs = tuple(seq for seq in self.pending | self.given_up if seq <= max(seqs))
        for seq in seqs:
            if kind == GIVEN_UP:
                self.has_given_up = True
                if seq in self.pending:
                    self.given_up.add(seq)
            else:
                self.settled.add(seq)
                self.given_up.discard(seq)
                self.counts.pop(seq, None)
            self.pending.discard(seq)

    def forget_gone(self, messages: dict[int, bytes]) -> None:
        self.pending &= messages.keys()
        self.given_up &= messages.keys()
        self.counts = {seq: count for seq, count in self.counts.items() if seq in messages}


class ConsumerModel(RuleBasedStateMachine):
    @initialize(
        retention=st.sampled_from(["limits", "limits", "interest", "workqueue"]),
        messages_max=st.sampled_from([-1, -1, 12]),
        per_subject_max=st.sampled_from([-1, -1, 5]),
        consumers=st.lists(st.tuples(POLICIES, FILTERS, STARTS), min_size=1, max_size=2),
    )
    def begin(
        self,
        retention: str,
        messages_max: int,
        per_subject_max: int,
        consumers: list[tuple[str, list[str], str]],
    ) -> None:
        self.retention = retention
        self.config = {
            "retention": retention,
            "max_msgs": messages_max,
            "max_msgs_per_subject": per_subject_max,
        }
        self.now_ns = START_NS
        self.live = StreamMachine(MemoryLog(), self.config)
        self.consumers: dict[int, NaiveConsumer] = {}
        self.journal: list[Entry] = []
        # What was submitted and is not applied, and what the journal has not been told.
        self.applied = 0
        self.buffered: dict[int, deque[Dispatch]] = {}
        self.snapshot: tuple[int, bytes, MemoryLog] | None = None
        # What the oldest replay begins with: a crash makes of a snapshot what everything else follows from.
        self.origin: tuple[int, bytes, MemoryLog] | None = None
        self.sent: dict[int, list[int]] = {}
        self.publish(b"aab", True)
        for policy, filters, start in consumers:
            self.make(policy, filters, start)
        self.publish(b"abab", True)

    # --- the journal ---

    def submit(self, entry: Entry) -> None:
        self.journal.append(entry)

    def apply_to(self, count: int) -> None:
        for entry in self.journal[self.applied : count]:
            self.apply_one(self.live, entry)
            self.follow(entry)
        self.applied = count

    def apply_one(self, machine: StreamMachine, entry: Entry) -> None:
        if isinstance(entry, bytes):
            machine.append_run(START_NS, [(entry, None, -1, b"")], 0, 0, [0])
        else:
            machine.apply(commands.decode(commands.encode(entry)))

    def follow(self, entry: Entry) -> None:
        """Let the model do the same."""
        messages = self.messages()
        if isinstance(entry, Ack) and entry.consumer in self.consumers:
            self.consumers[entry.consumer].settle(entry.kind, entry.seqs)
        if isinstance(entry, commands.Purge):
            start = self.live.log.first_seq
            for consumer in self.consumers.values():
                consumer.reach = max(consumer.reach, start - 1)
        for consumer in self.consumers.values():
            consumer.forget_gone(messages)

    def messages(self) -> dict[int, bytes]:
        log, found = self.live.log, {}
        seq = log.next_matching((), log.first_seq)
        while seq is not None:
            message = log.get(seq)
            assert message is not None
            found[seq] = message.subject
            seq = log.next_matching((), seq + 1)
        return found

    def tell_journal(self, number: int | None = None) -> None:
        for each, dispatches in self.buffered.items():
            while dispatches and number in (None, each):
                self.submit(dispatches.popleft())

    # --- messages ---

    @rule(
        subjects=st.lists(st.sampled_from(b"ab"), min_size=1, max_size=6).map(bytes), is_applied=st.booleans()
    )
    def publish(self, subjects: bytes, is_applied: bool) -> None:
        self.journal += [bytes([subject]) for subject in subjects]
        if is_applied:
            self.apply_to(len(self.journal))

    @rule(
        how=st.sampled_from(["delete", "purge", "purge subject", "keep", "expire"]),
        places=st.lists(PLACES, min_size=1),
    )
    def take_away(self, how: str, places: list[int]) -> None:
        messages = sorted(self.messages())
        if not messages:
            return
        seqs = tuple(sorted({messages[place % len(messages)] for place in places}))
        if how == "delete":
            self.submit(commands.Delete(seqs[0], False))
        elif how == "expire":
            self.submit(commands.Expire(0, seqs))
        elif how != "purge subject":
            self.submit(commands.Purge(*((0, b"", 2) if how == "keep" else (seqs[0], b"", 0))))
        elif not any(one.filters for one in self.consumers.values()):
            # With filters it is they who decide how far consumers go; that has tests of its own.
            self.submit(commands.Purge(seqs[0], b"a", 0))

    # --- consumers ---

    @rule(policy=POLICIES, filters=FILTERS, start=STARTS, number=PLACES)
    def replace(self, policy: str, filters: list[str], start: str, number: int) -> None:
        if len(self.consumers) == 2:
            self.remove(number)
        if number % 2:
            self.make(policy, filters, start)

    def make(self, policy: str, filters: list[str], start: str) -> None:
        if len(self.consumers) >= 2:
            return
        self.apply_all()
        known = self.live.highest_consumer + 1
        if self.retention == "workqueue":
            taken = [one.filters for one in self.consumers.values()]
            policy, start, filters = "explicit", "all", ["b"] if [b"a"] in taken else ["a"]
        config = {"ack_policy": policy, "filter_subjects": filters, "deliver_policy": start}
        self.submit(commands.PutConsumer(known, f"c{known}", config))
        self.apply_to(len(self.journal))
        log, messages = self.live.log, self.messages()
        first, chosen = log.first_seq, None
        if start == "new":
            first = log.last_seq + 1
        elif start == "last_per_subject" and self.config["max_msgs_per_subject"] != 1:
            lasts = {subject: seq for seq, subject in sorted(messages.items())}
            chosen = {seq for subject, seq in lasts.items() if not filters or subject.decode() in filters}
            first = min(chosen, default=log.last_seq + 1)
        self.consumers[known] = NaiveConsumer(filters, policy, first, chosen)
        self.buffered[known] = deque()
        self.sent[known] = []

    def remove(self, number: int) -> None:
        known = self.pick(number)
        self.apply_all()
        self.submit(commands.RemoveConsumer(known))
        self.apply_to(len(self.journal))
        del self.consumers[known], self.buffered[known], self.sent[known]

    def pick(self, number: int) -> int:
        return sorted(self.consumers)[number % len(self.consumers)]

    def next_seqs(self, machine: ConsumerMachine, count: int) -> list[int]:
        """What a server hands out next."""
        log, found = self.live.log, []
        while machine.chosen and not log.has(machine.chosen[0]):
            machine.pass_over(machine.chosen[0])
        if machine.chosen:
            return [seq for seq in list(machine.chosen)[:count] if log.has(seq)]
        seq = log.next_matching(machine.filters, machine.next_seq)
        while seq is not None and len(found) < count:
            if not machine.is_settled(seq):
                found.append(seq)
            seq = log.next_matching(machine.filters, seq + 1)
        return found

    @precondition(lambda self: self.consumers)
    @rule(
        number=PLACES,
        count=st.integers(1, 5),
        is_told=st.booleans(),
        again=st.lists(PLACES, max_size=3),
        deleted=st.lists(PLACES, max_size=1),
        answers=st.lists(st.tuples(KINDS, st.lists(PLACES, min_size=1, max_size=4)), max_size=2),
    )
    def serve(
        self,
        number: int,
        count: int,
        is_told: bool,
        again: list[int],
        deleted: list[int],
        answers: list[tuple[int, list[int]]],
    ) -> None:
        """A turn of the server: messages go out, some for another time, and answers come in."""
        self.publish(b"abab"[: count % 5], True)
        self.hand_out(number, count, is_told)
        if again:
            self.hand_out_again(number, again)
        if deleted:
            self.take_away("delete", deleted)
        for kind, places in answers:
            self.answer(number, kind, places, is_told, not is_told)

    def hand_out(self, number: int, count: int, is_told: bool) -> None:
        known = self.pick(number)
        machine, naive = self.live.consumers[known], self.consumers[known]
        seqs = self.next_seqs(machine, count)
        assert seqs == naive.fresh(self.messages())[: len(seqs)]
        assert seqs or not naive.fresh(self.messages())
        if not seqs:
            return
        self.now_ns += 1
        first = machine.hand_out(seqs, self.now_ns)
        assert first == naive.deliveries + 1
        naive.deliveries += len(seqs)
        naive.reach = seqs[-1]
        if naive.policy != "none":
            naive.pending.update(seqs)
        self.sent[known] += seqs
        self.buffered[known].append(Dispatch(known, self.now_ns, tuple(seqs), first))
        if is_told:
            self.tell_journal(known)

    def hand_out_again(self, number: int, places: list[int]) -> None:
        known = self.pick(number)
        machine, naive = self.live.consumers[known], self.consumers[known]
        pending = list(machine.pending)
        seqs = list(dict.fromkeys(pending[place % len(pending)] for place in places if pending))
        if not seqs:
            return
        self.now_ns += 1
        first = machine.hand_out_again(seqs, self.now_ns)
        assert first == naive.deliveries + 1
        naive.deliveries += len(seqs)
        for seq in seqs:
            naive.counts[seq] = naive.counts.get(seq, 1) + 1
        self.buffered[known].append(Dispatch(known, self.now_ns, tuple(seqs), first))

    @precondition(lambda self: self.consumers)
    @rule(
        number=PLACES,
        kind=KINDS,
        places=st.lists(PLACES, min_size=1, max_size=4),
        is_told_first=st.booleans(),
        is_applied=st.booleans(),
    )
    def answer(
        self, number: int, kind: int, places: list[int], is_told_first: bool, is_applied: bool
    ) -> None:
        known = self.pick(number)
        machine, naive = self.live.consumers[known], self.consumers[known]
        held = machine.held()
        if not held or naive.policy == "none":
            return
        if naive.policy == "all":
            kind, places, is_told_first = ACK_ALL, places[:1], True
        if is_told_first or kind == GIVEN_UP:
            self.tell_journal(known)
        self.submit(Ack(known, kind, tuple(held[place % len(held)] for place in places)))
        if is_applied:
            self.apply_to(len(self.journal))

    # --- time passes, and crashes come ---

    @rule(count=st.integers(1, 20))
    def apply_some(self, count: int) -> None:
        self.apply_to(min(self.applied + count, len(self.journal)))

    def apply_all(self) -> None:
        self.tell_journal()
        self.apply_to(len(self.journal))
        self.check_all()

    @rule()
    def take_snapshot(self) -> None:
        packed = msgpack.packb(self.live.snapshot())
        log = self.live.log
        assert isinstance(log, MemoryLog)
        self.snapshot = self.applied, packed, copy.deepcopy(log)

    def replayed(self, is_from_snapshot: bool, end: int) -> StreamMachine:
        snapshot = self.snapshot if is_from_snapshot else self.origin
        if snapshot is not None:
            start, packed, log = snapshot
            machine = StreamMachine(copy.deepcopy(log), self.config)
            machine.restore(msgpack.unpackb(packed, strict_map_key=False))
        else:
            start, machine = 0, StreamMachine(MemoryLog(), self.config)
        for entry in self.journal[start:end]:
            self.apply_one(machine, entry)
        return machine

    @rule(is_from_snapshot=st.booleans(), is_in_order=st.booleans(), kept=st.integers(0, 10))
    def restart(self, is_from_snapshot: bool, is_in_order: bool, kept: int) -> None:
        if is_in_order:
            self.restart_in_order(is_from_snapshot)
        else:
            self.crash(is_from_snapshot, kept)

    def restart_in_order(self, is_from_snapshot: bool) -> None:
        self.apply_all()
        before, after = self.live, self.replayed(is_from_snapshot, len(self.journal))
        assert after.log.last_seq == before.log.last_seq
        messages = self.messages()
        for number, machine in before.consumers.items():
            again = after.consumers[number]
            assert (again.delivered, again.pending) == (machine.delivered, machine.pending)
            assert again.deliveries == machine.deliveries
            assert again.last_delivered_ns == machine.last_delivered_ns
            if not self.consumers[number].has_given_up:
                assert again.ack_floor.consumer_seq == machine.ack_floor.consumer_seq
        self.live = after
        assert self.messages() == messages

    def crash(self, is_from_snapshot: bool, kept: int) -> None:
        """What was submitted and not applied may be durable or not; what was not submitted is gone."""
        end = min(self.applied + kept, len(self.journal))
        for entry in self.journal[self.applied : end]:
            # What is durable counts, whether somebody was told or not.
            if isinstance(entry, Ack):
                self.consumers[entry.consumer].settle(entry.kind, entry.seqs)
        self.live = self.replayed(is_from_snapshot, end)
        if is_from_snapshot:
            self.origin = self.snapshot
        else:
            # It was damaged, else it would have been taken.
            self.snapshot = self.origin
        del self.journal[end:]
        self.applied = end
        messages = self.messages()
        for number, naive in self.consumers.items():
            self.buffered[number].clear()
            self.sent[number].clear()
            machine = self.live.consumers[number]
            # Nothing that is settled comes back, and nothing that is not is forgotten.
            for seq, subject in messages.items():
                if seq in naive.settled:
                    assert machine.is_settled(seq), (seq, machine.delivered, machine.pending)
                elif naive.wants(seq, subject) and naive.policy != "none":
                    was_known = seq in naive.pending or seq in naive.given_up or seq > naive.reach
                    assert not was_known or seq in machine.held() or seq >= machine.next_seq
            naive.pending = set(machine.pending)
            naive.given_up = set(machine.held()) - naive.pending
            naive.counts = dict(machine.deliveries)
            naive.deliveries, naive.reach = machine.delivered.consumer_seq, machine.next_seq - 1
            if machine.chosen:
                naive.reach = machine.chosen[0] - 1

    # --- what always holds ---

    @invariant()
    def figures_agree(self) -> None:
        for number, naive in getattr(self, "consumers", {}).items():
            machine = self.live.consumers[number]
            assert set(machine.pending) == naive.pending
            assert machine.delivered.consumer_seq == naive.deliveries
            assert {seq: machine.delivery_count(seq) for seq in naive.counts} == naive.counts
            floor = machine.ack_floor
            lowest = min(machine.pending.items(), default=None)
            if naive.has_given_up:
                # One that was given up holds the floor for a while.
                assert floor <= (
                    machine.delivered if lowest is None else (lowest[1].consumer_seq - 1, lowest[0])
                )
            elif lowest is None:
                assert floor == machine.delivered
            else:
                assert floor.consumer_seq == lowest[1].consumer_seq - 1
                assert floor.stream_seq < lowest[0]
            assert self.sent[number] == sorted(self.sent[number])
            assert list(machine.pending) == sorted(machine.pending)

    def check_all(self) -> None:
        """Nothing is under way: the stream holds exactly what it should."""
        messages = self.messages()
        if self.retention != "limits":
            for seq, subject in messages.items():
                is_needed = any(one.needs(seq, subject) for one in self.consumers.values())
                is_settled = any(seq in one.settled for one in self.consumers.values())
                if self.retention == "interest":
                    assert is_needed, seq
                assert is_needed or not is_settled, seq
        for number, naive in self.consumers.items():
            machine = self.live.consumers[number]
            for seq, subject in messages.items():
                if naive.needs(seq, subject):
                    assert machine.needs(seq), seq


TestConsumerModel = ConsumerModel.TestCase
TestConsumerModel.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)


def test_state_after_a_crash_is_never_ahead_of_what_was_sent() -> None:
    """The model can fail: a consumer that forgets what is pending is noticed."""
    model: Any = ConsumerModel()
    model.begin("limits", -1, -1, [("explicit", [], "all")])
    model.hand_out(0, 2, True)
    model.live.consumers[1].pending.clear()
    try:
        model.figures_agree()
    except AssertionError:
        return
    raise AssertionError("it was not noticed")
