"""Publish and subscribe: how many messages per second go in and come out.

Subscribers are ready before the first message is sent; the clock stops when the last expected message has
been received, or, without subscribers, when the server has answered a PING sent after the last message.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.generator.process import Worker
from benchmarks.generator.publisher import Published, PublisherPlan, run_publisher
from benchmarks.generator.subscriber import Expect, Received, SubscriberPlan, Subscription, run_subscriber
from benchmarks.results import GeneratorUse, Outcome
from benchmarks.servers import HOST, Served
from benchmarks.wire import Endpoint
from benchmarks.workloads.stage import PAYLOAD_BYTES, Load, Workload, payload_of

_LOST_AFTER_S = 5.0
_CA_FILE = "ca.pem"
_HEADER = b"NATS/1.0\r\nDevice: gateway-0042\r\nContent-Type: application/json\r\n\r\n"
_MANY_SUBJECTS = tuple(b"bench.many.%05d" % number for number in range(10_000))
_ONE_SUBJECT = (b"bench.a",)


@dataclass(frozen=True, slots=True)
class Shape:
    """Who publishes where and who listens.

    `deliveries` is how many subscribers each message reaches; all subscribers run in one process, all
    publishers in another.
    """

    publishers: tuple[tuple[bytes, ...], ...] = (_ONE_SUBJECT,)
    subscriptions: tuple[Subscription, ...] = (Subscription(b"bench.a", b"bench.a"),)
    deliveries: int = 1
    payload_bytes: int = PAYLOAD_BYTES
    header: bytes = b""
    is_tls: bool = False


def measure_publish(shape: Shape, server: Served, load: Load) -> Outcome:
    endpoint = _endpoint(shape, server)
    payload = payload_of(shape.payload_bytes)
    with ExitStack() as workers:
        subscriber: Worker[Received] | None = None
        if shape.subscriptions:
            plan = SubscriberPlan(endpoint, shape.subscriptions, payload, shape.header)
            subscriber = workers.enter_context(Worker(run_subscriber, plan))
        publisher: Worker[Published] = workers.enter_context(
            Worker(
                run_publisher, PublisherPlan(endpoint, shape.publishers, payload, shape.header, load.limit)
            )
        )
        publisher.wait_ready()
        if subscriber is not None:
            subscriber.wait_ready()
        before = server.use()
        publisher.say()
        published = publisher.result()
        received: Received | None = None
        if subscriber is not None:
            subscriber.say(Expect(published.messages * shape.deliveries, _LOST_AFTER_S))
            received = subscriber.result()
        after = server.use()
    generator = [GeneratorUse("publisher", published.cpu_s)]
    outcome = Outcome(
        count=published.messages,
        seconds=published.finished_at_s - published.started_at_s,
        payload_bytes=shape.payload_bytes,
        server_cpu_s=after.cpu_s - before.cpu_s,
        rss_bytes=after.rss_peak_bytes,
        generator=tuple(generator),
    )
    if received is None:
        return outcome
    return replace(
        outcome,
        count=received.messages,
        seconds=received.finished_at_s - published.started_at_s,
        lost=published.messages * shape.deliveries - received.messages,
        generator=(*generator, GeneratorUse("subscriber", received.cpu_s)),
    )


def _endpoint(shape: Shape, server: Served) -> Endpoint:
    if not shape.is_tls:
        return server.endpoint
    return replace(server.endpoint, ca_file=str(server.folder / _CA_FILE))


def tls_flags(folder: Path) -> tuple[str, ...]:
    """Make a certificate for the loopback address and tell the server to use it."""
    import trustme  # Not needed by the other workloads, and slow to import.

    authority = trustme.CA()
    certificate = authority.issue_cert(HOST)
    authority.cert_pem.write_to_path(str(folder / _CA_FILE))
    certificate_path, key_path = folder / "server.pem", folder / "server.key"
    certificate_path.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(str(key_path))
    return ("--tls", "--tlscert", str(certificate_path), "--tlskey", str(key_path))


def _workload(name: str, summary: str, shape: Shape) -> Workload:
    measure = partial(measure_publish, shape)
    if shape.is_tls:
        return Workload(name, summary, measure, server_flags=tls_flags)
    return Workload(name, summary, measure)


_TO_A = Subscription(b"bench.a", b"bench.a")
_IN_GROUP = replace(_TO_A, queue=b"group")
_EIGHT = tuple(b"bench.pair.%d" % number for number in range(8))

WORKLOADS = (
    _workload("pub_only", "1 publisher, no subscriber", Shape(subscriptions=())),
    _workload("pub_sub_1", "1 publisher, 1 subscriber", Shape()),
    _workload(
        "fan_out_10",
        "1 publisher, 10 subscribers of the same subject",
        Shape(subscriptions=(_TO_A,) * 10, deliveries=10),
    ),
    _workload(
        "pub_sub_8x8",
        "8 publishers, each with a subscriber of its own",
        Shape(
            publishers=tuple((subject,) for subject in _EIGHT),
            subscriptions=tuple(Subscription(subject, subject) for subject in _EIGHT),
        ),
    ),
    _workload(
        "many_subjects",
        "10,000 subjects in turn, 1 wildcard subscriber",
        Shape(
            publishers=(_MANY_SUBJECTS,), subscriptions=(Subscription(b"bench.many.*", _MANY_SUBJECTS[0]),)
        ),
    ),
    _workload(
        "queue_group_4",
        "1 publisher, 4 members of one queue group",
        Shape(subscriptions=(_IN_GROUP,) * 4),
    ),
    _workload(
        "headers_pub_sub", f"as pub_sub_1, with {len(_HEADER)} bytes of headers", Shape(header=_HEADER)
    ),
    _workload("payload_16KiB", "as pub_sub_1, with payloads of 16 KiB", Shape(payload_bytes=16 * 1024)),
    _workload("tls_pub_sub", "as pub_sub_1, all of it over TLS", Shape(is_tls=True)),
)
