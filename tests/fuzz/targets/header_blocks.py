"""Header blocks: what is taken out is gone however a client reads the block, what is added can be read."""

from __future__ import annotations

import re

from edged.core import headers
from tests.fuzz.target import Target

KEY = b"Nats-Request-Info"
VALUE = b'{"acc":"A"}'


def lines(block: bytes) -> list[bytes]:
    """The lines of a block for the most lenient of clients, which takes any line end."""
    return re.split(rb"\r\n|\r|\n", block)


def is_key(line: bytes) -> bool:
    """Whether the most lenient of clients, which trims keys and ignores their case, finds the key here."""
    name, colon, _ = line.partition(b":")
    return bool(colon) and name.strip(b" \t").lower() == KEY.lower()


def run(data: bytes) -> None:
    found = headers.value(data, KEY)
    assert found is None or found in data
    stripped = headers.without(data, KEY)
    assert not any(map(is_key, lines(stripped))), stripped
    assert [line for line in lines(stripped) if line] == [
        line for line in lines(data) if line and not is_key(line)
    ]
    added = headers.adding(stripped, KEY, VALUE)
    assert headers.value(added, KEY) == VALUE, added
    assert sum(map(is_key, lines(added))) == 1, added
    assert added.endswith(b"\r\n\r\n") or b"\r\n\r\n" in stripped
    assert headers.without(added, KEY).startswith(headers.VERSION) or stripped


SEEDS = (
    b"",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0 408 Request Timeout\r\nA: b\r\n\r\n",
    b'NATS/1.0\r\nNats-Request-Info: {"acc":"X"}\r\n\r\n',
    b'NATS/1.0\r\nA: b\r\nNats-Request-Info: {"acc":"X"}\r\nNats-Request-Info: again\r\nB:c\r\n\r\n',
    b'NATS/1.0\r\nA: b\nnats-request-info : {"acc":"X"}\rNats-Request-Info: x',
    b"NATS/1.0\r\nNats-Msg-Id: 1\r\nNats-Msg-Id: 2\r\n"
    b"Nats-Expected-Last-Sequence: 18446744073709551616\r\n\r\n",
)
WORDS = (
    *(b"NATS/1.0\r\n", b"Nats-Request-Info: ", b"nats-request-info:", b"\r\nNats-Request-Info: x\r\n"),
    *(b"\r\n", b"\r", b"\n", b"\r\n\r\n", b": ", b":", b" ", b"\t", b"A: b\r\n", b"Nats-Request-Info : y"),
)
TARGETS = (Target("headers", run, SEEDS, WORDS, share=6),)
