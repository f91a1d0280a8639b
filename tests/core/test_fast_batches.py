"""Fast batches whose outcomes come late: clients see the same, and nothing is stored behind what was refused.

What is sent when outcomes come at once is compared with a real server in tests/jetstream.
"""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import fast_requests, headers
from edged.core.api_errors import (
    BATCH_PUBLISH_UNKNOWN_BATCH_ID,
    INSUFFICIENT_RESOURCES,
    STREAM_NOT_MATCH,
)
from edged.core.batch_limits import BatchLimits, OpenBatches
from edged.core.fast_batches import Acknowledge, Effect, FastBatches, Refuse, Send, Submit, may_be_refused
from edged.core.fast_requests import FastRequest

LIMITS = BatchLimits(api_level=5, idle_ns=10, staged_bytes_max=100)


class Stream:
    """A stream that takes its time: outcomes come when they are asked for."""

    def __init__(self, limits: BatchLimits = LIMITS) -> None:
        self.open = OpenBatches()
        self.batches = FastBatches(limits, self.open)
        self.waiting: deque[Submit] = deque()
        self.sent: list[Effect] = []
        self.stored: list[int] = []

    def send(self, step: str, kind: str = "", payload: bytes = b"", now_ns: int = 0) -> None:
        """`mode.place.operation` of the batch `a`; a kind of `bad` is refused, `same` was stored before."""
        reply = f"R.a.3.{step}.$FI".encode()
        body = kind.encode() + payload
        message = (b"x", reply, -1, body)
        self._take(
            self.batches.arrived(
                fast_requests.parse(reply), message, now_ns, refusable=kind in ("bad", "maybe")
            )
        )

    def settle(self, count: int = 1_000_000) -> None:
        """Let outcomes come, as long as there are any."""
        while self.waiting and count:
            count -= 1
            submit = self.waiting.popleft()
            kind = submit.message[3]
            if kind.startswith(b"bad"):
                self._take(self.batches.refused(submit, STREAM_NOT_MATCH))
            elif kind.startswith(b"same"):
                self._take(self.batches.duplicate(submit, 77))
            else:
                self.stored.append(submit.request.place)
                self._take(self.batches.stored(submit, len(self.stored)))

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Submit):
                self.waiting.append(effect)
            else:
                self.sent.append(effect)

    @property
    def ends(self) -> list[Effect]:
        return [effect for effect in self.sent if isinstance(effect, Acknowledge)]


def test_a_message_that_could_be_refused_holds_back_what_follows_when_gaps_end_the_batch() -> None:
    stream = Stream()
    stream.send("fail.1.0")
    stream.send("fail.2.1", "bad")
    stream.send("fail.3.1")
    stream.send("fail.4.3")
    assert [submit.request.place for submit in stream.waiting] == [1, 2]
    stream.settle()
    assert stream.stored == [1]
    assert stream.ends == [Acknowledge(b"R.a.3.fail.2.1.$FI", 1, b"a", 1)]
    # What was held is answered as it would be had it come later.
    assert stream.sent[-1] == Refuse(b"R.a.3.fail.3.1.$FI", BATCH_PUBLISH_UNKNOWN_BATCH_ID)
    assert (stream.open.fast, stream.open.staged_bytes) == (0, 0)


def test_what_was_held_follows_as_soon_as_the_outcome_is_known_to_be_good() -> None:
    stream = Stream()
    stream.send("fail.1.0", "maybe")
    for place in (2, 3):
        stream.send(f"fail.{place}.1", "" if place == 2 else "maybe")
    stream.send("fail.4.1")
    assert len(stream.waiting) == 1 and stream.open.staged_bytes == len("maybe")
    stream.settle(1)
    assert [submit.request.place for submit in stream.waiting] == [2, 3]
    stream.settle()
    assert stream.stored == [1, 2, 3, 4] and stream.ends == []


def test_nothing_is_held_when_gaps_are_allowed() -> None:
    stream = Stream()
    stream.send("ok.1.0", "bad")
    stream.send("ok.2.1")
    stream.send("ok.3.2")
    assert len(stream.waiting) == 3
    stream.settle()
    assert stream.stored == [2, 3]
    assert stream.ends == [Acknowledge(b"R.a.3.ok.3.2.$FI", 2, b"a", 3)]


def test_the_first_message_that_is_refused_is_answered_like_any_publish() -> None:
    stream = Stream()
    stream.send("fail.1.0", "bad")
    stream.send("fail.2.1")
    stream.settle()
    assert stream.sent[1:] == [
        Refuse(b"R.a.3.fail.1.0.$FI", STREAM_NOT_MATCH),
        Refuse(b"R.a.3.fail.2.1.$FI", BATCH_PUBLISH_UNKNOWN_BATCH_ID),
    ]
    assert len(stream.batches) == 0


def test_a_refusal_that_nobody_expected_ends_the_batch_before_it() -> None:
    """The disk is full, say: what was submitted behind may be stored, but is not part of the batch."""
    stream = Stream()
    for place in (1, 2, 3):
        stream.send(f"fail.{place}.{int(place > 1)}")
    stream.settle(1)
    broken = stream.waiting.popleft()
    stream._take(stream.batches.refused(broken, INSUFFICIENT_RESOURCES))
    assert stream.ends == []
    stream.settle()
    assert stream.stored == [1, 3]
    assert stream.ends == [Acknowledge(b"R.a.3.fail.2.1.$FI", 1, b"a", 1)]


