"""nats.js against nats-server and edged: what the published client finds in one, it must find in the other.

The behaviours are written in node/behaviours.mjs; here are the servers they need. Each runs over nats-server
as well, which shows that the behaviour is one of NATS and not of edged.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from edged.core.nkeys import KeyKind, create_seed, public_from_seed
from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

NODE_DIRECTORY = Path(__file__).parent / "node"
DEADLINE_S = 30.0

MESSAGING = (
    "info_describes_the_server",
    "publish_reaches_literal_and_wildcard_subscribers",
    "payload_arrives_byte_for_byte_from_empty_to_half_a_mebibyte",
    "messages_of_one_publisher_arrive_in_order",
    "request_gets_the_reply_of_another_connection",
    "request_for_many_gets_every_reply",
    "request_without_a_responder_fails_at_once",
    "queue_group_gets_each_message_once_and_shares_the_work",
    "headers_arrive_with_all_their_values",
    "subscription_with_a_maximum_ends_by_itself",
    "unsubscribed_subject_is_delivered_no_more",
    "connection_without_echo_does_not_hear_itself",
    "drained_connection_delivers_what_was_sent_and_closes",
    "drained_subscription_delivers_what_was_sent_and_ends",
)

SEED = create_seed(KeyKind.USER, bytes(range(32)))
STRANGER_SEED = create_seed(KeyKind.USER, bytes(range(1, 33)))

CONFIGURATIONS = {
    "plain": "",
    "token": 'authorization { token: "s3cr3t" }',
    "users": f"""authorization {{ users: [
        {{ user: gateway, password: "valve"
           permissions {{ publish: "allowed.>", subscribe: ["allowed.>", "_INBOX.>"] }} }}
        {{ nkey: {public_from_seed(SEED)} }}
    ] }}""",
    "tls": 'tls { cert_file: "${certificates}/server.pem", key_file: "${certificates}/server.key" }',
    "websocket": 'websocket { host: "127.0.0.1", port: -1, no_tls: true, compression: true }',
    "websocket_tls": """websocket { host: "127.0.0.1", port: -1
        tls { cert_file: "${certificates}/server.pem", key_file: "${certificates}/server.key" } }""",
}


class Servers:
    """One server per program and configuration, started on demand."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificates = directory / "certificates"
        self.certificates.mkdir()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.certificates / "ca.pem"))
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        certificate.private_key_pem.write_to_path(str(self.certificates / "server.key"))
        for blob in certificate.cert_chain_pems:
            blob.write_to_path(str(self.certificates / "server.pem"), append=True)
        self._started: dict[tuple[str, str], RunningServer] = {}

    def get(self, program: str, configuration: str) -> RunningServer:
        """The server of a program with one of CONFIGURATIONS."""
        key = (program, configuration)
        if key not in self._started:
            self._started[key] = self.start(program, configuration, self.directory / "-".join(key))
        return self._started[key]

    def start(self, program: str, configuration: str, directory: Path) -> RunningServer:
        """A server that belongs to the caller."""
        text = CONFIGURATIONS[configuration].replace("${certificates}", str(self.certificates))
        return start_server(program, text, directory)

    def stop(self) -> None:
        """End all that get() started."""
        for server in self._started.values():
            server.stop()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    started = Servers(tmp_path_factory.mktemp("nats_js"))
    yield started
    started.stop()


