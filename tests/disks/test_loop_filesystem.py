"""Loop filesystems appear, lose what they must, and leave nothing behind, however their user ends."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.disks.loop_filesystem import check_possible, run_isolated
from tests.disks.needs import needs_filesystems
from tests.disks.toy_log import Flaw

pytestmark = [pytest.mark.real, pytest.mark.slow, needs_filesystems]
PATIENCE_S = 30.0


def images_in(folder: Path) -> list[str]:
    """The images of loop devices in use that lie in this folder, even without a name."""
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return [text for text in map(read_if_there, files) if text.startswith(str(folder))]


def read_if_there(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # The device was let go of between the look at the folder and this.


def becomes_true(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


def test_programs_that_mount_filesystems_are_installed() -> None:
    check_possible()


def test_killed_run_leaves_no_device_no_mount_and_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    endings: list[BaseException] = []

    def run() -> None:
        arguments = ("power-cut", "--rounds", "100000", "--subject", Flaw.NONE.value, "--isolated")
        try:
            run_isolated(arguments, timeout_s=4)
        except subprocess.TimeoutExpired as error:
            endings.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    was_in_use = becomes_true(lambda: bool(images_in(tmp_path)))
    thread.join()
    assert was_in_use
    assert len(endings) == 1
    assert becomes_true(lambda: not images_in(tmp_path))
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert list(tmp_path.iterdir()) == []
