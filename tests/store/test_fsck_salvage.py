"""`edged fsck --salvage`: everything that can be read is in the new store, under the seqs that it had."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from edged.cli import main
from edged.core.commands import PutStream, encode
from edged.core.frames import BATCH, COMMAND, FrameBuffer
from edged.store.box import Keyring
from edged.store.fsck_files import StoreFiles
from edged.store.fsck_report import Severity
from edged.store.fsck_salvage import Salvaged, salvage
from edged.store.group import CATALOG
from edged.store.journal_file import HEADER_BYTES, JournalHeader
from edged.store.journal_nonce import recover_nonce
from edged.store.store import Append
from tests.store.fsck_samples import (
    LOGS_ID,
    ORDERS,
    ORDERS_ID,
    build,
    contents,
    files_of,
    last_record,
    newest,
    open_store,
    spoil,
)

COUNT = 150


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("salvage") / "store", COUNT)


@pytest.fixture(scope="module")
def truth(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return contents(whole, tmp_path_factory.mktemp("truth") / "store")


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "store"))


def save(store: Path, tmp_path: Path) -> tuple[Salvaged, dict[str, dict[str, Any]]]:
    """Salvage, and what is in the new store. The old one must stay as it is."""
    before = files_of(store)
    salvaged = salvage(StoreFiles(str(store)), str(tmp_path / "new"), Keyring())
    assert files_of(store) == before
    return salvaged, contents(tmp_path / "new", tmp_path / "scratch")


def test_store_that_is_whole_is_copied_exactly(
    store: Path, tmp_path: Path, truth: dict[str, dict[str, Any]]
) -> None:
    salvaged, found = save(store, tmp_path)
    assert found == truth
    assert salvaged.status == Severity.NOTE
    assert main(["fsck", str(tmp_path / "new")]) == 0


def test_new_store_goes_on_where_the_old_one_was(store: Path, tmp_path: Path) -> None:
    save(store, tmp_path)
    opened = open_store(tmp_path / "new")
    assert opened.report.is_clean
    assert opened.commit([(ORDERS, Append(b"o.1", 0, b"next"))]) == [COUNT + 1]
    opened.close()
    highest = newest(store, "journal/0*.log").name
    assert newest(tmp_path / "new", "journal/0*.log").name > highest
    assert len(list((tmp_path / "new").glob("checkpoints/*"))) == 2
    assert main(["fsck", str(tmp_path / "new")]) == 0


def test_new_store_without_its_checkpoints_is_not_taken_for_an_empty_one(store: Path, tmp_path: Path) -> None:
    save(store, tmp_path)
    for path in (tmp_path / "new").glob("checkpoints/*"):
        spoil(path)
    assert main(["fsck", str(tmp_path / "new")]) == 2


def test_messages_of_a_missing_segment_come_from_the_older_generation(
    store: Path, tmp_path: Path, truth: dict[str, dict[str, Any]]
) -> None:
    path = sorted(store.glob(f"streams/{ORDERS_ID.hex()}/*.seg"), key=lambda path: path.name[21:])[-1]
    path.unlink()
    assert main(["fsck", str(store)]) == 2
    salvaged, found = save(store, tmp_path)
    assert found == truth
    assert not any(stream.lost for stream in salvaged.streams)


def test_message_that_nobody_has_is_recorded_as_lost_and_leaves_a_gap(
    store: Path, tmp_path: Path, truth: dict[str, dict[str, Any]]
) -> None:
    path = newest(store, "journal/0*.log")
    place = path.read_bytes().find(b"order 147 ")
    spoil(path, place, place + 1)
    salvaged, found = save(store, tmp_path)
    assert salvaged.status == Severity.LOSS
    assert salvaged.streams[0].lost == [(148, 148)]
    messages = dict(truth[ORDERS_ID.hex()]["messages"])
    messages.pop(148, None)
    assert found[ORDERS_ID.hex()]["messages"] == messages
    assert found[ORDERS_ID.hex()]["last_seq"] == COUNT


def test_lost_segment_of_a_stream_that_refuses_does_not_let_in_what_was_refused(
    store: Path, tmp_path: Path, truth: dict[str, dict[str, Any]]
) -> None:
    for path in store.glob(f"streams/{LOGS_ID.hex()}/*.seg"):
        path.unlink()
    _, found = save(store, tmp_path)
    assert found[LOGS_ID.hex()]["last_seq"] == truth[LOGS_ID.hex()]["last_seq"]
    assert found[LOGS_ID.hex()]["messages"].items() <= truth[LOGS_ID.hex()]["messages"].items()


@pytest.mark.parametrize("which", [0, -1])
def test_journal_file_without_its_header_is_read_all_the_same(
    store: Path, tmp_path: Path, truth: dict[str, dict[str, Any]], which: int
) -> None:
    path = sorted(store.glob("journal/0*.log"))[which]
    spoil(path, 0, HEADER_BYTES)
    salvaged, found = save(store, tmp_path)
    assert found == truth
    assert salvaged.notes == [f"journal/{path.name}: its header is lost and was computed from its frames"]


def test_journal_file_that_is_gone_is_said(store: Path, tmp_path: Path) -> None:
    path = newest(store, "journal/0*.log")
    path.unlink()
    salvaged, _ = save(store, tmp_path)
    assert salvaged.status == Severity.LOSS
    assert salvaged.notes == [f"journal/{path.name}: the commands in it are lost"]


# --- without checkpoints ---


def test_without_checkpoints_messages_keep_their_seqs_and_streams_get_a_name(
    store: Path, tmp_path: Path, truth: dict[str, dict[str, Any]]
) -> None:
    for path in store.glob("checkpoints/*"):
        spoil(path)
    salvaged, found = save(store, tmp_path)
    assert salvaged.status == Severity.LOSS
    assert any("no checkpoint can be read" in note for note in salvaged.notes)
    for stream_id in (ORDERS_ID.hex(), LOGS_ID.hex()):
        there = found[stream_id]
        assert there["name"] == f"RECOVERED_{stream_id[:12]}"
        assert truth[stream_id]["messages"].items() <= there["messages"].items()
        assert there["last_seq"] == truth[stream_id]["last_seq"]
    known = {message_id: seq for _, message_id, seq in found[ORDERS_ID.hex()]["ids"]}
    assert known[b"id-149"] == 150
    assert all("configuration" in stream.notes[0] for stream in salvaged.streams)


def test_without_checkpoints_and_journal_the_segments_are_saved(
    store: Path, tmp_path: Path, truth: dict[str, dict[str, Any]]
) -> None:
    for path in [*store.glob("checkpoints/*"), *store.glob("journal/*")]:
        spoil(path)
    _, found = save(store, tmp_path)
    assert found.keys() == truth.keys()
    assert len(found[ORDERS_ID.hex()]["messages"]) > 50


def test_without_checkpoints_deletions_in_the_journal_still_count(tmp_path: Path) -> None:
    store = build(tmp_path / "store", 60)
    deleted = {number for number in range(60) if number % 7 == 3}
    for path in store.glob("checkpoints/*"):
        spoil(path)
    _, found = save(store, tmp_path)
    last = max(deleted)
    assert last not in found[ORDERS_ID.hex()]["messages"]


def test_configuration_is_found_in_a_file_that_waits_to_be_used_again(store: Path, tmp_path: Path) -> None:
    spare = newest(store, "journal/spare-*.log")
    nonce = 0x1234_5678_0000_0001
    frames = FrameBuffer()
    put = PutStream(ORDERS, ORDERS_ID, "A", "ORDERS", {"subjects": ["o.>"]})
    frames.add(COMMAND, CATALOG, 1, encode(put))
    frames.add(BATCH, CATALOG, 1, b"\x94\x01\x00\x00\x90")
    header = JournalHeader(3, nonce, 0, 2, 5000).encode()
    spare.write_bytes(header + bytes(frames.finish(nonce, HEADER_BYTES)))
    for path in store.glob("checkpoints/*"):
        spoil(path)
    _, found = save(store, tmp_path)
    assert found[ORDERS_ID.hex()]["name"] == "ORDERS"
    assert found[ORDERS_ID.hex()]["config"] == {"subjects": ["o.>"]}


def test_young_store_without_a_checkpoint_is_copied_exactly(tmp_path: Path) -> None:
    build(tmp_path / "store", 10)
    assert not list((tmp_path / "store").glob("checkpoints/*"))
    truth = contents(tmp_path / "store", tmp_path / "scratch")
    salvaged, found = save(tmp_path / "store", tmp_path)
    assert found == truth
    assert salvaged.status == Severity.NOTE


def test_checkpoint_in_lost_and_found_is_used(
    store: Path, tmp_path: Path, truth: dict[str, dict[str, Any]]
) -> None:
    paths = sorted(store.glob("checkpoints/*"))
    for path in paths:
        path.rename(store / "lost+found" / f"checkpoints_{path.name}")
    _, found = save(store, tmp_path)
    assert found == truth


# --- the command ---


def test_target_must_be_new_and_apart(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "half.partial").mkdir()
    for target, reason in (
        (store, "apart from the store"),
        (store / "new", "apart from the store"),
        (tmp_path, "apart from the store"),
        (tmp_path / "full", "is there already"),
        (tmp_path / "half", "left from an earlier attempt"),
        (tmp_path / "a" / "b", "is no directory"),
    ):
        assert main(["fsck", str(store), "--salvage", str(target)]) == 3
        assert reason in capsys.readouterr().err


def test_report_names_streams_losses_and_where_it_is(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = newest(store, "journal/0*.log")
    place = path.read_bytes().find(b"order 147 ")
    spoil(path, place, place + 1)
    assert main(["fsck", str(store), "--salvage", str(tmp_path / "new")]) == 2
    out = capsys.readouterr().out
    assert "A/ORDERS" in out and "148-148" in out
    assert f"{tmp_path / 'new'}: verified; 2 streams" in out
    shutil.rmtree(tmp_path / "new")
    assert main(["fsck", str(store), "--json", "--salvage", str(tmp_path / "new")]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["streams"][0]["lost"] == [[148, 148]]


def test_salvage_brings_nothing_wrong_from_rotten_stores(
    whole: Path, tmp_path: Path, truth: dict[str, dict[str, Any]]
) -> None:
    _check_rot(whole, tmp_path, truth, seed=3, count=12)


@pytest.mark.slow
def test_salvage_brings_nothing_wrong_from_many_rotten_stores(
    whole: Path, tmp_path: Path, truth: dict[str, dict[str, Any]]
) -> None:
    _check_rot(whole, tmp_path, truth, seed=4, count=200)


def _check_rot(whole: Path, tmp_path: Path, truth: dict[str, dict[str, Any]], seed: int, count: int) -> None:
    """With several damaged places: what is saved is as it was, and without a loss nothing is missing."""
    chance = random.Random(seed)
    names = [name for name, data in files_of(whole).items() if data]
    last_file, last_offset = last_record(whole)
    for trial in range(count):
        for directory in ("rotten", "new"):
            shutil.rmtree(tmp_path / directory, ignore_errors=True)
        store = Path(shutil.copytree(whole, tmp_path / "rotten"))
        for _ in range(chance.randrange(1, 6)):
            path = store / chance.choice(names)
            size = chance.choice((1, 100, 512, 4096))
            start = chance.randrange(path.stat().st_size)
            end = min(path.stat().st_size, start + size)
            if path.name != last_file.name or end <= last_offset:
                spoil(path, start, end)
        salvaged, found = save(store, tmp_path)
        for stream_id, stream in found.items():
            for seq, message in stream["messages"].items():
                assert truth[stream_id]["messages"].get(seq, message) == message, (seed, trial)
            if not salvaged.is_incomplete:
                assert stream["messages"].items() <= truth[stream_id]["messages"].items(), (seed, trial)
        if salvaged.status < Severity.LOSS:
            assert found == truth, (seed, trial, salvaged)


# --- nonces ---


def test_nonce_is_computed_from_any_frames_and_never_guessed() -> None:
    chance = random.Random(5)
    for _ in range(50):
        nonce = chance.getrandbits(64) | 1
        frames = FrameBuffer()
        for number in range(chance.randrange(2, 9)):
            frames.add(COMMAND, number, number + 1, chance.randbytes(chance.randrange(300)))
        data = bytes(HEADER_BYTES) + bytes(frames.finish(nonce, HEADER_BYTES)) + bytes(500)
        assert recover_nonce(data) == nonce
        assert recover_nonce(bytes(HEADER_BYTES) + chance.randbytes(2000)) is None


def test_nonce_is_found_behind_a_damaged_first_frame() -> None:
    nonce = 0xFEDC_BA98_7654_3211
    frames = FrameBuffer()
    for number in range(5):
        frames.add(COMMAND, 1, number, b"body %d" % number)
    data = bytearray(bytes(HEADER_BYTES) + bytes(frames.finish(nonce, HEADER_BYTES)))
    data[HEADER_BYTES + 26] ^= 1
    assert recover_nonce(bytes(data)) == nonce


@pytest.mark.parametrize("size", [0, 100, HEADER_BYTES, HEADER_BYTES + 10])
def test_file_without_frames_tells_no_nonce(size: int) -> None:
    assert recover_nonce(bytes(size)) is None
