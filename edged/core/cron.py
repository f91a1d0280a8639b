"""Cron patterns with six fields: second, minute, hour, day of month, month, day of week.

A field is a list of parts between commas; a part is `*`, `?`, a number or a name, or a range `a-b`, and may
have a step: `*/5`, `10-40/10`; `7/2` means from 7 to the end. Months and weekdays have English names of three
letters in any case; Sunday is 0. When both day fields are restricted, a day that fits one of them fits.

Rules: the zone and the time are arguments. A time that a clock change skips does not fire that day, one that
it repeats fires twice, as nats-server has it.
Invariant: following(...) is later than `after_ns`, a whole second, and the earliest such time that fits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

SECOND_NS: Final = 1_000_000_000
FIELDS: Final = 6
# A pattern that does not fire within so many years is refused: 30 February, say.
YEARS_MAX: Final = 5

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NUMBER = re.compile(r"\+?[0-9]{1,18}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The values a field may have, and their names."""

    first: int
    last: int
    names: dict[str, int]


_BOUNDS: Final = (
    _Bounds(0, 59, {}),
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Bounds(0, 6, {name: number for number, name in enumerate(_WEEKDAYS)}),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed pattern: which values fit, per field. There are days, hours, minutes and seconds that fit."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    month_days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    # One of the day fields allows all days and says so, so the other one alone decides.
    either_day_free: bool

    def following(self, after_ns: int, zone: tzinfo = UTC) -> int | None:
        """The first time after `after_ns` that fits, in ns since the epoch; None if it is years away."""
        moment = _EPOCH + timedelta(seconds=after_ns // SECOND_NS + 1)
        year_max = moment.astimezone(zone).year + YEARS_MAX
        while True:
            local = moment.astimezone(zone)
            if local.year > year_max:
                return None
            skipped = self._skipped(local, zone)
            if skipped is None:
                since = moment - _EPOCH
                return (since.days * 86_400 + since.seconds) * SECOND_NS
            moment = skipped

    def _skipped(self, local: datetime, zone: tzinfo) -> datetime | None:
        """The earliest moment that could still fit when this one does not; None when it does."""
        if local.month not in self.months:
            return _midnight(local.year + local.month // 12, local.month % 12 + 1, 1, zone)
        if not self._fits_day(local):
            tomorrow = local.date() + timedelta(days=1)
            return _midnight(tomorrow.year, tomorrow.month, tomorrow.day, zone)
        # From here on real time passes: an hour of the clock that is repeated is looked at twice.
        moment = local.astimezone(UTC)
        if local.hour not in self.hours:
            return moment + timedelta(seconds=3600 - local.minute * 60 - local.second)
        if local.minute not in self.minutes:
            return moment + timedelta(seconds=60 - local.second)
        if local.second not in self.seconds:
            return moment + timedelta(seconds=1)
        return None

    def _fits_day(self, local: datetime) -> bool:
        fits_month_day = local.day in self.month_days
        fits_weekday = local.isoweekday() % 7 in self.weekdays
        if self.either_day_free:
            return fits_month_day and fits_weekday
        return fits_month_day or fits_weekday


def parse(pattern: str) -> Cron:
    """The pattern; ValueError when it is none, or one that can never fire."""
    texts = pattern.split()
    if len(texts) != FIELDS:
        raise ValueError(f"a cron pattern has {FIELDS} fields, not {len(texts)}")
    fields = [_field(text, bounds) for text, bounds in zip(texts, _BOUNDS, strict=True)]
    seconds, minutes, hours, month_days, months, weekdays = (values for values, _ in fields)
    either_day_free = fields[3][1] or fields[5][1]
    # A day field may be empty when the other one alone decides.
    days = month_days and weekdays if either_day_free else month_days or weekdays
    if not (seconds and minutes and hours and months and days):
        raise ValueError("a field of the cron pattern is empty")
    return Cron(seconds, minutes, hours, month_days, months, weekdays, either_day_free)


def _midnight(year: int, month: int, day: int, zone: tzinfo) -> datetime:
    """When a day begins; if the clock change skips midnight, the moment of the change."""
    return datetime(year, month, day, tzinfo=zone).astimezone(UTC)


def _field(text: str, bounds: _Bounds) -> tuple[frozenset[int], bool]:
    """The values of a field, and whether it says that all are welcome."""
    values: set[int] = set()
    free = False
    for part in text.split(","):
        if part:
            part_values, part_free = _part(part, bounds)
            values.update(part_values)
            free = free or part_free
    return frozenset(values), free


def _part(part: str, bounds: _Bounds) -> tuple[range, bool]:
    span, *steps = part.split("/")
    ends = span.split("-")
    free = ends[0] in ("*", "?")
    if free:
        first, last = bounds.first, bounds.last
    elif len(ends) <= 2:
        first, last = _number(ends[0], bounds.names), _number(ends[-1], bounds.names)
    else:
        raise ValueError(f"too many hyphens: {part}")
    step = 1
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {part}")
    if steps:
        step = _number(steps[0], {})
        last = bounds.last if len(ends) == 1 else last
        free = free and step == 1
    if step < 1 or not bounds.first <= first <= last <= bounds.last:
        raise ValueError(f"out of range: {part}")
    return range(first, last + 1, step), free


def _number(text: str, names: dict[str, int]) -> int:
    named = names.get(text.lower())
    if named is not None:
        return named
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"not a number: {text}")
    return int(text)
