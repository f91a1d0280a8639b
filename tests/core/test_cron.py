"""Cron patterns: what is one, and when it fits, against a clock that is looked at every second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import cron
from edged.core.cron import SECOND_NS, Cron


def at(text: str, zone: str = "UTC") -> int:
    """The instant of a local time, the first of two when it is repeated."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * SECOND_NS


def local(ns: int | None, zone: str) -> str:
    assert ns is not None
    return datetime.fromtimestamp(ns // SECOND_NS, ZoneInfo(zone)).isoformat()


def following(pattern: str, after: str, zone: str = "UTC") -> str:
    return local(cron.parse(pattern).following(at(after, zone), ZoneInfo(zone)), zone)


def fits(fields: Cron, moment: datetime) -> bool:
    """What a pattern means, said once more."""
    month_day, weekday = moment.day in fields.month_days, (moment.weekday() + 1) % 7 in fields.weekdays
    day = month_day and weekday if fields.either_day_free else month_day or weekday
    return (
        day
        and moment.month in fields.months
        and moment.hour in fields.hours
        and moment.minute in fields.minutes
        and moment.second in fields.seconds
    )


def values(last: int) -> st.SearchStrategy[str]:
    """A field that fits several times in a round of the clock."""
    return st.lists(st.integers(0, last), min_size=1, max_size=5).map(lambda found: ",".join(map(str, found)))


# Around a change of clocks in one of the zones, and around the ends of a month and of a year.
STARTS = (
    "2027-03-28T00:30:00",
    "2027-10-31T00:10:00",
    "2027-04-03T14:00:00",
    "2026-12-31T23:10:00",
    "2028-02-29T22:59:59",
)


@given(
    second=values(59),
    minute=values(59),
    hours=st.sampled_from(("*", "*/2", "1-3,22-23,0")),
    start=st.sampled_from(STARTS),
    offset_ns=st.integers(0, 2 * 3600 * SECOND_NS),
    zone=st.sampled_from(("UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu")),
)
def test_following_is_the_first_second_that_fits(
    second: str, minute: str, hours: str, start: str, offset_ns: int, zone: str
) -> None:
    fields = cron.parse(f"{second} {minute} {hours} * * *")
    after_ns = at(start) + offset_ns
    found = fields.following(after_ns, ZoneInfo(zone))
    moment = datetime.fromtimestamp(after_ns // SECOND_NS, UTC)
    while True:
        moment += timedelta(seconds=1)
        if fits(fields, moment.astimezone(ZoneInfo(zone))):
            break
    assert found == int(moment.timestamp()) * SECOND_NS


@pytest.mark.parametrize(
    ("pattern", "after", "expected"),
    [
        ("0 0 0 1 1 *", "2026-01-01T00:00:00", "2027-01-01T00:00:00+00:00"),
        ("0 0 0 29 2 *", "2026-03-01T00:00:00", "2028-02-29T00:00:00+00:00"),
        ("0 0 0 31 * *", "2026-01-31T12:00:00", "2026-03-31T00:00:00+00:00"),
        # Both days are restricted: either will do. A star in one of them, and both must.
        ("0 0 0 13 * fri", "2026-03-01T00:00:00", "2026-03-06T00:00:00+00:00"),
        ("0 0 0 13 * *", "2026-03-01T00:00:00", "2026-03-13T00:00:00+00:00"),
        ("0 0 0 */1 * FRI", "2026-03-01T00:00:00", "2026-03-06T00:00:00+00:00"),
        ("0 0 0 1-7 * sun", "2026-03-08T00:00:00", "2026-03-15T00:00:00+00:00"),
        ("0 0 0 , * mon", "2026-03-01T00:00:00", "2026-03-02T00:00:00+00:00"),
        ("5/20 * * * * *", "2026-03-01T00:00:45", "2026-03-01T00:01:05+00:00"),
    ],
)
def test_days_months_and_steps(pattern: str, after: str, expected: str) -> None:
    assert following(pattern, after) == expected


def test_a_time_that_the_clocks_skip_does_not_fire_that_day() -> None:
    assert following("0 30 2 * * *", "2027-03-27T12:00:00", "Europe/Berlin") == "2027-03-29T02:30:00+02:00"


def test_a_time_that_the_clocks_repeat_fires_twice() -> None:
    zone = ZoneInfo("Europe/Berlin")
    fields = cron.parse("0 30 2 * * *")
    first = fields.following(at("2027-10-30T12:00:00"), zone)
    assert first is not None
    second = fields.following(first, zone)
    assert (local(first, "Europe/Berlin"), local(second, "Europe/Berlin")) == (
        "2027-10-31T02:30:00+02:00",
        "2027-10-31T02:30:00+01:00",
    )


def test_a_day_without_midnight_begins_when_the_clocks_change() -> None:
    """In Havana it is one o'clock when the day of the change begins."""
    assert following("0 0 1 * * sun", "2027-03-13T12:00:00", "America/Havana") == "2027-03-14T01:00:00-04:00"
    assert following("0 0 0 * * *", "2027-03-13T12:00:00", "America/Havana") == "2027-03-15T00:00:00-04:00"


@pytest.mark.parametrize("pattern", ["0 0 0 30 2 *", "0 0 0 31 4,6,9,11 *"])
def test_a_pattern_that_never_fits_has_no_following_time(pattern: str) -> None:
    assert cron.parse(pattern).following(at("2026-01-01T00:00:00")) is None


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "* * * * *", "* * * * * * *", "60 * * * * *", "* * 24 * * *", "* * * 0 * *", "* * * * 13 *"),
        *(
            "* * * * * 7",
            "5-1 * * * * *",
            "*/0 * * * * *",
            "1/2/3 * * * * *",
            "1-2-3 * * * * *",
            "x * * * * *",
        ),
        *("* * * , * *", "* * * , * ,", "* * * ? * ,"),
        *("-1 * * * * *", ", * * * * *", "* , * * * *", "* * , * * *", "* * * * , *", "1.5 * * * * *"),
        *(
            "* * * * jan-dec-jan *",
            "* * * * january *",
            "\u0665 * * * * *",
            "*/9999999999999999999 * * * * *",
        ),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        cron.parse(pattern)
