"""The log: one line per fact, with fields, in files that stay within their limit."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from edged.config.options import LoggingOptions
from edged.server.log import Log
from tests.server.live import LogLines


def written(options: LoggingOptions, text: str, **fields: object) -> str:
    lines = LogLines()
    Log(options, lines).info(text, **fields)  # type: ignore[arg-type]
    return lines.text


def test_a_line_has_process_time_level_text_and_fields() -> None:
    line = written(LoggingOptions(), "client closed", cid=7, reason="Client Closed")
    stamp = r"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} "
    assert re.fullmatch(stamp + r'\[INF\] client closed cid=7 reason="Client Closed"\n', line)
    assert re.fullmatch(r"\[\d+\] \[INF\] short\n", written(LoggingOptions(logtime=False), "short"))


@pytest.mark.parametrize("value", ["two\nlines", "tab\tbed", 'quo"ted', "", "bell\x07", "\udcff"])
def test_an_odd_value_stays_inside_its_line(value: str) -> None:
    line = written(LoggingOptions(), "fact", value=value)
    assert line.count("\n") == 1
    assert re.search(r'value="[^\n]*"\n$', line)


def test_debug_and_trace_are_silent_unless_asked_for() -> None:
    lines = LogLines()
    log = Log(LoggingOptions(), lines)  # type: ignore[arg-type]
    log.debug("no")
    log.trace("no")
    assert lines.text == ""
    log.configure(LoggingOptions(debug=True, trace=True))
    log.debug("yes")
    log.trace("yes")
    assert "[DBG] yes" in lines.text
    assert "[TRC] yes" in lines.text


def test_a_full_log_file_is_renamed_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "edged.log"
    log = Log(LoggingOptions(file=str(path), size_limit=500, max_files=3))
    for number in range(100):
        log.info("a line of some length to fill the file", number=number)
    log.close()
    files = sorted(tmp_path.iterdir())
    assert path in files
    assert len(files) <= 3
    assert all(file.stat().st_size <= 700 for file in files)


def test_a_reopened_log_file_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "edged.log"
    log = Log(LoggingOptions(file=str(path)))
    log.info("before")
    path.rename(tmp_path / "rotated.log")
    log.configure(log.options)
    log.info("after")
    log.close()
    assert "before" in (tmp_path / "rotated.log").read_text()
    assert "after" in path.read_text()
    assert "before" not in path.read_text()


def test_journald_gets_the_fields_as_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, dict[str, Any]]] = []
    journal = ModuleType("systemd.journal")
    journal.send = lambda message, **fields: sent.append((message, fields))  # type: ignore[attr-defined]
    package = ModuleType("systemd")
    package.journal = journal  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "systemd", package)
    monkeypatch.setitem(sys.modules, "systemd.journal", journal)
    Log(LoggingOptions(syslog=True)).warn("slow consumer", cid=9)
    assert sent == [("slow consumer cid=9", {"PRIORITY": 4, "EDGED_CID": "9"})]


def test_without_journald_the_lines_go_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "systemd", None)
    lines = LogLines()
    Log(LoggingOptions(syslog=True), lines).error("still here")  # type: ignore[arg-type]
    assert "[ERR] still here" in lines.text
