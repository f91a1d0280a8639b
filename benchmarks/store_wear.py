"""Bytes written to the disk for a byte of messages, as the store counts them and as the system does.

Two workloads, 256 messages to a batch. "keep": everything is stored for good, in JSON that compresses as
telemetry does. "queue": messages are published, handed out, acknowledged and removed, some thousands behind
the publisher; the removal is one Expire command for many of them, or a Delete for each. Journal files are
sealed one by one as soon as they are complete, which is the most that can be written: a store that falls
behind seals less of a queue and merges less.

The system's figures: what the process made dirty in the page cache (`/proc/self/io`), and, as root, all that
reached a block device with nothing else on it, a file system in an image. Only the latter is judged: newer
kernels keep a file in pieces of up to a mebibyte, and the former counts a whole piece for a few bytes in it.
Message bytes are subjects and payloads.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.store_figures import Figure, at_most
from benchmarks.store_load import STREAM, expect_stored, open_store
from edged.core.commands import Ack, Command, Delete, Dispatch, Expire, PutConsumer
from edged.core.wire import Publish
from edged.store.store import Store

KEEP_MAX: Final = 1.6
QUEUE_MAX: Final = 1.2
WORKLOADS: Final = {"keep": KEEP_MAX, "queue, Expire": QUEUE_MAX, "queue, Delete": None}
_BATCH_MESSAGES: Final = 256
_QUEUE_MESSAGES: Final = 4096
_POOL: Final = 20_000
_CONSUMER: Final = 1
_ACK: Final = 0
_PART: Final = "wear"
_SECTOR_BYTES: Final = 512
_IMAGE_BYTES: Final = 4 << 30
_SYSTEM_PATHS: Final = ("/usr/sbin", "/sbin")
_FIGURES: Final = {
    "store_bytes": "by the store's counters",
    "process_bytes": "by /proc/self/io",
    "device_bytes": "by the block device",
}


def measure(folder: Path, messages: int, progress: Callable[[str], None]) -> Iterator[Figure]:
    """All workloads, each in a process and a file system of its own."""
    for number, (workload, bound) in enumerate(WORKLOADS.items()):
        place = folder / f"wear-{number}"
        place.mkdir()
        found = _run_child(place, workload, messages)
        progress(workload)
        for key, name in _FIGURES.items():
            if key in found:
                values = (found[key] / found["message_bytes"],)
                goal = at_most(bound) if bound is not None and key != "process_bytes" else None
                yield Figure(_PART, workload, name, values, "", goal)
        shutil.rmtree(place)


def _run_child(place: Path, workload: str, messages: int) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.store_wear", str(place), workload, str(messages)]
    if can_mount():
        # The mount is seen by this process alone, and goes with it.
        command = ["unshare", "--mount", "--propagation", "private", *command, "mount"]
    answer = subprocess.run(command, env=_environ(), capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"{workload} failed:\n{answer.stderr[-2000:]}")
    found: dict[str, int] = json.loads(answer.stdout)
    return found


def can_mount() -> bool:
    """Whether a file system can be made and mounted here."""
    path = _environ()["PATH"]
    programs = ("mkfs.ext4", "mount", "umount", "unshare", "sync")
    return os.geteuid() == 0 and all(shutil.which(program, path=path) for program in programs)


def _environ() -> dict[str, str]:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SYSTEM_PATHS))
    return {**os.environ, "PATH": path}


# --- in the process ---


def run(folder: Path, workload: str, messages: int) -> dict[str, int]:
    """One workload, to its end and the last sync."""
    store = open_store(folder)
    before = _process_bytes()
    wear = Wear(store)
    if workload == "keep":
        wear.keep(messages)
    else:
        wear.work_off(messages, by_delete=workload.endswith("Delete"))
    store.close()
    subprocess.run(["sync", "-f", str(folder)], check=True)
    return {
        "message_bytes": wear.message_bytes,
        "store_bytes": store.room.wear.bytes_written,
        "process_bytes": _process_bytes() - before,
    }


def run_mounted(folder: Path, workload: str, messages: int) -> dict[str, int]:
    """The same in a file system of its own, whose device counts what arrives."""
    image, point = folder / "image", folder / "mounted"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    # What mkfs leaves to be done later would be counted as ours.
    lazy = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", lazy, str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
    try:
        device = point.stat().st_dev
        before = _device_bytes(device)
        found = run(point / "store", workload, messages)
        return {**found, "device_bytes": _device_bytes(device) - before}
    finally:
        subprocess.run(["umount", str(point)], check=True)


class Wear:
    """A store under one of the workloads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._payloads = payloads(_POOL)
        self._next = 0
        self.message_bytes = 0

    def keep(self, messages: int) -> None:
        """Publish, and keep."""
        while self._next < messages:
            self._publish(min(_BATCH_MESSAGES, messages - self._next))
            self._commit()

    def work_off(self, messages: int, *, by_delete: bool) -> None:
        """Publish, hand out, acknowledge and remove."""
        store = self._store
        store.commit([(STREAM, PutConsumer(_CONSUMER, "worker", {"ack_policy": "explicit"}))])
        waiting: deque[int] = deque()
        handed_out: deque[tuple[int, ...]] = deque()
        delivered = 0
        while self._next < messages or waiting or handed_out:
            if self._next < messages:
                first = self._next + 1
                self._publish(min(_BATCH_MESSAGES, messages - self._next))
                waiting.extend(range(first, self._next + 1))
            is_late = len(waiting) > _QUEUE_MESSAGES or self._next >= messages
            if waiting and is_late:
                count = min(_BATCH_MESSAGES, len(waiting))
                seqs = tuple(waiting.popleft() for _ in range(count))
                self._add(Dispatch(_CONSUMER, store.options.now_ns(), seqs, delivered + 1))
                delivered += count
                handed_out.append(seqs)
            if len(handed_out) > 2 or not waiting:
                seqs = handed_out.popleft()
                self._add(Ack(_CONSUMER, _ACK, seqs))
                removals: Sequence[Command] = (
                    [Delete(seq, False) for seq in seqs] if by_delete else [Expire(0, seqs)]
                )
                for removal in removals:
                    self._add(removal)
            self._commit()
        assert store.stream(STREAM).log.message_count == 0

    def _publish(self, count: int) -> None:
        batch: list[Publish] = []
        for number in range(self._next, self._next + count):
            subject = b"plant.line%d.sensor%d" % (number % 4, number % 50)
            batch.append((subject, None, -1, self._payloads[number % _POOL]))
        self._store.add_appends(STREAM, batch, self._store.options.now_ns(), expect_stored)
        self._next += count
        self.message_bytes += sum(len(message[0]) + len(message[3]) for message in batch)

    def _add(self, command: Command) -> None:
        self._store.add(STREAM, command, expect_stored)

    def _commit(self) -> None:
        store = self._store
        store.settle()
        if store.is_cycle_due:
            cycle = store.begin_cycle()
            cycle.run()
            store.end_cycle()
            if cycle.error is not None:
                raise cycle.error


