"""A stream of a real nats-server and one of ours, given the same: they must answer and hold the same.

Ours is a stream machine, either alone with a log in memory or inside of a store on a fake disk, which can be
closed and opened again. What comes in between a client and the machine is done here as simply as can be:
counters, the rollup of schedules, batches.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from edged.core import commands, headers, schedules
from edged.core.frames import MORE
from edged.core.stream_machine import Duplicate, Outcome, Refused, Stored, StreamMachine
from edged.core.wire import Publish
from edged.store.errors import StoreError
from edged.store.memory_log import MemoryLog
from edged.store.options import StoreOptions
from edged.store.store import Store
from tests.jetstream.raw_client import RawClient
from tests.lab.fake_disk import FakeDisk

Fields = list[tuple[str, str]]
GROUP = 1


def block_of(fields: Fields) -> bytes:
    """A header block, empty without fields."""
    return headers.encode((key.encode(), value.encode()) for key, value in fields) if fields else b""


class MemorySide:
    """A machine alone."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.machine = StreamMachine(MemoryLog(), config)

    def append(self, messages: Sequence[Publish]) -> Sequence[Outcome]:
        return self.machine.append_run(time.time_ns(), messages, 0, 0, range(len(messages)))

    def apply(self, command: commands.Command) -> Outcome:
        return self.machine.apply(command)

    def configure(self, config: dict[str, Any]) -> None:
        self.machine.configure(config)

    def restart(self) -> None:
        """Nothing to be done: there is no disk."""


