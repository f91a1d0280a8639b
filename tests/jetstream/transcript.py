"""Conversations with consumers, written down: what clients do, and what they are sent because of it.

A transcript is a text file of steps. A step is a line with a command, and below it, indented, everything that
clients were sent before the next step, each line with the time since the transcript began. It is played under
a virtual clock, where times are exact; with shorter times on a real server, where only the order counts.

    stream S s.>                               make a stream
    consumer S c {"ack_wait": "1s"}            make a durable consumer; times are written like 1s or 500ms
    listen A to.here [in GROUP]                let a client subscribe; `leave A` ends that
    pull A S c {"batch": 2}                    client A asks for messages
    publish s.one [3 times] [of 1000 bytes]    publish to the stream
    ack A 7, nak A 7 [after 2s], term A 7, progress A 7      A answers for what it was sent last with seq 7
    answer A                                   A answers the last request for flow control that it was sent
    after 1s                                   time passes
    info S c                                   show figures of a consumer
    unpin S c GROUP                            let another client be served
    restart                                    end the server in order, and start it (virtual clock only)

`python -m tests.jetstream.transcript --rewrite` writes what edged does now into all files, to be reviewed.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

FOLDER: Final = Path(__file__).parent / "transcripts"
_DURATION: Final = re.compile(r"([0-9.]+)(ms|s|m)")
_UNITS_NS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9}
_TIMES: Final = frozenset(("ack_wait", "backoff", "expires", "idle_heartbeat", "priority_timeout"))
_PIN: Final = re.compile(r"Nats-Pin-Id: (\S+)")


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something that a client was sent."""

    client: str
    at_ns: int
    subject: str
    reply: str
    block: bytes
    size: int


