"""After the faults: whether the cluster works again, and what each node has.

Rules: a node is asked while it leads the stream, so that its own copy answers: message by message, which only
a leader answers; by direct get and through a consumer, which nats-server may answer from another copy. What
does not work within its deadline is written down as unusable, and the rest goes on.
"""

from __future__ import annotations

import threading
import time
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from edged.core import headers
from tests.jepsen.cluster import CONSUMER, STREAM, Cluster
from tests.jepsen.connection import Arrived, Connection, NoAnswerError
from tests.jepsen.history import History, Publish, Reading, Stored, payload_of
from tests.jepsen.load import Worker, merge
from tests.jepsen.nodes import Node
from tests.jetstream.jetstream_servers import NO_MESSAGE

USABLE_S_MAX: Final = 90.0
DRAIN_S_MAX: Final = 60.0
READ_S_MAX: Final = 60.0
_BATCH: Final = 1000
_QUIET_S: Final = 2.0
_TAIL_S: Final = 5.0
# No more requests to the API than this are on their way.
_WINDOW: Final = 250
_RETRY_S: Final = 0.1
_DRAINERS: Final = 2
_PROBER: Final = -1

# Reads from a connection up to a seq, and further if there is more.
Reader = Callable[[Connection, int], Sequence[Stored]]


def inspect(
    cluster: Cluster, history: History, tell: Callable[[str], None], usable_s: float = USABLE_S_MAX
) -> None:
    """Fill the history's end: usability, the consumer's rest, and a reading of every member in two ways."""
    deadline_s = time.monotonic() + usable_s
    usable = [node for node in cluster.nodes if _is_usable(node, history, deadline_s)]
    tell(f"usable: {len(usable)} of {len(cluster.nodes)} nodes")
    if not usable:
        return
    _drain(cluster, history)
    tell(f"consumer drained: {history.consumption.is_drained}")
    try:
        cluster.wait_replicated(usable_s)
        members = cluster.members()
    except NoAnswerError as error:
        history.unusable["stream"] = str(error)
        members = usable
    for node in members:
        last_seq = 0
        try:
            cluster.make_leader(node)
            last_seq = cluster.info()["state"]["last_seq"]
        except NoAnswerError as error:
            history.unusable.setdefault(node.name, str(error))
        for way in WAYS:
            try:
                history.readings.append(Reading(node.name, way, _patiently(node, way, last_seq, tell)))
            except NoAnswerError as error:
                history.unusable.setdefault(node.name, f"{way}: {error}")
            else:
                tell(f"{len(history.readings[-1].messages)} read through {node.name} by {way}")


def _is_usable(node: Node, history: History, deadline_s: float) -> bool:
    """Whether publishes succeed through a node, and it lists the stream. Probes are part of the history."""
    trouble = ""
    while not trouble or time.monotonic() < deadline_s:
        number = sum(publish.publisher == _PROBER for publish in history.publishes)
        probe = Publish(f"probe.{number}", _PROBER, number, time.monotonic())
        history.publishes.append(probe)
        try:
            with node.connect("U") as connection:
                _probe(connection, probe)
        except (OSError, NoAnswerError) as error:
            trouble = f"{type(error).__name__}: {error}"
            if not node.is_running:
                trouble = f"has ended: {node.log_tail(5)}"
                break
            time.sleep(_RETRY_S)
        else:
            return True
    history.unusable[node.name] = trouble
    return False


def _probe(connection: Connection, probe: Publish) -> None:
    answer = connection.ask(f"{STREAM}.0", payload_of(probe.message_id))
    document = answer.document if answer.payload else {}
    if "seq" not in document:
        raise NoAnswerError(f"a publish was answered {answer.block or answer.payload!r}")
    probe.seq, probe.completed_s = document["seq"], time.monotonic()
    names = connection.api("STREAM.NAMES").get("streams") or ()
    if STREAM not in names:
        raise NoAnswerError(f"the streams are {names}")


def _drain(cluster: Cluster, history: History) -> None:
    """Let workers take and acknowledge all that is left."""
    stop = threading.Event()
    workers = [Worker(cluster, stop, Random(number), number + 100, 1.0) for number in range(_DRAINERS)]
    for worker in workers:
        worker.start()
    left = "its information"
    deadline_s = time.monotonic() + DRAIN_S_MAX
    try:
        while time.monotonic() < deadline_s:
            try:
                last_seq = cluster.info(_QUIET_S)["state"]["last_seq"]
                info = cluster.ask(f"CONSUMER.INFO.{STREAM}.{CONSUMER}", wait_s=_QUIET_S)
            except NoAnswerError as error:
                left = str(error)
                continue
            reached = info["delivered"]["stream_seq"]
            # A new leader may say for a moment that nothing is pending: it must have come to the end as well.
            if not info["num_pending"] and not info["num_ack_pending"] and reached >= last_seq:
                history.consumption.is_drained = True
                return
            left = (
                f"{info['num_pending']} pending, {info['num_ack_pending']} to be acknowledged, "
                f"delivered up to {reached} of {last_seq}"
            )
            time.sleep(_RETRY_S)
        history.unusable["consumer"] = f"not drained after {DRAIN_S_MAX:.0f} s: {left}"
    finally:
        stop.set()
        for worker in workers:
            worker.join()
        merge(history.consumption, workers)


