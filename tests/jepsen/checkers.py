"""Judges a history: what was acknowledged is there, once, in its place, and the same through all nodes.

Rules: pure functions from a history to findings; no finding means that nothing was seen that must not be. A
log with unique ids and the seqs that clients were told needs no search: every check is a sort or a set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final

from tests.jepsen.history import Finding, History, Publish, Reading, Stored

_EXAMPLES_MAX: Final = 3


def judge(history: History) -> list[Finding]:
    """All findings."""
    return [finding for check in CHECKS for finding in check(history)]


def lost(history: History) -> Iterator[Finding]:
    """Acknowledged and not read, through some node or through any."""
    if history.acknowledged and not history.readings:
        yield Finding("lost", f"all {len(history.acknowledged)} acknowledged: nothing could be read")
    for reading in history.readings:
        read = {message.message_id for message in reading.messages}
        missing = [publish for publish in history.acknowledged if publish.message_id not in read]
        if missing:
            where = _whereabouts(missing, history.acknowledged)
            of = f"{len(missing)} of {len(history.acknowledged)} acknowledged"
            yield Finding("lost", f"{_through(reading)}: {of} ({where}), such as {_some(missing)}")


def unexpected(history: History) -> Iterator[Finding]:
    """Read, and never sent; or with other bytes than were sent."""
    sent = {publish.message_id for publish in history.publishes}
    for reading in history.readings:
        foreign = [message for message in reading.messages if message.message_id not in sent]
        if foreign:
            yield Finding("unexpected", f"{_through(reading)}: {len(foreign)}, such as {_some(foreign)}")
        broken = [message for message in reading.messages if not message.is_intact]
        if broken:
            yield Finding("content", f"{_through(reading)}: {len(broken)}, such as {_some(broken)}")


def repeated(history: History) -> Iterator[Finding]:
    """A seq given to two, an id stored twice, a message that came twice."""
    given: dict[int, Publish] = {}
    shared: list[Publish] = []
    for publish in history.acknowledged:
        assert publish.seq is not None
        other = given.setdefault(publish.seq, publish)
        if other is not publish:
            shared.append(publish)
    if shared:
        yield Finding("seq twice", f"{len(shared)} were given to two messages, such as {_some(shared)}")
    for reading in history.readings:
        for what, keys in (
            ("id twice", [message.message_id for message in reading.messages]),
            ("seq twice", [str(message.seq) for message in reading.messages]),
        ):
            again = [key for key, count in Counter(keys).items() if count > 1]
            if again:
                yield Finding(what, f"{_through(reading)}: {len(again)}, such as {again[:_EXAMPLES_MAX]}")


def misplaced(history: History) -> Iterator[Finding]:
    """An acknowledged message that has another seq than its client was told, or came out of order."""
    for reading in history.readings:
        places = {message.message_id: message.seq for message in reading.messages}
        wrong = [
            publish
            for publish in history.acknowledged
            if places.get(publish.message_id, publish.seq) != publish.seq
        ]
        if wrong:
            yield Finding("misplaced", f"{_through(reading)}: {len(wrong)}, such as {_some(wrong)}")
        seqs = [message.seq for message in reading.messages]
        if any(later <= earlier for earlier, later in pairwise(seqs)):
            yield Finding("order", f"{_through(reading)}: seqs do not rise")


def divergent(history: History) -> Iterator[Finding]:
    """Two nodes tell different stories."""
    if not history.readings:
        return
    first = history.readings[0]
    story = {(message.seq, message.message_id) for message in first.messages}
    for reading in history.readings[1:]:
        other = {(message.seq, message.message_id) for message in reading.messages}
        if other != story:
            yield Finding(
                "divergence",
                f"{_through(first)} has {len(story - other)} that {_through(reading)} has not, "
                f"and not {len(other - story)} that it has",
            )


def disordered(history: History) -> Iterator[Finding]:
    """Acknowledged before another one was sent, and behind it in the stream."""
    last_invoked: Publish | None = None
    wrong = 0
    example = ""
    for publish in sorted(history.acknowledged, key=lambda one: (one.seq, one.invoked_s)):
        assert publish.completed_s is not None
        if last_invoked is not None and publish.completed_s < last_invoked.invoked_s:
            wrong += 1
            example = (
                f"{publish.message_id} has {publish.seq}, and was acknowledged before "
                f"{last_invoked.message_id} was sent, which has {last_invoked.seq}"
            )
        if last_invoked is None or publish.invoked_s > last_invoked.invoked_s:
            last_invoked = publish
    if wrong:
        yield Finding("real-time order", f"{wrong}, such as: {example}")


def forgotten(history: History) -> Iterator[Finding]:
    """A confirmed acknowledgement that the consumer does not know any more, or a message it never gave."""
    consumption = history.consumption
    again = {
        delivery.seq
        for delivery in consumption.deliveries
        if consumption.confirmed.get(delivery.seq, delivery.asked_s) < delivery.asked_s
    }
    if again:
        examples = sorted(again)[:_EXAMPLES_MAX]
        yield Finding("ack forgotten", f"{len(again)} confirmed came again, such as {examples}")
    if not consumption.is_drained:
        return
    known = {delivery.seq for delivery in consumption.deliveries}
    known |= set(consumption.confirmed) | consumption.said
    never = {publish.seq for publish in history.acknowledged if publish.seq is not None} - known
    if never:
        examples = sorted(never)[:_EXAMPLES_MAX]
        yield Finding("never delivered", f"{len(never)} acknowledged publishes, such as {examples}")


def unusable(history: History) -> Iterator[Finding]:
    """What did not work although all faults had ended."""
    for node, what in history.unusable.items():
        yield Finding("unusable", f"{node}: {what}")


CHECKS: Final[tuple[Callable[[History], Iterator[Finding]], ...]] = (
    lost,
    unexpected,
    repeated,
    misplaced,
    divergent,
    disordered,
    forgotten,
    unusable,
)


def _through(reading: Reading) -> str:
    return f"{reading.node} by {reading.way}"


def _some(items: Iterable[Publish | Stored]) -> list[str]:
    return [f"{item.message_id}@{item.seq}" for item in items][:_EXAMPLES_MAX]


def _whereabouts(missing: list[Publish], acknowledged: list[Publish]) -> str:
    """At the beginning of what a publisher had acknowledged, in the middle, or at its end.

    The middle is the worst: later messages of the same publisher were read.
    """
    gone = {(publish.publisher, publish.number) for publish in missing}
    kept: dict[int, list[int]] = {}
    for publish in acknowledged:
        if (publish.publisher, publish.number) not in gone:
            kept.setdefault(publish.publisher, []).append(publish.number)
    places: Counter[str] = Counter()
    for publish in missing:
        numbers = kept.get(publish.publisher)
        if not numbers:
            places["all of a publisher"] += 1
        elif publish.number < min(numbers):
            places["at the beginning"] += 1
        elif publish.number > max(numbers):
            places["at the end"] += 1
        else:
            places["in the middle"] += 1
    return ", ".join(f"{count} {place}" for place, count in places.most_common())
