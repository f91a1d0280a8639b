"""`edged fsck`: a clean store is clean; each kind of damage is found, and what it costs is said rightly."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edged.cli import main
from edged.core.commands import PutStream
from edged.fsck_command import Progress
from edged.store.box import Keyring
from edged.store.errors import StoreError
from edged.store.files import OperatingSystem
from edged.store.fsck import verify
from edged.store.fsck_files import ReadOnlyCalls, StoreFiles
from edged.store.fsck_report import Report, Severity
from edged.store.group import CATALOG
from edged.store.journal_file import HEADER_BYTES
from edged.store.store import Append
from tests.store.fsck_samples import (
    GONE_ID,
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("fsck") / "store")


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(whole, tmp_path / "store"))


def check(root: Path) -> Report:
    return verify(StoreFiles(str(root)), Keyring())


def said(report: Report, severity: Severity) -> list[str]:
    return [finding.what for finding in report.findings if finding.severity == severity]


# --- a store that is whole ---


def test_clean_store_is_clean_and_its_streams_are_listed(whole: Path) -> None:
    report = check(whole)
    assert report.status == Severity.NOTE, report.findings
    assert not report.findings
    orders, logs = report.streams
    assert (orders.title, orders.last_seq, orders.consumers) == ("A/ORDERS", 150, 1)
    assert (logs.title, logs.messages) == ("A/LOGS", 30)
    assert report.segments and report.checkpoint


def test_nothing_is_written_to_a_store_that_is_looked_at(store: Path, tmp_path: Path) -> None:
    before = files_of(store)
    assert main(["fsck", str(store)]) == 0
    assert main(["fsck", str(store), "--salvage", str(tmp_path / "new")]) == 0
    assert files_of(store) == before


def test_store_that_was_never_closed_is_clean_and_its_torn_end_a_note(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.commit([(CATALOG, PutStream(1, b"\x01" * 16, "A", "ONE", {}))])
    for _ in range(3):
        store.commit([(1, Append(b"a", 0, b"text"))])
    path = newest(tmp_path / "store", "journal/0*.log")
    place = path.read_bytes().rfind(b"text")
    spoil(path, place, place + 1)
    report = check(tmp_path / "store")
    assert report.status == Severity.NOTE, report.findings
    assert [what for what in said(report, Severity.NOTE) if "cut off by a crash" in what]
    assert report.streams[0].messages == 2
    store.close()


def test_empty_store_is_clean(tmp_path: Path) -> None:
    open_store(tmp_path / "store").close()
    assert check(tmp_path / "store").status == Severity.NOTE


# --- damage that costs nothing ---


def test_newest_checkpoint_lost_costs_nothing(store: Path) -> None:
    path = newest(store, "checkpoints/*")
    spoil(path)
    report = check(store)
    assert report.status == Severity.HARMLESS
    assert report.findings[0].path == f"checkpoints/{path.name}"
    assert report.streams[0].last_seq == 150


def test_bad_sector_in_a_checkpoint_is_repaired(store: Path) -> None:
    spoil(newest(store, "checkpoints/*"), 600, 900)
    report = check(store)
    assert report.status == Severity.HARMLESS
    assert said(report, Severity.HARMLESS) == ["it was repaired"]


def test_one_copy_of_a_journal_header_is_enough(store: Path) -> None:
    spoil(newest(store, "journal/0*.log"), 2048, 2500)
    report = check(store)
    assert report.status == Severity.HARMLESS
    assert [finding.offset for finding in report.findings] == [2048]


def test_second_copy_of_a_command_makes_up_for_the_first(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.commit([(CATALOG, PutStream(1, b"\x01" * 16, "A", "ONE", {}))])
    store.commit([(1, Append(b"a", 0, b"text"))])
    store.close()
    path = newest(tmp_path / "store", "journal/0*.log")
    spoil(path, HEADER_BYTES + 30, HEADER_BYTES + 31)
    report = check(tmp_path / "store")
    assert report.status == Severity.HARMLESS
    assert report.findings[0].cost.startswith("nothing")
    assert report.streams[0].messages == 1


def test_damage_in_what_only_the_older_generation_needs_costs_nothing(store: Path) -> None:
    oldest = sorted(store.glob("journal/0*.log"))[0]
    spoil(oldest, HEADER_BYTES + 100, HEADER_BYTES + 600)
    report = check(store)
    assert report.status == Severity.HARMLESS
    assert all("newest checkpoint is good" in finding.cost for finding in report.findings)


def test_what_nobody_refers_to_is_noted(store: Path) -> None:
    (store / "notes.txt").write_text("mine")
    (store / "lost+found" / "streams_x.seg").write_bytes(b"x" * 10)
    (store / "streams" / ORDERS_ID.hex() / f"{1:020d}-{99999999:08d}.seg").write_bytes(b"x")
    (store / "checkpoints" / "x.ckpt.tmp").write_bytes(b"x")
    report = check(store)
    assert report.status == Severity.NOTE
    assert len(said(report, Severity.NOTE)) == 4


# --- losses ---


def test_damaged_message_in_the_journal_is_lost_with_its_seq(store: Path) -> None:
    path = newest(store, "journal/0*.log")
    place = path.read_bytes().find(b"order 149 ")
    assert place > 0
    spoil(path, place, place + 1)
    report = check(store)
    assert report.status == Severity.LOSS
    lost = next(finding for finding in report.findings if finding.severity == Severity.LOSS)
    assert (lost.stream, lost.first_seq, lost.last_seq, lost.messages) == ("A/ORDERS", 150, 150, 1)
    assert lost.path == f"journal/{path.name}"
    assert report.streams[0].messages_lost == 1


def test_missing_segment_costs_its_live_messages(store: Path) -> None:
    newest(store, f"streams/{ORDERS_ID.hex()}/*").unlink()
    (store / "streams" / ORDERS_ID.hex()).joinpath("x").touch()
    for path in store.glob(f"streams/{ORDERS_ID.hex()}/*.seg"):
        path.unlink()
    report = check(store)
    assert report.status == Severity.LOSS
    assert any(finding.what == "a segment is missing" and finding.messages for finding in report.findings)


def test_segment_of_another_stream_is_not_taken_for_the_right_one(store: Path) -> None:
    own = newest(store, f"streams/{LOGS_ID.hex()}/*")
    shutil.copy(newest(store, f"streams/{ORDERS_ID.hex()}/*"), own)
    report = check(store)
    assert report.status == Severity.LOSS
    assert any("this is segment" in finding.what for finding in report.findings)


def test_lost_header_of_the_last_file_is_a_loss_though_a_start_would_not_notice(store: Path) -> None:
    spoil(newest(store, "journal/0*.log"), 0, HEADER_BYTES)
    report = check(store)
    assert report.status == Severity.LOSS
    assert "frames of it can be read" in report.findings[0].advice


def test_missing_journal_file_after_the_checkpoint_is_a_loss(store: Path) -> None:
    newest(store, "journal/0*.log").unlink()
    report = check(store)
    assert report.status == Severity.LOSS
    assert "a file of the journal is missing" in said(report, Severity.LOSS)


def test_file_after_the_checkpoint_without_its_batches_is_a_loss(store: Path) -> None:
    spoil(newest(store, "journal/0*.log"), HEADER_BYTES)
    report = check(store)
    assert report.status == Severity.LOSS
    assert said(report, Severity.LOSS) == ["the journal file after the checkpoint has nothing in it"]


def test_all_checkpoints_lost_means_that_the_store_does_not_open(store: Path) -> None:
    for path in store.glob("checkpoints/*"):
        spoil(path)
    report = check(store)
    assert report.status == Severity.LOSS
    assert "the store does not open" in {finding.cost for finding in report.findings}


# --- the disk and the world ---


class BadSectors(OperatingSystem):
    """A disk that refuses to give some bytes of one file."""

    def __init__(self, path: str, start: int, end: int) -> None:
        self.place = path, start, end
        self.descriptors: dict[int, str] = {}

    def open(self, path: str, flags: int, mode: int) -> int:  # type: ignore[override]
        descriptor = os.open(path, flags, mode)
        self.descriptors[descriptor] = path
        return descriptor

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:  # type: ignore[override]
        path, start, end = self.place
        if self.descriptors[descriptor].endswith(path) and offset < end and start < offset + size:
            raise OSError(errno.EIO, "broken", path)
        return os.pread(descriptor, size, offset)


def test_sector_that_the_disk_does_not_give_is_damage_like_any_other(store: Path) -> None:
    path = newest(store, "checkpoints/*")
    calls = ReadOnlyCalls(BadSectors(path.name, 512, 1024))
    report = verify(StoreFiles(str(store), calls), Keyring())
    assert report.status == Severity.HARMLESS
    assert "the disk does not give bytes 512 to 1023" in said(report, Severity.HARMLESS)


def test_read_only_files_refuse_every_change(store: Path) -> None:
    files = StoreFiles(str(store))
    file = files.open("lock")
    for change in (
        lambda: file.write_at(0, b"x"),
        lambda: file.truncate(0),
        lambda: file.allocate(10),
        file.sync,
        lambda: files.create("x"),
        lambda: files.make_directory("x"),
        lambda: files.rename("lock", "x"),
        lambda: files.remove("lock"),
        lambda: files.remove_directory("streams"),
        lambda: files.sync_directory(""),
    ):
        with pytest.raises(OSError):
            change()
    file.close()


def test_store_in_use_is_refused_with_a_clear_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(tmp_path / "store")
    assert main(["fsck", str(tmp_path / "store")]) == 3
    assert "another process has the store open: stop it first" in capsys.readouterr().err
    store.close()
    assert main(["fsck", str(tmp_path / "store")]) == 0


def test_lock_is_held_while_a_store_is_checked(store: Path) -> None:
    lock = StoreFiles(str(store)).lock_if_there()
    assert lock is not None
    with pytest.raises(StoreError, match="another process"):
        open_store(store)
    lock.close()


@pytest.mark.parametrize(
    "arguments", [[], ["a", "b"], ["--what"], ["--salvage"], ["nowhere"], ["-c", "nowhere.conf"]]
)
def test_wrong_arguments_have_the_status_of_what_cannot_be_read(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fsck", *arguments]) == 3
    assert capsys.readouterr().err.startswith("edged: ")


def test_directory_that_is_no_store_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fsck", str(tmp_path)]) == 3
    assert "this is no store" in capsys.readouterr().out


def test_store_directory_comes_from_the_configuration(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "edged.conf"
    config.write_text(f'jetstream {{ store_dir: "{store}" }}')
    assert main(["fsck", "-c", str(config)]) == 0
    assert "clean" in capsys.readouterr().out


def test_report_as_json_says_the_same(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(newest(store, "checkpoints/*"))
    assert main(["fsck", str(store), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == 1
    assert document["findings"][0]["severity"] == "harmless"
    assert [stream["name"] for stream in document["streams"]] == ["ORDERS", "LOGS"]
    assert document["bytes_checked"] > 10_000


def test_report_of_a_small_store_reads_like_this(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(tmp_path / "store")
    store.commit([(CATALOG, PutStream(ORDERS, ORDERS_ID, "A", "ORDERS", {"subjects": ["o.>"]}))])
    for number in range(3):
        store.commit([(ORDERS, Append(b"o.new", 0, b"order %d" % number))])
    store.close()
    path = newest(tmp_path / "store", "journal/0*.log")
    place = path.read_bytes().find(b"order 1")
    spoil(path, place, place + 1)
    assert main(["fsck", "store"]) == 2
    out = capsys.readouterr().out.replace(str(tmp_path), "")
    assert out == (
        "damage: bytes 4372 to 4421 of the journal are damaged\n"
        "    where: journal/00000000000000000001.log at byte 4372\n"
        "    costs: what is listed as missing in the journal\n"
        "    to do: watch the disk: bytes on it have changed\n"
        "LOSS: 1 commands are missing in the journal (indexes 2 to 2) (A/ORDERS)\n"
        "    where: journal/00000000000000000001.log at byte 4372\n"
        "    costs: messages 2 to 2\n"
        "    to do: edged fsck STORE_DIR --salvage NEW_DIR keeps everything that can be read,"
        " and looks for copies in older files\n"
        "\n"
        "stream                              messages         bytes   first seq    last seq    lost\n"
        "A/ORDERS                                   2            84           1           3       1\n"
        "\n"
        "/store: 1 streams with 2 messages; 1 messages are lost or would be after a start\n"
    )


@pytest.mark.real
def test_exit_status_of_the_real_command(store: Path) -> None:
    command = str(Path(sys.executable).with_name("edged"))

    def status() -> int:
        return subprocess.run(
            [command, "fsck", str(store)], capture_output=True, timeout=60, check=False
        ).returncode

    assert status() == 0
    spoil(newest(store, "checkpoints/*"), 600, 700)
    assert status() == 1
    newest(store, "journal/0*.log").unlink()
    assert status() == 2
    shutil.rmtree(store / "journal")
    shutil.rmtree(store / "checkpoints")
    shutil.rmtree(store / "streams")
    assert status() == 3


# --- progress ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere() -> None:
    for out, expected in ((Terminal(), "\r[###############"), (io.StringIO(), "edged fsck: 50%")):
        now_s = [0.0]
        progress = Progress(out, lambda now_s=now_s: now_s[0])  # type: ignore[misc]
        progress.begin(200 << 20)
        now_s[0] = 20.0
        progress.add(100 << 20)
        text = out.getvalue()
        assert text.startswith(expected)
        assert "100 of about 200 MiB, 5 MiB/s, 20 s left" in text
        progress.clear()
        assert progress.finish() == 100 << 20


# --- what is said is true ---


def test_what_costs_nothing_costs_nothing_and_losses_are_seen(whole: Path, tmp_path: Path) -> None:
    _check_rot(whole, tmp_path, seed=1, count=40)


@pytest.mark.slow
def test_what_costs_nothing_costs_nothing_for_many_kinds_of_rot(whole: Path, tmp_path: Path) -> None:
    _check_rot(whole, tmp_path, seed=2, count=600)


def _check_rot(whole: Path, tmp_path: Path, seed: int, count: int) -> None:
    chance = random.Random(seed)
    truth = contents(whole, tmp_path / "scratch")
    paths = [name for name, data in files_of(whole).items() if data and "spare" not in name]
    last_file, last_offset = last_record(whole)
    for trial in range(count):
        store = tmp_path / "rotten"
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(whole, store)
        path = store / chance.choice(paths)
        size = chance.choice((1, 1, 40, 512, 3000))
        start = chance.randrange(path.stat().st_size)
        data = bytearray(path.read_bytes())
        end = min(len(data), start + size)
        if path.name == last_file.name and end > last_offset:
            continue
        data[start:end] = bytes(byte ^ chance.randrange(1, 256) for byte in data[start:end])
        path.write_bytes(data)
        report = check(store)
        assert report.status < Severity.UNREADABLE, (seed, trial, report.findings)
        try:
            found = contents(store, tmp_path / "scratch")
        except StoreError:
            found = {}
        if report.status < Severity.LOSS:
            assert found == truth, (seed, trial, path, start, size, report.findings)
        elif found:
            assert GONE_ID.hex() not in found
            for stream_id, stream in found.items():
                for seq, message in stream["messages"].items():
                    assert truth[stream_id]["messages"].get(seq, message) == message, (seed, trial)
