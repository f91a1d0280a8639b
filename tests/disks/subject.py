"""The store under test, behind the few calls that the harness needs. All that knows a real store is here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from tests.disks.edged_subject import EdgedSubject, edged_calls
from tests.disks.model import StreamState
from tests.disks.operations import Operation, Outcome
from tests.disks.sync_watch import SyncWatch
from tests.disks.toy_log import Flaw, ToyLog

EDGED: Final = "edged"
EDGED_SERIAL: Final = "edged-serial"
SUBJECT_NAMES: Final = (EDGED, EDGED_SERIAL, *(flaw.value for flaw in Flaw))


class Subject(Protocol):
    """A store that is open."""

    def commit(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Carry out operations in their order; the answers are given when they are durable."""

    def states(self) -> dict[int, StreamState]:
        """All that is visible, by stream."""

    def rotate(self) -> None:
        """Turn to the next journal file, and seal what the last one holds."""

    def close(self) -> None: ...


def open_subject(name: str, root: Path) -> tuple[Subject, SyncWatch]:
    """Open or create the store in a folder, and watch its syncs."""
    if name in (EDGED, EDGED_SERIAL):
        watch = edged_calls()
        return EdgedSubject(root, watch, is_serial=name == EDGED_SERIAL), watch
    watch = SyncWatch()
    return ToyLog(root, Flaw(name), watch), watch
