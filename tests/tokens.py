"""Keys and JWTs for tests: an operator, its accounts and their users, made from fixed seeds.

Rules: every key is derived from a name, so that a failing test fails again the same way.
"""

import base64
import hashlib
import json
from typing import Any

from edged.core import nkeys
from edged.core.jwt import write_token
from edged.core.nkeys import KeyKind

ISSUED_AT_S = 1_700_000_000
UNLIMITED_USER: dict[str, Any] = {"subs": -1, "data": -1, "payload": -1}
UNLIMITED_ACCOUNT: dict[str, Any] = {
    "subs": -1,
    "data": -1,
    "payload": -1,
    "imports": -1,
    "exports": -1,
    "wildcards": True,
    "conn": -1,
    "leaf": -1,
}


def seed(kind: KeyKind, name: str) -> str:
    return nkeys.create_seed(kind, hashlib.sha256(f"{kind.name} {name}".encode()).digest())


def public(kind: KeyKind, name: str) -> str:
    return nkeys.public_from_seed(seed(kind, name))


def operator_token(name: str = "operator", **nats: Any) -> str:
    payload = {
        "sub": public(KeyKind.OPERATOR, name),
        "iat": ISSUED_AT_S,
        "nats": {"type": "operator", "version": 2, **nats},
    }
    return write_token(payload, seed(KeyKind.OPERATOR, name))


def account_token(
    name: str, *, signer: str = "operator", top: dict[str, Any] | None = None, **nats: Any
) -> str:
    payload = {
        "sub": public(KeyKind.ACCOUNT, name),
        "name": name,
        "iat": ISSUED_AT_S,
        "nats": {"type": "account", "version": 2, "limits": UNLIMITED_ACCOUNT, **nats},
        **(top or {}),
    }
    return write_token(payload, seed(KeyKind.OPERATOR, signer))


def user_token(name: str, account: str, *, top: dict[str, Any] | None = None, **nats: Any) -> str:
    """A user signed by the account's own key."""
    return write_token(_user(name, top, {**UNLIMITED_USER, **nats}), seed(KeyKind.ACCOUNT, account))


def scoped_user_token(
    name: str, account: str, signing_key: str, *, top: dict[str, Any] | None = None, **nats: Any
) -> str:
    """A user signed by a signing key of the account; without limits unless given."""
    issuer_account = {"issuer_account": public(KeyKind.ACCOUNT, account)}
    return write_token(_user(name, top, {**issuer_account, **nats}), seed(KeyKind.ACCOUNT, signing_key))


def activation_token(exporter: str, importer: str, subject: str, kind: str, **top: Any) -> str:
    payload = {
        "sub": public(KeyKind.ACCOUNT, importer),
        "iat": ISSUED_AT_S,
        "nats": {"type": "activation", "version": 2, "subject": subject, "kind": kind},
        **top,
    }
    return write_token(payload, seed(KeyKind.ACCOUNT, exporter))


def first_generation_token(payload: dict[str, Any], signing_seed: str, algorithm: str = "ed25519") -> str:
    """A version 1 token: the type at the top, and the payload alone signed."""
    claims = {**payload, "iss": nkeys.public_from_seed(signing_seed)}
    body = encode_part(json.dumps(claims).encode())
    header = encode_part(json.dumps({"typ": "jwt", "alg": algorithm}).encode())
    return f"{header}.{body}.{nkeys.encode_signature(nkeys.sign(signing_seed, body.encode()))}"


def encode_part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign_nonce(name: str, nonce: bytes) -> str:
    return nkeys.encode_signature(nkeys.sign(seed(KeyKind.USER, name), nonce))


def _user(name: str, top: dict[str, Any] | None, nats: dict[str, Any]) -> dict[str, Any]:
    return {
        "sub": public(KeyKind.USER, name),
        "name": name,
        "iat": ISSUED_AT_S,
        "nats": {"type": "user", "version": 2, **nats},
        **(top or {}),
    }
