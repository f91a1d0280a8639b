"""Power cuts while clients publish to a real daemon, fetch and acknowledge, over and over on the same image.

Only the daemon's store is on the filesystem whose power is cut. What clients read after that moment does not
count: nobody would have read it, and in the very moment ext4 lets a sync succeed whose data are lost. Runs in
the namespaces of run_isolated().
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tests.disks.loop_filesystem import MEBIBYTE, LoopFilesystem
from tests.disks.power_cut import SHUTDOWNS
from tests.jetstream.kill_consumers import Figures, play
from tests.servers import RunningServer, start_server

# A daemon with its usual settings allocates journal files at each start, and keeps some of the disk free.
_IMAGE_BYTES: Final = 2048 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class PowerCutGround:
    """A daemon with its store on a filesystem of its own; it dies with that filesystem's power."""

    filesystem: LoopFilesystem
    directory: Path
    binary: str
    random: Random
    settings: str = ""

    def start(self) -> RunningServer:
        """Start it on what is there."""
        config = f'jetstream: {{store_dir: "{self.filesystem.path / "store"}"\n{self.settings}\n}}'
        return start_server(self.binary, config, self.directory)

    def crash(self, server: RunningServer, freeze: Callable[[], None]) -> None:
        """Cut the power, end the daemon, and bring the filesystem back with what it has."""
        freeze()
        self.filesystem.cut_power(self.random.choice(SHUTDOWNS))
        server.process.kill()
        server.process.wait()
        self.filesystem.unmount()
        self.filesystem.mount()


def power_cuts_of_consumers(
    binary: str,
    filesystem_kind: str,
    seed: int,
    rounds: int,
    progress: Callable[[Figures], None],
    settings: str = "",
) -> Figures:
    """Cut the power again and again. Raises Violation if anything promised was not kept.

    `settings` are more lines for the jetstream block of the configuration.
    """
    random = Random(f"power-cut-consumers {filesystem_kind} {seed}")
    with (
        LoopFilesystem(filesystem_kind, _IMAGE_BYTES) as filesystem,
        tempfile.TemporaryDirectory(prefix="edged-daemon-") as directory,
    ):
        ground = PowerCutGround(filesystem, Path(directory), binary, random, settings)
        return play(ground, seed, rounds, progress)
