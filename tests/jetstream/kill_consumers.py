"""Clients publish, fetch and acknowledge while their server is killed, again and again.

`python -m tests.jetstream.kill_consumers --rounds 100 [--seed 1]` plays many rounds on one store;
test_kill_consumers.py a few. `python -m tests.disks power-cut-consumers` does the same with power cuts.
A round: publishers fill three streams, workers fetch and acknowledge with confirmation, send back, terminate,
say that they work, and forget; then the server dies, starts again, and is asked what it has.

What must hold: what was confirmed is never delivered again, is not counted, and is gone from a work queue;
what was stored and not acknowledged is there and is delivered; a count of deliveries that is durable does not
go back; figures and floors agree with all that.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from tests.jetstream.consumption_clients import Client, Publisher, Worker
from tests.jetstream.consumption_ledger import (
    ConsumerLedger,
    ConsumerPlan,
    Ledger,
    StreamLedger,
    Violation,
)
from tests.jetstream.jetstream_servers import CONFIG
from tests.jetstream.raw_client import RawClient
from tests.servers import RunningServer, start_server

ACK_WAIT_NS: Final = 150_000_000
ACK_PENDING_MAX: Final = 200
PUBLISHED_MAX: Final = 150
EVENTS_MAX: Final = 700
ROUND_S_MAX: Final = 1.0
END_S_MAX: Final = 60.0
# So many rounds end before anybody has done anything, right after the start.
IDLE_SHARE: Final = 0.05
RETENTIONS: Final = {"LIMITS": "limits", "QUEUE": "workqueue", "INTEREST": "interest"}
PLANS: Final = (
    ConsumerPlan("LIMITS", "each"),
    ConsumerPlan("LIMITS", "all", "all"),
    ConsumerPlan("LIMITS", "some", subject=1),
    ConsumerPlan("QUEUE", "zero", subject=0, workers=2),
    ConsumerPlan("QUEUE", "one", subject=1),
    ConsumerPlan("INTEREST", "each", workers=2),
    ConsumerPlan("INTEREST", "all", "all", subject=1),
)


class Ground(Protocol):
    """Where a server lives and how it dies."""

    def start(self) -> RunningServer:
        """Start it on what is there."""
        ...

    def crash(self, server: RunningServer, freeze: Callable[[], None]) -> None:
        """Let it die; `freeze` is called before, if what clients read from then on does not count."""
        ...


@dataclass(frozen=True, slots=True)
class KillGround:
    """In a folder; it dies by SIGKILL. The kernel keeps what was written, so what was said before counts."""

    directory: Path
    binary: str = "edged"

    def start(self) -> RunningServer:
        """Start it on what is there."""
        return start_server(self.binary, CONFIG, self.directory)

    def crash(self, server: RunningServer, freeze: Callable[[], None]) -> None:
        """SIGKILL."""
        server.signal(signal.SIGKILL)
        server.process.wait()


@dataclass(slots=True)
class Figures:
    """What was seen."""

    rounds: int = 0
    stored: int = 0
    confirmed: int = 0
    unconfirmed: int = 0
    redeliveries: int = 0
    start_s_max: float = 0.0

    def __str__(self) -> str:
        return (
            f"rounds={self.rounds} stored={self.stored} confirmed={self.confirmed} "
            f"unconfirmed_at_a_crash={self.unconfirmed} redeliveries={self.redeliveries} violations=0 "
            f"slowest_start={self.start_s_max * 1000:.0f}ms"
        )


class Consumption:
    """The rounds of one store."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self._ground = ground
        self._chance = random.Random(seed)
        self.figures = Figures()
        self._ledger = Ledger(
            [
                StreamLedger(name, retention, [ConsumerLedger(plan) for plan in PLANS if plan.stream == name])
                for name, retention in RETENTIONS.items()
            ]
        )
        self._server = self._start()
        with self._client() as client:
            for stream in self._ledger.streams:
                _create(client, stream)

    def close(self) -> None:
        """End the server."""
        self._server.stop()

    def round(self) -> None:
        """Work, crash, start again and look. Raises Violation."""
        is_idle = self._chance.random() < IDLE_SHARE
        life = self._ledger.life
        self._work(0 if is_idle else self._chance.randrange(1, EVENTS_MAX))
        for consumer in self._consumers():
            self.figures.unconfirmed += sum(said == life for said in consumer.said.values())
        self._look()
        self.figures.rounds += 1

    def finish(self) -> None:
        """Work everything off, crash once more, and see that nothing is left."""
        clients = self._begin(published_max=0, is_last=True)
        deadline_s = time.monotonic() + END_S_MAX
        while not self._is_worked_off():
            self._ledger.check()
            if time.monotonic() > deadline_s:
                raise Violation(f"not worked off after {END_S_MAX} s: {self._server.log_tail()}")
        self._crash(clients)
        self._look()
        with self._client() as client:
            for stream in self._ledger.streams:
                for consumer in stream.consumers:
                    consumer.check_end(stream.seqs_of(consumer), _info(client, consumer))
        consumers = self._consumers()
        self.figures.confirmed = sum(len(consumer.confirmed) for consumer in consumers)
        self.figures.redeliveries = sum(consumer.redeliveries for consumer in consumers)
        self.figures.stored = sum(len(stream.numbers) for stream in self._ledger.streams)

    def _consumers(self) -> list[ConsumerLedger]:
        return [consumer for stream in self._ledger.streams for consumer in stream.consumers]

    def _start(self) -> RunningServer:
        started_s = time.monotonic()
        server = self._ground.start()
        self.figures.start_s_max = max(self.figures.start_s_max, time.monotonic() - started_s)
        self._ledger.begin_life()
        return server

    def _client(self) -> closing[RawClient]:
        return closing(RawClient(self._server.host, self._server.port))

    # --- a life of the server ---

    def _work(self, events: int) -> None:
        """Let clients work until so much was confirmed or stored, or for a while; then the server dies."""
        clients = self._begin(PUBLISHED_MAX, is_last=False) if events else []
        try:
            self._ledger.wait(events, ROUND_S_MAX)
        finally:
            self._crash(clients)

    def _begin(self, published_max: int, is_last: bool) -> list[Client]:
        """Start all clients."""
        server, ledger, chance = self._server, self._ledger, self._chance
        clients: list[Client] = []
        for stream in ledger.streams:
            if published_max:
                count = chance.randrange(published_max)
                clients.append(
                    Publisher(server, ledger, stream, count, random.Random(chance.getrandbits(32)))
                )
            for consumer in stream.consumers:
                clients += [
                    Worker(
                        *(server, ledger, stream, consumer, place),
                        random.Random(chance.getrandbits(32)),
                        is_last,
                    )
                    for place in range(consumer.plan.workers)
                ]
        for client in clients:
            client.start()
        return clients

    def _crash(self, clients: list[Client]) -> None:
        self._ground.crash(self._server, self._ledger.freeze)
        for client in clients:
            client.join()
        self._ledger.check()
        self._server = self._start()

    def _is_worked_off(self) -> bool:
        with self._client() as client:
            infos = [_info(client, consumer) for consumer in self._consumers()]
        return not any(info["num_pending"] + info["num_ack_pending"] for info in infos)

    # --- what is there afterwards ---

    def _look(self) -> None:
        with self._client() as client:
            for stream in self._ledger.streams:
                self._look_at(client, stream)

    def _look_at(self, client: RawClient, stream: StreamLedger) -> None:
        state = client.api(f"STREAM.INFO.{stream.name}", {"deleted_details": True})["state"]
        present = set(range(max(state["first_seq"], 1), state["last_seq"] + 1))
        present -= set(state.get("deleted") or ())
        self._name(client, stream, present, state["last_seq"])
        # Figures first: they hold as long as it is not said what became of what was not confirmed.
        for consumer in stream.consumers:
            consumer.check(stream.seqs_of(consumer), _info(client, consumer), self._ledger.life)
        stream.check(present, state["last_seq"], self._ledger.life)

    def _name(self, client: RawClient, stream: StreamLedger, present: set[int], last_seq: int) -> None:
        """Learn the numbers of messages that nobody knew to be stored."""
        for seq in range(1, last_seq + 1):
            if seq in stream.numbers:
                continue
            if seq not in present:
                raise Violation(f"{stream.name}: {seq} is gone, and nobody was given it")
            answer = client.api(f"STREAM.MSG.GET.{stream.name}", {"seq": seq})
            stream.stored(seq, int(b64decode(answer["message"]["data"]).partition(b" ")[0]))


