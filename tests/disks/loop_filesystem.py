"""A real filesystem in an image of its own, whose power can be cut.

Rules: everything happens in a private mount namespace (`run_isolated`), so that no other process can keep a
filesystem alive that is to be mounted anew. Nothing outlives the process, however it ends: the image is a
file without a name, the loop device lets go of it with its last user, the mounts go with their namespace,
and what is left in the temporary folder is removed by the process that started the isolated one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

MEBIBYTE: Final = 1 << 20
# mkfs.xfs makes nothing smaller than 300 MiB. The images are sparse: only what is written takes space.
IMAGE_BYTES: Final = {"ext4": 256 * MEBIBYTE, "xfs": 320 * MEBIBYTE}
SHUTDOWN_FLUSHING_LOG: Final = 1
SHUTDOWN_WITHOUT_LOG: Final = 2

_MAKE_COMMANDS: Final = {
    # No blocks for root alone: the disk is full for everybody at the same time.
    "ext4": ("mkfs.ext4", "-q", "-F", "-m", "0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
}
_MOUNT_OPTIONS: Final = {"ext4": "errors=remount-ro", "xfs": "defaults"}
_ISOLATION: Final = (
    # The kernel ends the isolated processes when the one that started them ends, even by SIGKILL.
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
_ISOLATED_VARIABLE: Final = "EDGED_DISKS_ISOLATED"
_SYSTEM_PATHS: Final = ("/usr/sbin", "/sbin")

# From linux/fs.h (called "going down" in xfs_fs.h) and linux/loop.h.
_FS_IOC_SHUTDOWN: Final = 0x8004587D
_FITRIM: Final = 0xC0185879
_LOOP_CONFIGURE: Final = 0x4C0A
_LOOP_CTL_GET_FREE: Final = 0x4C82
_LOOP_FLAGS_AUTOCLEAR: Final = 4
# struct loop_config: file, block size, struct loop_info64 (of which only the flags are set), reserved.
_LOOP_CONFIG: Final = struct.Struct("=II40x12xI176x64x")


class NotPossibleError(Exception):
    """This machine or user cannot mount filesystems; the text says what is missing."""


def check_possible() -> None:
    """Raise NotPossibleError unless filesystems can be made and mounted here."""
    if os.geteuid() != 0:
        raise NotPossibleError("mounting filesystems needs root")
    programs = ["mount", "umount", "unshare", "setpriv", *(command[0] for command in _MAKE_COMMANDS.values())]
    missing = [program for program in programs if shutil.which(program, path=_search_path()) is None]
    if missing:
        raise NotPossibleError(f"not installed: {', '.join(missing)} (tools/system-packages filesystems)")


def run_isolated(
    arguments: Sequence[str],
    timeout_s: float | None = None,
    *,
    module: str = "tests.disks",
    has_network: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m tests.disks` with arguments in namespaces of its own; its output is captured.

    With `has_network` it also has a network of its own, with nothing in it.
    """
    check_possible()
    isolation = (*_ISOLATION, "--net") if has_network else _ISOLATION
    with tempfile.TemporaryDirectory(prefix="edged-disks-") as folder:
        return subprocess.run(
            [*isolation, sys.executable, "-m", module, *arguments],
            env={**os.environ, "PATH": _search_path(), "TMPDIR": folder, _ISOLATED_VARIABLE: "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Progress is for whoever looks on.
            stderr=None,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def _search_path() -> str:
    return os.pathsep.join((os.environ.get("PATH", os.defpath), *_SYSTEM_PATHS))


@contextmanager
def _attached(image: int) -> Iterator[str]:
    """The path of a block device on an image. It lasts as long as this or a mount uses it."""
    path, descriptor = _attach(image)
    try:
        yield path
    finally:
        os.close(descriptor)


def _attach(image: int) -> tuple[str, int]:
    """Find a free loop device and put the image behind it: its path, and the descriptor that holds it."""
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        while True:
            path = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _LOOP_CONFIGURE, _LOOP_CONFIG.pack(image, 0, _LOOP_FLAGS_AUTOCLEAR))
            except OSError as error:
                os.close(descriptor)
                if error.errno != errno.EBUSY:  # Otherwise somebody was quicker: there are more of them.
                    raise
            else:
                return path, descriptor
    finally:
        os.close(control)


class LoopFilesystem:
    """An ext4 or xfs of its own, mounted while the context lasts; `path` is where.

    With every mount the image gets a new device: the kernel remembers blocks of a device that stays open, and
    a power cut would not make it forget them.
    """

    def __init__(self, kind: str, size_bytes: int | None = None) -> None:
        self.kind = kind
        self._size_bytes = size_bytes or IMAGE_BYTES[kind]
        self._stack = ExitStack()
        self._is_mounted = False

    def __enter__(self) -> Self:
        assert _is_isolated(), "filesystems are mounted under run_isolated() only"
        with ExitStack() as stack:
            self.path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{self.kind}-")))
            self._image = self._make(stack)
            stack.callback(self._leave)
            self.mount()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def mount(self, *, is_read_only: bool = False) -> None:
        """Mount it, which replays the filesystem's own log if the power was cut."""
        assert not self._is_mounted
        options = _MOUNT_OPTIONS[self.kind] + (",ro" if is_read_only else "")
        with _attached(self._image) as device:
            self._prepare(device)
            _command("mount", "-t", self.kind, "-o", options, device, str(self.path))
        self._is_mounted = True
        if not is_read_only:
            self._check_alive()

    def unmount(self) -> None:
        """Unmount it; no process may have a file open on it."""
        assert self._is_mounted
        _command("umount", str(self.path))
        self._is_mounted = False

    def cut_power(self, flags: int = SHUTDOWN_WITHOUT_LOG) -> None:
        """From now on nothing reaches the disk, and what was not synced is gone after the next mount."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _FS_IOC_SHUTDOWN, struct.pack("=I", flags))
        finally:
            os.close(descriptor)

    def make_read_only(self) -> None:
        """What ext4 does to itself when it finds an error: open files cannot be written any more (EROFS)."""
        assert self.kind == "ext4"
        _command("mount", "-o", "remount,abort", str(self.path))

    def _make(self, stack: ExitStack) -> int:
        """A sparse image with the empty filesystem in it; it lasts as long as the stack."""
        image = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  The stack closes it.
        image.truncate(self._size_bytes)
        with _attached(image.fileno()) as device:
            _command(*_MAKE_COMMANDS[self.kind], device)
        return image.fileno()

    def _prepare(self, device: str) -> None:
        """What is to be done to a device before it is mounted."""

    def _check_alive(self) -> None:
        """A filesystem that somebody kept alive would still be shut down; this shows it at once."""
        probe = self.path / ".probe"
        probe.touch(exist_ok=False)
        probe.unlink()

    def _leave(self) -> None:
        if self._is_mounted:
            # Lazily: a worker that is just being ended may still hold files.
            _command("umount", "--lazy", str(self.path))
            self._is_mounted = False


class HollowFilesystem(LoopFilesystem):
    """An ext4 that promises more than is behind it: writes are accepted, and fail when they are synced.

    The image is in memory. Only the filesystem's own tables and log have their place there from the start;
    data find room for `room_bytes`, until more is given.
    """

    def __init__(self, size_bytes: int, room_bytes: int) -> None:
        super().__init__("ext4", size_bytes)
        self._room_bytes = room_bytes
        self._before: tuple[Path, str] | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.trim()
            self.give_room(self._room_bytes)
        except BaseException:
            self._stack.close()
            raise
        return self

    def unmount(self) -> None:
        super().unmount()
        self._put_back()

    def _make(self, stack: ExitStack) -> int:
        self._memory = Path(stack.enter_context(_memory_filesystem(2 * self._size_bytes)))
        stack.callback(self._put_back)
        image = stack.enter_context(tempfile.TemporaryFile(dir=self._memory))  # noqa: SIM115  As above.
        os.posix_fallocate(image.fileno(), 0, self._size_bytes)
        with _attached(image.fileno()) as device:
            options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
            _command(*_MAKE_COMMANDS["ext4"], "-E", options, device)
        return image.fileno()

    def _prepare(self, device: str) -> None:
        """Let the device write one page at a time.

        When there is room for a part of a longer write only, the loop driver takes the part for the whole: a
        disk that lies, against which no store can do anything.
        """
        setting = Path("/sys/block") / Path(device).name / "queue/max_sectors_kb"
        self._before = setting, setting.read_text()
        setting.write_text(str(os.sysconf("SC_PAGE_SIZE") // 1024))

    def _put_back(self) -> None:
        """The setting is the machine's and not ours."""
        if self._before is not None:
            setting, text = self._before
            self._before = None
            setting.write_text(text)

    def trim(self) -> None:
        """Give back the room of what the filesystem does not use."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _FITRIM, struct.pack("=QQQ", 0, self._size_bytes, 0))
        finally:
            os.close(descriptor)

    def give_room(self, size_bytes: int) -> None:
        """From now on so many bytes more find room."""
        status = os.statvfs(self._memory)
        used_bytes = (status.f_blocks - status.f_bfree) * status.f_frsize
        _command("mount", "-o", f"remount,size={used_bytes + size_bytes}", str(self._memory))


@contextmanager
def _memory_filesystem(size_bytes: int) -> Iterator[str]:
    """A tmpfs that holds no more than so many bytes."""
    with tempfile.TemporaryDirectory(prefix="tmpfs-") as name:
        _command("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", name)
        try:
            yield name
        finally:
            _command("umount", "--lazy", name)


def _is_isolated() -> bool:
    return _ISOLATED_VARIABLE in os.environ


def _command(*arguments: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(done.returncode, f"{' '.join(arguments)}: {done.stderr.strip()}")
