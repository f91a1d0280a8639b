"""The real `nats` command and consumers: what operators type to read streams, watch buckets and get objects.

Every test runs over nats-server as well.
"""

from __future__ import annotations

import pytest

from tests.extra.operators import Operator, add_orders

pytestmark = [pytest.mark.extra, pytest.mark.real]


def add_consumer(operator: Operator, name: str, *options: str) -> None:
    operator.run("consumer", "add", "ORDERS", name, *options, "--defaults")


def payloads(shown: str) -> list[str]:
    """The messages among what the command shows."""
    return [line for line in shown.splitlines() if line.startswith("Order")]


def test_a_pull_consumer_goes_on_after_a_restart(operator: Operator) -> None:
    add_orders(operator)
    add_consumer(operator, "NEW", "--pull", "--filter", "orders.new", "--ack", "explicit")
    assert operator.run("consumer", "next", "ORDERS", "NEW", "--raw").strip() == "Order #1001"
    operator.restart()
    assert operator.run("consumer", "next", "ORDERS", "NEW", "--raw").strip() == "Order #1002"
    info = operator.json("consumer", "info", "ORDERS", "NEW", "--json")
    assert info["delivered"]["consumer_seq"] == 2
    assert info["ack_floor"]["stream_seq"] == 2
    assert (info["num_pending"], info["num_ack_pending"], info["num_redelivered"]) == (0, 0, 0)


def test_what_is_sent_back_comes_again_and_what_is_ended_does_not(operator: Operator) -> None:
    add_orders(operator)
    add_consumer(operator, "ALL", "--pull", "--ack", "explicit")
    operator.run("consumer", "next", "ORDERS", "ALL", "--nak", "--raw")
    again = operator.run("consumer", "next", "ORDERS", "ALL", "--term")
    assert "Order #1001" in again and "tries: 2" in again
    answer = operator.run("consumer", "next", "ORDERS", "ALL", "--count", "2", "--raw")
    assert answer.split() == ["Order", "#1002", "Order", "#1001", "shipped"]
    assert operator.json("consumer", "info", "ORDERS", "ALL", "--json")["num_ack_pending"] == 0


def test_consumers_are_listed_changed_paused_and_removed(operator: Operator) -> None:
    add_orders(operator)
    add_consumer(operator, "ONE", "--pull", "--ack", "explicit")
    add_consumer(operator, "TWO", "--target", "push.here", "--ack", "none", "--deliver", "all")
    assert operator.json("consumer", "ls", "ORDERS", "--names", "--json") == ["ONE", "TWO"]
    assert "ONE" in operator.run("consumer", "report", "ORDERS")
    operator.run("consumer", "edit", "ORDERS", "ONE", "--description", "the first", "--force")
    operator.run("consumer", "copy", "ORDERS", "ONE", "THREE")
    config = operator.json("consumer", "info", "ORDERS", "THREE", "--json")["config"]
    assert config["description"] == "the first"
    operator.run("consumer", "pause", "ORDERS", "ONE", "1h", "--force")
    assert operator.json("consumer", "info", "ORDERS", "ONE", "--json")["paused"] is True
    operator.restart()
    assert operator.json("consumer", "info", "ORDERS", "ONE", "--json")["paused"] is True
    operator.run("consumer", "resume", "ORDERS", "ONE", "--force")
    assert "Order #1001" in operator.run("consumer", "next", "ORDERS", "ONE")
    operator.run("consumer", "rm", "ORDERS", "TWO", "--force")
    assert operator.json("consumer", "ls", "ORDERS", "--names", "--json") == ["ONE", "THREE"]
    operator.run("consumer", "info", "ORDERS", "TWO", status=1)


def test_a_stream_is_viewed_and_read_from_the_beginning(operator: Operator) -> None:
    add_orders(operator)
    reading = ("sub", "orders.>", "--stream", "ORDERS", "--raw")
    read = operator.run(*reading, "--all", "--count", "3")
    assert payloads(read) == ["Order #1001", "Order #1002", "Order #1001 shipped"]
    last = operator.run(*reading, "--last-per-subject", "--count", "2")
    assert payloads(last) == ["Order #1002", "Order #1001 shipped"]
    backup = str(operator.directory / "backup")
    add_consumer(operator, "KEPT", "--pull", "--ack", "explicit")
    operator.run("consumer", "next", "ORDERS", "KEPT", "--raw")
    operator.run("stream", "backup", "ORDERS", backup, "--consumers", "--no-progress")
    operator.run("stream", "rm", "ORDERS", "--force")
    operator.run("stream", "restore", backup, "--no-progress")
    assert operator.run("consumer", "next", "ORDERS", "KEPT", "--raw").strip() == "Order #1002"


def test_a_bucket_is_listed_watched_and_reverted(operator: Operator) -> None:
    operator.run("kv", "add", "CONFIG", "--history", "5")
    for key, value in (("a", "1"), ("b", "x"), ("a", "2"), ("a", "3")):
        operator.run("kv", "put", "CONFIG", key, value)
    operator.run("kv", "del", "CONFIG", "b", "--force")
    assert operator.run("kv", "ls", "CONFIG").split() == ["a"]
    history = operator.run("kv", "history", "CONFIG", "a")
    assert history.count("PUT") == 3
    operator.run("kv", "revert", "CONFIG", "a", "1", "--force")
    assert operator.run("kv", "get", "CONFIG", "a", "--raw").strip() == "1"
    operator.restart()
    assert operator.run("kv", "get", "CONFIG", "a", "--raw").strip() == "1"
    operator.run("kv", "compact", "CONFIG", "--force")
    assert operator.run("kv", "ls", "CONFIG").split() == ["a"]


def test_an_object_comes_back_as_it_was(operator: Operator) -> None:
    path = operator.directory / "data.bin"
    path.write_bytes(bytes(range(256)) * 4000)
    operator.run("object", "add", "FILES")
    operator.run("object", "put", "FILES", str(path), "--name", "data", "--force", "--no-progress")
    operator.restart()
    got = operator.directory / "got.bin"
    operator.run("object", "get", "FILES", "data", "--output", str(got), "--force", "--no-progress")
    assert got.read_bytes() == path.read_bytes()
    assert "data" in operator.run("object", "ls", "FILES")
    operator.run("object", "rm", "FILES", "data", "--force")
    assert "data" not in operator.run("object", "ls", "FILES")


@pytest.mark.parametrize(
    "mode",
    [
        ("ordered",),
        ("consume", "--acks", "explicit"),
        ("consume", "--acks", "none"),
        ("consume", "--acks", "all", "--doubleack"),
        ("fetch", "--acks", "explicit"),
    ],
    ids=lambda mode: "-".join(mode),
)
def test_its_benchmark_reads_a_stream(operator: Operator, mode: tuple[str, ...]) -> None:
    operator.run("bench", "js", "pub", "async", "bench", "--msgs", "2000", "--create", "--no-progress")
    answer = operator.run("bench", "js", *mode, "--msgs", "2000", "--no-progress")
    assert "msgs/sec" in answer


def test_its_benchmark_puts_and_gets_keys(operator: Operator) -> None:
    operator.run("bench", "kv", "put", "--msgs", "1000", "--no-progress")
    assert "msgs/sec" in operator.run("bench", "kv", "get", "--msgs", "1000", "--no-progress")
    assert operator.state("KV_benchbucket")["last_seq"] == 1000
