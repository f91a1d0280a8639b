"""Schedules: which are refused and why, when they fire, what they publish, all as nats-server does."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterator
from datetime import tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

from edged.core import gotime, headers, schedules
from edged.core.schedule_table import ScheduleTable
from edged.core.schedules import ScheduleRules
from tests.jetstream.raw_client import RawClient, block_of
from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

SUBJECTS = [b"all.>", b"no_ttl.>", b"off.>"]
CONFIG = 'jetstream: {store_dir: "${directory}/store"}'


def zone_of(name: str) -> tzinfo | None:
    """The zones of this machine, as the server reads them."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def create(client: RawClient) -> None:
    """A stream that allows everything, one without TTLs, one without schedules."""
    for name, schedules_allowed, ttl_allowed in (("all", 1, 1), ("no_ttl", 1, 0), ("off", 0, 1)):
        config = {
            "name": name,
            "subjects": [f"{name}.>"],
            "allow_msg_schedules": bool(schedules_allowed),
            "allow_msg_ttl": bool(ttl_allowed),
        }
        client.api(f"STREAM.CREATE.{name}", config)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server("nats-server", CONFIG, tmp_path_factory.mktemp("schedules"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[RawClient]:
    connected = RawClient(server.host, server.port)
    create(connected)
    yield connected
    connected.close()


AT = "@at 2099-01-01T00:00:00Z"
# Each with the stream it is for.
JUDGED: list[tuple[str, dict[str, str]]] = [
    *[
        ("all", {"Nats-Schedule": pattern, "Nats-Schedule-Target": "all.target"})
        for pattern in (
            *(AT, "@at 2099-01-01T00:00:00.5+02:00", "@at 2099-1-1T00:00:00Z", "@at 2099-01-01t00:00:00z"),
            *("@at 2099-01-01T1:00:00Z", "@at 2099-01-01T00:00:00,25Z", "@at 2099-02-30T00:00:00Z", "@at "),
            *("@at 2099-01-01 00:00:00Z", "@at  2099-01-01T00:00:00Z", "@at 2099-01-01T24:00:00Z", "@at"),
            *("@every 1h", "@every 1s", "@every 999ms", "@every 0", "@every 1", "@every -1h", "@every"),
            *("@every 1h30m", "@every  1h", "@Every 1h", "@yearly", "@annually", "@monthly", "@weekly"),
            *(
                "@daily",
                "@midnight",
                "@hourly",
                "@minutely",
                "@hourly ",
                "@DAILY",
                "* * * * *",
                "0 0 0 1 1 * *",
            ),
            *("0 0 0 1 1 *", "0 0 0 1 1 ?", "0 0 0 30 2 *", "0 0 0 29 2 *", "60 0 0 1 1 *", "0 60 0 1 1 *"),
            *("0 0 24 1 1 *", "0 0 0 0 1 *", "0 0 0 32 1 *", "0 0 0 1 13 *", "0 0 0 1 0 *", "0 0 0 1 1 7"),
            *("0 0 0 1 JAN mon", "0 0 0 1 january *", "0 0 0 * jan-mar sun-sat", "0 0 0 * mar-jan *"),
            *("0 0 0 1-5-9 1 *", "0 0 0 */2/3 1 *", "0 0 0 */0 1 *", "0 0 0 */99 1 *", "0 0 0 5/3 1 *"),
            *(
                "0 0 0 , 1 mon",
                ", 0 0 1 1 *",
                "0 0 0 1,15 1,,2 *",
                "0 0 0 +1 1 *",
                "0 0 0 -1 1 *",
                "0 0 0 *-5 1 *",
            ),
            *("0 0 0 x 1 *", "0 0 0 1 1 *\t", "\t0 0 0 1 1 *", "0 0 0 1. 1 *", "0 0 0 ?/2 1 *", "x"),
        )
    ],
    *[
        (
            "all",
            {"Nats-Schedule": pattern, "Nats-Schedule-Time-Zone": zone, "Nats-Schedule-Target": "all.target"},
        )
        for zone in ("Europe/Berlin", "UTC", "Nowhere/Town", "", "../UTC", "/UTC", "Europe", "europe/berlin")
        for pattern in ("0 0 0 1 1 *", "@daily", AT, "@every 1h")
    ],
    ("all", {"Nats-Schedule": AT}),
    ("all", {"Nats-Schedule": "", "Nats-Schedule-Target": "all.target"}),
    ("all", {"Nats-Schedule-Target": "all.target", "Nats-Schedule-TTL": "bad"}),
    ("all", {"Nats-Schedule-Time-Zone": "Nowhere/Town"}),
    ("off", {"Nats-Schedule-Time-Zone": "Nowhere/Town"}),
    *[
        ("all", {"Nats-Schedule": AT, "Nats-Schedule-Target": target})
        for target in ("", "all.judged", "all.*", "all.>", "other", "all..x", ".all", "no_ttl.target")
    ],
    *[
        ("all", {"Nats-Schedule": AT, "Nats-Schedule-Target": "all.target", "Nats-Schedule-Source": source})
        for source in ("", "all.source", "all.target", "all.judged", "all.*", "other", "all..x")
    ],
    *[
        (stream, {"Nats-Schedule": AT, "Nats-Schedule-Target": f"{stream}.target", "Nats-Schedule-TTL": ttl})
        for stream in ("all", "no_ttl", "off")
        for ttl in ("", "never", "NEVER", "5", "5s", "1h", "0", "00", "999ms", "-1", "-1s", "x", "5 ")
    ],
    *[
        ("all", {"Nats-Schedule": AT, "Nats-Schedule-Target": "all.target", key: value})
        for key in ("Nats-Schedule-Rollup", "Nats-Rollup")
        for value in ("", "sub", "SUB", "all", "x")
    ],
    # More than one thing is wrong: the order of the checks shows.
    ("off", {"Nats-Schedule": "x"}),
    ("all", {"Nats-Schedule": "x", "Nats-Schedule-Time-Zone": "Nowhere/Town"}),
    ("all", {"Nats-Schedule": AT, "Nats-Schedule-TTL": "x", "Nats-Schedule-Rollup": "x"}),
    ("no_ttl", {"Nats-Schedule": AT, "Nats-Schedule-TTL": "5s", "Nats-Schedule-Rollup": "x"}),
    ("no_ttl", {"Nats-Schedule": AT, "Nats-Schedule-TTL": "5s", "Nats-Schedule-Target": "x"}),
    ("all", {"Nats-Schedule": AT, "Nats-Schedule-Target": "x", "Nats-Schedule-Source": "all..x"}),
    ("all", {"Nats-Schedule": AT, "Nats-Schedule-Target": "x", "Nats-Schedule-Source": "y"}),
    ("all", {"Nats-Schedule": AT, "Nats-Schedule-Target": "x", "Nats-Rollup": "all"}),
    ("all", {"Nats-Schedule": AT, "Nats-Schedule-Target": "all.t", "Nats-Scheduler": "all.s"}),
    ("all", {"Nats-Schedule": "@at 0001-01-01T00:00:00Z", "Nats-Schedule-Target": "nowhere"}),
    *[
        (stream, {"Nats-Scheduler": scheduler, "Nats-Schedule-Next": step})
        for stream in ("all", "off")
        for scheduler in ("", "all.plain", "all.absent", "all.scheduled", "all.judged", "all.*", "elsewhere")
        for step in ("", "purge", "Purge", "2099-01-01T00:00:00Z")
    ],
    ("all", {"Nats-Schedule-Next": "purge"}),
    ("all", {"Nats-Scheduler": "all.absent"}),
]


def test_the_same_schedules_are_refused_for_the_same_reasons(client: RawClient) -> None:
    """Every case is asked of the server; a refusal is ours to the letter, and nothing else is refused."""
    client.ask("all.plain", b"", b"x")
    stored = {b"all.plain": b""}
    scheduled = block_of(Nats_Schedule=AT, Nats_Schedule_Target="all.target")
    now_ns = time.time_ns()
    differing = []
    for stream, fields in JUDGED:
        client.ask("all.scheduled", scheduled)
        stored[b"all.scheduled"] = scheduled
        block = headers.encode((key.encode(), value.encode()) for key, value in fields.items())
        subject = f"{stream}.judged".encode()
        rules = ScheduleRules(stream != "off", stream != "no_ttl", [f"{stream}.>".encode()], zone_of)
        answer = client.ask(subject, block).document
        ours = schedules.refusal(subject, schedules.with_rollup(block), rules, now_ns, stored.get)
        if answer.get("error") != (ours.document() if ours else None):
            differing.append((stream, fields, answer, ours))
    assert not differing


def stored_schedules(directory: Path) -> dict[bytes, int]:
    """When the schedules of a stopped server are due, from the file in which it keeps them."""
    data = directory.joinpath("msgs", "sched.db").read_bytes()
    assert data[0] == 1
    count, _ = struct.unpack_from("<QQ", data, 1)
    found: dict[bytes, int] = {}
    position = 17
    for _ in range(count):
        (size,) = struct.unpack_from("<H", data, position)
        subject = data[position + 2 : position + 2 + size]
        zigzag, position = _varint(data, position + 2 + size)
        found[subject] = zigzag >> 1 ^ -(zigzag & 1)
        _, position = _varint(data, position)
    return found


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


PATTERNS = (
    *("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"),
    *(
        "0 0 0 29 2 *",
        "0 0 0 29 2 mon",
        "30 15 10 * * *",
        "59 59 23 31 12 ?",
        "0 0 */6 * * mon-fri",
        "0 0 0 1-7 * sun",
    ),
    *(
        "0 0 12 ? * wed",
        "0 0 12 13 * fri",
        "5/20 7/25 1/11 3/9 */5 *",
        "0 0 0 31 */2 *",
        "0 10,20 3-5 * jun,dec sat",
    ),
    *("0 0 0 , 1 mon", "1 2 3 4 5 *", "0 30 4 */2 * */3", "0 0 0 */1 * tue", "0 0 0 ?/2 jan-mar/2 *"),
    # Clocks change on these days in one zone or another.
    *("0 30 2 28 3 *", "0 30 2 31 10 *", "0 30 1 31 10 *", "0 0 2 14 3 *", "0 30 1 7 11 *", "0 59 2 * 3 sun"),
    *(
        "0 0 0 * 3 sun",
        "0 0 3 * 10 sun",
        "0 15 2 * 10 sun",
        "0 45 1 4 4 *",
        "0 15 2 3 10 *",
        "0 30 23 * * sat",
    ),
)
# Not Australia/Lord_Howe, whose clocks change by half an hour: the server misses full hours that day.
ZONES = (
    *("", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Chatham"),
    *("America/St_Johns", "Africa/Casablanca", "Pacific/Kiritimati"),
)


def test_schedules_are_due_when_the_server_would_fire_them(tmp_path: Path) -> None:
    """A server that is stopped writes down when its schedules are due: the same instants as ours."""
    server = start_server("nats-server", CONFIG, tmp_path)
    client = RawClient(server.host, server.port)
    table = ScheduleTable()
    try:
        create(client)
        cases = [(pattern, zone) for zone in ZONES for pattern in PATTERNS]
        cases += [("@every 90m", ""), ("@every 26h0.5s", ""), ("@at 2031-05-06T07:08:09.123456789+05:30", "")]
        for seq, (pattern, zone) in enumerate(cases, 1):
            fields = {"Nats_Schedule": pattern, "Nats_Schedule_Target": "all.target"}
            if zone:
                fields["Nats_Schedule_Time_Zone"] = zone
            subject = f"all.case.{seq}".encode()
            block = schedules.with_rollup(block_of(**fields))
            answer = client.ask(subject, block).document
            assert answer.get("seq") == seq, (pattern, zone, answer)
            kept = client.api("STREAM.MSG.GET.all", {"seq": seq})["message"]
            assert base64.b64decode(kept["hdrs"]) == block
            table.stored(seq, gotime.parse_rfc3339(kept["time"]), subject, block, zone_of)
    finally:
        client.close()
        server.stop()
    stopped_ns = time.time_ns()
    theirs = stored_schedules(tmp_path / "store" / "jetstream" / "$G" / "streams" / "all")
    ours = {subject: at_ns for subject, _, at_ns in table.entries()}
    assert len(ours) == len(cases)
    # What fired while the server ran is due later there; at most a few of the many are.
    compared = [subject for subject, at_ns in ours.items() if at_ns > stopped_ns]
    assert len(compared) > len(cases) * 0.8
    differing = [
        (cases[int(subject.split(b".")[2]) - 1], theirs.get(subject), ours[subject])
        for subject in compared
        if theirs.get(subject) != ours[subject]
    ]
    assert not differing


NOTED = {
    "Nats-Msg-Id": "7",
    "Own": "kept",
    "Nats-Expected-Stream": "all",
    "Nats-TTL": "1h",
    "Nats-Scheduled-By": "me",
    "nats-schedule": "x",
}
FIRED: list[tuple[str, dict[str, str]]] = [
    ("* * * * * *", {}),
    ("* * * * * *", {"Nats-Schedule-Time-Zone": "Asia/Kolkata", **NOTED}),
    ("* * * * * *", {"Nats-Schedule-Time-Zone": "America/St_Johns", "Nats-Schedule-TTL": "2h"}),
    ("@every 1s", {"Nats-Schedule-Rollup": "sub", "Nats-Schedule-TTL": "never", **NOTED}),
    ("@at 2020-01-01T00:00:00Z", NOTED),
    ("@at 2020-01-01T00:00:00Z", {"Nats-Schedule-Source": "all.source"}),
    ("@at 2020-01-01T00:00:00Z", {"Nats-Schedule-Source": "all.nothing", "Own": "kept"}),
]


def test_a_firing_publishes_what_the_server_publishes(client: RawClient) -> None:
    source_block = block_of(Own="of the source", Nats_Msg_Id="source", Nats_TTL="3h")
    client.ask("all.source", source_block, b"from the source")
    client.subscribe("fired")
    client.api("CONSUMER.CREATE.all.fired", fired_consumer("fired"))
    sent: dict[bytes, tuple[bytes, bytes, int]] = {}
    for number, (pattern, fields) in enumerate(FIRED):
        subject, target = b"all.when.%d" % number, f"all.fired.{number}"
        all_fields = {"Nats-Schedule": pattern, "Nats-Schedule-Target": target, **fields}
        if "Nats-Msg-Id" in all_fields:
            all_fields["Nats-Msg-Id"] = f"id {number}"
        block = headers.encode((key.encode(), value.encode()) for key, value in all_fields.items())
        answer = client.ask(subject, block, b"body %d" % number).document
        assert "error" not in answer, answer
        kept = client.api("STREAM.MSG.GET.all", {"seq": answer["seq"]})["message"]
        sent[target.encode()] = (base64.b64decode(kept["hdrs"]), subject, answer["seq"])
        assert base64.b64decode(kept["hdrs"]) == schedules.with_rollup(block)
    found: dict[bytes, bytes] = {}
    while len(found) < len(FIRED):
        arrived = client.receive()
        if arrived.subject.startswith(b"all.fired.") and arrived.subject not in found:
            found[arrived.subject] = arrived.block + arrived.payload
    for target, (block, subject, _) in sent.items():
        body = b"body " + target.rpartition(b".")[2]
        source = (source_block, b"from the source") if schedules.source_of(block) == b"all.source" else None
        said = headers.value(found[target], schedules.NEXT)
        assert said
        # The server's time of firing is not known: what it announced must be a firing, told in our words.
        firing = schedules.next_firing(block, 0, 0, zone_of)
        assert firing is not None
        if firing.repeats:
            (_, at_ns) = schedules.announced(found[target]) or (b"", 0)
            assert abs(at_ns - time.time_ns()) < 15 * gotime.SECOND
            firing = schedules.next_firing(block, at_ns - gotime.SECOND, at_ns - gotime.SECOND, zone_of)
            assert firing is not None and firing.at_ns == at_ns
        ours = schedules.produced(subject, block, body, firing, source)
        assert ours is not None and ours.subject == target
        assert found[target] == ours.block + ours.payload
    # Those that do not repeat have purged themselves.
    state = client.api("STREAM.INFO.all", {"subjects_filter": "all.when.>"})["state"]["subjects"]
    assert sorted(state) == [f"all.when.{number}" for number in range(4)]
    client.api("STREAM.PURGE.all", {"filter": "all.when.>"})


def fired_consumer(deliver: str) -> dict[str, object]:
    """A consumer of what schedules publish."""
    return {
        "stream_name": "all",
        "config": {
            "name": "fired",
            "deliver_subject": deliver,
            "filter_subject": "all.fired.>",
            "ack_policy": "none",
        },
    }
