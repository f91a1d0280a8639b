"""The cast of the scripts: operator, accounts and users as tokens, and TLS certificates.

Everything is made on first use and the same for both servers of a run. Tokens that are about to expire are
made anew each time they are asked for, counted from the clock at that moment.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trustme

from tests.differential.credentials import ISSUED_AT_S, public, token

UNLIMITED_USER = {"subs": -1, "data": -1, "payload": -1}
UNLIMITED_ACCOUNT = {
    "subs": -1,
    "data": -1,
    "payload": -1,
    "imports": -1,
    "exports": -1,
    "wildcards": True,
    "conn": -1,
    "leaf": -1,
}
# Limits of JetStream for streams with one number of replicas.
TIER = {"mem_storage": 1000, "disk_storage": 2000, "streams": 2, "consumer": 5, "mem_max_stream_bytes": 700}
FIRST_SECOND_OF_2020_S = 1_577_836_800
EXPIRES_SOON_S = 2

OPERATOR = ("O", "operator")


def operator() -> str:
    """The self-signed operator token, which names the system account."""
    return token(*OPERATOR, OPERATOR, {"system_account": public("A", "system")})


def account(name: str, limits: dict[str, Any] | None = None, **claims: Any) -> str:
    """An account token signed by the operator."""
    top = {"exp": claims.pop("exp")} if "exp" in claims else {}
    return token("A", name, OPERATOR, {"limits": {**UNLIMITED_ACCOUNT, **(limits or {})}, **claims}, **top)


def user(name: str, of: str, signer: tuple[str, str] | None = None, **claims: Any) -> str:
    """A user token of account `of`, signed by the account's own key or by `signer` in its name."""
    top = {"exp": claims.pop("exp")} if "exp" in claims else {}
    if signer is not None and signer != ("A", of):
        claims["issuer_account"] = public("A", of)
    return token("U", name, signer or ("A", of), {**UNLIMITED_USER, **claims}, **top)


def scoped_account() -> str:
    """An account whose signing key gives its users a template of permissions."""
    template = {
        **UNLIMITED_USER,
        "pub": {"allow": ["out.{{name()}}"]},
        "sub": {"allow": ["in.{{name()}}.>", "_INBOX.>"]},
    }
    scope = {
        "kind": "user_scope",
        "key": public("A", "scoped-signer"),
        "role": "sensor",
        "template": template,
    }
    return account("scoped", signing_keys=[public("A", "plain-signer"), scope])


TOKENS: dict[str, Callable[[], str]] = {
    "operator": operator,
    "system": lambda: account("system"),
    "app": lambda: account("app"),
    "other": lambda: account("other"),
    "limited": lambda: account("limited", {"conn": 1, "subs": 2, "payload": 32}),
    "streaming": lambda: account(
        "streaming", {"mem_storage": 1000, "disk_storage": 2000, "streams": 1, "consumer": 3}
    ),
    "tiered": lambda: account("tiered", {"tiered_limits": {"R1": TIER, "R3": {**TIER, "streams": 9}}}),
    "replicated": lambda: account("replicated", {"tiered_limits": {"R3": TIER}}),
    "streamer": lambda: user("streamer", "streaming"),
    "tierer": lambda: user("tierer", "tiered"),
    "replicator": lambda: user("replicator", "replicated"),
    "closed": lambda: account("closed", exp=FIRST_SECOND_OF_2020_S),
    "revoking": lambda: account("revoking", revocations={public("U", "revoked"): ISSUED_AT_S + 1}),
    "scoped": scoped_account,
    "permitting": lambda: account(
        "permitting", default_permissions={"pub": {"allow": ["open.>"]}, "sub": {"deny": ["secret.>"]}}
    ),
    "sysuser": lambda: user("sysuser", "system"),
    "alice": lambda: user("alice", "app"),
    "bearer": lambda: user("bearer", "app", bearer_token=True),
    "expired": lambda: user("expired", "app", exp=FIRST_SECOND_OF_2020_S),
    "expiring": lambda: user("expiring", "app", exp=int(time.time()) + EXPIRES_SOON_S),
    "not-yet": lambda: token("U", "not-yet", ("A", "app"), {**UNLIMITED_USER}, nbf=int(time.time()) + 3600),
    "stranger": lambda: user("stranger", "app", signer=("A", "unknown")),
    "homeless": lambda: user("homeless", "unknown"),
    "revoked": lambda: user("revoked", "revoking"),
    "kept": lambda: user("kept", "revoking"),
    "member": lambda: user("member", "limited"),
    "late": lambda: user("late", "closed"),
    "remote": lambda: user("remote", "app", src=["192.0.2.0/24"]),
    "local": lambda: user("local", "app", src=["127.0.0.0/8"]),
    "websocket-only": lambda: user("websocket-only", "app", allowed_connection_types=["WEBSOCKET"]),
    "restricted": lambda: user(
        "restricted", "app", pub={"allow": ["a.>"], "deny": ["a.secret"]}, sub={"allow": ["b.>", "q work"]}
    ),
    "responder": lambda: user(
        "responder", "app", sub={"allow": ["ask"]}, resp={"max": 1, "ttl": 60_000_000_000}
    ),
    "tiny": lambda: user("tiny", "app", payload=8, subs=1),
    "guest": lambda: user("guest", "permitting"),
    "sensor": lambda: token("U", "sensor", ("A", "scoped-signer"), {"issuer_account": public("A", "scoped")}),
    "unscoped": lambda: user("unscoped", "scoped", signer=("A", "plain-signer")),
    "overreaching": lambda: user("overreaching", "scoped", signer=("A", "scoped-signer")),
    "tampered": lambda: _tampered(user("alice", "app")),
    "none-algorithm": lambda: "eyJ0eXAiOiJKV1QiLCJhbGciOiJub25lIn0." + user("alice", "app").split(".", 1)[1],
    "garbage": lambda: "not.a.token",
}


def _tampered(text: str) -> str:
    """The same token with the last character of its signature's first half changed."""
    head, body, signature = text.split(".")
    other = "A" if signature[10] != "A" else "B"
    return f"{head}.{body}.{signature[:10]}{other}{signature[11:]}"


@functools.cache
def certificates_directory() -> Path:
    """A folder with ca.pem, server.pem, server-key.pem and client certificates, for example alice.pem."""
    directory = Path(tempfile.mkdtemp(prefix="differential-tls-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    _write(authority.issue_cert("127.0.0.1", "localhost"), directory, "server")
    _write(authority.issue_cert("alice@example.com"), directory, "alice")
    _write(authority.issue_cert("mallory@example.com"), directory, "mallory")
    _write(trustme.CA().issue_cert("alice@example.com"), directory, "forged")
    return directory


def _write(certificate: trustme.LeafCert, directory: Path, name: str) -> None:
    certificate.private_key_pem.write_to_path(directory / f"{name}-key.pem")
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
    (directory / f"{name}.pem").write_bytes(chain)
