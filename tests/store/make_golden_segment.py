"""Writes the golden segments of the current format: python -m tests.store.make_golden_segment

They are made once for a version of the format and never again: that this program still reads them is what
test_segment_golden.py shows. A new version gets new files beside the old ones.
"""

from __future__ import annotations

from pathlib import Path

from edged.core.message import Message
from edged.store.box import Keyring
from edged.store.segment_format import VERSION, segment_path
from edged.store.segment_writer import write_segment
from tests.store.segment_samples import SALT, START_NS, STREAM_ID, MemoryFiles, expires_ns

DIRECTORY = Path(__file__).parent.parent / "data" / "store"
KEYS = Keyring.read("golden key, known to everybody")
PATH = segment_path(STREAM_ID, 5, 2)
HEADER_BLOCK = b"NATS/1.0\r\nNats-TTL: 5s\r\n\r\n"


def golden_messages() -> list[Message]:
    """Several blocks and columns of their own, gaps, times that go back, headers, and data of many sizes."""
    found = []
    for number in range(1200):
        header = HEADER_BLOCK if number % 70 == 0 else b""
        data = header + b"".join(b"%d," % (number // 50 + step) for step in range(number % 41))
        seq = 7 + number + number // 10
        ts_ns = START_NS + number * 1_000_003 - (number % 11) * 5_000_000
        found.append(Message(seq, ts_ns, b"line.%d" % (number % 300), len(header), data))
    return found


def name_of(version: int, is_sealed: bool) -> str:
    """The name of a golden file."""
    return f"segment-{version}{'-sealed' if is_sealed else ''}.seg"


def main() -> None:
    """Write both files; FileExistsError if they are there."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for is_sealed in (False, True):
        files = MemoryFiles()
        keys = KEYS if is_sealed else None
        write_segment(files, PATH, STREAM_ID, golden_messages(), keys, expires_ns, SALT)
        with (DIRECTORY / name_of(VERSION, is_sealed)).open("xb") as file:
            file.write(files.data[PATH])


if __name__ == "__main__":
    main()
