"""The same logins and permissions against the real nats-server and against our own code."""

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edged.config.load import load_text
from edged.core.nkeys import KeyKind
from edged.core.permissions import Permissions
from edged.server.auth import Authenticator
from edged.server.identity import AuthFailed, AuthRequest
from tests import tokens
from tests.servers import RunningServer, start_server
from tests.tokens import public, sign_nonce

pytestmark = pytest.mark.real

NKEY = public(KeyKind.USER, "device")
NOW = int(time.time())
# Longer than all tests together take.
DAY_S = 86_400

CONFIGURED = f"""
no_auth_user: web
accounts {{
  A {{ users = [ {{user: alice, password: secret}}, {{user: open}},
                 {{user: web, password: secret, allowed_connection_types: [STANDARD, WEBSOCKET]}},
                 {{user: ws, password: secret, allowed_connection_types: [WEBSOCKET]}} ] }}
  B {{ users = [ {{user: bob, password: "$2a$04$Hs7dwmbp6/R4b7dGKBv21uohHxo.gUCNyKzE/gCfhRjMXqXcAfK1S"}},
                 {{nkey: {NKEY}}} ] }}
}}
"""
LOGINS: list[dict[str, Any]] = [
    {},
    {"user": "alice", "pass": "secret"},
    {"user": "alice", "pass": "wrong"},
    {"user": "alice"},
    {"user": "open"},
    {"user": "open", "pass": "x"},
    {"user": "ws", "pass": "secret"},
    {"user": "bob", "pass": "wrong"},
    {"user": "nobody", "pass": "secret"},
    {"pass": "secret"},
    {"auth_token": "secret"},
    {"jwt": "x"},
    {"sig": "x"},
    {"nkey": "x"},
    {"nkey": NKEY},
    {"nkey": NKEY, "sig": "device"},
    {"nkey": NKEY, "sig": "other"},
    {"nkey": NKEY, "sig": "device", "user": "alice", "pass": "wrong"},
    {"user": "alice", "pass": "secret", "nkey": NKEY},
    {"user": "alice", "pass": "secret", "account": "B"},
    {"user": "alice", "pass": "secret", "account": ""},
    {"user": "alice", "pass": "secret", "new_account": True},
    {"user": "alice", "pass": "secret", "new_account": False},
]


