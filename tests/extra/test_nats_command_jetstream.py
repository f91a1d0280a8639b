"""The real `nats` command and JetStream: what operators type for streams, buckets and backups.

Every test runs over nats-server as well. Consumers are in test_nats_command_consumers.py.
"""

from __future__ import annotations

import pytest

from tests.extra.operators import Operator, add_orders

pytestmark = [pytest.mark.extra, pytest.mark.real]


def test_a_stream_and_its_messages_survive_a_restart(operator: Operator) -> None:
    operator.run(
        *("stream", "add", "ORDERS", "--subjects", "order.*", "--storage", "file", "--replicas", "1"),
        *("--max-age", "7d", "--max-msg-size", "1MB", "--defaults"),
    )
    operator.run("pub", "order.new", '{"id": "123", "item": "widget"}')
    operator.run("pub", "order.new", '{"id": "456", "item": "gadget"}')
    before = operator.json("stream", "info", "ORDERS", "--json")
    operator.restart()
    after = operator.json("stream", "info", "ORDERS", "--json")
    assert after["config"] == before["config"]
    assert after["state"] == before["state"]
    assert after["state"]["messages"] == 2
    assert "gadget" in operator.run("stream", "get", "ORDERS", "2")


def test_streams_are_listed_changed_and_removed(operator: Operator) -> None:
    add_orders(operator)
    operator.run("stream", "add", "OTHER", "--subjects", "other", "--storage", "memory", "--defaults")
    assert operator.json("stream", "ls", "--names", "--json") == ["ORDERS", "OTHER"]
    assert "ORDERS" in operator.run("stream", "ls")
    assert "ORDERS" in operator.run("stream", "report")
    assert "orders.shipped" in operator.run("stream", "subjects", "ORDERS")
    assert "Maximum Messages: 100" in operator.run("stream", "edit", "ORDERS", "--max-msgs", "100", "--force")
    assert operator.json("stream", "info", "ORDERS", "--json")["config"]["max_msgs"] == 100
    operator.run("stream", "copy", "ORDERS", "COPY", "--subjects", "copied.>")
    assert operator.json("stream", "info", "COPY", "--json")["config"]["max_msgs"] == 100
    operator.run("stream", "rm", "OTHER", "--force")
    operator.restart()
    assert operator.json("stream", "ls", "--names", "--json") == ["COPY", "ORDERS"]
    assert "2" in operator.run("account", "info")


def test_messages_are_found_and_removed(operator: Operator) -> None:
    add_orders(operator)
    assert "Order #1001" in operator.run("stream", "get", "ORDERS", "1")
    assert "Order #1002" in operator.run("stream", "get", "ORDERS", "--last-for", "orders.new")
    operator.run("stream", "rmm", "ORDERS", "1", "--force")
    operator.run("stream", "get", "ORDERS", "1", status=1)
    operator.run("stream", "purge", "ORDERS", "--subject", "orders.new", "--force")
    assert operator.state("ORDERS")["messages"] == 1
    operator.run("stream", "purge", "ORDERS", "--force")
    state = operator.state("ORDERS")
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 4, 3)
    operator.restart()
    assert operator.state("ORDERS") == state


def test_a_message_that_is_sent_twice_is_kept_once(operator: Operator) -> None:
    add_orders(operator)
    for _ in range(2):
        answer = operator.run("pub", "orders.new", "x", "-H", "Nats-Msg-Id:7", "-H", "A:b", "--jetstream")
    assert "duplicate" in answer.lower() or "Duplicate" in answer
    operator.restart()
    operator.run("pub", "orders.new", "x", "-H", "Nats-Msg-Id:7", "--jetstream")
    assert operator.state("ORDERS")["messages"] == 4
    assert "A: b" in operator.run("stream", "get", "ORDERS", "4")


def test_a_stream_comes_back_from_its_backup(operator: Operator) -> None:
    add_orders(operator)
    operator.run("stream", "rmm", "ORDERS", "2", "--force")
    before = operator.json("stream", "info", "ORDERS", "--json")
    backup = str(operator.directory / "backup")
    operator.run("stream", "backup", "ORDERS", backup, "--no-progress")
    operator.run("stream", "rm", "ORDERS", "--force")
    operator.run("stream", "restore", backup, "--no-progress")
    operator.restart()
    after = operator.json("stream", "info", "ORDERS", "--json")
    assert after["config"] == before["config"]
    assert after["state"] == before["state"]
    operator.run("stream", "restore", backup, "--no-progress", status=1)
    operator.run("stream", "seal", "ORDERS", "--force")
    operator.run("pub", "orders.new", "no more", "--jetstream", status=1)


def test_keys_are_put_got_and_deleted(operator: Operator) -> None:
    operator.run("kv", "add", "CONFIG", "--history", "5")
    operator.run("kv", "put", "CONFIG", "a", "1")
    operator.run("kv", "put", "CONFIG", "a", "2")
    assert operator.run("kv", "get", "CONFIG", "a", "--raw").strip() == "2"
    operator.run("kv", "create", "CONFIG", "b", "first")
    operator.run("kv", "create", "CONFIG", "b", "again", status=1)
    operator.run("kv", "update", "CONFIG", "b", "second", "3")
    operator.run("kv", "update", "CONFIG", "b", "third", "3", status=1)
    operator.restart()
    assert operator.run("kv", "get", "CONFIG", "b", "--raw").strip() == "second"
    operator.run("kv", "del", "CONFIG", "b", "--force")
    operator.run("kv", "get", "CONFIG", "b", "--raw", status=1)
    operator.run("kv", "create", "CONFIG", "b", "anew")
    operator.run("kv", "purge", "CONFIG", "a", "--force")
    operator.run("kv", "get", "CONFIG", "a", "--raw", status=1)
    assert "CONFIG" in operator.run("kv", "ls")
    assert "Values Stored: 5" in operator.run("kv", "status", "CONFIG")
    operator.run("kv", "rm", "CONFIG", "--force")
    assert "CONFIG" not in operator.run("kv", "ls")


def test_objects_are_put_described_and_removed(operator: Operator) -> None:
    path = operator.directory / "data.bin"
    path.write_bytes(bytes(range(256)) * 2000)
    operator.run("object", "add", "FILES")
    operator.run("object", "put", "FILES", str(path), "--name", "data", "--force", "--no-progress")
    operator.restart()
    assert "512,000" in operator.run("object", "info", "FILES", "data").replace("500 KiB", "512,000")
    assert "FILES" in operator.run("object", "ls")
    operator.run("object", "rm", "FILES", "data", "--force")
    operator.run("object", "info", "FILES", "data", status=1)
    operator.run("object", "seal", "FILES", "--force")
    assert operator.json("stream", "info", "OBJ_FILES", "--json")["config"]["sealed"] is True


def test_its_benchmark_publishes_to_a_stream(operator: Operator) -> None:
    operator.run("bench", "js", "pub", "sync", "bench", "--msgs", "100", "--create", "--no-progress")
    operator.run("bench", "js", "pub", "async", "bench", "--msgs", "10000", "--no-progress")
    assert operator.state("benchstream")["messages"] == 10_100
