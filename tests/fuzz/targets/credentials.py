"""Keys and tokens: refused with the error of their module, or read; then their claims are checked."""

from __future__ import annotations

import base64
import contextlib
import json

from edged.core import claim_rules, claims, distinguished_names, jwt, nkeys, user_scope
from edged.core.jwt import ClaimsError
from edged.core.nkeys import KeyKind, NkeyError
from tests import tokens
from tests.fuzz.target import Target

NOW_S = tokens.ISSUED_AT_S + 10.0
DECODERS = (claims.decode_operator, claims.decode_account, claims.decode_user, claims.decode_activation)
SIGNERS = {
    "operator": tokens.seed(KeyKind.OPERATOR, "operator"),
    "account": tokens.seed(KeyKind.OPERATOR, "operator"),
    "user": tokens.seed(KeyKind.ACCOUNT, "A"),
    "activation": tokens.seed(KeyKind.ACCOUNT, "A"),
}


def run_keys(data: bytes) -> None:
    text = data.decode("latin-1")
    with contextlib.suppress(NkeyError):
        kind, raw = nkeys.decode_public(text)
        assert nkeys.encode_public(kind, raw) == text
        assert not nkeys.verify(text, b"message", bytes(64)), "nobody signed this"
    with contextlib.suppress(NkeyError):
        kind, raw = nkeys.decode_seed(text)
        assert nkeys.encode_seed(kind, raw) == text
        nkeys.public_from_seed(text)
    signature = nkeys.decode_signature(text)
    if signature is not None:
        assert not nkeys.verify(tokens.public(KeyKind.USER, "a"), b"message", signature)
    for kind in KeyKind:
        nkeys.is_public(text, kind)
    distinguished_names.parse(data.decode("utf-8", "surrogateescape"))


def run_token(data: bytes) -> None:
    """The text of a token, its signature mostly broken."""
    for decode in DECODERS:
        try:
            decode(data.decode("utf-8", "surrogateescape"))
        except ClaimsError as error:
            assert len(str(error)) < 300, "an error quotes nothing of the token"


def run_claims(data: bytes) -> None:
    """The payload of a token, signed after it was changed: the issuer is trusted, but makes mistakes."""
    try:
        payload = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(payload, dict):
        return
    nats = payload.get("nats")
    kind = nats.get("type") if isinstance(nats, dict) else None
    signing_seed = SIGNERS.get(kind) if isinstance(kind, str) else None
    try:
        text = jwt.write_token(payload, signing_seed or SIGNERS["user"])
    except UnicodeEncodeError:
        return  # Half of a surrogate pair: no signer can write it.
    with contextlib.suppress(ClaimsError):
        _check(kind, text)


def _check(kind: object, text: str) -> None:
    if kind == "operator":
        claim_rules.check_operator(claims.decode_operator(text), NOW_S)
    elif kind == "account":
        account = claims.decode_account(text)
        claim_rules.check_account(account, NOW_S)
        user = claims.decode_user(tokens.scoped_user_token("u", "A", "signing", tags=["a:b"]))
        for scope in account.signing_keys.values():
            if scope is not None:
                user_scope.scoped_limits(scope, user, account).permissions.permissions()
    elif kind == "activation":
        claims.decode_activation(text)
    else:
        user = claims.decode_user(text)
        claim_rules.check_user(user, NOW_S)
        claim_rules.allows_address(user.limits, "10.0.0.1")
        user.limits.permissions.permissions()


def payload_of(token: str) -> bytes:
    part = token.split(".")[1]
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


_PERMISSIONS = {
    "pub": {"allow": ["a.>"], "deny": ["b"]},
    "sub": {"allow": ["c q"]},
    "resp": {"max": 1, "ttl": 5},
}
_SCOPE = {
    "kind": "user_scope",
    "key": tokens.public(KeyKind.ACCOUNT, "signing"),
    "template": {**_PERMISSIONS, "pub": {"allow": ["{{name()}}.{{tag(a)}}"]}},
}
TOKENS = (
    tokens.operator_token(signing_keys=[tokens.public(KeyKind.OPERATOR, "x")], system_account="A"),
    tokens.account_token(
        "A",
        signing_keys=[_SCOPE, tokens.public(KeyKind.ACCOUNT, "other")],
        exports=[{"name": "e", "subject": "a.*", "type": "service", "account_token_position": 2}],
        imports=[
            {"name": "i", "subject": "a.x", "account": tokens.public(KeyKind.ACCOUNT, "B"), "type": "stream"}
        ],
        revocations={"*": 5},
        mappings={"a.*": [{"subject": "b.$1", "weight": 50}]},
        default_permissions=_PERMISSIONS,
    ),
    tokens.user_token(
        "u", "A", src=["10.0.0.0/8"], times=[{"start": "01:00:00", "end": "02:00:00"}], **_PERMISSIONS
    ),
    tokens.activation_token("A", "B", "a.b", "stream"),
)
KEYS = (
    *(made.encode() for kind in KeyKind for made in (tokens.seed(kind, "a"), tokens.public(kind, "a"))),
    nkeys.encode_signature(bytes(64)).encode(),
    b"CN=a\\,b+OU=c,O=\\41\\C3\\A9 ,DC=x",
)
KEY_WORDS = (b"S", b"U", b"A", b"=", b"\\", b"+", b",", b"\\4", b"2", b"7", b"a", b"-", b"_", b"\xc3")
JSON_WORDS = (
    *(
        b"null",
        b"true",
        b"{}",
        b"[]",
        b'""',
        b'"a"',
        b"1",
        b"-1",
        b"1e400",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
    ),
    *(
        b'"sub":',
        b'"nats":',
        b'"version":1',
        b'"limits":',
        b'"exp":1',
        b'"\\ud800"',
        b'"{{tag(a)}}"',
        b'"> q"',
    ),
)
TARGETS = (
    Target("nkeys", run_keys, KEYS, KEY_WORDS, share=3),
    Target(
        "token",
        run_token,
        tuple(token.encode() for token in TOKENS),
        (b".", b"..", b"e30", b"A", b"="),
        share=3,
    ),
    Target("claims", run_claims, tuple(map(payload_of, TOKENS)), JSON_WORDS, share=4),
)