def operator_config() -> tuple[str, list[dict[str, Any]]]:
    """A configuration with an operator, and logins of users that differ in one claim each."""
    scope = {
        "kind": "user_scope",
        "key": public(KeyKind.ACCOUNT, "S"),
        "template": {"pub": {"allow": ["{{name()}}.>"]}, "sub": {"deny": ["{{tag(deny)}}.>"]}},
    }
    accounts = {
        "A": tokens.account_token(
            "A",
            signing_keys=[public(KeyKind.ACCOUNT, "K"), scope],
            revocations={public(KeyKind.USER, "revoked"): NOW},
        ),
        "B": tokens.account_token("B", limits={**tokens.UNLIMITED_ACCOUNT, "disallow_bearer": True}),
        "C": tokens.account_token("C", signer="stranger"),
        "SYS": tokens.account_token("SYS"),
    }
    preload = "\n".join(f"{public(KeyKind.ACCOUNT, name)}: {token}" for name, token in accounts.items())
    config = (
        f"operator: {tokens.operator_token()}\nsystem_account: {public(KeyKind.ACCOUNT, 'SYS')}\n"
        f"resolver: MEMORY\nresolver_preload {{\n{preload}\n}}\n"
    )
    key_a, key_b = public(KeyKind.ACCOUNT, "A"), public(KeyKind.ACCOUNT, "B")
    unlimited = tokens.UNLIMITED_USER
    users = [
        tokens.user_token("u", "A"),
        tokens.user_token("u", "B"),
        tokens.user_token("u", "C"),
        tokens.user_token("u", "unknown"),
        tokens.user_token("u", "A", issuer_account=key_a),
        tokens.user_token("u", "A", issuer_account=key_b),
        tokens.scoped_user_token("u", "A", "K", **unlimited),
        tokens.scoped_user_token("u", "B", "K", **unlimited),
        tokens.scoped_user_token("u", "A", "L", **unlimited),
        tokens.scoped_user_token("u", "A", "S", tags=["deny:x"]),
        tokens.scoped_user_token("u", "A", "S"),
        tokens.scoped_user_token("u", "A", "S", tags=["deny:x"], **unlimited),
        tokens.user_token("u", "A", top={"exp": NOW - 10}),
        tokens.user_token("u", "A", top={"exp": NOW + DAY_S}),
        tokens.user_token("u", "A", top={"nbf": NOW + DAY_S}),
        tokens.user_token("u", "A", src=["127.0.0.0/8"]),
        tokens.user_token("u", "A", src=["10.0.0.0/8"]),
        tokens.user_token("u", "A", allowed_connection_types=["STANDARD"]),
        tokens.user_token("u", "A", allowed_connection_types=["WEBSOCKET"]),
        tokens.user_token("u", "A", allowed_connection_types=["PIGEON"]),
        tokens.user_token("u", "A", pub={"allow": ["a b"]}),
        tokens.account_token("A"),
        "not.a.token",
    ]
    logins: list[dict[str, Any]] = [{"jwt": jwt, "sig": "u"} for jwt in users]
    logins += [{"jwt": tokens.user_token("revoked", "A"), "sig": "revoked"}]
    logins += [
        {"jwt": users[0]},
        {"jwt": users[0], "sig": "other"},
        {"nkey": public(KeyKind.USER, "u"), "sig": "u"},
    ]
    logins += [{"jwt": tokens.user_token("u", account, bearer_token=True)} for account in "AB"]
    logins += [{}, {"user": "u", "pass": "p"}]
    return config, logins


def real_login(server: RunningServer, fields: dict[str, Any]) -> tuple[str, str | None]:
    """("", account) of a login that worked, (text of -ERR, None) of one that did not."""
    with socket.create_connection((server.host, server.port), timeout=5) as connection:
        stream = connection.makefile("rb")
        nonce = str(json.loads(stream.readline()[5:])["nonce"]).encode()
        connect = {"verbose": False, "protocol": 1, **_with_signature(fields, nonce)}
        connection.sendall(b"CONNECT " + json.dumps(connect).encode() + b"\r\nPING\r\n")
        for line in stream:
            if line.startswith(b"-ERR"):
                return line.decode().strip()[6:-1], None
            if line.startswith(b"INFO"):
                return "", str(json.loads(line[5:])["remote_account"])
    raise AssertionError("the server closed without a word")


async def our_login(authenticator: Authenticator, fields: dict[str, Any]) -> tuple[str, str | None]:
    nonce = b"PXoWU7zWAMt75FY"
    request = AuthRequest(_with_signature(fields, nonce), nonce, "STANDARD", "127.0.0.1", float(NOW))
    try:
        return "", (await authenticator.authenticate(request)).account_name
    except AuthFailed as refusal:
        return refusal.text, None


def _with_signature(fields: dict[str, Any], nonce: bytes) -> dict[str, Any]:
    """sig names the user whose key signs the nonce."""
    if "nkey" not in fields and "jwt" not in fields:
        return fields
    return {**fields, "sig": sign_nonce(fields["sig"], nonce)} if len(fields.get("sig", "")) > 0 else fields


@pytest.mark.parametrize("mode", ["configured", "operator"])
async def test_logins_end_as_with_nats_server(mode: str, tmp_path: Path) -> None:
    config, logins = (CONFIGURED, LOGINS) if mode == "configured" else operator_config()
    authenticator = Authenticator(load_text(config, {}).options, now_s=float(NOW))
    server = start_server("nats-server", config, tmp_path)
    try:
        for fields in logins:
            assert await our_login(authenticator, fields) == real_login(server, fields), fields
    finally:
        server.stop()


