"""How much of the machine JetStream takes when nobody says."""

import os
from pathlib import Path

from edged.config.jetstream_options import JetStreamOptions
from edged.server.jetstream.resources import with_shares

MIB = 1024 * 1024


def test_limits_that_are_given_stay(tmp_path: Path) -> None:
    options = with_shares(JetStreamOptions(max_memory=0, max_store=7), tmp_path)
    assert (options.max_memory, options.max_store) == (0, 7)


def test_without_limits_three_quarters_of_memory_and_disk_are_taken(tmp_path: Path) -> None:
    options = with_shares(JetStreamOptions(), tmp_path / "not" / "there")
    disk = os.statvfs(tmp_path)
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert options.max_memory == memory_bytes * 3 // 4
    free_bytes = disk.f_bavail * disk.f_frsize
    assert abs(options.max_store - free_bytes * 3 // 4) < free_bytes // 20


def test_what_the_store_has_taken_already_counts_as_well(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    size = 64 * MIB
    with (tmp_path / "store" / "file").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    without = with_shares(JetStreamOptions(), tmp_path / "elsewhere").max_store
    with_it = with_shares(JetStreamOptions(), tmp_path / "store").max_store
    assert size // 2 < with_it - without < size
