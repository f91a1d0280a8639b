"""Starting real servers: ready when told so, ended by their pid, and a failure that says why."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.servers import RunningServer, ServerStartError, find_binary, start_server

pytestmark = pytest.mark.real


def test_a_started_server_has_its_ports_and_stops_cleanly(tmp_path: Path) -> None:
    server = start_server("nats-server", "", tmp_path)
    try:
        assert server.is_running()
        assert server.info["port"] == server.port
        assert server.http_port not in (None, server.port)
        assert "Server is ready" in server.log_tail()
    finally:
        status = server.stop()
    assert status == 0
    assert not server.is_running()


def test_two_servers_of_one_configuration_run_side_by_side(tmp_path: Path) -> None:
    first = start_server("nats-server", "", tmp_path / "first")
    second = start_server("nats-server", "", tmp_path / "second")
    try:
        assert first.port != second.port
        assert first.pid != second.pid
    finally:
        first.stop()
        second.stop()


def test_a_listener_that_the_ports_file_leaves_out_gets_a_free_port(tmp_path: Path) -> None:
    server = start_server("nats-server", "leafnodes { host: 127.0.0.1, port: ${port.leaf} }", tmp_path)
    try:
        assert server.listeners["leaf"][1] not in (0, server.port)
    finally:
        server.stop()


def test_a_configuration_error_is_reported_with_the_log(tmp_path: Path) -> None:
    with pytest.raises(ServerStartError, match="nonsense"):
        start_server("nats-server", "nonsense: 1", tmp_path)


def test_a_signal_reaches_the_server(tmp_path: Path) -> None:
    server = start_server("nats-server", "", tmp_path)
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    assert server.stop() == 0


def test_flags_override_the_configuration(tmp_path: Path) -> None:
    server = start_server("nats-server", "max_payload: 100", tmp_path, flags=["--name", "flagged"])
    try:
        assert server.info["server_name"] == "flagged"
        assert server.info["max_payload"] == 100
    finally:
        server.stop()


def test_a_program_that_is_not_installed_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-server"):
        find_binary("no-such-server")


def test_both_servers_greet_with_their_own_port(real_server: RunningServer) -> None:
    assert real_server.is_running()
    assert real_server.info["port"] == real_server.port
    assert real_server.info["proto"] == 1
