"""Scheduled messages: when a message with `Nats-Schedule` fires, whether it is valid, what it produces.

A pattern is `@at <RFC 3339>`, `@every <duration>` of at least a second, `@yearly`, `@annually`, `@monthly`,
`@weekly`, `@daily`, `@midnight`, `@hourly`, or a cron pattern of six fields. Only cron patterns and their
names take a zone. The stored message stays on its subject, one per subject, and each firing publishes a
message to the target: a repeating schedule says there when it is next, another one has itself purged.

Rules: time is an argument; zones are looked up by the caller (`ZoneOf`), because their data are files. Texts
are compared as nats-server compares them: no blank behind a value is forgiven.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from edged.core import cron, gotime, header_edits, headers
from edged.core.api_errors import (
    MESSAGE_SCHEDULES_DISABLED,
    MESSAGE_SCHEDULES_PATTERN_INVALID,
    MESSAGE_SCHEDULES_ROLLUP_INVALID,
    MESSAGE_SCHEDULES_SCHEDULER_INVALID,
    MESSAGE_SCHEDULES_SOURCE_INVALID,
    MESSAGE_SCHEDULES_TARGET_INVALID,
    MESSAGE_SCHEDULES_TIME_ZONE_INVALID,
    MESSAGE_SCHEDULES_TTL_INVALID,
    MESSAGE_TTL_DISABLED,
    ApiError,
    ApiFailure,
)
from edged.core.subjects import overlaps, valid_literal

PATTERN: Final = b"Nats-Schedule"
TIME_ZONE: Final = b"Nats-Schedule-Time-Zone"
TARGET: Final = b"Nats-Schedule-Target"
SOURCE: Final = b"Nats-Schedule-Source"
SCHEDULE_TTL: Final = b"Nats-Schedule-TTL"
SCHEDULE_ROLLUP: Final = b"Nats-Schedule-Rollup"
SCHEDULER: Final = b"Nats-Scheduler"
NEXT: Final = b"Nats-Schedule-Next"
PURGE: Final = b"purge"

_ROLLUP: Final = b"Nats-Rollup"
_ROLLUP_SUBJECT: Final = b"sub"
_TTL: Final = b"Nats-TTL"
_MESSAGE_ID: Final = b"Nats-Msg-Id"
_EXPECTED_PREFIX: Final = b"Nats-Expected-"

_NAMED: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
# Go takes an hour of one digit and a comma before the fraction, but no small `t` and `z`.
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T)([0-9]{1,2})(:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# An instant that Go takes for "not set": a message scheduled for then is no scheduled message.
_ZERO_TIME_NS: Final = gotime.parse_rfc3339(gotime.ZERO_TIME)

# The zone of a name, None if there is no such zone. The same name must give the same answer to all who ask.
ZoneOf = Callable[[str], tzinfo | None]


@dataclass(frozen=True, slots=True)
class Firing:
    """When a schedule fires, in which zone that is told, and whether it does so again."""

    at_ns: int
    repeats: bool
    zone: tzinfo = UTC

    def text(self) -> bytes:
        """What `Nats-Schedule-Next` says."""
        offset = (_EPOCH + timedelta(seconds=self.at_ns // gotime.SECOND)).astimezone(self.zone).utcoffset()
        if not offset:
            return gotime.format_rfc3339(self.at_ns).encode()
        minutes = int(offset.total_seconds()) // 60
        local = gotime.format_rfc3339(self.at_ns + minutes * gotime.MINUTE).removesuffix("Z")
        sign = "-" if minutes < 0 else "+"
        return f"{local}{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}".encode()


@dataclass(frozen=True, slots=True)
class ScheduleRules:
    """What a stream allows, and how zones are found."""

    allowed: bool
    ttl_allowed: bool
    subjects: Sequence[bytes]
    zone_of: ZoneOf


@dataclass(frozen=True, slots=True)
class Produced:
    """The message that a firing publishes. It is stored without the checks made on what clients publish."""

    subject: bytes
    block: bytes
    payload: bytes


def next_firing(block: bytes, after_ns: int, now_ns: int, zone_of: ZoneOf) -> Firing | None:
    """When the message with this block fires first after `after_ns`; None when it is not scheduled.

    What was missed up to `now_ns` is skipped. ApiFailure when the pattern or its zone is not valid.
    """
    zone = _zone(block, zone_of)
    pattern = headers.value(block, PATTERN)
    if not pattern:
        return None
    try:
        firing = _firing(pattern.decode(), zone, after_ns, now_ns)
    except ValueError:
        raise ApiFailure(MESSAGE_SCHEDULES_PATTERN_INVALID) from None
    return firing if firing.at_ns != _ZERO_TIME_NS else None


def with_rollup(block: bytes) -> bytes:
    """The block of a schedule with `Nats-Rollup: sub`, so that it replaces the one before it.

    For streams that allow schedules only: elsewhere the added header could be what a message is refused for.
    """
    if headers.value(block, PATTERN) and not headers.value(block, _ROLLUP):
        return headers.adding(block, _ROLLUP, _ROLLUP_SUBJECT)
    return block


def refusal(
    subject: bytes,
    block: bytes,
    rules: ScheduleRules,
    now_ns: int,
    last_block: Callable[[bytes], bytes | None],
) -> ApiError | None:
    """Why a message must not be stored, judged by its schedule headers; None if nothing speaks against it.

    `subject` is the one it would be stored under; `last_block` gives the header block of a subject's last
    message, None when there is no message. What with_rollup() adds is taken as given.
    """
    try:
        firing = next_firing(block, now_ns, now_ns, rules.zone_of)
    except ApiFailure as failure:
        return failure.error if rules.allowed else MESSAGE_SCHEDULES_DISABLED
    error = _schedule_refusal(subject, block, rules) if firing is not None else None
    return error or _scheduler_refusal(subject, block, rules, last_block)


def has_known_zone(block: bytes, zone_of: ZoneOf) -> bool:
    """Whether the zone that a schedule names exists, if it names one."""
    try:
        _zone(block, zone_of)
    except ApiFailure:
        return False
    return True


def is_schedule(block: bytes) -> bool:
    """Whether a stored message has a pattern, valid or not."""
    return bool(headers.value(block, PATTERN))


def is_produced(block: bytes) -> bool:
    """Whether a stored message came from a schedule, or purged one."""
    return bool(headers.value(block, SCHEDULER))


def produced(
    subject: bytes, block: bytes, payload: bytes, firing: Firing, source: tuple[bytes, bytes] | None
) -> Produced | None:
    """What the schedule stored under `subject` publishes; None when its headers are not those of a schedule.

    `firing` is the one after this. `source` is the block and payload of the last message of the subject that
    source_of() names; without it the schedule's own are published.
    """
    target = headers.value(block, TARGET)
    ttl = headers.value(block, SCHEDULE_TTL)
    if not target or (ttl and not _valid_ttl(ttl)):
        return None
    rollup = headers.value(block, SCHEDULE_ROLLUP)
    kept, content = (block, payload) if source is None else source
    # `Nats-Scheduler` begins with the name of the pattern's header, too.
    kept = header_edits.removed_prefix(kept, PATTERN)
    kept = header_edits.removed_prefix(kept, _EXPECTED_PREFIX)
    kept = header_edits.removed(kept, _MESSAGE_ID, _TTL, _ROLLUP)
    kept = headers.adding(kept, SCHEDULER, subject)
    kept = headers.adding(kept, NEXT, firing.text() if firing.repeats else PURGE)
    if ttl:
        kept = headers.adding(kept, _TTL, ttl)
    if rollup:
        kept = headers.adding(kept, _ROLLUP, rollup)
    return Produced(target, kept, content)


def source_of(block: bytes) -> bytes | None:
    """The subject whose last message a schedule publishes instead of itself."""
    return headers.value(block, SOURCE) or None


def purged_schedule(block: bytes) -> bytes | None:
    """The subject that is purged when a message with this block has been stored: its schedule is over."""
    if headers.value(block, NEXT) != PURGE:
        return None
    return headers.value(block, SCHEDULER) or None


def announced(block: bytes) -> tuple[bytes, int] | None:
    """The schedule that a produced message belongs to and when it fires again, if it does."""
    text = headers.value(block, NEXT)
    scheduler = headers.value(block, SCHEDULER)
    if not text or text == PURGE or not scheduler:
        return None
    try:
        return scheduler, _parse_time(text.decode())
    except ValueError:
        return None


def _zone(block: bytes, zone_of: ZoneOf) -> tzinfo | None:
    text = headers.value(block, TIME_ZONE)
    if text is None:
        return None
    zone = None
    # A name must not leave the directory of zones, whoever looks it up.
    if text and b".." not in text and text[:1] not in (b"/", b"\\"):
        zone = zone_of(text.decode("utf-8", "replace"))
    if zone is None:
        raise ApiFailure(MESSAGE_SCHEDULES_TIME_ZONE_INVALID)
    return zone


def _firing(pattern: str, zone: tzinfo | None, after_ns: int, now_ns: int) -> Firing:
    kind, blank, rest = pattern.partition(" ")
    if blank and kind in ("@at", "@every"):
        if zone is not None:
            raise ValueError("only cron patterns have a zone")
        if kind == "@at":
            return Firing(_parse_time(rest), repeats=False)
        return Firing(_every(rest, after_ns, now_ns), repeats=True)
    fields = cron.parse(_NAMED.get(pattern, pattern))
    at_ns = fields.following(after_ns, zone or UTC)
    if at_ns is not None and at_ns < now_ns:
        at_ns = fields.following(_rounded(now_ns), zone or UTC)
    if at_ns is None:
        raise ValueError("the pattern does not fire within years")
    return Firing(at_ns, True, zone or UTC)


def _every(text: str, after_ns: int, now_ns: int) -> int:
    interval_ns = gotime.parse_duration_ns(text)
    if interval_ns < gotime.SECOND:
        raise ValueError("a schedule fires once a second at most")
    at_ns = _rounded(after_ns) + interval_ns
    return at_ns if at_ns >= now_ns else _rounded(now_ns) + interval_ns


def _rounded(ns: int) -> int:
    """To whole seconds; half a second goes up."""
    return (ns + gotime.SECOND // 2) // gotime.SECOND * gotime.SECOND


def _parse_time(text: str) -> int:
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError("not an RFC 3339 time")
    day, hour, rest, fraction, zone = found.groups()
    return gotime.parse_rfc3339(f"{day}{hour:0>2}{rest}.{(fraction or '0')[:9]}{zone}")


def _schedule_refusal(subject: bytes, block: bytes, rules: ScheduleRules) -> ApiError | None:
    """In the order in which nats-server looks."""
    ttl = headers.value(block, SCHEDULE_TTL)
    target = headers.value(block, TARGET) or b""
    source = headers.value(block, SOURCE)
    error: ApiError | None = None
    if not rules.allowed:
        error = MESSAGE_SCHEDULES_DISABLED
    elif ttl and not _valid_ttl(ttl):
        error = MESSAGE_SCHEDULES_TTL_INVALID
    elif headers.value(block, SCHEDULE_ROLLUP) not in (None, b"", _ROLLUP_SUBJECT):
        error = MESSAGE_SCHEDULES_ROLLUP_INVALID
    elif ttl and not rules.ttl_allowed:
        error = MESSAGE_TTL_DISABLED
    elif not valid_literal(target) or target == subject:
        error = MESSAGE_SCHEDULES_TARGET_INVALID
    elif source and (source in (target, subject) or not valid_literal(source)):
        error = MESSAGE_SCHEDULES_SOURCE_INVALID
    elif not _captured(target, rules.subjects):
        error = MESSAGE_SCHEDULES_TARGET_INVALID
    elif source and not _captured(source, rules.subjects):
        error = MESSAGE_SCHEDULES_SOURCE_INVALID
    elif (headers.value(block, _ROLLUP) or _ROLLUP_SUBJECT).lower() != _ROLLUP_SUBJECT:
        error = MESSAGE_SCHEDULES_ROLLUP_INVALID
    return error


def _scheduler_refusal(
    subject: bytes, block: bytes, rules: ScheduleRules, last_block: Callable[[bytes], bytes | None]
) -> ApiError | None:
    """Clients may use the headers of produced messages for one thing: to purge a schedule."""
    step = headers.value(block, NEXT)
    scheduler = headers.value(block, SCHEDULER)
    if not step:
        return MESSAGE_SCHEDULES_SCHEDULER_INVALID if scheduler else None
    if step != PURGE or not scheduler or scheduler == subject or not valid_literal(scheduler):
        return MESSAGE_SCHEDULES_SCHEDULER_INVALID
    if not rules.allowed:
        return MESSAGE_SCHEDULES_DISABLED
    last = last_block(scheduler)
    # A schedule that is not there, or no longer, is no mistake.
    return MESSAGE_SCHEDULES_SCHEDULER_INVALID if last is not None and not is_schedule(last) else None


def _captured(subject: bytes, patterns: Sequence[bytes]) -> bool:
    return any(overlaps(pattern, subject) for pattern in patterns)


def _valid_ttl(text: bytes) -> bool:
    """Whether a TTL is `never`, a duration of at least a second, or a number of seconds."""
    if text.lower() == b"never":
        return True
    try:
        return gotime.parse_duration_ns(text.decode()) >= gotime.SECOND
    except ValueError:
        return text.isdigit()
