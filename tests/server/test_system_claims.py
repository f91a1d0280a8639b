"""Account JWTs through the system account: updates, lookups and deletes, and what they do to clients."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from edged.config.options import Options, ResolverOptions
from edged.core.jwt import write_token
from edged.core.nkeys import KeyKind
from edged.server import reasons
from tests import tokens
from tests.server.live import CONNECT
from tests.server.system_client import Asker, SystemServer, system_server
from tests.tokens import ISSUED_AT_S, public, sign_nonce

SYS, A, B = (public(KeyKind.ACCOUNT, name) for name in ("SYS", "A", "B"))
LATER = {"iat": ISSUED_AT_S + 10}


def options(resolver: ResolverOptions | None, *, operator: str | None = None) -> Options:
    preload = ((SYS, tokens.account_token("SYS")), (A, tokens.account_token("A")))
    return Options(
        operators=(operator or tokens.operator_token(),),
        system_account=SYS,
        resolver=resolver,
        resolver_preload=preload,
    )


@asynccontextmanager
async def directory_server(path: Path, kind: str = "full", **more: Any) -> AsyncIterator[SystemServer]:
    resolver = ResolverOptions(kind, dir=str(path), **more)
    async with system_server(options(resolver)) as running:
        yield running


async def enter(running: SystemServer, account: str, name: str = "u", jwt: str | None = None) -> Asker:
    """Log a user of an account in."""
    client = await running.live.client(connect=False)
    nonce = json.loads(client.info[5:])["nonce"].encode()
    token, signature = jwt or tokens.user_token(name, account), sign_nonce(name, nonce)
    login = f',"jwt":"{token}","sig":"{signature}"'
    await client.send(CONNECT % login.encode() + b"PING\r\n")
    assert await client.line() == b"PONG"
    assert (await client.line()).startswith(b"INFO ")
    return Asker(client)


def put_in_the_way(directory: Path) -> None:
    """Have something that is no directory where it should be."""
    if directory.exists():
        directory.rmdir()
    directory.symlink_to("/dev/null")


def delete_request(*keys: str, signer: str = "operator", subject: str | None = None) -> str:
    payload = {
        "sub": subject or public(KeyKind.OPERATOR, signer),
        "iat": ISSUED_AT_S,
        "nats": {"type": "generic", "version": 2, "accounts": list(keys)},
    }
    return write_token(payload, tokens.seed(KeyKind.OPERATOR, signer))


@pytest.mark.parametrize(
    "subject",
    ["$SYS.REQ.CLAIMS.UPDATE", f"$SYS.REQ.ACCOUNT.{B}.CLAIMS.UPDATE", f"$SYS.ACCOUNT.{B}.CLAIMS.UPDATE"],
)
async def test_account_that_is_pushed_is_stored_and_its_users_get_in(tmp_path: Path, subject: str) -> None:
    async with directory_server(tmp_path) as running:
        operator = await enter(running, "SYS")
        token = tokens.account_token("B")
        answer = (await operator.ask(subject, token)).json
        assert list(answer) == ["server", "data"]
        assert answer["data"] == {"account": B, "code": 200, "message": "jwt updated"}
        assert (tmp_path / f"{B}.jwt").read_text() == token
        user = await enter(running, "B")
        assert (await user.data("$SYS.REQ.USER.INFO"))["account"] == B
        assert list(await user.data("$SYS.REQ.ACCOUNT.PING.STATZ")) == ["server_id", "now", "account_statz"]


@pytest.mark.parametrize(
    ("token", "named", "reason"),
    [
        (tokens.account_token("B", signer="stranger"), B, "trusted operator"),
        (tokens.account_token("B"), A, "another account"),
        (tokens.account_token("B", top={"exp": ISSUED_AT_S + 1}), B, "expired"),
        (tokens.account_token("B")[:-4] + "AAAA", B, "signature"),
        (tokens.user_token("u", "B"), B, ""),
        ("", B, ""),
        ("\xff.\xfe.\xfd", B, ""),
        ("..", B, ""),
    ],
)
async def test_account_that_is_not_the_operators_is_refused_and_nothing_stored(
    tmp_path: Path, token: str, named: str, reason: str
) -> None:
    async with directory_server(tmp_path) as running:
        operator = await enter(running, "SYS")
        answer = (await operator.ask(f"$SYS.REQ.ACCOUNT.{named}.CLAIMS.UPDATE", token)).json
        assert answer["error"]["code"] == 500
        assert answer["error"]["description"].startswith("jwt update resulted in error - ")
        assert reason in answer["error"]["description"]
        assert await operator.data("$SYS.REQ.CLAIMS.LIST") == []


async def test_account_of_an_operator_with_strict_signing_keys_needs_one_of_them(tmp_path: Path) -> None:
    strict = Options(
        operators=(
            tokens.operator_token(
                strict_signing_key_usage=True, signing_keys=[public(KeyKind.OPERATOR, "signer")]
            ),
        ),
        system_account=SYS,
        resolver=ResolverOptions("full", dir=str(tmp_path)),
        resolver_preload=(
            (
                SYS,
                tokens.account_token("SYS", signer="signer", signing_keys=[public(KeyKind.ACCOUNT, "key")]),
            ),
        ),
    )
    async with system_server(strict) as running:
        jwt = tokens.scoped_user_token("u", "SYS", "key", **tokens.UNLIMITED_USER)
        operator = await enter(running, "SYS", jwt=jwt)
        own_key = (await operator.ask("$SYS.REQ.CLAIMS.UPDATE", tokens.account_token("B"))).json
        assert "trusted operator" in own_key["error"]["description"]
        await operator.data("$SYS.REQ.CLAIMS.UPDATE", tokens.account_token("B", signer="signer"))


async def test_update_revokes_connected_users_at_once(tmp_path: Path) -> None:
    async with directory_server(tmp_path) as running:
        operator, user, other = (
            await enter(running, "SYS"),
            await enter(running, "A", "revoked"),
            await enter(running, "A", "kept"),
        )
        connection = running.live.server.connections[user.cid]
        revocations = {public(KeyKind.USER, "revoked"): ISSUED_AT_S + 1}
        token = tokens.account_token("A", top=LATER, revocations=revocations)
        await operator.data("$SYS.REQ.CLAIMS.UPDATE", token)
        assert await user.client.closed() == [b"-ERR 'User Authentication Revoked'"]
        assert connection.reason == reasons.CREDENTIALS_REVOKED
        assert await other.client.barrier() == []


async def test_older_token_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    async with directory_server(tmp_path) as running:
        operator = await enter(running, "SYS")
        newer = tokens.account_token("B", top=LATER)
        await operator.data("$SYS.REQ.CLAIMS.UPDATE", newer)
        await operator.data("$SYS.REQ.CLAIMS.UPDATE", tokens.account_token("B"))
        assert (await operator.ask(f"$SYS.REQ.ACCOUNT.{B}.CLAIMS.LOOKUP")).body == newer.encode()


async def test_stored_accounts_are_listed_looked_up_and_packed(tmp_path: Path) -> None:
    async with directory_server(tmp_path) as running:
        operator = await enter(running, "SYS")
        stored = {key: tokens.account_token(name) for key, name in ((A, "A"), (B, "B"))}
        for token in stored.values():
            await operator.data("$SYS.REQ.CLAIMS.UPDATE", token)
        assert await operator.data("$SYS.REQ.CLAIMS.LIST") == sorted(stored)
        assert (await operator.ask(f"$SYS.REQ.ACCOUNT.{A}.CLAIMS.LOOKUP")).body == stored[A].encode()
        for unknown in (SYS, "x", "%2e%2e"):
            assert (await operator.ask(f"$SYS.REQ.ACCOUNT.{unknown}.CLAIMS.LOOKUP")).body == b""
        await operator.listen("pack")
        await operator.send("$SYS.REQ.CLAIMS.PACK", b"", "pack")
        packed = [(await operator.message()).body.decode() for _ in range(3)]
        assert packed == [f"{key}|{stored[key]}" for key in sorted(stored)] + [""]


async def test_directory_is_made_when_it_is_not_there(tmp_path: Path) -> None:
    async with directory_server(tmp_path / "new" / "jwt") as running:
        operator = await enter(running, "SYS")
        await operator.data("$SYS.REQ.CLAIMS.UPDATE", tokens.account_token("B"))
        assert await operator.data("$SYS.REQ.CLAIMS.LIST") == [B]


async def test_directory_that_cannot_be_used_any_more_is_told_to_who_asks(tmp_path: Path) -> None:
    directory = tmp_path / "jwt"
    directory.mkdir()
    async with directory_server(directory) as running:
        operator = await enter(running, "SYS")
        put_in_the_way(directory)
        for subject in ("CLAIMS.LIST", "CLAIMS.PACK", f"ACCOUNT.{A}.CLAIMS.LOOKUP"):
            assert (await operator.ask(f"$SYS.REQ.{subject}")).json["error"]["code"] == 500
        refused = (await operator.ask("$SYS.REQ.CLAIMS.UPDATE", tokens.account_token("B"))).json
        assert str(directory) in refused["error"]["description"]


async def test_directory_that_cannot_be_made_is_logged(tmp_path: Path) -> None:
    put_in_the_way(tmp_path / "jwt")
    async with directory_server(tmp_path / "jwt") as running:
        with trio.fail_after(5):
            while "accounts cannot be stored" not in running.live.lines.text:
                await trio.lowlevel.checkpoint()


async def test_cache_drops_accounts_that_nobody_used(tmp_path: Path, mock_clock: MockClock) -> None:
    async with directory_server(tmp_path, "cache", ttl_s=30.0) as running:
        operator = await enter(running, "SYS")
        await enter(running, "A")
        await operator.data("$SYS.REQ.CLAIMS.UPDATE", tokens.account_token("A", top=LATER))
        os.utime(tmp_path / f"{A}.jwt", (ISSUED_AT_S, ISSUED_AT_S))
        assert await operator.data("$SYS.REQ.CLAIMS.LIST") == [A]
        await wait_all_tasks_blocked()
        mock_clock.jump(60.0)
        # The sweep happens in a thread, whenever that runs; asking again and again ends when it has.
        while await operator.data("$SYS.REQ.CLAIMS.LIST"):
            await wait_all_tasks_blocked()


async def test_deleted_account_loses_its_clients(tmp_path: Path) -> None:
    async with directory_server(tmp_path, allow_delete=True) as running:
        operator = await enter(running, "SYS")
        await operator.data("$SYS.REQ.CLAIMS.UPDATE", tokens.account_token("B"))
        user = await enter(running, "B")
        answer = (await operator.ask("$SYS.REQ.CLAIMS.DELETE", delete_request(B))).json
        assert answer["data"] == {"code": 200, "message": "deleted 1 accounts"}
        assert await operator.data("$SYS.REQ.CLAIMS.LIST") == []
        assert (await user.client.closed())[0].startswith(b"-ERR")
        again = (await operator.ask("$SYS.REQ.CLAIMS.DELETE", delete_request(B))).json
        assert "failed for 1" in again["error"]["description"]


@pytest.mark.parametrize(
    ("request_token", "allow", "reason"),
    [
        (delete_request(B), False, "not enabled"),
        (delete_request(B, signer="stranger"), True, "trusted operator"),
        (delete_request(B, subject=B), True, "trusted operator"),
        (delete_request(SYS), True, "system account"),
        (delete_request(), True, "list accounts"),
        (delete_request("../../etc/passwd"), True, "list accounts"),
        ("nonsense", True, ""),
    ],
)
async def test_delete_that_is_not_allowed_changes_nothing(
    tmp_path: Path, request_token: str, allow: bool, reason: str
) -> None:
    async with directory_server(tmp_path, allow_delete=allow) as running:
        operator = await enter(running, "SYS")
        await operator.data("$SYS.REQ.CLAIMS.UPDATE", tokens.account_token("B"))
        answer = (await operator.ask("$SYS.REQ.CLAIMS.DELETE", request_token)).json
        assert answer["error"]["code"] == 500
        assert reason in answer["error"]["description"]
        assert await operator.data("$SYS.REQ.CLAIMS.LIST") == [B]


async def test_cache_takes_only_accounts_that_are_in_use(tmp_path: Path) -> None:
    async with directory_server(tmp_path, "cache") as running:
        operator = await enter(running, "SYS")
        skipped = await operator.data("$SYS.REQ.CLAIMS.UPDATE", tokens.account_token("B"))
        assert skipped == {"account": B, "code": 200, "message": "jwt update cache skipped"}
        await enter(running, "A")
        taken = await operator.data("$SYS.REQ.CLAIMS.UPDATE", tokens.account_token("A", top=LATER))
        assert taken["message"] == "jwt updated cache"
        assert await operator.data("$SYS.REQ.CLAIMS.LIST") == [A]
        assert (await operator.ask(f"$SYS.REQ.ACCOUNT.{A}.CLAIMS.LOOKUP")).is_unanswered
        assert (await operator.ask("$SYS.REQ.CLAIMS.PACK")).is_unanswered


async def test_memory_resolver_takes_a_newer_token_of_an_account_in_use() -> None:
    async with system_server(options(None)) as running:
        operator, user = await enter(running, "SYS"), await enter(running, "A")
        subject = f"$SYS.REQ.ACCOUNT.{A}.CLAIMS.UPDATE"
        revocations = {public(KeyKind.USER, "u"): ISSUED_AT_S + 1}
        token = tokens.account_token("A", top=LATER, revocations=revocations)
        assert (await operator.data(subject, token))["message"] == "jwt updated"
        assert await user.client.closed() == [b"-ERR 'User Authentication Revoked'"]
        await operator.data(subject, tokens.account_token("A"))
        resolver = running.live.server.authenticator.operator
        assert resolver is not None
        assert await resolver.resolver.fetch(A) == token
        assert (await operator.ask("$SYS.REQ.CLAIMS.LIST")).is_unanswered


async def test_events_of_users_with_tokens_name_their_issuer_and_tags() -> None:
    async with system_server(options(None)) as running:
        operator = await enter(running, "SYS")
        await operator.listen(f"$SYS.ACCOUNT.{A}.CONNECT")
        await enter(running, "A")
        client = (await operator.message()).json["client"]
        assert (client["user"], client["issuer_key"]) == (public(KeyKind.USER, "u"), A)
        assert client["jwt"] == tokens.user_token("u", "A")


async def test_bearer_token_is_not_told_in_events() -> None:
    async with system_server(options(None)) as running:
        operator = await enter(running, "SYS")
        await operator.listen(f"$SYS.ACCOUNT.{A}.CONNECT")
        await enter(running, "A", jwt=tokens.user_token("u", "A", bearer_token=True))
        client = (await operator.message()).json["client"]
        assert client["user"] == public(KeyKind.USER, "u")
        assert "jwt" not in client


async def test_users_of_other_accounts_cannot_reach_the_resolver(tmp_path: Path) -> None:
    async with directory_server(tmp_path, allow_delete=True) as running:
        user = await enter(running, "A")
        for subject in ("UPDATE", "LIST", "DELETE", "PACK"):
            assert (await user.ask(f"$SYS.REQ.CLAIMS.{subject}", tokens.account_token("B"))).is_unanswered
        for subject in ("LOOKUP", "UPDATE"):
            assert (await user.ask(f"$SYS.REQ.ACCOUNT.{A}.CLAIMS.{subject}")).is_unanswered
