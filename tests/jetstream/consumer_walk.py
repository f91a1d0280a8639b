"""Walks at random: clients of a server publish, pull, acknowledge, send back and wait, and it ends at times.

After every step all that the server delivered, and all figures that it shows, are those of consumer_model.py.
`python -m tests.jetstream.consumer_walk --steps 1000000 --seed 7` goes on for longer.

Rules: a walk follows from its seed. After a crash the server may have forgotten what it delivered in the last
quarter of a second, and nothing else; the model goes on from what it says.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from typing import Any, Final

from edged.server.jetstream.consumers.acks import GATHER_NS
from tests.jetstream.consumer_model import Entry, NaiveConsumer, NaiveStream, Request, Terms
from tests.jetstream.virtual_server import VirtualServer

SECOND_NS: Final = 10**9
SLOTS: Final = 3
PULLED_MAX: Final = 12
WALK_STEPS: Final = 1000
BACKLOG_MAX: Final = 30
TICK_NS: Final = SECOND_NS // 4
ACTIONS: Final = {
    "publish": 24,
    "pull": 22,
    "ack": 26,
    "ack plainly": 6,
    "term": 3,
    "nak": 5,
    "nak later": 4,
    "progress": 5,
    "wait": 14,
    "wait long": 2,
    "disk": 4,
    "restart": 0.6,
    "crash": 0.8,
}


class Broken(AssertionError):  # noqa: N818 - says what happened
    """The server did other than the model; the text says in which walk."""


class Walk:
    """One server and its model; `steps` counts what was done."""

    def __init__(self, seed: int, stream: NaiveStream | None = None) -> None:
        self.seed = seed
        self.steps = 0
        self.counts: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self.server = VirtualServer(seed)
        self.stream = stream or self._draw_stream()
        self._acks = self.server.subscribe("done.*")
        self._create()
        self._slots = {
            (place, slot): self.server.subscribe(f"to.{place}.{slot}")
            for place in range(len(self.stream.consumers))
            for slot in range(SLOTS)
        }
        # By consumer: the subjects that acknowledge what was delivered last of each message.
        self._replies: list[dict[int, bytes]] = [{} for _ in self.stream.consumers]
        # What waits for the disk: the consumer and seq of an acknowledgement, or the subject of a message.
        self._kept: list[tuple[NaiveConsumer, int] | str] = []
        # What was durable of each consumer when something of it last reached the journal.
        self._durable: list[dict[int, int]] = [{} for _ in self.stream.consumers]

    def _draw_stream(self) -> NaiveStream:
        chance = self._chance
        retention = chance.choice(["limits", "limits", "workqueue", "interest"])
        subjects = ["a", "b"] if retention == "workqueue" else ["", chance.choice(["", "a"])]
        policies = {"limits": ["explicit", "explicit", "all", "none"], "interest": ["explicit", "all"]}
        consumers = []
        for place, subject in enumerate(subjects[: chance.choice([1, 2, 2])]):
            backoff = chance.choice([(), (), (SECOND_NS // 2, SECOND_NS, 3 * SECOND_NS)])
            policy = chance.choice(policies.get(retention, ["explicit"]))
            terms = Terms(
                f"c{place}",
                subject,
                policy,
                backoff[0] if backoff else chance.choice([SECOND_NS // 2, SECOND_NS]),
                () if policy == "none" else backoff,
                -1 if policy == "none" else chance.choice([-1, -1, 4]),
                chance.choice([-1, 4, 12]),
            )
            consumers.append(NaiveConsumer(terms))
        messages_max = chance.choice([-1, -1, 25]) if retention == "limits" else -1
        return NaiveStream(retention, messages_max, consumers)

    def _create(self) -> None:
        stream = self.stream
        config = {"name": "S", "subjects": ["s.*"], "retention": stream.retention}
        self.server.api("STREAM.CREATE.S", {**config, "max_msgs": stream.messages_max})
        for consumer in stream.consumers:
            terms = consumer.terms
            wanted: dict[str, Any] = {
                "durable_name": terms.name,
                "ack_policy": terms.ack_policy,
                "max_deliver": terms.deliver_max,
                "max_ack_pending": terms.ack_pending_max,
            }
            if terms.backoff_ns:
                wanted["backoff"] = terms.backoff_ns
            elif terms.ack_policy != "none":
                wanted["ack_wait"] = terms.ack_wait_ns
            if terms.subject:
                wanted["filter_subject"] = f"s.{terms.subject}"
            request = {"stream_name": "S", "config": wanted}
            self.server.api(f"CONSUMER.DURABLE.CREATE.S.{terms.name}", request)

    # --- steps ---

    def run(self, steps: int) -> None:
        """So many steps, and then everything is worked off. Raises Broken."""
        names, weights = list(ACTIONS), list(ACTIONS.values())
        done = ""
        try:
            for done in self._chance.choices(names, weights, k=steps):
                self.step(done)
            done = "work off"
            self._work_off()
        except AssertionError as error:
            raise Broken(f"walk {self.seed}, step {self.steps} ({done}): {error}") from error

    def step(self, name: str) -> None:
        """Do one thing, and compare. Raises AssertionError."""
        self.steps += 1
        self.counts[name] += 1
        getattr(self, "_" + name.replace(" ", "_"))()
        self.compare()

    def _publish(self) -> None:
        for _ in range(self._chance.choice([1, 1, 2, 5]) if self._backlog() < BACKLOG_MAX else 0):
            subject = self._subject()
            self.server.publish(f"s.{subject}", b"x", reply="done.publish")
            self._kept.append(subject)
            self._apply_kept()

    def _backlog(self) -> int:
        """How many messages the slowest consumer has before it, and those that wait for the disk."""
        slowest = min(one.reach for one in self.stream.consumers)
        return self.stream.last_seq - slowest + len(self._kept)

    def _subject(self) -> str:
        """Mostly one that somebody wants: what nobody wants stays in a queue for ever."""
        wanted = [one for one in "ab" if self._is_wanted(one)]
        return self._chance.choice("ab" if self._chance.random() < 0.02 else wanted)

    def _pull(self) -> None:
        place, consumer = self._consumer()
        slot, count = self._chance.randrange(SLOTS), self._chance.randrange(1, PULLED_MAX)
        expires_ns = self._chance.choice([SECOND_NS // 10, 2 * SECOND_NS, 60 * SECOND_NS])
        body = b'{"batch":%d,"expires":%d}' % (count, expires_ns)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer.terms.name}"
        self.server.publish(subject, body, reply=f"to.{place}.{slot}")
        consumer.requests.append(Request(slot, count, self.server.now_ns + expires_ns))
        self.stream.serve(self.server.now_ns)

    def _ack(self) -> None:
        self._settle(b"+ACK")

    def _ack_plainly(self) -> None:
        """Nobody waits for a confirmation, so the server gathers some; soon it has told the journal."""
        place, consumer, seq = self._message()
        if seq and not self.server.is_disk_busy and consumer.terms.ack_policy == "explicit":
            is_known = seq <= consumer.reach
            self.server.publish(self._replies[place][seq], b"")
            if is_known:
                consumer.announce(seq)
                self.stream.serve(self.server.now_ns)
                consumer.settle(seq)
                self.stream.clean()
                self.stream.serve(self.server.now_ns)
            self._pass(GATHER_NS)

    def _term(self) -> None:
        self._settle(b"+TERM")

    def _settle(self, said: bytes) -> None:
        for _ in range(self._chance.choice([1, 2, 3])):
            place, consumer, seq = self._message()
            if seq:
                # Of a delivery that a crash has made undone nobody knows any more.
                is_known = consumer.terms.ack_policy != "none" and seq <= consumer.reach
                self.server.publish(self._replies[place][seq], said, reply="done.ack")
                if is_known:
                    self._settle_one(place, consumer, seq, said)
                is_confirmed = bool(self._acks.take())
                assert is_confirmed or self.server.is_disk_busy or not is_known, "there is no confirmation"

    def _settle_one(self, place: int, consumer: NaiveConsumer, seq: int, said: bytes) -> None:
        counts = {one: entry.count for one, entry in consumer.pending.items()}
        is_news = bool(consumer.settled_by(seq)) and not self.server.is_disk_busy
        self._kept.append((consumer, seq))
        if said == b"+ACK":
            consumer.announce(seq)
            self.stream.serve(self.server.now_ns)
        self._apply_kept()
        if is_news:
            # What was delivered before it is in the journal before it.
            self._durable[place] = counts

    def _nak(self) -> None:
        place, consumer, seq = self._message()
        if seq and self._may_be_said(consumer, seq):
            self.server.publish(self._replies[place][seq], b"-NAK")
            consumer.send_back(seq, None, self.server.now_ns)
            self.stream.serve(self.server.now_ns)

    def _nak_later(self) -> None:
        place, consumer, seq = self._message()
        if seq and self._may_be_said(consumer, seq):
            delay_ns = self._chance.choice([1, SECOND_NS // 3, 2 * SECOND_NS])
            self.server.publish(self._replies[place][seq], b'-NAK {"delay": %d}' % delay_ns)
            consumer.send_back(seq, delay_ns, self.server.now_ns)
            self.stream.serve(self.server.now_ns)

    def _progress(self) -> None:
        place, consumer, seq = self._message()
        if seq:
            self.server.publish(self._replies[place][seq], b"+WPI")
            consumer.work_on(seq, self.server.now_ns)

    def _wait(self) -> None:
        self._pass(self._chance.choice([1, SECOND_NS // 20, SECOND_NS // 3, SECOND_NS]))

    def _wait_long(self) -> None:
        self._pass(self._chance.choice([2, 4, 10]) * SECOND_NS)

    def _pass(self, passed_ns: int) -> None:
        now_ns = self.server.now_ns
        self.server.advance(passed_ns)
        self.stream.advance(now_ns, now_ns + passed_ns)
        for place, consumer in enumerate(self.stream.consumers):
            for seq, entry in consumer.pending.items():
                if entry.sent_ns + TICK_NS <= self.server.now_ns and not self.server.is_disk_busy:
                    self._durable[place][seq] = entry.count

    def _disk(self) -> None:
        """The disk is slow for some steps, or no more."""
        is_giving_up = any(one.terms.deliver_max > 0 for one in self.stream.consumers)
        self.server.is_disk_busy = not self.server.is_disk_busy and not is_giving_up
        self._apply_kept()
        self._acks.take()

    def _restart(self) -> None:
        self.server.restart()
        for consumer in self.stream.consumers:
            consumer.requests.clear()
        self._apply_kept()
        self._begin_life()

    def _crash(self) -> None:
        # What waits for the disk is lost. Nobody was told otherwise.
        self._kept.clear()
        self.server.crash()
        for place, consumer in enumerate(self.stream.consumers):
            self._adopt(place, consumer)
        self._begin_life()

    def _begin_life(self) -> None:
        self._acks.take()
        for consumer in self.stream.consumers:
            consumer.begin_life(self.server.now_ns)
        self.stream.clean()
        self._note_durable()

    # --- the model ---

    def _apply_kept(self) -> None:
        """Let the model have what the disk has taken."""
        if self.server.is_disk_busy:
            return
        kept, self._kept = self._kept, []
        for one in kept:
            if isinstance(one, str):
                self.stream.store(one)
            else:
                consumer, seq = one
                consumer.settle(seq)
        self.stream.clean()
        self.stream.serve(self.server.now_ns)

    def _note_durable(self) -> None:
        """All deliveries are in the journal."""
        for place, consumer in enumerate(self.stream.consumers):
            self._durable[place] = {seq: entry.count for seq, entry in consumer.pending.items()}

    def _adopt(self, place: int, consumer: NaiveConsumer) -> None:
        """See that what a crash left is right, and go on with it."""
        machine = self.server.consumer("S", consumer.terms.name).machine
        assert machine.delivered.stream_seq <= consumer.reach, "it went on"
        assert machine.delivered.consumer_seq <= consumer.deliveries, "it delivered more"
        for seq, subject in self.stream.messages.items():
            is_held = seq in machine.held() or seq >= machine.next_seq
            if consumer.wants(subject) and consumer.terms.ack_policy != "none":
                assert is_held != (seq in consumer.settled), f"{seq} is settled, or open, and was not"
        for seq, count in self._durable[place].items():
            if seq in consumer.pending:
                assert count <= machine.delivery_count(seq) <= consumer.pending[seq].count, f"counts of {seq}"
        consumer.reach, consumer.deliveries = machine.delivered.stream_seq, machine.delivered.consumer_seq
        consumer.given_up = set(machine.held()) - set(machine.pending)
        consumer.pending = {
            seq: Entry(entry.consumer_seq, machine.delivery_count(seq), entry.ts_ns, 0)
            for seq, entry in machine.pending.items()
        }

    def _consumer(self) -> tuple[int, NaiveConsumer]:
        place = self._chance.randrange(len(self.stream.consumers))
        return place, self.stream.consumers[place]

    def _message(self) -> tuple[int, NaiveConsumer, int]:
        """One that was delivered, mostly one that waits; 0 if there is none."""
        place, consumer = self._consumer()
        replies = self._replies[place]
        waiting = [seq for seq in consumer.pending if seq in replies]
        known = waiting if waiting and self._chance.random() < 0.9 else list(replies)
        return place, consumer, self._chance.choice(known) if known else 0

    def _may_be_said(self, consumer: NaiveConsumer, seq: int) -> bool:
        """Whether it is of this life: deliveries that a crash has made undone are not known any more."""
        place = self.stream.consumers.index(consumer)
        return int(self._replies[place][seq].split(b".")[6]) <= consumer.deliveries

    # --- comparing ---

    def compare(self) -> None:
        """What was delivered since, and all figures, are those of the model. Raises AssertionError."""
        for place, consumer in enumerate(self.stream.consumers):
            sent = []
            for slot in range(SLOTS):
                arrived = self._slots[place, slot].take()
                replies = [reply for _, reply, _, _ in arrived if reply is not None]
                assert len(replies) == consumer.slots.get(slot, 0), f"{consumer.terms.name}: shares"
                for reply in replies:
                    words = reply.split(b".")
                    sent.append((int(words[5]), int(words[4]), int(words[6])))
                    self._replies[place][int(words[5])] = reply
            sent.sort(key=lambda delivery: delivery[2])
            assert sent == consumer.sent, f"{consumer.terms.name}: {sent} != {consumer.sent}"
            consumer.sent.clear()
            consumer.slots.clear()
            self._compare_figures(consumer)

    def _compare_figures(self, consumer: NaiveConsumer) -> None:
        info = self.server.info("S", consumer.terms.name)
        floor = info["ack_floor"]
        shown = (
            (info["delivered"]["consumer_seq"], info["delivered"]["stream_seq"]),
            (info["num_ack_pending"], info["num_redelivered"]),
            (info["num_waiting"], info["num_pending"]),
        )
        wanted = (
            (consumer.deliveries, consumer.reach),
            (consumer.ack_pending, consumer.redelivered),
            (len(consumer.requests), len(consumer.fresh(self.stream.messages))),
        )
        assert shown == wanted, f"{consumer.terms.name}: {shown} != {wanted}"
        if not consumer.has_given_up:
            assert floor["consumer_seq"] == consumer.floor_consumer_seq, (floor, consumer.floor_consumer_seq)
        lowest = min(consumer.pending, default=consumer.reach + 1)
        assert floor["stream_seq"] < lowest, (floor, lowest)
        assert consumer.pending or consumer.has_given_up or floor["stream_seq"] == consumer.reach, floor

    def _work_off(self) -> None:
        """Everything that is open is delivered until somebody acknowledges it."""
        if self.server.is_disk_busy:
            self.step("disk")
        for place, consumer in enumerate(self.stream.consumers):
            while consumer.pending or consumer.fresh(self.stream.messages):
                if not consumer.requests:
                    subject = f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer.terms.name}"
                    self.server.publish(subject, b'{"batch":20}', reply=f"to.{place}.0")
                    consumer.requests.append(Request(0, 20, 2**62))
                    self.stream.serve(self.server.now_ns)
                    self.compare()
                for seq in list(consumer.pending):
                    if seq in self._replies[place]:
                        self.server.publish(self._replies[place][seq], b"+ACK", reply="done.ack")
                        self._kept.append((consumer, seq))
                        self._apply_kept()
                        self.compare()
                self.step("wait long")
        if self.stream.retention == "workqueue":
            open_seqs = {seq for one in self.stream.consumers for seq in one.given_up}
            unwanted = [one for one in self.stream.messages.values() if not self._is_wanted(one)]
            assert len(self.stream.messages) == len(open_seqs) + len(unwanted)

    def _is_wanted(self, subject: str) -> bool:
        return any(one.wants(subject) for one in self.stream.consumers)


def walks(seed: int, steps: int) -> Counter[str]:
    """Walk after walk, so many steps in all; how often each was done. Raises Broken."""
    counts: Counter[str] = Counter()
    while counts.total() < steps:
        walk = Walk(seed)
        walk.run(min(WALK_STEPS, steps - counts.total()))
        counts += walk.counts
        seed += 1
    return counts


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.jetstream.consumer_walk", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts = walks(options.seed, options.steps)
    print(f"steps={counts.total()} {dict(counts)}")


if __name__ == "__main__":
    main()
