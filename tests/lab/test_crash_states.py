"""The crash model of the disk, and the proof that it can fail: wrong logs are caught, a right one is not."""

from __future__ import annotations

import random

import pytest

from tests.lab.crash_states import CrashState, CrashStates
from tests.lab.fake_disk import FakeDisk
from tests.lab.toy_store import Faults, ToyStore, recover

SECTOR = 16


def recording(image: FakeDisk | None = None) -> FakeDisk:
    return (image or FakeDisk()).copy(is_recording=True)


def states_of(disk: FakeDisk, image: FakeDisk | None = None, **options: int) -> list[CrashState]:
    assert disk.operations is not None
    history = CrashStates(image or FakeDisk(), disk.operations, sector_bytes=SECTOR)
    return list(history.states(random.Random(1), **options))


def outcomes(disk: FakeDisk, image: FakeDisk | None = None) -> set[tuple[tuple[str, bytes], ...]]:
    return {tuple(state.disk.contents().items()) for state in states_of(disk, image)}


def last_outcomes(disk: FakeDisk, image: FakeDisk | None = None) -> set[tuple[tuple[str, bytes], ...]]:
    """What is possible at the end: a mark there begins a new count."""
    states = last_states(disk, image)
    return {tuple(state.disk.contents().items()) for state in states}


def last_states(disk: FakeDisk, image: FakeDisk | None = None) -> list[CrashState]:
    assert disk.operations is not None
    mark = len(disk.operations) + 1
    disk.mark(mark)
    return [state for state in states_of(disk, image) if state.mark == mark]


def image_with(**files: bytes) -> FakeDisk:
    disk = FakeDisk()
    for name, content in files.items():
        disk.create(name).write_at(0, content)
    return disk


def test_overwritten_sectors_are_old_or_new_each_for_itself() -> None:
    image = image_with(a=b"-" * 40)
    disk = recording(image)
    disk.open("a").write_at(0, b"+" * 40)
    parts = [(b"-" * 16, b"+" * 16), (b"-" * 16, b"+" * 16), (b"-" * 8, b"+" * 8)]
    expected = {(("a", x + y + z),) for x in parts[0] for y in parts[1] for z in parts[2]}
    assert last_outcomes(disk, image) == expected


def test_sector_written_twice_is_at_any_of_its_versions_but_never_the_second_without_the_first() -> None:
    image = image_with(a=b"----")
    disk = recording(image)
    file = disk.open("a")
    file.write_at(0, b"1")
    file.write_at(1, b"2")
    assert last_outcomes(disk, image) == {(("a", b"----"),), (("a", b"1---"),), (("a", b"12--"),)}


def test_synced_bytes_are_there_in_every_state() -> None:
    image = image_with(a=b"----")
    disk = recording(image)
    file = disk.open("a")
    file.write_at(0, b"12345678")
    file.sync()
    assert last_outcomes(disk, image) == {(("a", b"12345678"),)}


def test_grown_file_may_hold_zeros_noise_or_what_another_file_held() -> None:
    image = image_with(a=b"", other=b"#" * SECTOR)
    disk = recording(image)
    disk.open("a").write_at(0, b"12345678")
    found = {dict(outcome)["a"] for outcome in last_outcomes(disk, image)}
    assert found > {b"", b"12345678", bytes(8), b"#" * 8}
    (noise,) = found - {b"", b"12345678", bytes(8), b"#" * 8}
    assert len(noise) == 8


def test_allocated_bytes_are_zeros_until_written() -> None:
    image = image_with(a=b"")
    disk = recording(image)
    file = disk.open("a")
    file.allocate(8)
    file.write_at(0, b"1234")
    found = {dict(outcome)["a"] for outcome in last_outcomes(disk, image)}
    assert found == {b"", bytes(8), b"1234\0\0\0\0"}


def test_cut_file_has_its_old_size_or_the_new_one_and_never_its_old_bytes_after_growing_again() -> None:
    image = image_with(a=b"12345678")
    disk = recording(image)
    file = disk.open("a")
    file.truncate(2)
    file.truncate(4)
    found = {dict(outcome)["a"] for outcome in last_outcomes(disk, image)}
    assert found == {b"12345678", b"12", b"12\0\0"}


def test_sync_of_a_file_does_not_make_its_name_durable() -> None:
    disk = recording()
    file = disk.create("a")
    file.write_at(0, b"1")
    file.sync()
    assert last_outcomes(disk) == {(), (("a", b"1"),)}
    disk.sync_directory("")
    assert last_outcomes(disk) == {(("a", b"1"),)}


def test_directory_sync_does_not_make_bytes_durable() -> None:
    disk = recording()
    disk.create("a").write_at(0, b"1")
    disk.sync_directory("")
    assert (("a", b""),) in last_outcomes(disk)
    assert () not in last_outcomes(disk)


def test_file_in_a_directory_without_a_durable_name_cannot_be_reached() -> None:
    disk = recording()
    disk.make_directory("d")
    disk.create("d/a")
    disk.sync_directory("d")
    assert last_outcomes(disk) == {(), (("d/a", b""),)}
    assert any("d" not in state.disk.directories for state in last_states(disk))


def test_rename_over_a_file_leaves_one_of_the_two() -> None:
    image = image_with(a=b"old", b=b"new")
    disk = recording(image)
    disk.rename("b", "a")
    assert last_outcomes(disk, image) == {(("a", b"old"), ("b", b"new")), (("a", b"new"),)}


