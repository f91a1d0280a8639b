"""Who of a stream's consumers is told of what, who is removed, and what waits for the journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from edged.core.commands import Command, Dispatch
from edged.core.wire import Publish
from edged.server.jetstream.audience import FEW, SUBJECTS_MAX, Audience
from edged.server.jetstream.consumers import supply
from edged.server.jetstream.consumers.consumer import Consumer
from edged.server.jetstream.inactivity import LOOK_MAX_NS, LOOK_MIN_NS, Inactivity
from edged.store.batch import Done
from edged.store.errors import StoreFull
from tests.jetstream.virtual_server import SECOND_NS, Inbox, VirtualServer

NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.c"


@dataclass(eq=False)
class Listener:
    """A consumer, as far as it is asked here."""

    filters: tuple[bytes, ...] = ()
    inactive_threshold: int = 0
    inactive_since_ns: int | None = None

    @property
    def machine(self) -> Listener:
        return self

    @property
    def config(self) -> Listener:
        return self

    def __call__(self) -> Consumer:
        return cast(Consumer, self)


def message(subject: bytes) -> Publish:
    return subject, None, -1, b""


# --- who is told of messages ---


def audience_of(*listeners: Listener) -> Audience:
    audience = Audience()
    for number in range(FEW + 1):
        audience.put(Listener((b"other.%d" % number,))())
    for listener in listeners:
        audience.put(listener())
    return audience


def test_only_those_are_told_whose_filters_match() -> None:
    one, two, all_of_them = Listener((b"a.*", b"b.>")), Listener((b"a.x",)), Listener()
    audience = audience_of(one, two, all_of_them)
    assert set(audience.of([message(b"a.x")])) == {one, two, all_of_them}
    assert set(audience.of([message(b"b.x.y")])) == {one, all_of_them}
    assert set(audience.of([message(b"c"), message(b"other.1"), message(b"c")])) > {all_of_them}
    assert len(list(audience.of([message(b"c"), message(b"other.1"), message(b"a.x")]))) == 4
    assert len(list(audience.of(None))) == FEW + 4


def test_a_filter_that_changes_counts_at_once() -> None:
    one = Listener((b"a",))
    audience = audience_of(one)
    assert list(audience.of([message(b"a")])) == [one]
    one.filters = (b"b",)
    audience.put(one())
    assert list(audience.of([message(b"a")])) == []
    assert list(audience.of([message(b"b")])) == [one]
    audience.remove(one())
    assert list(audience.of([message(b"b")])) == []
    audience.clear()
    assert list(audience.of(None)) == []


def test_answers_for_many_subjects_are_right_and_not_all_kept() -> None:
    one = Listener((b"a.*.x",))
    audience = audience_of(one)
    for number in range(SUBJECTS_MAX + 10):
        assert list(audience.of([message(b"a.%d.x" % number)])) == [one]
    assert len(audience._known) <= SUBJECTS_MAX


# --- who is removed ---


def test_a_consumer_is_due_when_nobody_used_it_for_its_threshold() -> None:
    inactivity, one = Inactivity(), Listener(inactive_threshold=10 * SECOND_NS, inactive_since_ns=5)
    inactivity.watch(one(), 5)
    assert inactivity.take(10 * SECOND_NS) == []
    one.inactive_since_ns = 3 * SECOND_NS
    assert inactivity.take(10 * SECOND_NS + 5) == []
    assert inactivity.take(13 * SECOND_NS - 1) == []
    assert inactivity.take(13 * SECOND_NS) == [one]
    assert inactivity.take(100 * SECOND_NS) == []


@pytest.mark.parametrize("threshold_ns", [1, SECOND_NS, 8 * SECOND_NS, 3600 * SECOND_NS])
def test_one_that_is_in_use_is_looked_at_now_and_then(threshold_ns: int) -> None:
    inactivity, one = Inactivity(), Listener(inactive_threshold=threshold_ns)
    inactivity.watch(one(), 0)
    late_ns = min(max(threshold_ns // 4, LOOK_MIN_NS), LOOK_MAX_NS)
    assert inactivity.take(late_ns) == []
    one.inactive_since_ns = late_ns + 1
    assert inactivity.take(2 * late_ns) == ([one] if threshold_ns < late_ns else [])
    if threshold_ns >= late_ns:
        assert inactivity.take(late_ns + 1 + threshold_ns) == [one]


def test_one_without_a_threshold_or_that_is_gone_is_never_due() -> None:
    inactivity = Inactivity()
    plain, gone, changed = (Listener((), 1, 0) for _ in range(3))
    plain.inactive_threshold = 0
    for one in (plain, gone, changed):
        inactivity.watch(one(), 0)
    inactivity.forget(gone())
    changed.inactive_threshold = 50
    inactivity.watch(changed(), 0)
    assert inactivity.take(49) == []
    assert inactivity.take(50) == [changed]


def serve(**config: Any) -> tuple[VirtualServer, Inbox]:
    server = VirtualServer()
    server.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 60 * SECOND_NS, **config}
    server.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    return server, server.subscribe("to")


def test_an_unused_consumer_goes_soon_after_its_time() -> None:
    server, _ = serve(inactive_threshold=8 * SECOND_NS)
    server.publish(NEXT, b'{"batch":1,"expires":%d}' % (20 * SECOND_NS), "to")
    server.advance(19 * SECOND_NS)
    assert server.api("CONSUMER.NAMES.S")["consumers"] == ["c"]
    # A quarter of its threshold later at most, with the tick that follows.
    server.advance(int(3.25 * SECOND_NS))
    assert server.api("CONSUMER.NAMES.S")["consumers"] == []


# --- what waits for the journal ---


def test_a_consumer_waits_while_the_journal_has_not_taken_its_deliveries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supply, "UNTOLD_MAX", 3)
    monkeypatch.setattr(supply, "DISPATCHES_MAX", 1)
    server, inbox = serve()
    for _ in range(10):
        server.publish("s")
    server.is_disk_busy = True
    for _ in range(10):
        server.publish(NEXT, b'{"batch":1}', "to")
    assert len(inbox.take()) == 3
    server.is_disk_busy = False
    assert len(inbox.take()) == 7


@dataclass
class RefusingCommitter:
    """Keeps what is said of deliveries back until the test refuses it; all else passes."""

    inner: Any
    kept: list[tuple[Dispatch, Done]] = field(default_factory=list)

    def submit(self, group: int, command: Command, done: Done) -> None:
        if isinstance(command, Dispatch):
            self.kept.append((command, done))
        else:
            self.inner.submit(group, command, done)

    def refuse(self) -> list[int]:
        """Refuse what was said; by the numbers of the deliveries."""
        refused, self.kept = self.kept, []
        for _, done in refused:
            done(StoreFull("no room"))
        return [command.first_delivery_seq for command, _ in refused]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_deliveries_that_the_journal_refused_are_told_again_in_their_order() -> None:
    server, _ = serve()
    for _ in range(3):
        server.publish("s")
    committer = RefusingCommitter(server.jetstream.committer)
    server.jetstream.committer = cast(Any, committer)
    for _ in range(3):
        server.publish(NEXT, b'{"batch":1}', "to")
    server.advance(SECOND_NS)
    assert committer.refuse() == [1, 2, 3]
    server.advance(SECOND_NS)
    assert committer.refuse() == [1, 2, 3]
    server.jetstream.committer = committer.inner
    server.advance(SECOND_NS)
    server.crash()
    info = server.info("S", "c")
    assert (info["num_ack_pending"], info["delivered"]["consumer_seq"]) == (3, 3)
