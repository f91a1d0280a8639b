"""Instants as they stand in JSON requests, read with Go's patience and refused in Go's words.

Rules: the zone of an instant is kept, because nats-server shows a time in the zone in which it was written.
Nothing here reads a clock. Invariant: parse_instant(format_instant(instant)) == instant, years 0 to 9999.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from edged.core.gotext import quote
from edged.core.gotime import HOUR, MINUTE, SECOND

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_DAY = 24 * HOUR
_DAYS_OF_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# Each part: how the layout writes it, how it is recognised, its name when it is out of range, and the range.
_PARTS = (
    ("2006", re.compile("[0-9]{4}"), "year", 0, 9999),
    ("-", re.compile("-"), "", 0, 0),
    ("01", re.compile("[0-9]{2}"), "month", 1, 12),
    ("-", re.compile("-"), "", 0, 0),
    ("02", re.compile("[0-9]{2}"), "day", 0, 99),
    ("T", re.compile("T"), "", 0, 0),
    ("15", re.compile("[0-9]{1,2}"), "hour", 0, 23),
    (":", re.compile(":"), "", 0, 0),
    ("04", re.compile("[0-9]{2}"), "minute", 0, 59),
    (":", re.compile(":"), "", 0, 0),
    ("05", re.compile("[0-9]{2}"), "second", 0, 59),
)
_FRACTION = re.compile("[.,]([0-9]+)")
_ZONE = re.compile("Z|([+-])([0-9]{2}):([0-9]{2})")


@dataclass(frozen=True, slots=True)
class Instant:
    """Nanoseconds since the epoch, and by how many minutes the zone in which it is shown is ahead of UTC."""

    ns: int
    zone_minutes: int = 0


def parse_instant(text: str) -> Instant:
    """The instant of an RFC 3339 time; ValueError with Go's words otherwise."""
    numbers: list[int] = []
    position = 0
    for layout, pattern, name, minimum, maximum in _PARTS:
        found = pattern.match(text, position)
        if found is None:
            raise _cannot_parse(text, text[position:], layout)
        if name:
            number = int(found[0])
            if not minimum <= number <= maximum:
                raise _out_of_range(text, name)
            numbers.append(number)
        position = found.end()
    fraction = _FRACTION.match(text, position)
    fraction_ns = 0
    if fraction is not None:
        # What follows the ninth digit is cut.
        fraction_ns = int(fraction[1][:9].ljust(9, "0"))
        position = fraction.end()
    zone = _ZONE.match(text, position)
    if zone is None:
        raise _cannot_parse(text, text[position:], "Z07:00")
    hours, minutes = (int(zone[2]), int(zone[3])) if zone[1] else (0, 0)
    # Go reads a whole day as well, but cannot write it again: nats-server then fails later.
    if hours * 60 + minutes >= 24 * 60:
        raise _out_of_range(text, "time zone offset hour")
    if minutes > 60:
        raise _out_of_range(text, "time zone offset minute")
    if zone.end() < len(text):
        extra = quote(text[zone.end() :].encode())
        raise ValueError(f"parsing time {quote(text.encode())}: extra text: {extra}")
    zone_minutes = (hours * 60 + minutes) * (-1 if zone[1] == "-" else 1)
    year, month, day, hour, minute, second = numbers
    if not 1 <= day <= _days_of(year, month):
        raise _out_of_range(text, "day")
    ns = _days_since_epoch(year, month, day) * _DAY + hour * HOUR + minute * MINUTE + second * SECOND
    return Instant(ns + fraction_ns - zone_minutes * MINUTE, zone_minutes)


def format_instant(instant: Instant) -> str:
    """RFC 3339 in the zone of the instant, without trailing zeros in the fraction."""
    days, rest = divmod(instant.ns + instant.zone_minutes * MINUTE, _DAY)
    year, month, day = _date(days)
    hour, rest = divmod(rest, HOUR)
    minute, rest = divmod(rest, MINUTE)
    second, fraction_ns = divmod(rest, SECOND)
    fraction = f".{fraction_ns:09d}".rstrip("0") if fraction_ns else ""
    hours, minutes = divmod(abs(instant.zone_minutes), 60)
    zone = f"{'-' if instant.zone_minutes < 0 else '+'}{hours:02d}:{minutes:02d}" if hours or minutes else "Z"
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}{fraction}{zone}"


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days_of(year: int, month: int) -> int:
    return _DAYS_OF_MONTH[month - 1] + (month == 2 and _is_leap(year))


# The datetime module begins with the year 1; a time may be in the year 0.
def _days_since_epoch(year: int, month: int, day: int) -> int:
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 - 719_162
    return days + sum(_days_of(year, earlier) for earlier in range(1, month)) + day - 1


def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day that is counted from the epoch."""
    year = 1970 + days * 400 // 146_097
    while days < _days_since_epoch(year, 1, 1):
        year -= 1
    while days >= _days_since_epoch(year + 1, 1, 1):
        year += 1
    rest = days - _days_since_epoch(year, 1, 1)
    month = 1
    while rest >= _days_of(year, month):
        rest -= _days_of(year, month)
        month += 1
    return year, month, rest + 1


def _cannot_parse(text: str, rest: str, layout: str) -> ValueError:
    whole, part = quote(text.encode()), quote(rest.encode())
    return ValueError(f'parsing time {whole} as "{_LAYOUT}": cannot parse {part} as "{layout}"')


def _out_of_range(text: str, name: str) -> ValueError:
    return ValueError(f"parsing time {quote(text.encode())}: {name} out of range")
