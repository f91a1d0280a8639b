"""Logging: one fact per line with fields, in nats-server's line format on stderr or a file, or to journald.

`[pid] 2026/01/31 12:00:00.000000 [INF] stream recovered stream=ORDERS last_seq=812`

Rules: values are quoted when they hold blanks or control characters, so one event is one line. Secrets are
never passed in. Debug and trace cost one comparison when they are off.
"""

from __future__ import annotations

import codecs
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from edged.config.options import LoggingOptions

# Loaded now, because the codec's file could not be opened when the log must say that no descriptor is left.
codecs.lookup("unicode_escape")

_PRIORITIES = {"FTL": 2, "ERR": 3, "WRN": 4, "INF": 6, "DBG": 7, "TRC": 7}


class Log:
    """Where the daemon says what it does."""

    def __init__(self, options: LoggingOptions, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._file: TextIO | None = None
        self._journal: Callable[..., None] | None = None
        self.configure(options)

    def configure(self, options: LoggingOptions) -> None:
        """Take over new options; also reopens the file, which is what log rotation asks for."""
        self.options = options
        self.is_debug = options.debug
        self.is_trace = options.trace
        self._file_size = 0
        self.close()
        if options.file is not None:
            path = Path(options.file)
            self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
            self._file_size = path.stat().st_size
        self._journal = _journal_sender() if options.syslog else None

    def close(self) -> None:
        """Let go of the file, if there is one; what is still said goes to stderr."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def info(self, text: str, **fields: object) -> None:
        self._write("INF", text, fields)

    def warn(self, text: str, **fields: object) -> None:
        self._write("WRN", text, fields)

    def error(self, text: str, **fields: object) -> None:
        """Something a person must act on."""
        self._write("ERR", text, fields)

    def fatal(self, text: str, **fields: object) -> None:
        self._write("FTL", text, fields)

    def debug(self, text: str, **fields: object) -> None:
        if self.is_debug:
            self._write("DBG", text, fields)

    def trace(self, text: str, **fields: object) -> None:
        if self.is_trace:
            self._write("TRC", text, fields)

    def _write(self, level: str, text: str, fields: dict[str, object]) -> None:
        if self._journal is not None:
            shown = {f"EDGED_{key.upper()}": str(value) for key, value in fields.items()}
            self._journal(_line(text, fields), PRIORITY=_PRIORITIES[level], **shown)
            return
        stamp = ""
        if self.options.logtime:
            now_ns = time.time_ns()
            moment = (time.gmtime if self.options.logtime_utc else time.localtime)(now_ns // 1_000_000_000)
            stamp = f"{time.strftime('%Y/%m/%d %H:%M:%S', moment)}.{now_ns // 1000 % 1_000_000:06d} "
        line = f"[{os.getpid()}] {stamp}[{level}] {_line(text, fields)}\n"
        target = self._file or self._stream or sys.stderr
        try:
            target.write(line)
            target.flush()
        except (OSError, ValueError):
            return  # A log that cannot be written must not stop the daemon.
        self._rotate(len(line))

    def _rotate(self, written: int) -> None:
        """Keep a log file within its limit: the full one is renamed with the time, the oldest are removed."""
        self._file_size += written
        limit = self.options.size_limit
        if self._file is None or limit <= 0 or self._file_size < limit or self.options.file is None:
            return
        path = Path(self.options.file)
        self._file.close()
        path.rename(f"{path}.{time.strftime('%Y.%m.%d.%H.%M.%S')}.{time.time_ns() % 1_000_000_000:09d}")
        if self.options.max_files > 0:
            kept = sorted(path.parent.glob(path.name + ".*"))
            for old in kept[: max(0, len(kept) - self.options.max_files + 1)]:
                old.unlink(missing_ok=True)
        self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._file_size = 0


def _line(text: str, fields: dict[str, object]) -> str:
    return " ".join([text, *(f"{key}={_quoted(str(value))}" for key, value in fields.items())])


def _quoted(value: str) -> str:
    if value and value.isprintable() and " " not in value and '"' not in value:
        return value
    return '"' + value.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


def _journal_sender() -> Callable[..., None] | None:
    """journald's structured log when python3-systemd is there; None leaves the lines on stderr."""
    try:
        from systemd import journal
    except ImportError:
        return None
    send: Callable[..., None] = journal.send
    return send
