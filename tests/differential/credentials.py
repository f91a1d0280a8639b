"""Keys and signed tokens for the scripts: every name gives the same key pair in every run.

`key("U", "alice")` is a user key pair whose seed is derived from the name, so that configurations and scripts
refer to it as `${public.U.alice}` and nobody keeps secrets in files. Tokens are NATS JWTs (version 2 claims),
signed with Ed25519.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import nkeys

PREFIXES = {
    "O": nkeys.PREFIX_BYTE_OPERATOR,
    "A": nkeys.PREFIX_BYTE_ACCOUNT,
    "U": nkeys.PREFIX_BYTE_USER,
}
ISSUED_AT_S = 1_700_000_000


def key(kind: str, name: str) -> nkeys.KeyPair:
    """The key pair of an operator (O), account (A) or user (U) called `name`."""
    seed = hashlib.sha256(f"differential {kind} {name}".encode()).digest()
    return nkeys.from_seed(nkeys.encode_seed(seed, PREFIXES[kind]))


def public(kind: str, name: str) -> str:
    """The public key in the text form that configurations use."""
    text: str = key(kind, name).public_key.decode()
    return text


def sign(kind: str, name: str, nonce: str) -> str:
    """The `sig` of CONNECT for this nonce."""
    return _base64url(key(kind, name).sign(nonce.encode()))


def token(
    kind: str,
    name: str,
    issuer: tuple[str, str],
    claims: dict[str, Any],
    **top: Any,
) -> str:
    """A JWT about the key (kind, name), signed by `issuer`; `claims` is its `nats` part, `top` the rest."""
    types = {"O": "operator", "A": "account", "U": "user"}
    body = {
        "iat": ISSUED_AT_S,
        "iss": public(*issuer),
        "name": name,
        "sub": public(kind, name),
        "nats": {"type": types[kind], "version": 2, **claims},
        **top,
    }
    body["jti"] = base64.b32encode(hashlib.sha256(_json(body)).digest()).decode().rstrip("=")
    header = {"typ": "JWT", "alg": "ed25519-nkey"}
    signed = f"{_base64url(_json(header))}.{_base64url(_json(body))}"
    return f"{signed}.{_base64url(key(*issuer).sign(signed.encode()))}"


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