def payloads(count: int) -> list[bytes]:
    """Telemetry in JSON, 300 to 500 bytes each; the same every time."""
    chance = random.Random(7)
    made = []
    for number in range(count):
        document = {
            "device": f"edge-{chance.randrange(100):03d}",
            "timestamp": f"2030-01-01T12:{number % 60:02d}:{chance.randrange(60):02d}.{number % 1000:03d}Z",
            "sequence": number,
            "temperature_celsius": round(chance.gauss(60, 5), 3),
            "pressure_bar": round(chance.gauss(4, 0.2), 4),
            "vibration_mm_per_s": [round(chance.expovariate(1.0), 3) for _ in range(chance.randrange(8, 24))],
            "status": chance.choice(["running", "idle", "maintenance"]),
            "alarms": [{"code": chance.randrange(1000), "level": "warning"}] if chance.random() < 0.3 else [],
            "firmware": "4.12.0",
            "operator": f"{chance.randrange(1 << 64):016x}",
        }
        made.append(json.dumps(document).encode())
    return made


def _process_bytes() -> int:
    """What this process made the system write, without what was given up before it was written."""
    lines = Path("/proc/self/io").read_text().splitlines()
    fields = {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
    return fields["write_bytes"] - fields["cancelled_write_bytes"]


def _device_bytes(device: int) -> int:
    path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return int(path.read_text().split()[6]) * _SECTOR_BYTES


def _main(arguments: Sequence[str]) -> None:
    folder, workload, messages = Path(arguments[0]), arguments[1], int(arguments[2])
    if len(arguments) > 3:
        found = run_mounted(folder, workload, messages)
    else:
        found = run(folder / "store", workload, messages)
    print(json.dumps(found))


if __name__ == "__main__":
    _main(sys.argv[1:])
