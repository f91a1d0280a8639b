"""Images of disks, and rot: every bit once, each in a disk of its own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.lab.bit_flips import bit_flips, flipped
from tests.lab.fake_disk import FakeDisk


@pytest.fixture
def image() -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory("d/empty")
    disk.create("a").write_at(0, b"abc")
    disk.create("none").close()
    disk.create("d/b").write_at(0, bytes(5))
    return disk


def test_every_bit_of_every_file_is_wrong_once(image: FakeDisk) -> None:
    before = image.contents()
    seen = set()
    for flip in bit_flips(image):
        after = flip.disk.contents()
        (path,) = (path for path in before if before[path] != after[path])
        difference = int.from_bytes(before[path], "little") ^ int.from_bytes(after[path], "little")
        assert difference.bit_count() == 1
        assert (path, difference) == (flip.path, 1 << (8 * flip.offset + flip.bit))
        assert flip.disk.directories.keys() == image.directories.keys()
        seen.add((path, difference))
    assert len(seen) == 8 * 8
    assert image.contents() == before


def test_choice_of_bits_is_of_the_size_asked_for_and_the_same_for_the_same_chance(image: FakeDisk) -> None:
    first = [flip.identity for flip in bit_flips(image, random.Random(5), 20)]
    again = [flip.identity for flip in bit_flips(image, random.Random(5), 20)]
    other = [flip.identity for flip in bit_flips(image, random.Random(6), 20)]
    assert len(set(first)) == 20
    assert first == again != other


def test_flip_is_found_again_by_its_name(image: FakeDisk) -> None:
    for flip in bit_flips(image, random.Random(5), 5):
        assert flipped(image, flip.identity).disk.contents() == flip.disk.contents()


def test_only_wanted_files_rot(image: FakeDisk) -> None:
    assert {flip.path for flip in bit_flips(image, is_wanted=lambda path: path == "a")} == {"a"}


def test_what_is_written_to_a_rotten_disk_stays_there(image: FakeDisk) -> None:
    before = image.contents()
    for flip in bit_flips(image):
        flip.disk.open("a").write_at(0, b"!!!")
    assert image.contents() == before


def test_copy_is_apart_from_its_original(image: FakeDisk) -> None:
    copy = image.copy()
    copy.open("a").write_at(0, b"!!!")
    copy.remove("d/b")
    image.open("a").write_at(2, b"?")
    assert copy.contents() == {"a": b"!!!", "none": b""}
    assert image.contents() == {"a": b"ab?", "none": b"", "d/b": bytes(5)}


def test_image_goes_to_a_directory_and_back(image: FakeDisk, tmp_path: Path) -> None:
    image.to_directory(tmp_path)
    back = FakeDisk.from_directory(tmp_path)
    assert back.contents() == image.contents()
    assert back.directories.keys() == image.directories.keys()


def test_full_disk_refuses_to_grow_and_takes_writes_in_place() -> None:
    disk = FakeDisk(capacity_bytes=10)
    file = disk.create("a")
    file.write_at(0, bytes(10))
    assert disk.free_bytes() == 0
    for grow in (lambda: file.write_at(5, bytes(6)), lambda: file.allocate(11), lambda: file.truncate(11)):
        with pytest.raises(OSError, match="No space left"):
            grow()
    file.write_at(0, b"x" * 10)
    file.truncate(5)
    assert disk.free_bytes() == 5
    file.close()
    assert disk.open_count == 0
