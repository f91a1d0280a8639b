"""The same questions to edged and to nats-server: the answers have the same keys, in the same order."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from edged.config.load import load_file
from tests.server.live import LiveClient
from tests.server.monitored import monitored_server
from tests.servers import RunningServer, start_server

pytestmark = [pytest.mark.real]

CONFIG = """
server_tags: [a, b]
server_metadata { x: y }
accounts {
  SYS { users [{user: sys, password: s}] }
  APP {
    users [{user: a, password: a}]
    mappings { old: new }
    exports [
      {service: "help", accounts: [B]}
      {stream: "pub.>"}
      {service: "st.>", latency: {sampling: 50%, subject: lat}}
    ]
  }
  B {
    users [{user: b, password: b}]
    imports [
      {service: {account: APP, subject: help}, to: halp}
      {stream: {account: APP, subject: "pub.x"}, prefix: i}
    ]
  }
}
system_account: SYS
"""

PATHS = (
    "/varz",
    "/connz?auth=1&subs=1",
    "/connz?subs=detail&state=open",
    "/connz?state=closed&subs=1&auth=1",
    "/connz?sort=stop&state=closed",
    "/connz?limit=1&offset=1",
    "/subsz",
    "/subsz?subs=1&acc=APP&test=foo.1",
    "/routez",
    "/leafz",
    "/gatewayz",
    "/accountz",
    "/accountz?acc=APP",
    "/accountz?acc=SYS",
    "/accstatz",
    "/accstatz?unused=1",
    "/jsz",
    "/jsz?accounts=1",
    "/healthz",
    "/healthz?stream=s&details=1",
)
REFUSED = (
    "/connz?offset=x",
    "/connz?limit=99999999999999999999",
    "/connz?cid=-1",
    "/connz?auth=maybe",
    "/connz?state=x",
    "/connz?sort=x",
    "/connz?sort=stop",
    "/connz?subs=x",
    "/subsz?test=a.*",
    "/leafz?subs=detail",
    "/accountz?acc=nope",
    "/jsz?leader-only=1",
    "/healthz?stream=s",
    "/healthz?details=x",
    "/raftz",
    "/nope",
    "/varz/",
)
# Keys that are not in both on purpose: ours, and nats-server's flags for code that we do not have. Also, what
# nats-server offers to every account it exports from the system account and imports elsewhere; we do not.
OURS = {"edged"}
THEIRS = {"feature_flags"}


def ask(url: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.headers["Content-Type"], refusal.read()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    server = start_server("nats-server", CONFIG, tmp_path_factory.mktemp("nats-server"))
    yield server
    server.stop()


def shape(value: Any) -> Any:
    """Keys in their order, types of values; of a list, the shape of its first entry."""
    if isinstance(value, dict):
        kept = {key: shape(one) for key, one in value.items() if key not in OURS | THEIRS}
        return list(kept.items())
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if type(value) in (int, float) else type(value).__name__


def comparable(document: Any) -> Any:
    """The document without what depends on who started the server, and lists without order in an order."""
    account = document.get("account_detail", {})
    account.pop("imports", None)
    if account.get("is_system"):
        account.pop("exports", None)
    if "exports" in account:
        account["exports"] = {one["subject"]: one for one in sorted(account["exports"], key=str)}
    if isinstance(document.get("connections"), list):
        # Whoever started the server connected once to see that it is there, and said nothing.
        document["connections"] = [row for row in document["connections"] if "lang" in row]
        for row in document["connections"]:
            row.get("subscriptions_list_detail", []).sort(key=lambda one: one["sid"])
    return document


async def use(port: int) -> list[LiveClient]:
    """The same clients doing the same, at either server."""
    clients = []
    for name, lines in (
        ("a", b"SUB foo.* 1\r\nSUB q w 2\r\nSUB m 3\r\nUNSUB 3 5\r\nPUB foo.1 5\r\nhello\r\n"),
        ("b", b"SUB i.> 1\r\n"),
        ("a", b"SUB gone 1\r\n"),
    ):
        client = LiveClient(await trio.open_tcp_stream("127.0.0.1", port))
        client.info = await client.line()
        about = b'"verbose":false,"pedantic":false,"lang":"c","name":"n","version":"1"'
        await client.send(b'CONNECT {"user":"%s","pass":"%s",%s}\r\n' % (name.encode(), name.encode(), about))
        await client.send(lines)
        await client.barrier()
        clients.append(client)
    await clients.pop().stream.aclose()
    return clients


async def closed_one(base: str) -> None:
    with trio.fail_after(5):
        while not json.loads((await trio.to_thread.run_sync(ask, base + "/connz?state=closed"))[2])["total"]:
            await trio.lowlevel.checkpoint()


async def answers(base: str, port: int, paths: tuple[str, ...]) -> dict[str, tuple[int, str, bytes]]:
    clients = await use(port)
    await closed_one(base)
    found = {path: await trio.to_thread.run_sync(ask, base + path) for path in paths}
    for client in clients:
        await client.stream.aclose()
    return found


async def both(
    reference: RunningServer, directory: Path, paths: tuple[str, ...]
) -> list[dict[str, tuple[int, str, bytes]]]:
    config = directory / "edged.conf"
    config.write_text(CONFIG)
    theirs = await answers(f"http://127.0.0.1:{reference.http_port}", reference.port, paths)
    async with monitored_server(load_file(config, {}).options) as monitored:
        ours = await answers(monitored.monitor.addresses[0], monitored.live.listener.port, paths)
    return [ours, theirs]


async def test_documents_have_the_keys_of_nats_server_in_its_order(
    reference: RunningServer, tmp_path: Path
) -> None:
    ours, theirs = await both(reference, tmp_path, PATHS)
    for path in PATHS:
        assert ours[path][:2] == theirs[path][:2], path
        own, other = json.loads(ours[path][2]), json.loads(theirs[path][2])
        assert shape(comparable(own)) == shape(comparable(other)), path


async def test_refusals_have_the_status_and_the_words_of_nats_server(
    reference: RunningServer, tmp_path: Path
) -> None:
    ours, theirs = await both(reference, tmp_path, REFUSED)
    for path in REFUSED:
        assert ours[path] == theirs[path], path
        assert ours[path][0] >= 400, path
