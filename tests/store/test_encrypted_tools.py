"""fsck, salvage and inspect on an encrypted store."""

from __future__ import annotations

from pathlib import Path

import pytest

from edged.core.commands import PutConsumer, PutStream
from edged.store import inspect
from edged.store.box import Keyring
from edged.store.files import RealFiles
from edged.store.fsck import verify
from edged.store.fsck_files import StoreFiles
from edged.store.fsck_salvage import salvage
from edged.store.options import StoreOptions
from edged.store.sealed_frames import TAG_BYTES
from edged.store.store import Append, Store

KEYS = Keyring.read("a key that is long enough", None, "chachapoly", {})
SECRET = b"nobody may read this"
COUNT = 120


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "store"
    directory.mkdir()
    fill(directory, KEYS)
    return directory


def fill(directory: Path, keys: Keyring | None) -> None:
    """A store with segments, checkpoints and records in the journal."""
    store = Store.open(RealFiles(str(directory)), StoreOptions(journal_file_bytes=16 * 1024, keys=keys))
    store.commit([(0, PutStream(1, b"s" * 16, "A", "S", {}))])
    store.commit([(1, PutConsumer(1, "worker", {"ack_policy": "explicit"}))])
    for _ in range(COUNT):
        store.commit([(1, Append(b"secret", 0, SECRET * 20))])
        store.maintain()
    store.close()


def files_of(root: Path, keys: Keyring = KEYS) -> StoreFiles:
    return StoreFiles(str(root), keys=keys)


def test_a_whole_encrypted_store_is_found_clean(root: Path) -> None:
    report = verify(files_of(root), KEYS)
    assert report.findings == []


def test_without_the_key_it_is_unreadable_and_nothing_else_is_said(root: Path) -> None:
    report = verify(files_of(root, Keyring()), Keyring())
    assert any("key" in finding.what for finding in report.findings)


def test_a_salvaged_store_has_everything_and_is_encrypted_again(root: Path, tmp_path: Path) -> None:
    salvage(files_of(root), str(tmp_path / "new"), KEYS)
    store = Store.open(RealFiles(str(tmp_path / "new")), StoreOptions(keys=KEYS))
    log = store.stream(1).log
    assert (log.first_seq, log.last_seq, log.message_count) == (1, COUNT, COUNT)
    message = log.get(COUNT)
    assert message is not None and message.data == SECRET * 20
    store.close()
    written = [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    assert written and all(SECRET not in path.read_bytes() for path in written)


def test_the_checkpoints_can_be_looked_at_with_the_key(root: Path) -> None:
    asked = inspect.Asked()
    items = list(inspect.all_checkpoints(files_of(root), KEYS, asked))
    assert any("worker" in str(item) or "S" in str(item) for item in items)
    assert not any("damage" in str(item).lower() for item in items)


def shown(root: Path, keys: Keyring, **asked: bool) -> list[inspect.Item]:
    return list(inspect.all_journal(files_of(root, keys), keys, inspect.Asked(**asked)))


def test_the_journal_can_be_looked_at_with_the_key_as_a_plain_one(root: Path, tmp_path: Path) -> None:
    """Both are filled alike; they differ in their headers, and by a tag in the size of every frame."""
    (tmp_path / "plain").mkdir()
    fill(tmp_path / "plain", None)
    plain, sealed = (
        shown(tmp_path / "plain", Keyring(), with_payload=True),
        shown(root, KEYS, with_payload=True),
    )
    by_kind = [[item for item in items if item.kind in ("append", "command")] for items in (plain, sealed)]
    assert any(item.kind == "append" for item in by_kind[1])
    # Which messages are still in the journal depends on the sizes of the frames; the last ones always are.
    for one, other in zip(*(items[-10:] for items in by_kind), strict=True):
        assert one.kind == other.kind
        assert {**one.fields, "offset": 0, "bytes": one.fields["bytes"] + TAG_BYTES, "ts_ns": 0} == {
            **other.fields,
            "offset": 0,
            "ts_ns": 0,
        }
    assert not any(item.kind == "damage" for item in sealed)


def test_without_the_key_the_frames_of_the_journal_are_counted_and_the_missing_key_is_named(
    root: Path,
) -> None:
    with_key, without = shown(root, KEYS), shown(root, Keyring())
    files = [item for item in with_key if item.fields.get("use") == "in use"]
    missing = [item for item in without if item.kind == "damage"]
    assert len(missing) == len(files)
    assert all("encrypted with key" in item.fields["what"] for item in missing)
    assert len([item for item in without if item.kind == "append"]) == len(
        [item for item in with_key if item.kind == "append"]
    )
    assert not any("subject" in item.fields for item in without)


def test_flipped_bit_in_an_encrypted_journal_costs_inspect_one_frame(root: Path) -> None:
    before = [item for item in shown(root, KEYS) if item.kind == "append"]
    path = sorted(root.glob("journal/0*.log"))[-1]
    offset = before[-1].fields["offset"]
    data = bytearray(path.read_bytes())
    data[offset + 40] ^= 1
    path.write_bytes(data)
    items = shown(root, KEYS)
    assert len([item for item in items if item.kind == "append"]) == len(before) - 1
    assert [item.fields["offset"] for item in items if item.kind == "damage"] == [offset]


def test_journal_file_that_lost_its_header_and_so_its_salt_is_reported_and_the_rest_saved(
    root: Path, tmp_path: Path
) -> None:
    path = sorted(root.glob("journal/0*.log"))[0]
    path.write_bytes(b"\xee" * 4096 + path.read_bytes()[4096:])
    assert any(item.kind == "damage" for item in shown(root, KEYS))
    report = verify(files_of(root), KEYS)
    assert any(path.name in finding.path for finding in report.findings)
    salvage(files_of(root), str(tmp_path / "new"), KEYS)
    store = Store.open(RealFiles(str(tmp_path / "new")), StoreOptions(keys=KEYS))
    assert store.stream(1).log.last_seq == COUNT
    store.close()
