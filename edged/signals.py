"""Telling a running daemon what to do, by the command line: `edged --signal reload=/run/edged.pid`.

Rules: the process is named by its id, by a prefix of ids with `*`, or by a file that holds the id. Without
one, the only running process of the same program name is meant; several are an error that lists them.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

COMMANDS = {
    "reload": signal.SIGHUP,
    "reopen": signal.SIGUSR1,
    "ldm": signal.SIGUSR2,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "stop": signal.SIGKILL,
}
# A process id has at most seven digits; no pid file is longer than this.
_PID_FILE_BYTES_MAX = 64


class SignalError(Exception):
    """The signal was not sent; the text says why."""


def send_signal(request: str, program: str) -> tuple[int, ...]:
    """Send what `command` or `command=pid` asks for; returns the ids of the processes that got it."""
    command, equals, who = request.partition("=")
    if command not in COMMANDS:
        raise SignalError(f"unknown signal {command!r}: expected {', '.join(COMMANDS)}")
    if "=" in who:
        raise SignalError("expected --signal <command> or --signal <command>=<pid or pid file>")
    targets = _targets(who, program) if equals and who else _only_process(program)
    for pid in targets:
        try:
            os.kill(pid, COMMANDS[command])
        except OSError as error:
            raise SignalError(f"cannot send {command} to process {pid}: {error.strerror}") from None
    return targets


def _targets(who: str, program: str) -> tuple[int, ...]:
    text = _pid_file(who) or who
    if text.endswith("*"):
        found = tuple(pid for pid in processes(program) if str(pid).startswith(text[:-1]))
        if not found:
            raise SignalError(f"no {program} process with an id like {text}")
        return found
    if not text.isascii() or not text.isdigit() or int(text[:20]) < 2:
        raise SignalError(f"{who!r} is neither a process id nor a file that holds one")
    return (int(text[:20]),)


def _pid_file(name: str) -> str | None:
    try:
        with Path(name).open("rb") as file:
            return file.read(_PID_FILE_BYTES_MAX).decode("ascii", "replace").strip()
    except (OSError, ValueError):
        return None


def _only_process(program: str) -> tuple[int, ...]:
    found = tuple(processes(program))
    if not found:
        raise SignalError(f"no {program} process is running: name one by --signal <command>=<pid>")
    if len(found) > 1:
        ids = " ".join(str(pid) for pid in found)
        raise SignalError(f"several {program} processes are running: choose one of {ids}")
    return found


def processes(program: str, proc: Path = Path("/proc")) -> Iterator[int]:
    """Ids of other processes of that name, whether run directly or through an interpreter."""
    for entry in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        if int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # It ended meanwhile, or is not ours to see.
        names = [os.fsdecode(word.rpartition(b"/")[2]) for word in words[:2]]
        if names[0] == program or (names[0].startswith("python") and names[1:] == [program]):
            yield int(entry.name)
