"""Attacks on logins: keys and tokens that are broken, replayed, expired, revoked or somebody else's.

Every refusal reads the same to the client, whatever the reason.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from typing import Any

import pytest

from edged.config.document import ConfigError
from edged.config.load import load_text
from edged.config.options import AccountOptions, Options, UserOptions
from edged.core.jwt import write_token
from edged.core.nkeys import KeyKind
from tests import tokens
from tests.attacks.victims import still_serves, victim
from tests.server.live import LiveClient, LiveServer, live_server

REFUSED = [b"-ERR 'Authorization Violation'"]
NOW_S = int(time.time())
NKEY = tokens.public(KeyKind.USER, "device")
ACCOUNT = tokens.public(KeyKind.ACCOUNT, "A")
USER = tokens.public(KeyKind.USER, "u")
KEYS = Options(accounts=(AccountOptions("A", users=(UserOptions(nkey=NKEY, account="A"),)),))


def operated(**account: Any) -> Options:
    return Options(
        operators=(tokens.operator_token(),),
        resolver_preload=((ACCOUNT, tokens.account_token("A", **account)),),
    )


async def connection(live: LiveServer) -> tuple[LiveClient, bytes]:
    """A new connection, and the nonce it is to sign."""
    client = await live.client(connect=False)
    return client, json.loads(client.info[5:])["nonce"].encode()


async def login(client: LiveClient, **fields: str) -> list[bytes]:
    """What the client hears: PONG for a login that is good, else all up to the end."""
    document = json.dumps({"verbose": False, "pedantic": False, **fields}).encode()
    await client.send(b"CONNECT %s\r\nPING\r\n" % document)
    first = await client.line()
    return [first] if first == b"PONG" else [first, *await client.closed()]


def nkey_of(raw: bytes, kind: int = KeyKind.USER) -> str:
    """The text of a key, with a right checksum, whatever its bytes."""
    body = bytes((kind,)) + raw
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).rstrip(b"=").decode()


async def test_nonce_of_another_connection_is_no_login() -> None:
    async with live_server(KEYS) as live:
        client, nonce = await connection(live)
        other, other_nonce = await connection(live)
        assert nonce != other_nonce
        signature = tokens.sign_nonce("device", nonce)
        assert await login(other, nkey=NKEY, sig=signature) == REFUSED
        assert await login(client, nkey=NKEY, sig=signature) == [b"PONG"]


async def test_signature_that_was_good_once_is_not_good_for_the_next_connection() -> None:
    async with live_server(KEYS) as live:
        client, nonce = await connection(live)
        signature = tokens.sign_nonce("device", nonce)
        assert await login(client, nkey=NKEY, sig=signature) == [b"PONG"]
        again, _ = await connection(live)
        assert await login(again, nkey=NKEY, sig=signature) == REFUSED


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "A",
        base64.b64encode(bytes(63)).decode(),
        base64.b64encode(bytes(64)).decode(),
        base64.b64encode(bytes(65)).decode(),
        base64.b64encode(b"\xff" * 64).decode(),
        "=" * 88,
        "\u00e9" * 86,
        "A" * 3000,
    ],
)
async def test_signature_of_a_wrong_length_or_shape_is_no_login(signature: str) -> None:
    async with live_server(KEYS) as live:
        client, _ = await connection(live)
        assert await login(client, nkey=NKEY, sig=signature) == REFUSED
        again, nonce = await connection(live)
        assert await login(again, nkey=NKEY, sig=tokens.sign_nonce("device", nonce)) == [b"PONG"]


# The class of advisory: a truncated Ed25519 key in a token or a login crashes the server before any check.
@pytest.mark.parametrize(
    "key",
    [
        "U",
        NKEY[:-1],
        NKEY + "A",
        NKEY.lower(),
        nkey_of(b""),
        nkey_of(bytes(31)),
        nkey_of(bytes(33)),
        nkey_of(bytes(32)),
        nkey_of(b"\xff" * 32),
        nkey_of(b"\x02" + bytes(31)),
        nkey_of(bytes(32), KeyKind.CURVE),
        "U" * 56,
        "\u00fc" * 56,
    ],
)
async def test_key_that_is_truncated_or_no_point_of_the_curve_is_no_login(key: str) -> None:
    user = {"sub": key, "iat": tokens.ISSUED_AT_S, "nats": {"type": "user", "version": 2}}
    token = write_token(user, tokens.seed(KeyKind.ACCOUNT, "A"))
    async with live_server(KEYS) as live:
        client, nonce = await connection(live)
        assert await login(client, nkey=key, sig=tokens.sign_nonce("device", nonce)) == REFUSED
        again, nonce = await connection(live)
        assert await login(again, nkey=NKEY, sig=tokens.sign_nonce("device", nonce)) == [b"PONG"]
    async with live_server(operated()) as live:
        client, nonce = await connection(live)
        assert await login(client, jwt=token, sig=tokens.sign_nonce("u", nonce)) == REFUSED
        assert await good_login(live) == [b"PONG"]


def altered(token: str, header: dict[str, str] | None = None, payload: dict[str, Any] | None = None) -> str:
    """A token with parts exchanged and the signature left as it was."""
    parts = token.split(".")
    if header is not None:
        parts[0] = tokens.encode_part(json.dumps(header).encode())
    if payload is not None:
        parts[1] = tokens.encode_part(json.dumps(payload).encode())
    return ".".join(parts)


GOOD = tokens.user_token("u", "A")
EVIL = {"sub": USER, "iss": ACCOUNT, "nats": {"type": "user", "version": 2}}
BAD_TOKENS = {
    "alg none": altered(GOOD, header={"typ": "JWT", "alg": "none"}),
    "alg none without signature": altered(GOOD, header={"typ": "JWT", "alg": "none"}).rpartition(".")[0]
    + ".",
    "alg of another family": altered(GOOD, header={"typ": "JWT", "alg": "HS256"}),
    "payload exchanged": altered(GOOD, payload=EVIL),
    "expired": tokens.user_token("u", "A", top={"exp": NOW_S - 10}),
    "not yet valid": tokens.user_token("u", "A", top={"nbf": NOW_S + 1000}),
    "signed by an unknown account": tokens.user_token("u", "B"),
    "signed by the operator": write_token(EVIL, tokens.seed(KeyKind.OPERATOR, "operator")),
    "signed by the user itself": write_token(EVIL, tokens.seed(KeyKind.USER, "u")),
    "claims another account": tokens.scoped_user_token("u", "B", "A"),
    "key of no account's": tokens.scoped_user_token("u", "A", "stranger"),
    "account token": tokens.account_token("A"),
    "operator token": tokens.operator_token(),
    "activation token": tokens.activation_token("A", "A", "a", "stream"),
    "no token": "eyJ",
    "empty parts": "..",
    "too many parts": "e30." * 500,
    "deep payload": f"{GOOD.split('.')[0]}.{tokens.encode_part(b'[' * 1500)}.AA",
}


async def good_login(live: LiveServer) -> list[bytes]:
    client, nonce = await connection(live)
    return await login(client, jwt=GOOD, sig=tokens.sign_nonce("u", nonce))


@pytest.mark.parametrize("name", BAD_TOKENS)
async def test_token_that_is_forged_expired_or_not_a_users_is_no_login(name: str) -> None:
    async with live_server(operated()) as live:
        client, nonce = await connection(live)
        fields = {"jwt": BAD_TOKENS[name], "sig": tokens.sign_nonce("u", nonce)}
        assert await login(client, **fields) == REFUSED
        assert await good_login(live) == [b"PONG"]


async def test_token_without_the_signature_of_its_user_is_no_login() -> None:
    async with live_server(operated()) as live:
        client, nonce = await connection(live)
        assert await login(client, jwt=GOOD) == REFUSED
        client, nonce = await connection(live)
        assert await login(client, jwt=GOOD, sig=tokens.sign_nonce("thief", nonce)) == REFUSED


@pytest.mark.parametrize("revocations", [{USER: NOW_S}, {"*": NOW_S}])
async def test_revoked_token_is_no_login(revocations: dict[str, int]) -> None:
    async with live_server(operated(revocations=revocations)) as live:
        client, nonce = await connection(live)
        assert await login(client, jwt=GOOD, sig=tokens.sign_nonce("u", nonce)) == REFUSED


async def test_credentials_of_the_wrong_type_or_length_are_no_login() -> None:
    async with victim("authorization { user: a, password: b }") as live:
        for document in (
            b'{"user":"a","pass":""}',
            b'{"user":"a","pass":"b\\u0000"}',
            b'{"user":"A","pass":"b"}',
            b'{"user":"a","pass":"' + b"b" * 3000 + b'"}',
            b'{"user":"\\ud800","pass":"\\udfff"}',
            b'{"auth_token":"b"}',
            b'{"user":null,"pass":null}',
        ):
            client = await live.client(connect=False)
            await client.send(b"CONNECT " + document + b"\r\n")
            assert await client.closed() == REFUSED, document
        await still_serves(live, b',"user":"a","pass":"b"')


async def test_second_connect_with_wrong_credentials_ends_the_connection() -> None:
    async with victim("authorization { user: a, password: b }") as live:
        client = await live.client(b',"user":"a","pass":"b"')
        await client.send(b'SUB a 1\r\nCONNECT {"user":"a","pass":"x"}\r\nPUB a 1\r\nx\r\n')
        assert await client.closed() == REFUSED
        await still_serves(live, b',"user":"a","pass":"b"')


# The class of advisory: import cycles that the server follows for ever.
def test_service_imports_in_a_circle_are_refused_by_the_configuration() -> None:
    services = "exports [{service: s}], imports [{service: {account: %s, subject: s}}]"
    with pytest.raises(ConfigError, match=r"cycle|circle"):
        load_text(f"accounts {{ A {{ {services % 'B'} }}, B {{ {services % 'A'} }} }}", {})


async def test_service_that_imports_itself_through_a_token_ends_and_the_server_goes_on() -> None:
    shared = {"name": "s", "subject": "s", "type": "service"}
    options = operated(exports=[shared], imports=[{**shared, "account": ACCOUNT, "local_subject": "s"}])
    async with live_server(options) as live:
        client, nonce = await connection(live)
        answer = await login(client, jwt=GOOD, sig=tokens.sign_nonce("u", nonce))
        if answer == [b"PONG"]:
            await client.send(b"SUB r 1\r\nPUB s r 1\r\nx\r\n")
            await client.barrier()
        else:
            assert answer == REFUSED
