"""Configuration files and the durations in them: a ConfigError, or options; never anything else."""

from __future__ import annotations

import re
from pathlib import Path

from edged.config.document import ConfigError
from edged.config.language import parse_text
from edged.config.load import load_text
from edged.core import gotime
from tests.fuzz.target import Target

# Includes are looked up beside this file, and must not find anything, however many dots they begin with.
PATH = "/nowhere" * 100 + "/fuzz.conf"
ENVIRONMENT = {"TEXT": "text", "BLOCK": "{a: 1}", "SELF": "$SELF", "BAD": "[", "EMPTY": ""}
CANARY = "CANARY7c2f"
EXAMPLE = Path(__file__).parents[3] / "edged.conf.example"


def run_language(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    try:
        document = parse_text(text, ENVIRONMENT, PATH)
    except ConfigError as error:
        str(error).encode("utf-8", "backslashreplace")
        return
    assert re.fullmatch("sha256:[0-9a-f]{64}", document.digest())


def run_options(data: bytes) -> None:
    """From text to options; a password is not in the error, whatever is wrong."""
    try:
        loaded = load_text(data.decode("utf-8", "surrogateescape"), ENVIRONMENT, PATH)
    except ConfigError as error:
        assert f"password: {CANARY}".encode() not in data or CANARY not in str(error), str(error)
        return
    assert loaded.options.max_payload <= loaded.options.max_pending
    repr(loaded.options)


def run_times(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        duration_ns = gotime.parse_duration_ns(text)
    except ValueError:
        pass
    else:
        assert gotime.parse_duration_ns(gotime.format_duration(duration_ns)) == duration_ns
    try:
        moment_ns = gotime.parse_rfc3339(text)
    except ValueError:
        return
    # Zones may shift an instant out of the years that can be written.
    if not text.startswith(("0000", "0001-01-01", "9999-12-31")):
        assert gotime.parse_rfc3339(gotime.format_rfc3339(moment_ns)) == moment_ns


def _example_blocks() -> list[bytes]:
    """The settings of the example, each block on its own, so that most inputs are short."""
    lines = [
        line[1:].partition(" # ")[0]
        for line in EXAMPLE.read_text().splitlines()
        if re.match(r"#(?:[^\s#]|    )", line)
    ]
    blocks: list[bytes] = []
    block: list[str] = []
    for line in lines:
        block.append(line)
        if not line.startswith(" ") and not line.rstrip().endswith(("{", "[", "[{")):
            blocks.append("\n".join(block).encode())
            block = []
    return blocks


SEEDS = (
    *_example_blocks(),
    b"a: 1\nb = 'x'; c \"y\\x41\"\nd [1, 2\n3]\ne { f: true, g: 1.5, h: 2026-01-31T12:00:00Z }\ni: $a",
    b"x: (\nline\n)\ny: 64KB, z: 10s # comment\n// other\nv: $TEXT\nw: $BLOCK",
    b'{ "port": 4222, "authorization": { "users": [ { "user": "a", "password": "b" } ] } }',
    b"include other.conf\nport: -1",
    f"authorization {{ user: a, password: {CANARY} }}".encode(),
    b"accounts { A { users: [{user: a, password: b, permissions: { publish: { allow: ['a.>'], deny: b } }}]\n"
    b"exports: [{stream: 'x.>'}, {service: y, accounts: [B]}] }\n"
    b" B { imports: [{stream: {account: A, subject: x.y}}] } }",
)
WORDS = (
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b"(",
        b")",
        b"\n",
        b":",
        b"=",
        b",",
        b";",
        b"#",
        b"//",
        b"'",
        b'"',
        b"\\x",
        b"$a",
    ),
    *(
        b"true",
        b"-1",
        b"1.5",
        b"10s",
        b"64KB",
        b"include ",
        b"$SELF",
        b"$BAD",
        b"$EMPTY",
        b"\xff",
        b"\\",
        b" ",
    ),
    *(
        b"2026-01-31T12:00:00Z",
        b"1e400",
        b"{}",
        b"[]",
        b"[{}]",
        b"''",
        b"port: ",
        b"users: ",
        b"$TEXT",
        b"\x00",
    ),
)
TIME_SEEDS = (b"1h2m3.5s", b"-1.5h", b"250ms", b"1\xc2\xb5s", b"0", b"2026-01-31T12:00:00.123456789Z")
TIME_WORDS = (
    b"h",
    b"m",
    b"s",
    b"ns",
    b"us",
    b".",
    b"-",
    b"+",
    b"9" * 20,
    b"T",
    b"Z",
    b":",
    b"+23:59",
    b"\xce\xbcs",
)
TARGETS = (
    Target("config", run_language, SEEDS, WORDS, share=6),
    Target("options", run_options, SEEDS, WORDS, share=5),
    Target("times", run_times, (*TIME_SEEDS, b"0001-01-01T00:00:00+01:00"), TIME_WORDS, share=2),
)
