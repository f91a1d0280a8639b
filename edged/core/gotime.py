"""Durations and instants as Go programs write them, because NATS clients and tools read and write that form.

Rules: everything is a whole number of nanoseconds, no floating point is involved, nothing here reads a clock.
Invariant: parse_duration_ns(format_duration(ns)) == ns for every signed 64-bit ns, and
parse_rfc3339(format_rfc3339(ns)) == ns for every instant of the years 1 to 9999.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

NANOSECOND = 1
MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

DURATION_MAX_NS = 2**63 - 1
DURATION_MIN_NS = -(2**63)

# What Go prints for an instant that was never set.
ZERO_TIME = "0001-01-01T00:00:00Z"

# Both micro signs (U+00B5 and U+03BC) are accepted, as Go does.
_UNITS_NS = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "\u00b5s": MICROSECOND,
    "\u03bcs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
# A number and the letters up to the next number; a number may lack digits on one side of the point, not both.
_TERM = re.compile(r"(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))([^0-9.]+)")
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9})[0-9]*)?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# More text than this is no duration anyone writes; the bound keeps int() linear.
_DURATION_TEXT_MAX = 128
_SECONDS_REMEMBERED = 1024


def parse_duration_ns(text: str) -> int:
    """Nanoseconds of a Go duration such as "1m30s", "250ms", "-1.5h" or "0"; ValueError otherwise."""
    if len(text) > _DURATION_TEXT_MAX:
        raise ValueError("duration text is too long")
    negative = text.startswith("-")
    rest = text[1:] if text.startswith(("-", "+")) else text
    if rest == "0":
        return 0
    if not rest:
        raise ValueError(f"no duration in {text!r}")
    total_ns = 0
    position = 0
    while position < len(rest):
        term = _TERM.match(rest, position)
        if term is None:
            raise ValueError(f"{text!r} is no duration: write a number and a unit (ns, us, ms, s, m, h) each")
        unit_ns = _UNITS_NS.get(term[4])
        if unit_ns is None:
            raise ValueError(f"unknown unit {term[4]!r} in duration {text!r}: use ns, us, ms, s, m or h")
        fraction = term[2] or term[3] or ""
        total_ns += int(term[1] or "0") * unit_ns
        if fraction:
            total_ns += int(fraction) * unit_ns // 10 ** len(fraction)
        position = term.end()
    if total_ns > (-DURATION_MIN_NS if negative else DURATION_MAX_NS):
        raise ValueError(f"duration {text!r} is out of range (about 292 years)")
    return -total_ns if negative else total_ns


def format_duration(ns: int) -> str:
    """The text Go's time.Duration prints: "1h0m0s", "1.5s", "250ms", "0s"."""
    assert DURATION_MIN_NS <= ns <= DURATION_MAX_NS, ns
    if ns == 0:
        return "0s"
    sign = "-" if ns < 0 else ""
    rest_ns = abs(ns)
    if rest_ns < MICROSECOND:
        return f"{sign}{rest_ns}ns"
    if rest_ns < MILLISECOND:
        return f"{sign}{_decimal(rest_ns, MICROSECOND)}\u00b5s"
    if rest_ns < SECOND:
        return f"{sign}{_decimal(rest_ns, MILLISECOND)}ms"
    minutes, second_ns = divmod(rest_ns, MINUTE)
    seconds = f"{_decimal(second_ns, SECOND)}s"
    if minutes == 0:
        return f"{sign}{seconds}"
    hours, minutes = divmod(minutes, 60)
    if hours == 0:
        return f"{sign}{minutes}m{seconds}"
    return f"{sign}{hours}h{minutes}m{seconds}"


def format_rfc3339(ns_since_epoch: int | None) -> str:
    """The instant in UTC with trailing zeros of the fraction trimmed; None is Go's zero time."""
    if ns_since_epoch is None:
        return ZERO_TIME
    second, fraction_ns = divmod(ns_since_epoch, SECOND)
    if not fraction_ns:
        return _second_text(second) + "Z"
    return f"{_second_text(second)}.{fraction_ns:09d}".rstrip("0") + "Z"


@lru_cache(_SECONDS_REMEMBERED)
def _second_text(second: int) -> str:
    """A second since the epoch, without its zone. Messages that are asked for are often of the same few."""
    moment = _EPOCH + timedelta(seconds=second)
    # strftime("%Y") does not pad years below 1000 on every platform, isoformat does.
    return moment.replace(tzinfo=None).isoformat(timespec="seconds")


def parse_rfc3339(text: str) -> int:
    """Nanoseconds since the epoch of an RFC 3339 instant in any zone; ValueError otherwise.

    Digits beyond the ninth of the fraction are cut, as Go cuts them.
    """
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError("not an RFC 3339 time: write it like 2026-01-31T12:00:00Z")
    year, month, day, hour, minute, second = (int(found[group]) for group in range(1, 7))
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    since = moment - _EPOCH
    ns = (since.days * 86_400 + since.seconds) * SECOND + int((found[7] or "").ljust(9, "0"))
    if found[8]:
        zone_hour, zone_minute = int(found[9]), int(found[10])
        if zone_hour > 23 or zone_minute > 59:
            raise ValueError("the zone of an RFC 3339 time is at most 23:59")
        shift_ns = (zone_hour * 60 + zone_minute) * MINUTE
        ns += -shift_ns if found[8] == "+" else shift_ns
    return ns


def _decimal(value: int, unit: int) -> str:
    """value/unit with as many decimals as it needs, unit being a power of ten."""
    whole, rest = divmod(value, unit)
    if rest == 0:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")