def _create(client: RawClient, stream: StreamLedger) -> None:
    name = stream.name
    config = {"name": name, "subjects": [f"{name}.*"], "retention": stream.retention}
    client.api(f"STREAM.CREATE.{name}", config)
    for consumer in stream.consumers:
        plan = consumer.plan
        wanted: dict[str, Any] = {
            "durable_name": plan.name,
            "ack_policy": plan.ack_policy,
            "ack_wait": ACK_WAIT_NS,
            "max_ack_pending": ACK_PENDING_MAX,
        }
        if plan.subject is not None:
            wanted["filter_subject"] = f"{name}.{plan.subject}"
        request = {"stream_name": name, "config": wanted}
        client.api(f"CONSUMER.DURABLE.CREATE.{name}.{plan.name}", request)


def _info(client: RawClient, consumer: ConsumerLedger) -> dict[str, Any]:
    return client.api(f"CONSUMER.INFO.{consumer.plan.stream}.{consumer.plan.name}")


def play(
    ground: Ground, seed: int, rounds: int, progress: Callable[[Figures], None] = lambda figures: None
) -> Figures:
    """So many rounds; what was seen in them. Raises Violation."""
    consumption = Consumption(ground, seed)
    try:
        for _ in range(rounds):
            consumption.round()
            progress(consumption.figures)
        consumption.finish()
    except AssertionError as error:
        raise Violation(f"in round {consumption.figures.rounds + 1}: {error}") from error
    finally:
        consumption.close()
    return consumption.figures


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.jetstream.kill_consumers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=("edged", "nats-server"), default="edged")
    options = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        try:
            figures = play(KillGround(Path(directory), options.server), options.seed, options.rounds)
        except Violation as violation:
            sys.exit(f"seed {options.seed}: {violation}")
    print(f"consumers: {figures} seconds={time.monotonic() - began_s:.0f}")


if __name__ == "__main__":
    main()