def _patiently(node: Node, way: str, last_seq: int, tell: Callable[[str], None]) -> Sequence[Stored]:
    """Read all, beginning anew when the connection breaks. Raises NoAnswerError after the deadline."""
    deadline_s = time.monotonic() + READ_S_MAX
    while True:
        try:
            with node.connect("R") as connection:
                return WAYS[way](connection, last_seq)
        except (OSError, NoAnswerError) as error:
            if time.monotonic() > deadline_s:
                raise NoAnswerError(f"not read after {READ_S_MAX:.0f} s: {error}") from error
            tell(f"reading through {node.name} by {way} begins anew: {error}")
            time.sleep(_RETRY_S)


class _Patience:
    """When a reading is over: at the end of the stream, or when for a while nothing more came."""

    def __init__(self, last_seq: int) -> None:
        self._last_seq = last_seq
        self._moved_s = time.monotonic()

    def is_over(self, found: list[Stored], has_moved: bool) -> bool:
        """Asked after each batch."""
        if has_moved:
            self._moved_s = time.monotonic()
            return False
        if found and found[-1].seq >= self._last_seq:
            return True
        time.sleep(_RETRY_S)
        return time.monotonic() > self._moved_s + _TAIL_S


def _read_directly(connection: Connection, last_seq: int) -> Sequence[Stored]:
    """Batches of direct gets, from the first message to the last."""
    found: list[Stored] = []
    patience = _Patience(last_seq)
    while True:
        sid, inbox = connection.subscribe()
        next_seq = found[-1].seq + 1 if found else 1
        body = b'{"seq":%d,"batch":%d}' % (next_seq, _BATCH)
        connection.publish(f"$JS.API.DIRECT.GET.{STREAM}", body, inbox)
        size = len(found)
        for arrived in _until_status(connection, sid, (b"204", b"404")):
            seq = headers.value(arrived.block, b"Nats-Sequence")
            if seq is None:
                raise NoAnswerError(f"direct get: {arrived.block[:80]!r}")
            found.append(_stored(int(seq), arrived.payload))
        if patience.is_over(found, len(found) > size):
            return found


def _read_from_leader(connection: Connection, last_seq: int) -> Sequence[Stored]:
    """Every message by its seq."""
    found: list[Stored] = []
    for start in range(1, last_seq + 1, _WINDOW):
        seqs = range(start, min(start + _WINDOW, last_seq + 1))
        sid, inbox = connection.subscribe("*")
        for seq in seqs:
            reply = inbox.replace("*", str(seq))
            connection.publish(f"$JS.API.STREAM.MSG.GET.{STREAM}", b'{"seq":%d}' % seq, reply)
        answers: dict[int, Any] = {}
        while len(answers) < len(seqs):
            arrived = connection.receive(_QUIET_S)
            if not arrived:
                raise NoAnswerError(f"nothing for {_QUIET_S} s after {len(found) + len(answers)} messages")
            for one in arrived:
                if one.sid == sid:
                    answers[int(one.subject.rpartition(b".")[2])] = one.document if one.payload else {}
        connection.unsubscribe(sid)
        found += [stored for seq in seqs if (stored := _answered(seq, answers[seq])) is not None]
    return found


def _answered(seq: int, answer: dict[str, Any]) -> Stored | None:
    """What an answer holds; nothing if there is no such message."""
    if "message" in answer:
        return _stored(seq, b64decode(answer["message"].get("data", "")))
    if answer.get("error", {}).get("err_code") != NO_MESSAGE:
        raise NoAnswerError(f"{seq}: {answer}")
    return None


def _read_consuming(connection: Connection, last_seq: int) -> Sequence[Stored]:
    """An ephemeral consumer without acknowledgements."""
    config = {"ack_policy": "none", "deliver_policy": "all", "inactive_threshold": 30_000_000_000}
    made = connection.api(f"CONSUMER.CREATE.{STREAM}", {"stream_name": STREAM, "config": config})
    name = made["name"]
    found: list[Stored] = []
    patience = _Patience(last_seq)
    while True:
        sid, inbox = connection.subscribe()
        body = b'{"batch":%d,"no_wait":true}' % _BATCH
        connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{name}", body, inbox)
        taken = _until_status(connection, sid, (b"404", b"408"), _BATCH)
        for arrived in taken:
            found.append(_stored(int(arrived.reply.split(b".")[-4]), arrived.payload))
        if patience.is_over(found, bool(taken)):
            connection.api(f"CONSUMER.DELETE.{STREAM}.{name}")
            return found


def _until_status(
    connection: Connection, sid: int, endings: tuple[bytes, ...], count: int | None = None
) -> list[Arrived]:
    """What comes by a subscription until a status ends it, or so many came. Raises NoAnswerError."""
    taken: list[Arrived] = []
    while True:
        arrived = connection.receive(_QUIET_S)
        if not arrived:
            raise NoAnswerError(f"nothing for {_QUIET_S} s after {len(taken)} messages")
        for message in arrived:
            if message.sid != sid:
                continue
            status = message.block[9:12] if message.block.startswith(b"NATS/1.0 ") else b""
            if status in endings:
                return taken
            if status:
                raise NoAnswerError(f"the node says {message.block[:60]!r}")
            taken.append(message)
        if count is not None and len(taken) >= count:
            return taken


WAYS: Final[Mapping[str, Reader]] = {
    "leader": _read_from_leader,
    "direct get": _read_directly,
    "consumer": _read_consuming,
}


def _stored(seq: int, payload: bytes) -> Stored:
    message_id = payload.partition(b" ")[0].decode(errors="replace")
    return Stored(seq, message_id, payload == payload_of(message_id))
