"""Conversations with consumers are as they are written down: redelivery, priorities, flow control.

Under a virtual clock to the nanosecond; and on nats-server with shorter times, in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.jetstream.jetstream_servers import new_name, running
from tests.jetstream.real_stage import PATIENCE_S, RealStage
from tests.jetstream.transcript import Player, Step, files, parse, without_time, written
from tests.jetstream.virtual_stage import VirtualStage
from tests.servers import RunningServer

# A busy machine may be too late for short times. What is different with the longest ones is different.
SCALES = (0.2, 0.5, 1.0)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_edged_does_under_a_virtual_clock_what_is_written(path: Path) -> None:
    player = Player(VirtualStage())
    text = path.read_text()
    played = [replace(step, output=player.play(step)) for step in parse(text)]
    assert written(played) == text


def test_a_transcript_that_says_something_else_is_noticed() -> None:
    text = 'stream S s.>\nconsumer S c\npublish s.a\npull A S c {"batch": 1}\n    +0s A < nothing\n'
    player = Player(VirtualStage())
    played = [replace(step, output=player.play(step)) for step in parse(text)]
    assert written(played) == text.replace("nothing", "s.a seq 1 delivery 1 as 1, 0 left")


# --- nats-server ---


@pytest.fixture(scope="module")
def nats_with_streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running("nats-server", tmp_path_factory.mktemp("transcripts")) as server:
        yield server


def _for_all() -> list[Path]:
    """Those that a server with a clock of its own can play."""
    return [path for path in files() if "\nrestart\n" not in path.read_text()]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("path", _for_all(), ids=lambda path: path.stem)
def test_nats_server_does_the_same_in_the_same_order(path: Path, nats_with_streams: RunningServer) -> None:
    for scale in SCALES:
        stream = new_name(path.stem)
        text = path.read_text().replace(" S ", f" {stream} ").replace(".S.", f".{stream}.")
        steps = parse(text.replace(" s.", f" {stream}."))
        found = _played(steps, nats_with_streams, scale, stream)
        if found == _by_client(steps):
            return
    assert found == _by_client(steps)


def _by_client(steps: list[Step]) -> dict[str, list[str]]:
    """What each client was sent, and what was shown of consumers."""
    found: dict[str, list[str]] = {}
    for step in steps:
        for line in step.output:
            text = without_time(line)
            found.setdefault(text.partition(" ")[0], []).append(text)
    return found


def _played(steps: list[Step], server: RunningServer, scale: float, stream: str) -> dict[str, list[str]]:
    stage = RealStage(server, scale)
    player = Player(stage)
    played: list[Step] = []
    try:
        for step in steps:
            played.append(replace(step, output=_output(player, step)))
    except KeyError:
        pass  # There is nothing to answer: what is missing is seen by whoever compares.
    finally:
        # Its consumers would deliver to whoever comes next.
        stage.api(f"STREAM.DELETE.{stream}", {})
        stage.close()
    return _by_client(played)


def _output(player: Player, step: Step) -> tuple[str, ...]:
    """Figures are shown as they should be, or as they are after a while."""
    deadline_s = time.monotonic() + PATIENCE_S
    output = player.play(step)
    while step.command.startswith("info ") and output != step.output and time.monotonic() < deadline_s:
        output = player.play(step)
    return output
