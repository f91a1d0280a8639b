"""The model of the disk against random lives: it agrees with the fake disk, and that one with real files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from edged.store.files import Files, RealFiles
from tests.lab.crash_states import CrashStates
from tests.lab.disk_model import DiskModel
from tests.lab.fake_disk import FakeDisk

SECTOR = 16
DIRECTORIES = ("", "d", "d/e")
LIVES = 25


def act(files: Files, chance: random.Random, operation_count: int) -> list[object]:
    """Do anything, and remember every answer."""
    answers: list[object] = []
    for directory in DIRECTORIES[1:]:
        files.make_directory(directory)
    for _ in range(operation_count):
        path = "/".join(filter(None, (chance.choice(DIRECTORIES), chance.choice("xyz"))))
        other = "/".join(filter(None, (chance.choice(DIRECTORIES), chance.choice("xyz"))))
        kind, offset, size = chance.randrange(10), chance.randrange(60), chance.randrange(1, 50)
        data = chance.randbytes(size)
        try:
            answers.append(_do(files, kind, path, other, offset, data))
        except OSError as error:
            answers.append(error.errno)
    answers.extend(files.list(directory) for directory in DIRECTORIES)
    return answers


def _do(files: Files, kind: int, path: str, other: str, offset: int, data: bytes) -> object:
    if kind == 0:
        return files.remove(path)
    if kind == 1:
        return files.rename(path, other)
    if kind == 2:
        return files.sync_directory(path.rpartition("/")[0])
    file = files.create(path) if kind == 3 else files.open(path)
    try:
        if kind <= 6:
            file.write_at(offset, data)
        elif kind == 7:
            file.truncate(offset)
        elif kind == 8:
            file.allocate(offset)
        else:
            file.sync()
        return file.read_at(0, 200), file.size()
    finally:
        file.close()


def recorded(seed: int) -> FakeDisk:
    disk = FakeDisk(is_recording=True)
    act(disk, random.Random(seed), 60)
    return disk


def test_fake_disk_answers_like_real_files(tmp_path: Path) -> None:
    for seed in range(LIVES):
        root = tmp_path / str(seed)
        files = RealFiles(str(root))
        files.make_directory("")
        disk = FakeDisk()
        assert act(files, random.Random(seed), 60) == act(disk, random.Random(seed), 60), seed
        assert FakeDisk.from_directory(root).contents() == disk.contents(), seed


@pytest.mark.parametrize("seed", range(LIVES))
def test_all_that_was_done_is_one_of_the_states(seed: int) -> None:
    disk = recorded(seed)
    model = DiskModel(FakeDisk(), SECTOR)
    for operation, done in enumerate(disk.operations or (), 1):
        model.apply(operation, done)
    tree = model.tree((1 << len(model.pending)) - 1)
    contents = []
    for node in tree.nodes:
        file = model.files[node]
        newest = [radix - 1 for radix in file.radices()]
        contents.append(file.content(file.number([newest[0], 0, *newest[2:]])))
    assert model.disk(tree, contents).contents() == disk.contents()


@pytest.mark.parametrize("seed", range(LIVES))
def test_after_a_sync_of_everything_there_is_one_state(seed: int) -> None:
    disk = recorded(seed)
    for path in disk.contents():
        disk.open(path).sync()
    for directory in DIRECTORIES:
        disk.sync_directory(directory)
    disk.mark(1)
    states = CrashStates(FakeDisk(), disk.operations or [], SECTOR).states(random.Random(1), 4)
    (last,) = (state for state in states if state.mark == 1)
    assert last.disk.contents() == disk.contents()
    assert last.disk.directories.keys() == disk.directories.keys()


@pytest.mark.parametrize("seed", range(LIVES))
def test_synced_bytes_under_a_durable_name_are_in_every_later_state(seed: int) -> None:
    disk = recorded(seed)
    file = disk.create("kept")
    file.write_at(0, b"kept" * 20)
    file.sync()
    disk.sync_directory("")
    disk.mark(1)
    act(disk, random.Random(seed + 1000), 20)
    states = CrashStates(FakeDisk(), disk.operations or [], SECTOR).states(random.Random(1), 4)
    later = [state for state in states if state.mark == 1]
    assert len(later) > 5
    assert all(state.disk.contents()["kept"] == b"kept" * 20 for state in later)
