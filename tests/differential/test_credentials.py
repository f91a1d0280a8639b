"""Keys and tokens of the scripts are well formed."""

from __future__ import annotations

import base64
import json

import nkeys
import pytest

from tests.differential import identities
from tests.differential.credentials import key, public, sign, token
from tests.differential.variables import of_nonce, resolve


def decode(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@pytest.mark.parametrize("kind", ["O", "A", "U"])
def test_a_key_is_the_same_in_every_run_and_says_its_kind(kind: str) -> None:
    assert public(kind, "x") == public(kind, "x")
    assert public(kind, "x") != public(kind, "y")
    assert public(kind, "x").startswith(kind)


def test_a_signature_verifies_and_one_of_another_nonce_does_not() -> None:
    signature = decode(sign("U", "alice", "nonce"))
    assert key("U", "alice").verify(b"nonce", signature)
    with pytest.raises(nkeys.ErrInvalidSignature):
        key("U", "alice").verify(b"other", signature)


def test_a_token_is_signed_by_its_issuer() -> None:
    text = token("U", "alice", ("A", "app"), {"subs": -1})
    signed, _, signature = text.rpartition(".")
    assert key("A", "app").verify(signed.encode(), decode(signature))
    claims = json.loads(decode(text.split(".")[1]))
    assert claims["iss"] == public("A", "app")
    assert claims["sub"] == public("U", "alice")
    assert claims["nats"] == {"type": "user", "version": 2, "subs": -1}


def test_every_token_of_the_cast_can_be_made() -> None:
    assert [name for name, make in identities.TOKENS.items() if make().count(".") != 2] == []


def test_variables_are_resolved_and_unknown_ones_are_errors() -> None:
    assert resolve("x ${public.U.alice} y") == f"x {public('U', 'alice')} y"
    assert resolve("${sig.U.alice}", of_nonce("n")) == sign("U", "alice", "n")
    assert resolve("${directory} ${port.leaf}") == "${directory} ${port.leaf}"
    with pytest.raises(KeyError, match="nothing"):
        resolve("${nothing}")
