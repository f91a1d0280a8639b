"""`edged inspect`: every file is shown, whole or damaged; nothing is locked and nothing changed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from edged.cli import main
from edged.core.commands import Delete, PutStream
from edged.core.message import Message
from edged.store.box import Keyring
from edged.store.files import RealFiles
from edged.store.group import CATALOG
from edged.store.journal_file import HEADER_BYTES
from edged.store.segment_format import segment_path
from edged.store.segment_writer import write_segment
from edged.store.store import Append
from tests.store.fsck_samples import ORDERS, ORDERS_ID, START_NS, build, files_of, newest, open_store, spoil

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("inspect") / "store")


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "store"))


def shown(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> list[dict[str, Any]]:
    """The items that the command shows, from its JSON lines."""
    assert main(["inspect", *map(str, arguments), "--json"]) == status
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def of_kind(items: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in items if item["item"] == kind]


def test_overview_names_every_file_and_changes_none(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(store)
    items = shown(capsys, store)
    named = {item["path"] for item in items}
    assert {name for name in before if "spare" not in name} <= named
    assert files_of(store) == before


def test_journal_of_a_small_store_reads_like_this(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(tmp_path / "store", now_ns=lambda: START_NS)
    store.commit([(CATALOG, PutStream(ORDERS, ORDERS_ID, "A", "ORDERS", {"subjects": ["o.>"]}))])
    store.commit([(ORDERS, Append(b"o.new", 0, b"order 1"))])
    store.commit([(ORDERS, Delete(1, False))])
    # Nothing is locked: the store is still open.
    assert main(["inspect", str(tmp_path / "store"), "journal"]) == 0
    store.close()
    assert capsys.readouterr().out == (
        'journal file: path=journal/00000000000000000001.log bytes=12000 use="in use" number=1'
        " nonce=6513270e269e0d37 created_ns=1700000000000000000 previous=0 previous_end=0"
        " key=none\n"
        "  command: offset=4096 group=0 index=1 bytes=69 command=PutStream stream_group=1"
        " stream_id=01010101010101010101010101010101 account=A name=ORDERS"
        ' config={"subjects":["o.>"]}\n'
        "  command: offset=4165 group=0 index=1 bytes=69 command=PutStream stream_group=1"
        " stream_id=01010101010101010101010101010101 account=A name=ORDERS"
        ' config={"subjects":["o.>"]}\n'
        "  batch: offset=4234 group=0 index=1 bytes=44 durable_file=0 durable_to=4096"
        ' time_ns=1700000000000000000 applied=[{"group":0,"index":0,"last_seq":0,"refused":[]}]\n'
        "  append: offset=4278 group=1 index=1 bytes=50 subject=o.new ts_ns=1700000000000000000"
        " header_bytes=0 payload_bytes=7\n"
        "  batch: offset=4328 group=0 index=2 bytes=44 durable_file=1 durable_to=4278"
        ' time_ns=1700000000000000000 applied=[{"group":0,"index":1,"last_seq":0,"refused":[]}]\n'
        "  command: offset=4372 group=1 index=2 bytes=28 command=Delete seq=1 erase=false\n"
        "  command: offset=4400 group=1 index=2 bytes=28 command=Delete seq=1 erase=false\n"
        "  batch: offset=4428 group=0 index=3 bytes=44 durable_file=1 durable_to=4372"
        ' time_ns=1700000000000000000 applied=[{"group":1,"index":1,"last_seq":1,"refused":[]}]\n'
        "  rest: offset=4472 bytes=7528 is=zeros\n"
    )


def test_message_data_is_shown_only_when_asked_for_and_only_its_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(tmp_path / "store")
    store.commit([(CATALOG, PutStream(ORDERS, ORDERS_ID, "A", "ORDERS", {}))])
    store.commit([(ORDERS, Append(b"o", 0, b"secret" * 100)), (ORDERS, Append(b"o", 0, b"\xff\x00"))])
    store.close()
    without = shown(capsys, tmp_path / "store", "journal")
    assert "secret" not in json.dumps(without)
    first, second = of_kind(shown(capsys, tmp_path / "store", "journal", "--payload"), "append")
    assert first["data"] == ("secret" * 100)[:256]
    assert first["payload_bytes"] == 600
    assert second["data"] == "ff00"


def test_damaged_journal_is_shown_up_to_its_end_and_says_where_it_is_damaged(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = newest(store, "journal/0*.log")
    all_frames = of_kind(shown(capsys, store, "file", f"journal/{path.name}"), "append")
    spoil(path, all_frames[2]["offset"] + 30, all_frames[2]["offset"] + 31)
    spoil(path, 2048, 2100)
    items = shown(capsys, store, "file", path, status=1)
    damage = of_kind(items, "damage")
    assert [item["offset"] for item in damage] == [2048, all_frames[2]["offset"]]
    assert len(of_kind(items, "append")) == len(all_frames) - 1


def test_journal_file_without_a_header_is_shown_by_its_frames(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = newest(store, "journal/0*.log")
    before = of_kind(shown(capsys, store, "file", path), "append")
    spoil(path, 0, HEADER_BYTES)
    items = shown(capsys, store, "file", path, status=1)
    assert of_kind(items, "append") == before
    assert "computed from the frames" in of_kind(items, "damage")[0]["what"]


def test_checkpoints_show_streams_consumers_and_segments(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = shown(capsys, store, "checkpoint")
    assert len(of_kind(items, "checkpoint")) == 2
    streams = of_kind(items, "stream")
    assert {stream["name"] for stream in streams} == {"ORDERS", "LOGS"}
    assert of_kind(items, "consumer")[0]["name"] == "worker"
    assert all(item["live_messages"] for item in of_kind(items, "stream segment"))
    assert of_kind(items, "condemned")


def test_damaged_checkpoint_is_said_and_the_other_one_shown(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = newest(store, "checkpoints/*")
    spoil(path)
    items = shown(capsys, store, "checkpoint", status=1)
    assert of_kind(items, "damage")[0]["path"] == f"checkpoints/{path.name}"
    assert len(of_kind(items, "checkpoint")) == 1


def test_segments_show_blocks_and_their_most_frequent_subjects(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = newest(store, f"streams/{ORDERS_ID.hex()}/*")
    items = shown(capsys, store, "file", path, "--top", "2")
    segment = of_kind(items, "segment")[0]
    blocks = of_kind(items, "block")
    assert segment["messages"] == sum(block["messages"] for block in blocks)
    assert len(of_kind(items, "subject")) == 2
    assert of_kind(items, "more subjects") == [{"item": "more subjects", "count": 3}]
    assert len(of_kind(shown(capsys, store, "segment"), "segment")) == len(
        list(store.glob("streams/*/*.seg"))
    )


def test_damaged_segment_is_shown_with_the_place_of_the_damage(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = newest(store, f"streams/{ORDERS_ID.hex()}/*")
    spoil(path, 300, 310)
    items = shown(capsys, store, "file", path, status=1)
    assert [item["what"] for item in of_kind(items, "damage")] == ["a block was repaired"]
    spoil(path)
    items = shown(capsys, store, "file", path, status=1)
    assert "nothing of the segment can be read" in of_kind(items, "damage")[0]["what"]


def test_segment_that_was_put_aside_is_shown_under_its_new_name(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = newest(store, f"streams/{ORDERS_ID.hex()}/*")
    target = store / "lost+found" / f"streams_{ORDERS_ID.hex()}_{path.name}"
    path.rename(target)
    items = shown(capsys, store, "file", target)
    assert of_kind(items, "segment")[0]["stream"] == ORDERS_ID.hex()


@pytest.mark.parametrize("name", ["ORDERS", "A/ORDERS", ORDERS_ID.hex()])
def test_one_stream_is_shown_with_its_segments_and_its_part_of_the_journal(
    store: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    items = shown(capsys, store, "stream", name)
    assert [stream["name"] for stream in of_kind(items, "stream")] == ["ORDERS"]
    assert of_kind(items, "segment")
    assert sum(item["messages"] for item in of_kind(items, "in the journal")) > 5


def test_stream_that_only_the_journal_knows_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(tmp_path / "store")
    store.commit([(CATALOG, PutStream(ORDERS, ORDERS_ID, "A", "ORDERS", {}))])
    store.commit([(ORDERS, Append(b"o", 0, b"x"))])
    store.close()
    items = shown(capsys, tmp_path / "store", "stream", "ORDERS")
    assert of_kind(items, "in the journal")[0]["messages"] == 1


def test_encrypted_segment_is_opened_with_the_key_of_the_configuration(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream_id = b"\x09" * 16
    path = segment_path(stream_id, 1, 1)
    messages = [Message(seq, seq, b"a.b", 0, b"text") for seq in range(1, 5)]
    write_segment(RealFiles(str(store)), path, stream_id, messages, Keyring.read(KEY))
    items = shown(capsys, store, "file", path, status=1)
    assert "encrypted with key" in of_kind(items, "damage")[0]["what"]
    config = tmp_path / "edged.conf"
    config.write_text(f'jetstream {{ store_dir: "{store}", key: "{KEY}" }}')
    items = shown(capsys, "-c", config, "file", path)
    assert of_kind(items, "segment")[0]["messages"] == 4
    assert KEY not in json.dumps(items)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "which store?"),
        (["nowhere"], "is no directory"),
        (["STORE", "what"], "what cannot be shown"),
        (["STORE", "stream", "NOBODY"], "speaks of a stream NOBODY"),
        (["STORE", "file", "nothing.log"], "is no file of the store"),
        (["STORE", "file", "lock"], "neither a journal file nor"),
        (["STORE", "--top", "x"], "--top needs a number"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    store: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    assert main(["inspect", *(str(store) if word == "STORE" else word for word in arguments)]) == 3
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


def test_stream_in_memory_is_shown_by_its_configuration_since_nothing_else_of_it_is_on_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "store"
    store = open_store(root)
    store.commit([(CATALOG, PutStream(ORDERS, ORDERS_ID, "A", "ORDERS", {}))])
    store.commit([(CATALOG, PutStream(2, b"\x02" * 16, "A", "CACHE", {"storage": "memory"}))])
    for number in range(300):
        store.commit([(ORDERS, Append(b"o", 0, b"%d " % number * 50)), (2, Append(b"c", 0, b"gone"))])
        store.maintain()
    assert store.stream(2).log.message_count == 300
    store.close()
    (checkpointed, *_) = [
        item for item in of_kind(shown(capsys, root, "checkpoint"), "stream") if item["name"] == "CACHE"
    ]
    assert (checkpointed["storage"], checkpointed["config"]) == ("memory", {"storage": "memory"})
    (stream,) = shown(capsys, root, "stream", "A/CACHE")
    assert (stream["item"], stream["storage"]) == ("stream", "memory")
    assert {item["group"] for item in of_kind(shown(capsys, root, "journal"), "append")} == {ORDERS}
    assert main(["fsck", str(root)]) == 0
    report = capsys.readouterr().out
    assert "A/ORDERS" in report and report.endswith("clean\n")


@pytest.mark.parametrize("command", ["fsck", "inspect", "tune"])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_explains_every_flag_and_exit_status(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, flag]) == 0
    text = capsys.readouterr().out
    usage = text.splitlines()[0]
    assert all(f"\n  {one}" in text or f", {one} " in text for one in re.findall("--[a-z]+", usage))
    statuses = {"fsck": ("0", "1", "2", "3"), "inspect": ("0", "1", "3"), "tune": ()}[command]
    assert tuple(re.findall(r"\n  ([0-9])  ", text)) == statuses
