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
from edged.store.store import Append, Store

KEYS = Keyring.read("a key that is long enough", None, "chachapoly", {})
SECRET = b"nobody may read this"
COUNT = 120


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with segments, checkpoints and records in the journal."""
    directory = tmp_path / "store"
    directory.mkdir()
    store = Store.open(RealFiles(str(directory)), StoreOptions(journal_file_bytes=16 * 1024, keys=KEYS))
    store.commit([(0, PutStream(1, b"s" * 16, "A", "S", {}))])
    store.commit([(1, PutConsumer(1, "worker", {}))])
    for _ in range(COUNT):
        store.commit([(1, Append(b"secret", 0, SECRET * 20))])
        store.maintain()
    store.close()
    return directory


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
