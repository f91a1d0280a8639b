"""A server with its system account inside the test, and clients that ask it questions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from edged.config.options import (
    AccountOptions,
    Options,
    PermissionsOptions,
    ResponseRule,
    SubjectRules,
    UserOptions,
)
from edged.server.monitoring import Monitor
from edged.server.system import SystemServices
from tests.server.live import LiveClient, LiveServer, live_server


def account(name: str, *users: UserOptions, **more: Any) -> AccountOptions:
    """An account with a user of its own name in lower case, and those given."""
    return AccountOptions(name, users=(user(name.lower(), name), *users), **more)


def user(name: str, account_name: str, **more: Any) -> UserOptions:
    return UserOptions(user=name, password="x", account=account_name, **more)


LIMITED = PermissionsOptions(
    publish=SubjectRules(allow=("foo.*", "$SYS.>"), deny=("x",)),
    subscribe=SubjectRules(deny=("q.> group", "z")),
    allow_responses=ResponseRule(),
)
ACCOUNTS = Options(
    server_name="here",
    server_tags=("zone:a", "small"),
    accounts=(account("SYS"), account("APP", user("limited", "APP", permissions=LIMITED)), account("OTHER")),
    system_account="SYS",
)


@dataclass(frozen=True, slots=True)
class Message:
    """What a client received."""

    subject: str
    headers: bytes
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_unanswered(self) -> bool:
        return self.headers.startswith(b"NATS/1.0 503")


class Asker:
    """A client that sends requests and reads messages."""

    def __init__(self, client: LiveClient) -> None:
        self.client = client
        self.cid = int(json.loads(client.info[5:]).get("client_id", 0))
        self._requests = 0

    async def ask(
        self, subject: str, body: bytes | str | dict[str, Any] = b"", headers: bytes = b""
    ) -> Message:
        """Send a request and read its answer."""
        self._requests += 1
        inbox = f"_INBOX.{self._requests}"
        await self.client.send(f"SUB {inbox} r{self._requests}\r\nUNSUB r{self._requests} 1\r\n".encode())
        await self.send(subject, body, inbox, headers)
        return await self.message()

    async def send(
        self, subject: str, body: bytes | str | dict[str, Any] = b"", reply: str = "", headers: bytes = b""
    ) -> None:
        """Publish a message."""
        if isinstance(body, dict):
            body = json.dumps(body)
        data = body.encode() if isinstance(body, str) else body
        if headers:
            sizes = f"{len(headers)} {len(headers) + len(data)}"
            line = f"HPUB {subject} {reply} {sizes}\r\n"
        else:
            line = f"PUB {subject} {reply} {len(data)}\r\n"
        await self.client.send(line.encode() + headers + data + b"\r\n")

    async def listen(self, subject: str) -> None:
        """Subscribe, and return when the server knows."""
        await self.client.send(f"SUB {subject} {subject}\r\n".encode())
        assert await self.client.barrier() == []

    async def message(self) -> Message:
        """The next message; pings of the server are passed over."""
        line = await self.client.line()
        while line == b"PING":
            line = await self.client.line()
        words = line.split()
        assert words[0] in (b"MSG", b"HMSG"), line
        data = (await self.client.exactly(int(words[-1]) + 2))[:-2]
        header_bytes = int(words[-2]) if words[0] == b"HMSG" else 0
        return Message(words[1].decode(), data[:header_bytes], data[header_bytes:])

    async def data(self, subject: str, body: bytes | str | dict[str, Any] = b"") -> Any:
        """The data of an answer that holds some."""
        answer = (await self.ask(subject, body)).json
        assert "error" not in answer, answer
        return answer["data"]


@dataclass(frozen=True, slots=True)
class SystemServer:
    """A live server whose system account works."""

    live: LiveServer
    system: SystemServices

    @property
    def id(self) -> str:
        return self.live.server.id

    async def asker(self, name: str | None, more: bytes = b"") -> Asker:
        """A client logged in as a user; None for one without credentials."""
        login = b"" if name is None else b',"user":"%s","pass":"x"' % name.encode()
        return Asker(await self.live.client(login + more))


@asynccontextmanager
async def system_server(options: Options = ACCOUNTS, **changes: Any) -> AsyncIterator[SystemServer]:
    """A running server with the services of its system account."""
    async with live_server(options, **changes) as live:
        system = SystemServices(live.server, Monitor(live.server))
        live.server.nursery.start_soon(system.run)
        yield SystemServer(live, system)
