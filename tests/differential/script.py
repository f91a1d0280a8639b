"""Wire scripts: the text format of tests/differential/scripts and its parser.

A file holds header lines and cases. A case opens with `== a sentence`, its steps follow, one per line. The
README lists the steps. Nothing here touches a socket, and variables (`${name}`) stay in the text: the runner
resolves them per server. Only the variables of an `each` line are resolved here, because they make one case
per value.

Invariant: a parsed case has at least one step; an unknown line is an error that names its file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.differential.steps import (
    Case,
    Close,
    Connect,
    Header,
    Http,
    Open,
    Publish,
    Reading,
    Reload,
    Request,
    Send,
    Shows,
    Signal,
    StartTls,
    Step,
    Sync,
    Take,
    TakeUntilClosed,
    TakeUntilQuiet,
)

ESCAPES = {"r": b"\r", "n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\", "f": b"\f", "v": b"\v"}
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)")
EACH = re.compile(r"each ([\w ]+): (.*)")
# The words `publish` or `request`, subjects, header lines in braces, and the payload.
PUBLISH = re.compile(r"(?:publish|request(?: (\d+))?) (.+?)(?: \{([^}]*)\})? =(?: (.*))?", re.DOTALL)
INDENT = "    "  # An indented line continues the line before it: configuration text is written so.
REPEAT = re.compile(r"<([^<>]+)\*(\d+)>")


class ScriptError(ValueError):
    """A line of a script that says nothing the harness understands."""


def unescape(text: str) -> bytes:
    r"""Resolve `\r \n \t \xNN` and repetitions `<text*count>` to the bytes to send."""
    while REPEAT.search(text):  # The innermost first: a repeated publish may hold a repeated payload.
        text = REPEAT.sub(lambda match: match.group(1) * int(match.group(2)), text)
    pieces: list[bytes] = []
    end = 0
    for match in ESCAPE.finditer(text):
        pieces.append(text[end : match.start()].encode())
        code = match.group(1)
        if code.startswith("x"):
            pieces.append(bytes([int(code[1:], 16)]))
        elif code in ESCAPES:
            pieces.append(ESCAPES[code])
        else:
            raise ScriptError(f"unknown escape \\{code}")
        end = match.end()
    pieces.append(text[end:].encode())
    return b"".join(pieces)


def parse_file(path: Path, configs: Path) -> list[Case]:
    """Read one script file; `configs` is the folder that `config: name` refers to."""
    return list(parse(path.read_text(), path.stem, configs))


def parse(text: str, file: str, configs: Path) -> Iterator[Case]:
    """Parse the text of a script file into its cases, with `each` lines expanded."""
    header = Header()
    title = ""
    body: list[tuple[int, str]] = []
    for number, line in enumerate([*text.splitlines(), "== "], start=1):
        if line.startswith("== "):
            if title:
                yield from _cases(file, title, header, body, configs)
            elif body:
                header = _header(header, [line for _, line in body], file, configs)[0]
            title, body = line[3:].strip(), []
        elif line.startswith(INDENT) and body:
            first, start = body[-1]
            body[-1] = (first, f"{start}\n{line[len(INDENT) :]}")
        elif line.strip() and not line.startswith("#"):
            body.append((number, line))


def _cases(
    file: str, title: str, header: Header, body: list[tuple[int, str]], configs: Path
) -> Iterator[Case]:
    lines = [line for _, line in body]
    table = next((match for line in lines if (match := EACH.fullmatch(line))), None)
    if table is not None:
        names, rows = table.group(1).split(), table.group(2).split(" | ")
        rest = [(number, line) for number, line in body if line != table.group(0)]
        for row in rows:
            values = row.split() if len(names) > 1 else [row]
            if len(values) != len(names):
                raise ScriptError(f"{file}.txt: {row!r} does not give each of {names}")
            resolved = [(number, _with_values(line, names, values)) for number, line in rest]
            yield from _cases(file, f"{title} [{row.strip()}]", header, resolved, configs)
        return
    header, header_lines = _header(header, lines, file, configs)
    steps = tuple(_step(line, f"{file}.txt:{number}", configs) for number, line in body[header_lines:])
    if not steps:
        raise ScriptError(f"{file}.txt: case without steps: {title}")
    yield Case(file, title, header, steps)


def _with_values(line: str, names: list[str], values: list[str]) -> str:
    for name, value in zip(names, values, strict=True):
        line = line.replace(f"${{{name}}}", value)
    return line


def _header(header: Header, lines: list[str], file: str, configs: Path) -> tuple[Header, int]:
    """Apply the header lines at the start of `lines`; returns how many lines were header."""
    position = 0
    while position < len(lines):
        name, separator, value = (part.strip() for part in lines[position].partition(":"))
        if name not in ("config", "server", "pings", "tls", "slow") or not separator:
            break
        position += 1
        if name == "config":
            header = replace(header, config=_config(value, lines[position - 1], configs))
        elif (name, value) == ("server", "own"):
            header = replace(header, own_server=True)
        elif (name, value) == ("pings", "shown"):
            header = replace(header, pings_shown=True)
        elif (name, value) == ("tls", "first"):
            header = replace(header, tls_first=True)
        elif (name, value) == ("slow", "yes"):
            header = replace(header, slow=True)
        else:
            raise ScriptError(f"{file}.txt: unknown header {lines[position - 1]!r}")
    return header, position


def _config(name: str, line: str, configs: Path) -> str:
    """The configuration that a `config` or `reload` line names, or holds in its indented lines."""
    _, block, text = line.partition("\n")
    return text + "\n" if block else (configs / f"{name}.conf").read_text()


def _reading(words: list[str], where: str) -> Reading:
    reading = Reading()
    for word in words:
        if word == "unordered":
            reading = replace(reading, unordered=True)
        elif word == "silent":
            reading = replace(reading, silent=True)
        elif word.startswith("json="):
            reading = replace(reading, json=word[5:])
        else:
            raise ScriptError(f"{where}: unknown option {word!r}")
    return reading


def _step(line: str, where: str, configs: Path) -> Step:
    sent = re.match(r"([A-Z])(>>|>|<) (.*)", line)
    if sent:
        connection, direction, rest = sent.groups()
        return (
            _read_step(connection, rest, where)
            if direction == "<"
            else _send_step(connection, direction, rest)
        )
    if re.match(r"reload[ \n]", line):
        return Reload(_config(line.removeprefix("reload").strip(), line, configs))
    word, _, rest = line.partition(" ")
    words = rest.split()
    if word == "sync" and words:
        names = tuple(name for name in words if re.fullmatch(r"[A-Z]", name))
        return Sync(names, _reading(words[len(names) :], where))
    if word == "open" and words:
        return Open(*words)
    if word == "tls" and words:
        return StartTls(*words)
    if word == "close" and len(words) == 1:
        return Close(words[0])
    if word == "signal" and len(words) == 1:
        return Signal(words[0])
    if word == "http" and len(words) >= 2:
        return Http(words[0], words[1], _reading(words[2:], where).json)
    if word == "shows" and rest:
        return Shows(rest)
    raise ScriptError(f"{where}: unknown step {line!r}")


def _send_step(connection: str, direction: str, rest: str) -> Step:
    if direction == ">" and re.match(r"connect( |$)", rest):
        return Connect(connection, rest[len("connect") :].strip() or "{}")
    published = PUBLISH.fullmatch(rest)
    if direction == ">" and published:
        count, subjects, headers, payload = published.groups()
        publish = Publish(connection, subjects, payload or "", headers or "")
        return publish if rest.startswith("publish") else Request(publish, int(count or 1))
    if direction == ">" and re.match(r"(publish|request) ", rest):
        raise ScriptError(f"{rest!r} does not say what is published")
    return Send(connection, rest, line=direction == ">")


def _read_step(connection: str, rest: str, where: str) -> Step:
    first, *words = rest.split()
    quiet_s = 0.0
    if first == "quiet" and words and words[0].replace(".", "").isdigit():
        quiet_s = float(words.pop(0))
    reading = _reading(words, where)
    if first == "closed":
        return TakeUntilClosed(connection, reading)
    if first == "quiet":
        return TakeUntilQuiet(connection, reading, quiet_s)
    if first.isdigit():
        return Take(connection, int(first), reading)
    raise ScriptError(f"{where}: unknown reading {rest!r}")