class FileSide:
    """A machine in a store."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._disk = FakeDisk()
        nonces = count(77)
        self._options = StoreOptions(
            journal_file_bytes=64 * 1024, draw_nonce=lambda: next(nonces) << 40 | next(nonces) | 1
        )
        self._store = Store.open(self._disk, self._options)
        self.configure(config)

    @property
    def machine(self) -> StreamMachine:
        machine = self._store.stream(GROUP).group.machine
        assert isinstance(machine, StreamMachine)
        return machine

    def append(self, messages: Sequence[Publish]) -> Sequence[Outcome]:
        results: list[Sequence[Outcome] | StoreError] = []
        self._store.add_appends(GROUP, messages, time.time_ns(), results.append)
        self._store.settle()
        (outcomes,) = results
        assert not isinstance(outcomes, StoreError), outcomes
        return outcomes

    def apply(self, command: commands.Command) -> Outcome:
        (outcome,) = self._store.commit([(GROUP, command)])
        assert not isinstance(outcome, StoreError), outcome
        return outcome

    def configure(self, config: dict[str, Any]) -> None:
        self._store.commit([(0, commands.PutStream(GROUP, b"i" * 16, "A", config["name"], config))])

    def restart(self) -> None:
        """End without a word, and begin again: what was decided once is decided again."""
        before = self._state()
        self._disk = self._disk.copy()
        self._store = Store.open(self._disk, self._options)
        assert self._store.report.is_clean, self._store.report
        assert self._state() == before

    def _state(self) -> dict[str, Any]:
        machine = self.machine
        messages = [machine.log.get(seq) for seq in range(1, machine.log.last_seq + 1)]
        return {**machine.snapshot(), "messages": messages, "last_seq": machine.log.last_seq}


class PublishPair:
    """The two streams."""

    def __init__(self, client: RawClient, **config: Any) -> None:
        self.client = client
        self.name: str = config["name"]
        self.config = client.api(f"STREAM.CREATE.{self.name}", config)["config"]
        is_in_memory = self.config["storage"] == "memory"
        self.ours: MemorySide | FileSide = MemorySide(self.config) if is_in_memory else FileSide(self.config)
        self._batches = count(1)

    def close(self) -> None:
        """Both have told what they can; the server's stream goes."""
        self.ours.restart()
        self.client.api(f"STREAM.DELETE.{self.name}")

    # --- publishing ---

    def publish(self, subject: str, fields: Fields, payload: bytes = b"") -> dict[str, Any]:
        """One message to both; the server's answer, once it was found to be ours as well."""
        answer: dict[str, Any] = self.client.ask(subject, block_of(fields), payload).document
        (outcome,) = self.ours.append([self._submitted(subject, fields, payload)])
        expected = self._answer(outcome)
        assert answer == expected, (answer, expected, subject, fields, len(payload))
        return answer

    def publish_batch(self, members: list[tuple[str, Fields, bytes]]) -> dict[str, Any]:
        """An atomic batch to both."""
        batch_id = f"b{next(self._batches)}"
        submitted: list[Publish] = []
        answer: bytes = b""
        for number, (subject, fields, payload) in enumerate(members, 1):
            control = [("Nats-Batch-Id", batch_id), ("Nats-Batch-Sequence", str(number))]
            if number == len(members):
                control.append(("Nats-Batch-Commit", "1"))
            answer = self.client.ask(subject, block_of([*fields, *control]), payload).payload
            assert number == len(members) or not answer, answer
            submitted.append(self._submitted(subject, [*fields, *control], payload))
        flagged = [(*one[:2], one[2] | MORE, one[3]) for one in submitted[:-1]]
        outcomes = self.ours.append([*flagged, submitted[-1]])
        found: dict[str, Any] = json.loads(answer)
        expected = self._answer(outcomes[-1])
        if "error" not in expected:
            expected |= {"batch": batch_id, "count": len(members)}
        assert found == expected, (found, expected, members)
        last_seq = found["seq"]
        stored = [getattr(outcome, "seq", outcome) for outcome in outcomes]
        if "error" in found:
            assert set(outcomes) == {outcomes[0]}
        else:
            assert stored == list(range(last_seq - len(members) + 1, last_seq + 1))
        return found

    def _submitted(self, subject: str, fields: Fields, payload: bytes) -> Publish:
        """The message as the machine gets it."""
        block = block_of(fields)
        if self.config.get("allow_msg_schedules"):
            block = schedules.with_rollup(block)
        is_counted = self.config.get("allow_msg_counter") and any(key == "Nats-Incr" for key, _ in fields)
        if is_counted and not payload:
            text = dict(reversed(fields)).get("Nats-Incr", "")
            log = self.ours.machine.log
            last = log.peek(log.last_of(subject.encode()) or 0)
            total = int(json.loads(last.data[last.header_bytes :])["val"]) if last is not None else 0
            total += int(text) if text.lstrip("+-").isdigit() else 0
            payload = json.dumps({"val": str(total)}, separators=(",", ":")).encode()
        return subject.encode(), b"reply", len(block) or -1, block + payload

    def _answer(self, outcome: Outcome) -> dict[str, Any]:
        if isinstance(outcome, Refused):
            return {"error": outcome.error.document(), "stream": self.name, "seq": 0}
        if isinstance(outcome, Duplicate):
            return {"stream": self.name, "seq": outcome.seq, "duplicate": True}
        seq = outcome.seq if isinstance(outcome, Stored) else outcome
        answer: dict[str, Any] = {"stream": self.name, "seq": seq}
        if self.config.get("allow_msg_counter"):
            message = self.ours.machine.log.get(seq)
            assert message is not None
            answer["val"] = json.loads(message.data[message.header_bytes :])["val"]
        return answer

    # --- everything else ---

    def purge(self, **request: Any) -> None:
        """Purge both; the same number of messages goes."""
        purged = self.client.api(f"STREAM.PURGE.{self.name}", request)["purged"]
        subject = request.get("filter", "").encode()
        command = commands.Purge(request.get("seq", 0), subject, request.get("keep", 0))
        assert self.ours.apply(command) == purged, request

    def delete(self, seq: int) -> None:
        """Remove a message from both, if it is there."""
        body = json.dumps({"seq": seq}).encode()
        answer = self.client.ask(f"$JS.API.STREAM.MSG.DELETE.{self.name}", b"", body).document
        assert isinstance(self.ours.apply(commands.Delete(seq, True)), Refused) == ("error" in answer), seq

    def update(self, **changes: Any) -> None:
        """Change the configuration of both."""
        wanted = {**self.config, **changes}
        self.config = self.client.api(f"STREAM.UPDATE.{self.name}", wanted)["config"]
        self.ours.configure(self.config)

    def put_consumer(self, number: int, filters: list[str]) -> None:
        """A consumer for both."""
        name = f"c{number}"
        config: dict[str, Any] = {"durable_name": name, "ack_policy": "explicit"}
        if filters:
            config["filter_subjects"] = filters
        request = {"stream_name": self.name, "config": config}
        found = self.client.api(f"CONSUMER.DURABLE.CREATE.{self.name}.{name}", request)
        self.ours.apply(commands.PutConsumer(number, name, found["config"]))

    # --- what they hold ---

    def compare(self) -> None:
        """The figures of both streams are the same."""
        state = self.client.api(f"STREAM.INFO.{self.name}", {"deleted_details": True, "subjects_filter": ">"})
        found = state["state"]
        log = self.ours.machine.log
        expected = {
            "messages": log.message_count,
            "bytes": log.bytes,
            "last_seq": log.last_seq,
            # Where nothing was ever stored, the server says 0, and 1 after a purge.
            "first_seq": log.first_seq if log.last_seq else found["first_seq"],
        }
        assert {key: found[key] for key in expected} == expected, (found, expected)
        assert (found.get("subjects") or {}) == {
            subject.decode(): number for subject, number in log.subjects(()) if number
        }