# Permissions: the same SUB and PUB lines, judged by both.

RULES = {
    "allowed": {"subscribe": ["foo.*", "bar.>"], "publish": ["p.*", "q.>"]},
    "denied": {"subscribe": {"deny": ["foo.*"]}, "publish": {"deny": ["p.*"]}},
    "queues": {"subscribe": {"allow": ["foo", "foo v1", "bar q.*", "z.>"], "deny": ["foo dq", "z.1 w.>"]}},
    "both": {
        "subscribe": {"allow": ["a.>"], "deny": ["a.b.>", "a.*.c"]},
        "publish": {"allow": ["a.>"], "deny": ["a.b"]},
    },
    "nothing": {},
}
SUBSCRIPTIONS = [
    *(
        "foo",
        "foo.*",
        "foo.bar",
        "foo.a.b",
        ">",
        "*",
        "*.*",
        "*.bar",
        "bar.>",
        "bar.*",
        "a.>",
        "a.*",
        "a.b.>",
    ),
    *("a.b", "a.b.c", "a.x.c", "a.*.c", "a.*.*", "z.>", "z.1", "z.2", "p.a"),
]
QUEUES = [None, "v1", "v2", "dq", "q.1", "q.*", "q.>", "q", "w.a", "w"]
PUBLISHED = ["p", "p.a", "p.a.b", "p.*", "p.>", "q.a.b", "a.b", "a.c", "p..a", "p.", ".p", "a.b.c", "*", ">"]


@pytest.fixture(scope="module")
def permission_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    users = [{"user": name, "password": "p", "permissions": rules} for name, rules in RULES.items()]
    config = f"authorization {{ users: {json.dumps(users)} }}\n"
    server = start_server("nats-server", config, tmp_path_factory.mktemp("permissions"))
    yield server
    server.stop()


def violations(server: RunningServer, user: str, lines: list[bytes]) -> list[bool]:
    """For each line, whether the server refused it."""
    refused = []
    with socket.create_connection((server.host, server.port), timeout=5) as connection:
        stream = connection.makefile("rb")
        stream.readline()
        connection.sendall(
            b'CONNECT {"verbose":false,"pedantic":false,"user":"%s","pass":"p"}\r\n' % user.encode()
        )
        for line in lines:
            connection.sendall(line + b"\r\nPING\r\n")
            answer = b""
            while not answer.endswith(b"PONG\r\n"):
                answer += stream.readline()
            refused.append(re.search(rb"-ERR 'Permissions Violation", answer) is not None)
    return refused


@pytest.mark.parametrize("user", RULES)
def test_permissions_decide_as_nats_server_does(user: str, permission_server: RunningServer) -> None:
    users = [{"user": user, "password": "p", "permissions": RULES[user]}]
    loaded = load_text(f"authorization {{ users: {json.dumps(users)} }}\n", {})
    assert loaded.options.authorization.users is not None
    permissions = Permissions.from_options(loaded.options.authorization.users[0].permissions)

    wanted = [(subject, queue) for subject in SUBSCRIPTIONS for queue in QUEUES]
    lines = [
        f"SUB {subject} {queue or ''} {sid}\r\nUNSUB {sid}".encode()
        for sid, (subject, queue) in enumerate(wanted)
    ]
    for (subject, queue), refused in zip(wanted, violations(permission_server, user, lines), strict=True):
        ours = permissions.may_subscribe(subject.encode(), queue.encode() if queue else None)
        # The one difference that is meant: nats-server takes `a.>` for covered by `a.*` and leaks.
        if not ours and not refused and subject.endswith(">"):
            assert user == "allowed"
            continue
        assert ours == (not refused), (subject, queue)

    lines = [f"PUB {subject} 0\r\n".encode() for subject in PUBLISHED]
    for subject, refused in zip(PUBLISHED, violations(permission_server, user, lines), strict=True):
        assert permissions.may_publish(subject.encode()) == (not refused), subject