@pytest.fixture(params=["nats-server", "edged"])
def program(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def command(behaviour: str, access: dict[str, Any]) -> list[str]:
    """The command that runs one behaviour."""
    node = shutil.which("node")
    if node is None or not (NODE_DIRECTORY / "node_modules").is_dir():
        pytest.fail("node or the npm clients are missing: make test installs both")
    return [node, str(NODE_DIRECTORY / "behaviours.mjs"), behaviour, json.dumps(access)]


def see(behaviour: str, server: RunningServer, **access: str) -> None:
    """Run a behaviour over the client port of a server; fails with what Node.js said."""
    _see(behaviour, {"url": f"nats://{server.host}:{server.port}", **access}, server)


def see_over_websocket(behaviour: str, server: RunningServer, *, ca_file: Path | None = None) -> None:
    """Run a behaviour over the WebSocket port of a server."""
    host, port = server.listeners["websocket"]
    scheme = "ws" if ca_file is None else "wss"
    # A browser trusts what its machine trusts; this is how Node.js is told.
    trust = {} if ca_file is None else {"NODE_EXTRA_CA_CERTS": str(ca_file)}
    _see(behaviour, {"url": f"{scheme}://{host}:{port}"}, server, trust)


def _see(
    behaviour: str, access: dict[str, Any], server: RunningServer, trust: dict[str, str] | None = None
) -> None:
    done = subprocess.run(
        command(behaviour, access),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE_S,
        env={**os.environ, **(trust or {})},
    )
    assert done.returncode == 0, f"{done.stderr}\nlog of {server.name}:\n{server.log_tail()}"


@pytest.mark.parametrize("behaviour", MESSAGING)
def test_over_tcp(behaviour: str, program: str, servers: Servers) -> None:
    see(behaviour, servers.get(program, "plain"))


@pytest.mark.parametrize("behaviour", MESSAGING)
def test_over_websocket(behaviour: str, program: str, servers: Servers) -> None:
    see_over_websocket(behaviour, servers.get(program, "websocket"))


def test_over_websocket_and_tls(program: str, servers: Servers) -> None:
    server = servers.get(program, "websocket_tls")
    see_over_websocket(
        "request_gets_the_reply_of_another_connection", server, ca_file=servers.certificates / "ca.pem"
    )


@pytest.mark.parametrize(
    "behaviour",
    [
        "payload_arrives_byte_for_byte_from_empty_to_half_a_mebibyte",
        "request_gets_the_reply_of_another_connection",
        "certificate_of_an_unknown_authority_is_refused_by_the_client",
    ],
)
def test_over_tls(behaviour: str, program: str, servers: Servers) -> None:
    see(behaviour, servers.get(program, "tls"), caFile=str(servers.certificates / "ca.pem"))


def test_right_token_is_let_in(program: str, servers: Servers) -> None:
    see("right_credentials_are_let_in", servers.get(program, "token"), token="s3cr3t")


@pytest.mark.parametrize("access", [{}, {"token": "wrong"}, {"user": "s3cr3t", "pass": ""}])
def test_wrong_token_is_refused(access: dict[str, str], program: str, servers: Servers) -> None:
    see("wrong_credentials_are_refused", servers.get(program, "token"), **access)


@pytest.mark.parametrize("access", [{"user": "gateway", "pass": "valve"}, {"seed": SEED}])
def test_right_user_is_let_in(access: dict[str, str], program: str, servers: Servers) -> None:
    see("right_credentials_are_let_in", servers.get(program, "users"), **access)


@pytest.mark.parametrize("access", [{}, {"user": "gateway", "pass": "wrong"}, {"seed": STRANGER_SEED}])
def test_wrong_user_is_refused(access: dict[str, str], program: str, servers: Servers) -> None:
    see("wrong_credentials_are_refused", servers.get(program, "users"), **access)


def test_forbidden_subscription_is_refused_and_the_connection_lives(program: str, servers: Servers) -> None:
    server = servers.get(program, "users")
    see(
        "forbidden_subscription_is_refused_and_the_connection_lives",
        server,
        user="gateway",
        **{"pass": "valve"},
    )


def test_lame_duck_server_tells_its_clients(program: str, servers: Servers, tmp_path: Path) -> None:
    server = servers.start(program, "plain", tmp_path)
    try:
        node = subprocess.Popen(
            command("lame_duck_server_tells_its_clients", {"url": f"nats://{server.host}:{server.port}"}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with node:
            assert node.stdout is not None
            assert node.stdout.readline() == "connected\n"
            server.signal(signal.SIGUSR2)
            _, errors = node.communicate(timeout=DEADLINE_S)
        assert node.returncode == 0, f"{errors}\n{server.log_tail()}"
    finally:
        server.signal(signal.SIGKILL)
        server.wait_exit()
