"""Schedules: patterns, what is said about the next firing, and what a firing publishes.

Which headers are refused is compared with a real server in tests/jetstream.
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import pytest

from edged.core import gotime, schedules
from edged.core.api_errors import MESSAGE_SCHEDULES_DISABLED, MESSAGE_SCHEDULES_PATTERN_INVALID, ApiFailure
from edged.core.schedules import Firing, ScheduleRules

NOW = gotime.parse_rfc3339("2026-03-01T12:00:00.4Z")


def zone_of(name: str) -> tzinfo | None:
    return ZoneInfo("Europe/Berlin") if name == "Here" else None


def block(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in ("NATS/1.0", *lines, "")).encode()


def firing(pattern: str, after: str, now: str | None = None, zone: str | None = None) -> str:
    """When it fires, as a text."""
    lines = [f"Nats-Schedule: {pattern}", *([f"Nats-Schedule-Time-Zone: {zone}"] if zone else [])]
    after_ns = gotime.parse_rfc3339(after)
    now_ns = gotime.parse_rfc3339(now) if now else after_ns
    found = schedules.next_firing(block(*lines), after_ns, now_ns, zone_of)
    assert found is not None
    return found.text().decode()


@pytest.mark.parametrize(
    ("pattern", "after", "expected"),
    [
        ("@at 2026-05-06T07:08:09.1+02:00", "2030-01-01T00:00:00Z", "2026-05-06T05:08:09.1Z"),
        ("@at 2026-05-06T7:08:09,25Z", "2030-01-01T00:00:00Z", "2026-05-06T07:08:09.25Z"),
        ("@every 90s", "2026-01-01T00:00:00.499999999Z", "2026-01-01T00:01:30Z"),
        ("@every 1.5s", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:02.5Z"),
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
        ("@midnight", "2026-01-01T10:00:00Z", "2026-01-02T00:00:00Z"),
        ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
        ("@monthly", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"),
        ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("@annually", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
    ],
)
def test_patterns_fire_at_their_times(pattern: str, after: str, expected: str) -> None:
    assert firing(pattern, after) == expected


def test_a_zone_moves_cron_patterns_and_is_shown() -> None:
    assert firing("@daily", "2026-03-01T12:00:00Z", zone="Here") == "2026-03-02T00:00:00+01:00"
    assert firing("0 0 9 * 7 *", "2026-03-01T12:00:00Z", zone="Here") == "2026-07-01T09:00:00+02:00"


def test_what_was_missed_is_skipped() -> None:
    """After a stop of hours a schedule fires once, not once for each time that it was not there."""
    assert firing("@every 1m", "2026-01-01T00:00:00Z", "2026-01-01T05:00:10.7Z") == "2026-01-01T05:01:11Z"
    assert firing("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T05:10:00Z") == "2026-01-01T06:00:00Z"
    assert firing("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z") == "2026-01-01T01:00:00Z"


def test_texts_of_firings_have_the_offset_of_their_zone() -> None:
    noon = gotime.parse_rfc3339("2026-01-01T12:00:00Z")
    assert Firing(noon, True, ZoneInfo("America/St_Johns")).text() == b"2026-01-01T08:30:00-03:30"
    assert Firing(noon, True, ZoneInfo("Asia/Kathmandu")).text() == b"2026-01-01T17:45:00+05:45"
    assert Firing(noon + 500_000_000, True, UTC).text() == b"2026-01-01T12:00:00.5Z"


def test_a_message_without_a_pattern_is_no_schedule() -> None:
    assert schedules.next_firing(block("Own: x"), NOW, NOW, zone_of) is None
    assert schedules.next_firing(b"", NOW, NOW, zone_of) is None
    assert schedules.next_firing(block("Nats-Schedule: "), NOW, NOW, zone_of) is None
    assert schedules.next_firing(block("Nats-Schedule: @at 0001-01-01T00:00:00Z"), NOW, NOW, zone_of) is None


def test_bytes_that_are_no_text_are_no_pattern() -> None:
    with pytest.raises(ApiFailure) as raised:
        schedules.next_firing(b"NATS/1.0\r\nNats-Schedule: \xff\r\n\r\n", NOW, NOW, zone_of)
    assert raised.value.error == MESSAGE_SCHEDULES_PATTERN_INVALID


def test_a_zone_that_leaves_its_directory_is_never_looked_up() -> None:
    asked: list[str] = []

    def noted(name: str) -> tzinfo | None:
        asked.append(name)
        return UTC

    for name in ("../x", "/x", "\\x", "a/../../b"):
        with pytest.raises(ApiFailure):
            schedules.next_firing(block(f"Nats-Schedule-Time-Zone: {name}"), NOW, NOW, noted)
    assert asked == []


def test_the_rollup_is_added_once_and_only_to_schedules() -> None:
    schedule = block("Nats-Schedule: @hourly")
    assert schedules.with_rollup(schedule) == block("Nats-Schedule: @hourly", "Nats-Rollup: sub")
    assert schedules.with_rollup(schedules.with_rollup(schedule)) == schedules.with_rollup(schedule)
    assert schedules.with_rollup(block("Own: x")) == block("Own: x")


def test_a_stream_without_schedules_refuses_them_whatever_is_wrong_besides() -> None:
    rules = ScheduleRules(False, True, [b"a.>"], zone_of)
    for line in ("Nats-Schedule: x", "Nats-Schedule: @hourly", "Nats-Schedule-Time-Zone: Nowhere"):
        assert schedules.refusal(b"a.b", block(line), rules, NOW, {}.get) == MESSAGE_SCHEDULES_DISABLED
    assert schedules.refusal(b"a.b", block("Own: x"), rules, NOW, {}.get) is None


def test_a_produced_message_names_its_schedule_and_has_no_schedule_itself() -> None:
    stored = block(
        *("Nats-Schedule: @every 1h", "Nats-Schedule-Target: t", "Nats-Schedule-TTL: 5m"),
        *("Nats-Schedule-Rollup: sub", "Nats-Rollup: sub", "Nats-Msg-Id: 1", "Nats-TTL: 9h"),
        *("Nats-Expected-Stream: s", "Own: kept"),
    )
    made = schedules.produced(b"when", stored, b"body", Firing(NOW // 10**9 * 10**9, repeats=True), None)
    assert made is not None
    assert (made.subject, made.payload) == (b"t", b"body")
    assert made.block == block(
        *("Own: kept", "Nats-Scheduler: when", "Nats-Schedule-Next: 2026-03-01T12:00:00Z"),
        *("Nats-TTL: 5m", "Nats-Rollup: sub"),
    )
    assert schedules.announced(made.block) == (b"when", NOW // 10**9 * 10**9)
    assert schedules.purged_schedule(made.block) is None


def test_a_schedule_that_does_not_repeat_has_itself_purged() -> None:
    stored = block("Nats-Schedule: @at 2026-01-01T00:00:00Z", "Nats-Schedule-Target: t")
    made = schedules.produced(b"when", stored, b"", Firing(NOW, repeats=False), None)
    assert made is not None
    assert made.block == block("Nats-Scheduler: when", "Nats-Schedule-Next: purge")
    assert schedules.purged_schedule(made.block) == b"when"
    assert schedules.announced(made.block) is None


def test_a_source_gives_headers_and_body_and_the_schedule_the_rest() -> None:
    stored = block("Nats-Schedule: @hourly", "Nats-Schedule-Target: t", "Nats-Schedule-Source: s", "Own: no")
    assert schedules.source_of(stored) == b"s"
    made = schedules.produced(b"when", stored, b"no", Firing(NOW, repeats=False), (block("Own: yes"), b"yes"))
    assert made is not None and made.payload == b"yes"
    assert made.block == block("Own: yes", "Nats-Scheduler: when", "Nats-Schedule-Next: purge")


def test_what_is_stored_but_no_valid_schedule_produces_nothing() -> None:
    for lines in (("Own: x",), ("Nats-Schedule-Target: t", "Nats-Schedule-TTL: x")):
        assert schedules.produced(b"when", block(*lines), b"", Firing(NOW, repeats=False), None) is None