def test_rename_to_another_directory_never_loses_the_file() -> None:
    image = image_with(a=b"1")
    image.make_directory("d")
    disk = recording(image)
    disk.rename("a", "d/a")
    assert last_outcomes(disk, image) == {
        (("a", b"1"),),
        (("a", b"1"), ("d/a", b"1")),
        (("d/a", b"1"),),
    }
    disk.sync_directory("")
    assert last_outcomes(disk, image) == {(("d/a", b"1"),)}


def test_changes_of_different_names_are_independent_and_of_one_name_in_order() -> None:
    image = image_with(a=b"1", b=b"2")
    disk = recording(image)
    disk.remove("a")
    disk.remove("b")
    disk.create("a")
    assert last_outcomes(disk, image) == {
        (("a", b"1"), ("b", b"2")),
        (("b", b"2"),),
        (("a", b"1"),),
        (),
        (("a", b""), ("b", b"2")),
        (("a", b""),),
    }


def test_removed_directory_is_gone_only_with_what_was_in_it() -> None:
    image = image_with()
    image.make_directory("d")
    image.create("d/a")
    disk = recording(image)
    disk.remove("d/a")
    disk.remove_directory("d")
    found = {(tuple(state.disk.directories), *state.disk.contents()) for state in states_of(disk, image)}
    assert found == {(("", "d"), "d/a"), (("", "d"),), (("",),)}


def test_bytes_before_a_failed_sync_stay_doubtful_after_a_second_one() -> None:
    image = image_with(a=b"-" * 32)
    disk = recording(image)
    file = disk.open("a")
    file.write_at(0, b"+" * 16)
    disk.fault = lambda operation, path: OSError(5, "failed") if operation == "sync" else None
    with pytest.raises(OSError, match="failed"):
        file.sync()
    disk.fault = None
    again = disk.open("a")
    again.write_at(16, b"!" * 16)
    again.sync()
    assert last_outcomes(disk, image) == {
        (("a", b"-" * 16 + b"!" * 16),),
        (("a", b"+" * 16 + b"!" * 16),),
    }


def test_states_between_two_marks_are_all_different() -> None:
    disk = recording()
    toy_history(disk, Faults())
    seen = set()
    for state in states_of(disk):
        key = (state.mark, tuple(state.disk.directories), tuple(state.disk.contents().items()))
        assert key not in seen
        seen.add(key)


def test_every_state_is_found_again_by_its_name() -> None:
    disk = recording()
    toy_history(disk, Faults())
    assert disk.operations is not None
    history = CrashStates(FakeDisk(), disk.operations, sector_bytes=SECTOR)
    for state in random.Random(2).sample(states_of(disk, per_operation_max=64), 200):
        again = history.replay(state.identity)
        assert (again.mark, again.disk.contents()) == (state.mark, state.disk.contents())
        assert again.disk.directories.keys() == state.disk.directories.keys()


def test_long_write_is_drawn_from_and_torn_once_at_its_places() -> None:
    image = image_with(a=b"-" * 640)
    disk = recording(image)
    disk.open("a").write_at(0, b"+" * 640)
    found = {dict(outcome)["a"] for outcome in outcomes(disk, image)}
    torn = {b"+" * cut + b"-" * (640 - cut) for cut in range(0, 641, SECTOR)}
    assert len(found & torn) > 20
    assert {b"-" * 640, b"+" * 640} <= found


# --- proof that the laboratory can fail ---


def toy_history(disk: FakeDisk, faults: Faults) -> list[bytes]:
    """A dozen records with a mark where each is acknowledged."""
    store = ToyStore(disk, faults)
    chance = random.Random(3)
    submitted = []
    for number in range(1, 13):
        submitted.append(chance.randbytes(chance.choice((5, 20, 70))))
        if faults.is_acknowledged_before_sync:
            disk.mark(number)
        store.append(submitted[-1])
        disk.mark(number)
    return submitted


def offences(faults: Faults) -> tuple[int, int]:
    """How many states there are, and in how many a record is missing that was acknowledged, or is strange."""
    disk = recording()
    submitted = toy_history(disk, faults)
    count = bad = 0
    for state in states_of(disk):
        state.disk.make_directory("log")
        records = recover(state.disk, faults)
        count += 1
        bad += len(records) < state.mark or records != submitted[: len(records)]
    return count, bad


def test_right_log_passes_every_state() -> None:
    count, bad = offences(Faults())
    assert bad == 0
    assert count > 500


@pytest.mark.parametrize("name", Faults.__dataclass_fields__)
def test_log_with_one_fault_is_caught(name: str) -> None:
    _, bad = offences(Faults(**{name: True}))
    assert bad > 0


def test_states_share_the_bytes_that_are_the_same_in_all_of_them() -> None:
    image = image_with(a=bytes(100_000), b=b"-" * 64)
    disk = recording(image)
    disk.open("b").write_at(0, b"+" * 64)
    states = states_of(disk, image)
    assert len(states) == 16
    assert len({id(dict(state.disk.files())["a"].content) for state in states}) == 1


def test_what_is_written_to_one_state_is_not_seen_in_another() -> None:
    image = image_with(a=b"-" * 20)
    disk = recording(image)
    disk.open("a").write_at(0, b"+" * 20)
    history = CrashStates(image, disk.operations or [], SECTOR)
    found = []
    for state in history.states(random.Random(1)):
        found.append(state.disk.contents()["a"])
        state.disk.open("a").write_at(0, b"!" * 20)
        state.disk.create("b")
    assert len(found) == 4
    assert not any(b"!" in content for content in found)
