"""A disk that is as slow as a test wants it, and may fail."""

from __future__ import annotations

import threading

from tests.lab.fake_disk import FakeDisk

DEADLINE_S = 20


class SlowDisk(FakeDisk):
    """Syncs of the journal wait at a gate. `syncs` are those of the file that the journal is at."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.syncs = 0
        self.error: OSError | None = None
        self.written_path = ""

    def check(self, operation: str, path: str) -> None:
        if operation == "write" and path.startswith("journal/"):
            self.written_path = path
        if operation == "sync" and path.startswith("journal/"):
            assert self.gate.wait(DEADLINE_S)
            # A file that is only made ready is synced as well, whenever that happens.
            self.syncs += path == self.written_path
            if self.error is not None:
                raise self.error
        super().check(operation, path)
