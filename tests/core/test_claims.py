"""JWTs: who signed them, what they say, whether it holds. Tokens are signed here with our own keys."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import nkeys
from edged.core.claim_rules import (
    check_account,
    check_operator,
    check_user,
)
from edged.core.claims import (
    decode_account,
    decode_activation,
    decode_operator,
    decode_user,
)
from edged.core.jwt import TOKEN_CHARACTERS_MAX, ClaimsError, read_token, write_token
from edged.core.nkeys import KeyKind
from edged.core.permissions import ResponseRule
from tests import tokens
from tests.tokens import ISSUED_AT_S, public, seed

NOW_S = ISSUED_AT_S + 100.0


def resigned(token: str, header: dict[str, Any] | None = None, payload: object = None) -> str:
    """The token with another header or payload, signed by the account A again."""
    head, body, _ = token.split(".")
    head = tokens.encode_part(json.dumps(header).encode()) if header is not None else head
    body = tokens.encode_part(json.dumps(payload).encode()) if payload is not None else body
    signature = nkeys.sign(seed(KeyKind.ACCOUNT, "A"), f"{head}.{body}".encode())
    return f"{head}.{body}.{nkeys.encode_signature(signature)}"


def user_payload(**nats: Any) -> dict[str, Any]:
    return {
        "sub": public(KeyKind.USER, "u"),
        "iss": public(KeyKind.ACCOUNT, "A"),
        "nats": {"type": "user", "version": 2, **nats},
    }


# The token itself.


def test_user_token_gives_its_claims() -> None:
    user = decode_user(
        tokens.user_token(
            "u",
            "A",
            top={"exp": 2_000_000_000, "nbf": 5},
            pub={"allow": ["foo", "bar.>"], "deny": ["bar.secret"]},
            sub={"allow": ["foo queue"]},
            resp={"max": 5, "ttl": 1000},
            src=["10.0.0.0/8"],
            times=[{"start": "08:00:00", "end": "17:00:00"}],
            times_location="Europe/Berlin",
            subs=10,
            payload=1024,
            bearer_token=True,
            allowed_connection_types=["STANDARD", "websocket"],
            tags=["region:eu"],
        )
    )
    assert user.key == public(KeyKind.USER, "u")
    assert user.account_key == user.token.issuer == public(KeyKind.ACCOUNT, "A")
    assert (user.token.name, user.token.issued_at_s) == ("u", ISSUED_AT_S)
    assert (user.token.expires_at_s, user.token.not_before_s) == (2_000_000_000, 5)
    assert user.token.tags == ("region:eu",)
    limits = user.limits
    assert limits.permissions.publish_allow == ("foo", "bar.>")
    assert limits.permissions.responses == ResponseRule(5, 1000)
    assert limits.source_networks == ("10.0.0.0/8",)
    assert limits.times == (("08:00:00", "17:00:00"),)
    assert (limits.max_subscriptions, limits.max_data, limits.max_payload) == (10, -1, 1024)
    assert limits.bearer_token
    assert limits.allowed_connection_types == ("STANDARD", "websocket")
    permissions = limits.permissions.permissions()
    assert permissions.may_publish(b"bar.x")
    assert not permissions.may_publish(b"bar.secret")
    assert permissions.may_subscribe(b"foo", b"queue")
    assert not permissions.may_subscribe(b"foo")


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "EdDSA", "", "ed25519-nkey-x"])
def test_jwt_alg_none_and_every_other_algorithm_is_refused(algorithm: str) -> None:
    token = tokens.user_token("u", "A")
    forged = resigned(token, header={"typ": "JWT", "alg": algorithm})
    with pytest.raises(ClaimsError, match="alg"):
        decode_user(forged)
    with pytest.raises(ClaimsError):
        decode_user(".".join([*forged.split(".")[:2], ""]))


def test_jwt_of_another_type_is_refused() -> None:
    with pytest.raises(ClaimsError, match="typ"):
        decode_user(resigned(tokens.user_token("u", "A"), header={"typ": "JWE", "alg": "ed25519-nkey"}))


def test_changed_payload_is_refused() -> None:
    head, _, signature = tokens.user_token("u", "A").split(".")
    other = tokens.encode_part(json.dumps(user_payload(bearer_token=True)).encode())
    with pytest.raises(ClaimsError, match="signature"):
        decode_user(f"{head}.{other}.{signature}")


def test_issuer_mismatch_signed_by_a_key_other_than_iss_is_refused() -> None:
    token = tokens.user_token("u", "A")
    payload = {**user_payload(), "iss": public(KeyKind.ACCOUNT, "B")}
    with pytest.raises(ClaimsError, match="signature"):
        decode_user(resigned(token, payload=payload))


def test_keys_of_the_wrong_kind_are_refused() -> None:
    by_user = write_token(user_payload(), seed(KeyKind.USER, "u"))
    with pytest.raises(ClaimsError, match="issuer"):
        decode_user(by_user)
    about_account = write_token(
        {**user_payload(), "sub": public(KeyKind.ACCOUNT, "A")}, seed(KeyKind.ACCOUNT, "A")
    )
    with pytest.raises(ClaimsError, match="subject"):
        decode_user(about_account)
    with pytest.raises(ClaimsError, match="kind user"):
        decode_user(tokens.account_token("A"))
    with pytest.raises(ClaimsError, match="kind account"):
        decode_account(tokens.user_token("u", "A"))


def test_truncated_key_in_a_jwt_is_refused() -> None:
    token = tokens.user_token("u", "A")
    for key in ("iss", "sub"):
        for cut in (0, 1, 2, 10, 55):
            payload = user_payload()
            payload[key] = str(payload[key])[:cut]
            with pytest.raises(ClaimsError):
                decode_user(resigned(token, payload=payload))


@pytest.mark.parametrize(
    "payload",
    [
        [],
        "text",
        1,
        {"sub": 5, "nats": {"type": "user", "version": 2}},
        {**user_payload(), "nats": []},
        {**user_payload(), "exp": "soon"},
        {**user_payload(), "exp": 1.5},
        {**user_payload(), "exp": True},
        {**user_payload(), "exp": 2**63},
        user_payload(pub=[]),
        user_payload(pub={"allow": "foo"}),
        user_payload(pub={"allow": [1]}),
        user_payload(bearer_token="yes"),
        user_payload(times=["now"]),
        user_payload(src=5),
        user_payload(tags={}),
        user_payload(version=3),
        user_payload(version=1),
        user_payload(version=0),
        user_payload(type="cluster"),
        user_payload(pub={"allow": ["\ud800"]}),
    ],
)
def test_payload_of_the_wrong_shape_is_a_claims_error(payload: object) -> None:
    with pytest.raises(ClaimsError):
        decode_user(resigned(tokens.user_token("u", "A"), payload=payload))


def test_huge_nested_and_truncated_tokens_are_claims_errors() -> None:
    header = tokens.user_token("u", "A").split(".")[0]
    hostile = [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "é.é.é",
        f"{header}.e30=.AAAA",
        "A" * (TOKEN_CHARACTERS_MAX + 1),
    ]
    payloads = [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000, b'{"exp":NaN}', b"\xff\xfe"]
    hostile += [f"{header}.{tokens.encode_part(payload)}.AAAA" for payload in payloads]
    token = tokens.user_token("u", "A")
    hostile += [token[:cut] for cut in range(0, len(token), 7)]
    for text in hostile:
        with pytest.raises(ClaimsError) as caught:
            decode_user(text)
        assert len(str(caught.value)) < 100


@given(st.text(max_size=200))
def test_any_text_is_a_claims_error(text: str) -> None:
    for decode in (decode_user, decode_account, decode_operator, decode_activation):
        with pytest.raises(ClaimsError):
            decode(text)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
NATS_FIELDS = st.sampled_from(
    [
        *("pub", "sub", "resp", "src", "times", "subs", "payload", "limits", "imports", "exports", "tags"),
        *("signing_keys", "revocations", "mappings", "default_permissions", "authorization", "trace"),
    ]
)


@given(st.dictionaries(NATS_FIELDS, JSON, max_size=4))
def test_signed_claims_of_any_shape_decode_or_are_a_claims_error(nats: dict[str, Any]) -> None:
    with contextlib.suppress(ClaimsError):
        check_user(decode_user(tokens.user_token("u", "A", **nats)), NOW_S)
    with contextlib.suppress(ClaimsError):
        check_account(decode_account(tokens.account_token("A", **nats)), NOW_S)


def test_first_generation_tokens_are_accepted_with_their_own_signature() -> None:
    payload: dict[str, Any] = {
        "type": "user",
        "sub": public(KeyKind.USER, "u"),
        "tags": ["old"],
        "issuer_account": public(KeyKind.ACCOUNT, "B"),
        "nats": {"pub": {"allow": ["foo"]}},
    }
    user = decode_user(tokens.first_generation_token(payload, seed(KeyKind.ACCOUNT, "A")))
    assert user.token.version == 1
    assert user.token.tags == ("old",)
    assert user.account_key == public(KeyKind.ACCOUNT, "B")
    assert user.limits.max_subscriptions == -1
    # The payload alone signed is not enough for the second generation.
    with pytest.raises(ClaimsError, match="signature"):
        decode_user(tokens.first_generation_token(user_payload(), seed(KeyKind.ACCOUNT, "A")))


def test_written_token_names_its_signer() -> None:
    token = read_token(write_token({"nats": {"version": 2, "type": "x"}}, seed(KeyKind.OPERATOR, "o")))
    assert token.issuer == public(KeyKind.OPERATOR, "o")


# Accounts and operators.


def test_account_token_gives_its_claims() -> None:
    scope = {"kind": "user_scope", "key": public(KeyKind.ACCOUNT, "S"), "role": "r", "template": {"subs": 7}}
    account = decode_account(
        tokens.account_token(
            "A",
            limits={
                **tokens.UNLIMITED_ACCOUNT,
                "conn": 3,
                "mem_storage": 10,
                "disk_storage": -1,
                "streams": 2,
            },
            signing_keys=[public(KeyKind.ACCOUNT, "K"), scope],
            revocations={public(KeyKind.USER, "u"): 5, "*": 3},
            exports=[
                {
                    "subject": "svc.*",
                    "type": "service",
                    "response_type": "Stream",
                    "account_token_position": 2,
                },
                {"subject": "out.>", "type": "stream", "token_req": True},
            ],
            imports=[{"subject": "in", "type": "stream", "account": "X", "local_subject": "local"}],
            mappings={"a": [{"subject": "b", "weight": 30}, {"subject": "c"}]},
            default_permissions={"pub": {"deny": ["x"]}},
            authorization={"auth_users": [public(KeyKind.USER, "u")]},
            trace={"dest": "trace.here"},
        )
    )
    assert account.key == public(KeyKind.ACCOUNT, "A")
    assert (account.limits.connections, account.limits.subscriptions) == (3, -1)
    assert account.jetstream.enabled
    assert (account.jetstream.memory_storage, account.jetstream.streams) == (10, 2)
    assert account.signing_keys[public(KeyKind.ACCOUNT, "K")] is None
    template = account.signing_keys[public(KeyKind.ACCOUNT, "S")]
    assert template is not None
    assert (template.template.max_subscriptions, template.template.max_payload) == (7, -1)
    assert account.revocations["*"] == 3
    assert [export.kind for export in account.exports] == ["service", "stream"]
    assert [destination.weight_percent for destination in account.mappings["a"]] == [30, 100]
    assert account.trace_sampling_percent == 100


def test_tiered_limits_replace_the_general_ones() -> None:
    tiers = {"R1": {"disk_storage": 5}, "R3": {"disk_storage": 1}}
    limits = {**tokens.UNLIMITED_ACCOUNT, "disk_storage": 9, "tiered_limits": tiers}
    account = decode_account(tokens.account_token("A", limits=limits))
    assert not account.jetstream.enabled
    assert account.jetstream_tiers["R1"].disk_storage == 5
    check_account(account, NOW_S)


def test_operator_trusts_its_own_key_unless_it_is_strict() -> None:
    signing = public(KeyKind.OPERATOR, "signing")
    operator = decode_operator(tokens.operator_token(signing_keys=[signing]))
    assert operator.trusted_keys == (public(KeyKind.OPERATOR, "operator"), signing)
    strict = decode_operator(tokens.operator_token(signing_keys=[signing], strict_signing_key_usage=True))
    assert strict.trusted_keys == (signing,)
    check_operator(strict, NOW_S)
    with pytest.raises(ClaimsError):
        check_operator(decode_operator(tokens.operator_token(signing_keys=["O"])), NOW_S)