def test_what_is_held_is_bounded_and_beyond_it_the_batch_ends() -> None:
    stream = Stream()
    stream.send("fail.1.0", "maybe")
    stream.send("fail.2.1", payload=bytes(60))
    stream.send("fail.3.1", payload=bytes(60))
    assert (
        isinstance(stream.sent[-1], Send) and b"%d" % INSUFFICIENT_RESOURCES.err_code in stream.sent[-1].body
    )
    stream.send("fail.4.1")
    stream.settle()
    assert stream.stored == [1, 2]
    assert stream.ends == [Acknowledge(b"R.a.3.fail.3.1.$FI", 2, b"a", 2)]
    assert stream.open.staged_bytes == 0


def test_a_batch_that_waits_for_the_disk_does_not_idle() -> None:
    stream = Stream()
    stream.send("fail.1.0")
    assert stream.batches.expired(10) == 0 and stream.batches.next_ns() == 20
    stream.settle()
    assert stream.batches.expired(20) == 1
    assert stream.open.fast == 0


def test_an_outcome_after_the_batch_is_gone_says_nothing() -> None:
    stream = Stream()
    stream.send("fail.1.0")
    stream.batches.close()
    sent = len(stream.sent)
    stream.settle()
    assert len(stream.sent) == sent and stream.open.fast == 0


def test_without_acks_the_first_flow_control_and_refusals_are_left_out() -> None:
    batches = FastBatches(LIMITS, OpenBatches())
    reply = b"R.a.3.fail.1.0.$FI"
    effects = batches.arrived(
        fast_requests.parse(reply), (b"x", reply, -1, b""), 0, refusable=False, acks=False
    )
    assert [type(effect) for effect in effects] == [Submit]
    assert batches.arrived(None, (b"x", reply, -1, b""), 0, refusable=False, acks=False) == []


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Messages of one batch, mostly in order, up to its end."""
    mode = draw(st.sampled_from(["ok", "fail"]))
    place, steps = 0, []
    for _ in range(draw(st.integers(1, 20))):
        place += draw(st.sampled_from([1, 1, 1, 1, 1, 1, 2]))
        kind = draw(st.sampled_from(["", "", "", "bad", "same", "maybe"]))
        steps.append((f"{mode}.{place}.{int(place > 1)}", kind))
    if place > 1 or draw(st.booleans()):
        steps.append((f"{mode}.{place + 1}.{draw(st.sampled_from([2, 3]))}", ""))
    return [step for step in steps if step != (f"{mode}.2.0", "")]


@given(scripts(), st.data())
def test_late_outcomes_change_neither_what_is_stored_nor_the_end(
    script: list[tuple[str, str]], data: st.DataObject
) -> None:
    at_once, late = Stream(), Stream()
    for step, kind in script:
        at_once.send(step, kind)
        at_once.settle()
        late.send(step, kind)
        late.settle(data.draw(st.integers(0, 3)))
    late.settle()
    assert late.stored == at_once.stored
    assert late.ends == at_once.ends
    told = [effect for effect in at_once.sent if isinstance(effect, Send) and b'"err"' in effect.body]
    assert [effect for effect in late.sent if isinstance(effect, Send) and b'"err"' in effect.body] == told
    for stream in (at_once, late):
        stream.batches.close()
        assert (stream.open.fast, stream.open.staged_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"in.box.id.100.ok.7.1.$FI", FastRequest(b"id", 7, 100, True, 1)),
        (b".id.0.fail.1.0.$FI", FastRequest(b"id", 1, 10, False, 0)),
        (b"x..99999999999999999999999.ok.1.2.$FI", FastRequest(b"", 1, 65535, True, 2)),
        (b"x.id.3.ok.18446744073709551614.1.$FI", FastRequest(b"id", 2**64 - 2, 3, True, 1)),
        (b"x.id.3.ok.18446744073709551615.1.$FI", None),
        (b"id.3.ok.1.0.$FI", None),
        (b"x.id.3.ok.1.3.$FI", None),
        (b"x.id.3.ok.2.0.$FI", None),
        (b"x.id.3.OK.1.0.$FI", None),
        (b"x.$FI", None),
    ],
)
def test_reply_subjects_are_read_from_their_end(reply: bytes, expected: FastRequest | None) -> None:
    assert fast_requests.is_fast(reply)
    assert fast_requests.parse(reply) == expected


def test_headers_of_ours_may_have_a_message_refused_and_an_id_or_own_headers_not() -> None:
    harmless = headers.encode([(b"Own", b"Nats-Rollup: x"), (b"Nats-Msg-Id", b"7")])
    assert not may_be_refused(harmless) and not may_be_refused(b"")
    assert may_be_refused(headers.adding(harmless, b"Nats-Expected-Stream", b"x"))
    assert may_be_refused(headers.encode([(b"Nats-Msg-Ids", b"x")]))


def test_only_the_suffix_makes_a_reply_subject_that_of_a_fast_batch() -> None:
    assert not any(map(fast_requests.is_fast, (b"", b".$FI", b"a.$FI.b", b"a.$fi", b"$FI")))