class Stage(Protocol):
    """Where a transcript is played. `now_ns` counts from its beginning, in its own times."""

    def listen(self, client: str, subject: str, group: str) -> None: ...

    def leave(self, client: str) -> None: ...

    def publish(self, subject: str, data: bytes, reply: str) -> None: ...

    def confirm(self, subject: str, data: bytes) -> None:
        """Publish, and wait until the server has confirmed it."""
        ...

    def api(self, name: str, request: dict[str, Any]) -> dict[str, Any]: ...

    def duration_ns(self, written_ns: int) -> int:
        """How long something takes here that a transcript says to take so long."""
        ...

    def after(self, passed_ns: int) -> None:
        """Let so much time of the transcript pass."""
        ...

    def restart(self) -> None: ...

    def arrivals(self, expected: int) -> list[Arrival]:
        """What came since it was last asked; a server with a clock of its own is given time for so many."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """A command and what follows from it; `lead` are the comments and blank lines before it."""

    lead: tuple[str, ...]
    command: str
    output: tuple[str, ...]


def parse(text: str) -> list[Step]:
    """The steps of a file."""
    steps: list[Step] = []
    lead: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            last = steps[-1]
            steps[-1] = replace(last, output=(*last.output, line.strip()))
        elif not line or line.startswith("#"):
            lead.append(line)
        else:
            steps.append(Step(tuple(lead), line, ()))
            lead = []
    return steps


def written(steps: list[Step]) -> str:
    """The file of some steps."""
    lines: list[str] = []
    for step in steps:
        lines += [*step.lead, step.command, *(f"    {line}" for line in step.output)]
    return "\n".join(lines) + "\n"


def without_time(line: str) -> str:
    """An output line as it is compared where clocks are real."""
    return line.partition(" ")[2] if line.startswith("+") else line


class Player:
    """Plays the steps of one transcript on a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        # By client and seq, how to answer for what it was sent last; by client, how to answer flow control.
        self._replies: dict[tuple[str, int], str] = {}
        self._flows: dict[str, str] = {}
        self._pins: dict[str, str] = {}
        self._inboxes: set[str] = set()

    def play(self, step: Step) -> tuple[str, ...]:
        """What follows from a step."""
        verb, _, rest = step.command.partition(" ")
        shown = getattr(self, f"_{verb}")(rest)
        if shown is not None:
            return (shown,)
        return tuple(self._line(one) for one in self._stage.arrivals(len(step.output)))

    # --- commands ---

    def _stream(self, rest: str) -> None:
        name, subject, config = _words(rest, 3)
        request = {"name": name, "subjects": [subject], **json.loads(config or "{}")}
        self._stage.api(f"STREAM.CREATE.{name}", request)

    def _consumer(self, rest: str) -> None:
        stream, name, config = _words(rest, 3)
        wanted = {"durable_name": name, "ack_policy": "explicit", **self._timed(json.loads(config or "{}"))}
        self._stage.api(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", {"stream_name": stream, "config": wanted})

    def _listen(self, rest: str) -> None:
        client, subject, group = _words(rest, 3)
        self._stage.listen(client, subject, group.removeprefix("in "))

    def _leave(self, rest: str) -> None:
        self._stage.leave(rest)

    def _pull(self, rest: str) -> None:
        client, stream, name, terms = _words(rest, 4)
        if client not in self._inboxes:
            self._inboxes.add(client)
            self._stage.listen(client, f"inbox.{client}", "")
        terms = terms.replace("${pin}", self._pins.get(client, ""))
        body = json.dumps(self._timed(json.loads(terms or "{}"))).encode()
        self._stage.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", body, f"inbox.{client}")

    def _publish(self, rest: str) -> None:
        subject, _, how = rest.partition(" ")
        times = re.search(r"(\d+) times", how)
        size = re.search(r"of (\d+) bytes", how)
        for _ in range(int(times[1]) if times else 1):
            self._stage.confirm(subject, b"x" * (int(size[1]) if size else 1))

    def _ack(self, rest: str) -> None:
        self._say(rest, b"+ACK")

    def _term(self, rest: str) -> None:
        self._say(rest, b"+TERM")

    def _progress(self, rest: str) -> None:
        self._say(rest, b"+WPI")

    def _nak(self, rest: str) -> None:
        which, _, delay = rest.partition(" after ")
        words = b"-NAK"
        if delay:
            words += b' {"delay": %d}' % self._stage.duration_ns(duration_ns(delay))
        self._say(which, words)

    def _say(self, rest: str, words: bytes) -> None:
        client, seq = rest.split()
        self._stage.confirm(self._replies[client, int(seq)], words)

    def _answer(self, client: str) -> None:
        self._stage.publish(self._flows.pop(client), b"", "")

    def _after(self, rest: str) -> None:
        self._stage.after(duration_ns(rest))

    def _unpin(self, rest: str) -> None:
        stream, name, group = rest.split()
        self._stage.api(f"CONSUMER.UNPIN.{stream}.{name}", {"group": group})

    def _restart(self, rest: str) -> None:
        self._stage.restart()
        self._inboxes.clear()

    def _info(self, rest: str) -> str:
        stream, name = rest.split()
        info = self._stage.api(f"CONSUMER.INFO.{stream}.{name}", {})
        delivered, floor = info["delivered"], info["ack_floor"]
        return (
            f"delivered {delivered['consumer_seq']}/{delivered['stream_seq']}"
            f" floor {floor['consumer_seq']}/{floor['stream_seq']}"
            f" ack_pending {info['num_ack_pending']} redelivered {info['num_redelivered']}"
            f" waiting {info['num_waiting']} pending {info['num_pending']}"
        )

    def _timed(self, document: dict[str, Any]) -> dict[str, Any]:
        """With times in nanoseconds, as they are here."""

        def timed(value: Any) -> Any:
            if isinstance(value, list):
                return [timed(one) for one in value]
            return self._stage.duration_ns(duration_ns(value))

        return {key: timed(value) if key in _TIMES else value for key, value in document.items()}

    # --- what arrived ---

    def _line(self, arrival: Arrival) -> str:
        head = f"+{_shown_ns(arrival.at_ns)} {arrival.client} <"
        if arrival.reply.startswith("$JS.ACK."):
            words = arrival.reply.split(".")
            self._replies[arrival.client, int(words[5])] = arrival.reply
            text = f"{arrival.subject} seq {words[5]} delivery {words[4]} as {words[6]}, {words[8]} left"
            return f"{head} {text}{self._pin(arrival)}"
        if arrival.reply.startswith("$JS.FC."):
            self._flows[arrival.client] = arrival.reply
        if arrival.block:
            lines = arrival.block.decode().rstrip("\r\n").split("\r\n")
            lines[0] = lines[0].partition(" ")[2]
            # Bytes of a request without a limit say nothing; where a stalled client is to answer is made up.
            lines = [line.partition(": $JS.FC.")[0] for line in lines if line != "Nats-Pending-Bytes: 0"]
            return f"{head} {', '.join(lines)}"
        return f"{head} {arrival.subject}"

    def _pin(self, arrival: Arrival) -> str:
        found = _PIN.search(arrival.block.decode())
        if found is None:
            return ""
        self._pins[arrival.client] = found[1]
        return ", pinned"


def _words(rest: str, count: int) -> list[str]:
    words = rest.split(" ", count - 1)
    return words + [""] * (count - len(words))


def duration_ns(text: str) -> int:
    """A time as transcripts write it."""
    found = _DURATION.fullmatch(text)
    assert found is not None, text
    return round(float(found[1]) * _UNITS_NS[found[2]])


def _shown_ns(time_ns: int) -> str:
    return f"{time_ns / 10**9:.3f}".rstrip("0").rstrip(".") + "s"


def files() -> list[Path]:
    """All transcripts."""
    return sorted(FOLDER.glob("*.txt"))


def main() -> None:
    """The command."""
    from tests.jetstream.virtual_stage import VirtualStage

    parser = argparse.ArgumentParser(prog="python -m tests.jetstream.transcript", description=__doc__)
    parser.add_argument("--rewrite", action="store_true", required=True)
    parser.parse_args()
    for path in files():
        player = Player(VirtualStage())
        steps = [replace(step, output=player.play(step)) for step in parse(path.read_text())]
        path.write_text(written(steps))


if __name__ == "__main__":
    main()
