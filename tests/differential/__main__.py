"""Print what a server answers to scripts: `python -m tests.differential [--server edged] [name]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.differential.library import cases
from tests.differential.runner import run
from tests.differential.variables import resolve
from tests.servers import start_server


def main() -> int:
    """Run the chosen cases, each on a server of its own, and print their transcripts."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--server", default="nats-server", help="nats-server (default), edged, or a path")
    parser.add_argument("part", nargs="?", default="", help="only cases whose name holds this text")
    arguments = parser.parse_args()
    chosen = [case for case in cases() if arguments.part in case.id]
    with tempfile.TemporaryDirectory(prefix="differential-") as directory:
        for number, case in enumerate(chosen):
            server = start_server(
                arguments.server,
                resolve(case.header.config),
                Path(directory) / str(number),
                sends_info=not case.header.tls_first,
            )
            try:
                transcript = run(case, server)
            finally:
                server.stop()
            print(f"== {case.id}", *transcript.lines, sep="\n")
            if transcript.missing:
                print(f"MISSING {transcript.missing}")
            print()
    return 0 if chosen else 1


if __name__ == "__main__":
    sys.exit(main())
