"""The command `edged fsck`: verifies a store, explains what is wrong with it, and saves what can be read.

Rules: the report goes to stdout; progress goes to stderr, as a bar on a terminal and as plain lines
elsewhere. The exit status is 0 for a clean store, 1 for problems that cost nothing, 2 for losses, 3 if the
store or the command cannot be understood. The store that is looked at is never written to; its lock is held
meanwhile.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TextIO

from edged.store.box import Keyring
from edged.store.errors import StoreError
from edged.store.fsck import verify
from edged.store.fsck_files import ReadOnlyCalls, StoreFiles
from edged.store.fsck_report import Finding, Report, Severity
from edged.store.fsck_salvage import Salvaged, SalvageRefused, salvage
from edged.store_arguments import HELP_FLAGS, StoreCommandError, find_store, parse_words

USAGE: Final = "edged fsck STORE_DIR [--salvage NEW_DIR] [-c CONFIG] [--json]"
HELP: Final = f"""Usage: {USAGE}

Verifies every byte of a store that no daemon has open, and says what is wrong, what it costs and what to do.
The store is only read; nothing in it is changed.

  --salvage NEW_DIR   write what can be read of it as a new store to this directory
  -c, --config FILE   take the directory of the store and the keys from this configuration
  --json              for programs
  -h, --help          show this

Exit status:
  0  clean
  1  there is damage, and it costs nothing: a copy or a repair makes up for it
  2  messages, or something else that was stored, are lost
  3  the store cannot be read, is in use, or the command is wrong
