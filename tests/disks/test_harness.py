"""The harness finds what it looks for: a toy store that keeps its promises passes, flawed ones are caught."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.disks.kill import kills
from tests.disks.load import Load
from tests.disks.loop_filesystem import run_isolated
from tests.disks.model import ConsumerState, Model, StreamState, ViolationError, recovered_model
from tests.disks.needs import needs_filesystems
from tests.disks.operations import (
    Acknowledge,
    CreateConsumer,
    CreateStream,
    DeleteMessage,
    Deliver,
    Operation,
    Publish,
    RemoveStream,
    Stored,
    packed,
    unpacked,
)
from tests.disks.toy_log import Flaw
from tests.disks.trial import Course
from tests.disks.worker import Worker, WorkerError

FIRST = Publish(1, b"a", b"id", b"one")
SECOND = Publish(1, b"a", b"", b"two")
FLAWED_BY_KILL = [Flaw.FORGETS_ACKS, Flaw.FORGETS_IDS]


def model_of(*operations: Operation) -> Model:
    model = Model()
    for operation in operations:
        model.apply(operation)
    return model


def found_after(*operations: Operation) -> dict[int, StreamState]:
    return model_of(*operations).streams


BASE: tuple[Operation, ...] = (
    *(CreateStream(1, 1), FIRST, SECOND, CreateConsumer(1, "alpha"), Deliver(1, "alpha", (1, 2))),
    Acknowledge(1, "alpha", 2),
)


def test_all_acknowledged_and_any_first_part_of_what_was_in_flight_is_accepted() -> None:
    in_flight = (SECOND, DeleteMessage(1, 1), RemoveStream(1))
    for count in range(len(in_flight) + 1):
        found = found_after(*BASE, *in_flight[:count])
        assert recovered_model(model_of(*BASE), in_flight, found).streams == found


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (found_after(*BASE[:1], FIRST), "1 messages lost: 2"),
        (found_after(*BASE, FIRST._replace(message_id=b"")), "1 messages invented or back again: 3"),
        (found_after(BASE[0], SECOND, FIRST, *BASE[3:]), "2 messages changed: 1, 2"),
        (found_after(*BASE[:5]), "at floor 0 of 2, 2 pending, not at floor 0 of 2, 1 pending"),
        (found_after(CreateStream(1, 2), *BASE[1:]), "revision is 2, not 1"),
        ({}, "it is gone"),
        (
            found_after(*BASE, CreateStream(9, 1)),
            "stream 9: compared with what was acknowledged: it is there",
        ),
        # The second of two unacknowledged operations without the first.
        (found_after(*BASE, DeleteMessage(1, 1)), "1 messages lost: 1"),
    ],
)
def test_loss_invention_change_and_turned_order_are_found(
    found: dict[int, StreamState], complaint: str
) -> None:
    in_flight = (SECOND, DeleteMessage(1, 1))
    with pytest.raises(ViolationError) as raised:
        recovered_model(model_of(*BASE), in_flight, found)
    assert complaint in str(raised.value)


def test_message_id_is_known_again_after_recovery() -> None:
    model = recovered_model(model_of(CreateStream(1, 1)), (FIRST,), found_after(CreateStream(1, 1), FIRST))
    assert model.apply(FIRST) == Stored(1, True)


def test_same_seed_gives_the_same_load_and_all_kinds_of_operations() -> None:
    loads = [Load(Random(5)) for _ in range(2)]
    operations = [[operation for _ in range(2000) for operation in load.batch()] for load in loads]
    assert operations[0] == operations[1]
    assert len({type(operation) for operation in operations[0]}) == 9
    again = unpacked(packed(operations[0]))
    assert again == [
        one._replace(seqs=list(one.seqs)) if isinstance(one, Deliver) else one for one in operations[0]
    ]


def test_state_passes_through_the_pipe_unchanged() -> None:
    state = model_of(*BASE).streams[1]
    assert StreamState.unpacked(state.packed()) == state
    assert state.consumers == {"alpha": ConsumerState(0, 2, {1})}


@pytest.mark.real
def test_worker_that_cannot_open_its_store_says_why(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with (
        Worker(Flaw.NONE.value, tmp_path / "store") as worker,
        pytest.raises(WorkerError, match="File exists"),
    ):
        worker.wait_reply()


@pytest.mark.real
@pytest.mark.slow
def test_kills_do_no_harm_to_a_store_that_writes_before_it_answers() -> None:
    figures = kills(Flaw.NONE.value, Course(5, 1, progress=lambda figures: None))
    assert figures.rounds == 5
    assert figures.acknowledged > 100


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("flaw", FLAWED_BY_KILL, ids=lambda flaw: flaw.value)
def test_kills_find_a_store_that_forgets_and_keep_it_for_a_look(flaw: Flaw, tmp_path: Path) -> None:
    with pytest.raises(ViolationError):
        kills(flaw.value, Course(20, 1, progress=lambda figures: None, kept=tmp_path))
    assert list(tmp_path.glob("*.log"))


@pytest.mark.real
@pytest.mark.slow
@needs_filesystems
@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
@pytest.mark.parametrize(("flaw", "status"), [(Flaw.NONE, 0), (Flaw.NEVER_SYNCS, 1)])
def test_power_cuts_find_a_store_that_never_syncs_and_no_other(
    filesystem: str, flaw: Flaw, status: int
) -> None:
    arguments = ("--filesystem", filesystem, "--rounds", "5", "--seed", "1", "--subject", flaw.value)
    done = run_isolated(("power-cut", *arguments, "--isolated"), timeout_s=120)
    assert (done.returncode, "all kept" in done.stdout) == (status, status == 0), done.stdout


@pytest.mark.real
@pytest.mark.slow
@needs_filesystems
@pytest.mark.parametrize(
    ("scenario", "flaw", "complaint"),
    [
        ("full", Flaw.NONE, None),
        ("full", Flaw.STAYS_FULL, "a full disk was answered with"),
        ("read-only", Flaw.NONE, None),
        ("failing-sync", Flaw.NONE, None),
        ("failing-sync", Flaw.SYNCS_AGAIN, "was synced again"),
    ],
)
def test_failing_disks_find_the_flawed_store_and_no_other(
    scenario: str, flaw: Flaw, complaint: str | None
) -> None:
    arguments = ("--scenario", scenario, "--subject", flaw.value)
    done = run_isolated(("disk-full", *arguments, "--isolated"), timeout_s=120)
    assert done.returncode == (0 if complaint is None else 1), done.stdout
    assert (complaint or "messages kept") in done.stdout