"""
EXIT_UNREADABLE: Final = 3
_BAR_CHARACTERS: Final = 30
_BAR_INTERVAL_S: Final = 0.2
_LINE_INTERVAL_S: Final = 10.0
_MIB: Final = 1024 * 1024
_TITLES: Final = {
    Severity.NOTE: "note",
    Severity.HARMLESS: "damage",
    Severity.LOSS: "LOSS",
    Severity.UNREADABLE: "UNREADABLE",
}


def run(arguments: Sequence[str]) -> int:
    """Verify or salvage, and report; StoreCommandError when that does not work."""
    switches = frozenset(("json", *HELP_FLAGS))
    asked = parse_words(arguments, switches, frozenset(("c", "config", "salvage")), USAGE)
    if asked.flags.keys() & HELP_FLAGS:
        print(HELP, end="")
        return 0
    if len(asked.words) > 1:
        raise StoreCommandError(f"one store at a time: {USAGE}")
    config = asked.flags.get("c", asked.flags.get("config"))
    directory, keys = find_store(asked.words[0] if asked.words else None, config, USAGE)
    progress = Progress(sys.stderr, time.monotonic)
    files = StoreFiles(directory, ReadOnlyCalls(on_read=progress.add), keys)
    try:
        lock = files.lock_if_there()
    except StoreError as error:
        raise StoreCommandError(f"{directory}: {error.what}") from error
    except OSError as error:
        raise StoreCommandError(f"{directory} cannot be read: {error.strerror or error}") from error
    try:
        target = asked.flags.get("salvage")
        if target is not None:
            return _salvage(files, keys, target, progress, "json" in asked.flags)
        report = verify(files, keys, progress.begin)
        report.bytes_checked = progress.finish()
    finally:
        progress.clear()
        if lock is not None:
            lock.close()
    _print(report.document() if "json" in asked.flags else None, lines_of(report))
    return int(report.status)


def _salvage(files: StoreFiles, keys: Keyring, target: str, progress: "Progress", is_json: bool) -> int:
    try:
        salvaged = salvage(files, target, keys, progress.begin)
    except SalvageRefused as error:
        raise StoreCommandError(str(error)) from error
    except (StoreError, OSError) as error:
        raise StoreCommandError(f"nothing was salvaged: {error}") from error
    finally:
        progress.clear()
    _print(salvaged.document() if is_json else None, salvage_lines(salvaged))
    return int(salvaged.status)


def _print(document: dict[str, Any] | None, lines: Iterator[str]) -> None:
    if document is not None:
        print(json.dumps(document, indent=2))
        return
    for line in lines:
        print(line)


# --- for people ---


def lines_of(report: Report) -> Iterator[str]:
    """A verification, readable."""
    for finding in report.findings:
        yield from finding_lines(finding)
    if report.left_out:
        yield f"and {report.left_out} more"
    if report.streams:
        yield ""
        yield f"{'stream':<32}{'messages':>12}{'bytes':>14}{'first seq':>12}{'last seq':>12}{'lost':>8}"
    for one in report.streams:
        figures = f"{one.messages:>12}{one.bytes:>14}{one.first_seq:>12}{one.last_seq:>12}"
        yield f"{one.title:<32}{figures}{one.messages_lost or '-':>8}"
    yield ""
    yield f"{report.directory}: {report.summary}"


def finding_lines(finding: Finding) -> Iterator[str]:
    """One finding, readable."""
    place = finding.path if finding.offset is None else f"{finding.path} at byte {finding.offset}"
    of = f" ({finding.stream})" if finding.stream else ""
    yield f"{_TITLES[finding.severity]}: {finding.what}{of}"
    if place:
        yield f"    where: {place}"
    if finding.severity > Severity.NOTE or finding.cost != "nothing":
        yield f"    costs: {finding.cost}"
    if finding.advice != "nothing":
        yield f"    to do: {finding.advice}"


def salvage_lines(salvaged: Salvaged) -> Iterator[str]:
    """A salvage, readable."""
    for note in salvaged.notes:
        yield f"note: {note}"
    yield f"{'stream':<32}{'messages':>12}{'first seq':>12}{'last seq':>12}{'consumers':>11}  lost"
    for one in salvaged.streams:
        lost = ", ".join(f"{first}-{last}" for first, last in one.lost[:8]) or "-"
        more = f" and {len(one.lost) - 8} more ranges" if len(one.lost) > 8 else ""
        figures = f"{one.messages:>12}{one.first_seq:>12}{one.last_seq:>12}{one.consumers:>11}"
        yield f"{one.title:<32}{figures}  {lost}{more}"
        for note in one.notes:
            yield f"    {note}"
    yield ""
    yield f"{salvaged.directory}: {salvaged.summary}"


class Progress:
    """How far a command is: bytes, rate and the time that is left."""

    def __init__(self, out: TextIO, clock: Callable[[], float]) -> None:
        self._out = out
        self._clock = clock
        self._is_terminal = out.isatty()
        self._interval_s = _BAR_INTERVAL_S if self._is_terminal else _LINE_INTERVAL_S
        self._total = 0
        self._done = 0
        self._all = 0
        self._begun_s = self._shown_s = clock()
        self._width = 0

    def begin(self, total: int) -> None:
        """There are so many bytes to read, about; from now on they count."""
        self._total, self._done = total, 0
        self._begun_s = self._shown_s = self._clock()

    def add(self, size: int) -> None:
        """So many more bytes were read."""
        self._done += size
        self._all += size
        now_s = self._clock()
        if self._total and now_s - self._shown_s >= self._interval_s:
            self._shown_s = now_s
            self._show(now_s - self._begun_s)

    def finish(self) -> int:
        """How many bytes were read."""
        return self._all

    def clear(self) -> None:
        """Leave the line to others."""
        if self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=self._out, flush=True)
            self._width = 0

    def _show(self, seconds: float) -> None:
        # What is read twice is not known beforehand.
        share = min(1.0, self._done / self._total)
        rate = self._done / seconds
        left_s = max(0.0, self._total - self._done) / rate
        text = f"{self._done / _MIB:.0f} of about {self._total / _MIB:.0f} MiB, {rate / _MIB:.0f} MiB/s"
        text = f"{text}, {left_s:.0f} s left"
        if not self._is_terminal:
            print(f"edged fsck: {share:.0%}, {text}", file=self._out, flush=True)
            return
        line = f"[{'#' * round(share * _BAR_CHARACTERS):<{_BAR_CHARACTERS}}] {share:4.0%}  {text}"
        self._width = max(self._width, len(line))
        print(f"\r{line:<{self._width}}", end="", file=self._out, flush=True)
