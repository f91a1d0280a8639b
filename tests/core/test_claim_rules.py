"""Whether claims hold: validity, revocation, source networks, hours, activations."""

import datetime
import zoneinfo
from typing import Any

import pytest

from edged.core.claim_rules import (
    activation_holds,
    allows_address,
    check_account,
    check_user,
    is_revoked,
    seconds_left_today,
)
from edged.core.claims import (
    UserLimits,
    decode_account,
    decode_user,
)
from edged.core.jwt import ClaimsError, write_token
from edged.core.nkeys import KeyKind
from tests import tokens
from tests.tokens import ISSUED_AT_S, public, seed

NOW_S = ISSUED_AT_S + 100.0


@pytest.mark.parametrize(
    "nats",
    [
        {"exports": [{"subject": "a..b", "type": "stream"}]},
        {"exports": [{"subject": "a", "type": "stream"}, {"subject": "a", "type": "stream"}]},
        {"exports": [{"subject": "a.b", "type": "stream"}, {"subject": "a.*", "type": "stream"}]},
        {"exports": [{"subject": "a.b", "type": "stream", "account_token_position": 1}]},
        {"exports": [{"subject": "a.*", "type": "stream", "account_token_position": 3}]},
        {"exports": [{"subject": "a", "type": "stream", "response_type": "Stream"}]},
        {"exports": [{"subject": "a.*", "type": "stream"}], "limits": {"exports": 1, "wildcards": False}},
        {"exports": [{"subject": "a", "type": "stream"}], "limits": {"exports": 0}},
        {"imports": [{"subject": "a", "type": "stream", "account": "X"}], "limits": {"imports": 0}},
        {"imports": [{"subject": "a", "type": "stream"}]},
        {"imports": [{"subject": "a.*", "type": "service", "account": "X", "local_subject": "b"}]},
        {"imports": [{"subject": "a.*", "type": "service", "account": "X", "local_subject": "b.$2"}]},
        {"imports": [{"subject": "a.>", "type": "service", "account": "X", "local_subject": "b"}]},
        {"signing_keys": ["nonsense"]},
        {"default_permissions": {"pub": {"allow": ["a b"]}}},
        {"mappings": {"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 60}]}},
        {"mappings": {"a": [{"subject": "b", "weight": 101}]}},
        {"authorization": {"auth_users": ["u"]}},
        {"authorization": {"allowed_accounts": ["*"]}},
        {"cluster_traffic": "elsewhere"},
        {"trace": {"dest": "a.*"}},
        {"limits": {"tiered_limits": {"": {}}}},
    ],
)
def test_account_with_a_broken_claim_is_refused(nats: dict[str, Any]) -> None:
    limits = {**tokens.UNLIMITED_ACCOUNT, **nats.get("limits", {})}
    account = decode_account(tokens.account_token("A", **{**nats, "limits": limits}))
    with pytest.raises(ClaimsError):
        check_account(account, NOW_S)


def test_account_with_sound_claims_passes() -> None:
    local = {"subject": "a.*.b.*", "type": "service", "account": "X", "local_subject": "l.$2.$1"}
    exports = [{"subject": "a.*", "type": "stream"}, {"subject": "a.b", "type": "service"}]
    check_account(decode_account(tokens.account_token("A", imports=[local], exports=exports)), NOW_S)


# Time, revocation, addresses, hours.


@pytest.mark.parametrize(
    ("top", "holds"),
    [
        ({}, True),
        ({"exp": int(NOW_S) + 1}, True),
        ({"exp": int(NOW_S)}, False),
        ({"exp": 1}, False),
        ({"nbf": int(NOW_S)}, True),
        ({"nbf": int(NOW_S) + 1}, False),
        ({"iat": int(NOW_S) + 10_000}, True),
    ],
)
def test_expiry_and_not_before_bound_a_token_and_a_skewed_issue_time_does_not(
    top: dict[str, Any], holds: bool
) -> None:
    user = decode_user(tokens.user_token("u", "A", top=top))
    assert user.token.in_force(NOW_S) == holds
    if not holds:
        with pytest.raises(ClaimsError, match="expired"):
            check_user(user, NOW_S)


@pytest.mark.parametrize(
    "nats",
    [
        {"pub": {"allow": ["a b"]}},
        {"sub": {"deny": ["a b c"]}},
        {"src": ["10.0.0.1"]},
        {"src": ["10.0.0.0/33"]},
        {"times": [{"start": "8", "end": "9"}]},
        {"times": [{"start": "08:00:00"}]},
        {"times": [{"start": "25:00:00", "end": "26:00:00"}]},
        {"issuer_account": "A"},
    ],
)
def test_user_with_a_broken_claim_is_refused(nats: dict[str, Any]) -> None:
    with pytest.raises(ClaimsError):
        check_user(decode_user(tokens.user_token("u", "A", **nats)), NOW_S)


def test_revocation_covers_tokens_up_to_its_time_for_one_user_or_all() -> None:
    assert is_revoked({"u": 10}, "u", 10)
    assert is_revoked({"u": 10}, "u", 9)
    assert not is_revoked({"u": 10}, "u", 11)
    assert is_revoked({"*": 10}, "u", 10)
    assert is_revoked({"u": 5, "*": 10}, "u", 7)
    assert not is_revoked({"other": 10}, "u", 1)


@pytest.mark.parametrize(
    ("networks", "address", "allowed"),
    [
        ((), "1.2.3.4", True),
        (("10.0.0.0/8",), "10.1.2.3", True),
        (("10.1.2.3/8",), "10.9.9.9", True),
        (("10.0.0.0/8",), "11.1.2.3", False),
        (("10.0.0.0/8",), "::ffff:10.1.2.3", True),
        (("2001:db8::/32",), "2001:db8::1", True),
        (("fe80::/10",), "fe80::1%eth0", True),
        (("10.0.0.0/8",), "", False),
        (("10.0.0.0/8",), "not an address", False),
        (("10.0.0.0/8", "broken"), "10.1.2.3", False),
    ],
)
def test_source_networks_admit_their_addresses_only(
    networks: tuple[str, ...], address: str, allowed: bool
) -> None:
    assert allows_address(UserLimits(source_networks=networks), address) == allowed


def test_source_networks_may_be_one_string_with_commas() -> None:
    user = decode_user(tokens.user_token("u", "A", src="10.0.0.0/8, 192.168.0.0/16"))
    assert user.limits.source_networks == ("10.0.0.0/8", "192.168.0.0/16")


@pytest.mark.parametrize(
    ("times", "clock", "left_s"),
    [
        ([("08:00:00", "17:00:00")], "16:00:00", 3600),
        ([("08:00:00", "17:00:00")], "17:00:00", None),
        ([("08:00:00", "17:00:00")], "07:59:59", None),
        ([("22:00:00", "06:00:00")], "05:00:00", 3600),
        ([("22:00:00", "06:00:00")], "23:00:00", 7 * 3600),
        ([("22:00:00", "06:00:00")], "12:00:00", None),
        ([("08:00:00", "09:00:00"), ("08:30:00", "10:00:00")], "08:45:00", 75 * 60),
        ([("8:00:00", "17:00:00")], "16:00:00", 3600),
        ([("08:00:00", "17:00:00"), ("x", "y")], "16:00:00", None),
        ([], "12:00:00", None),
    ],
)
def test_hours_admit_inside_a_range_and_say_how_long(
    times: list[tuple[str, str]], clock: str, left_s: float | None
) -> None:
    now = datetime.datetime.fromisoformat(f"2024-03-05T{clock}+01:00")
    assert seconds_left_today(times, now) == left_s


def test_hours_across_a_change_of_clocks_are_counted_in_real_seconds() -> None:
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    before_spring = datetime.datetime(2024, 3, 31, 1, 0, tzinfo=berlin)
    assert seconds_left_today([("00:00:00", "04:00:00")], before_spring) == 2 * 3600


# Activations.


def grant(token: str, *, kind: str = "stream", subject: str = "private.a", **nats: Any) -> bool:
    """Whether account I, which holds the token, may import from account E."""
    exports = [{"subject": "private.>", "type": "stream", "token_req": True, **nats}]
    exporter = decode_account(
        tokens.account_token("E", exports=exports, signing_keys=[public(KeyKind.ACCOUNT, "K")])
    )
    imported = {"subject": subject, "type": kind, "account": exporter.key, "token": token}
    importer = decode_account(tokens.account_token("I", imports=[imported]))
    return activation_holds(importer.imports[0], importer.key, exporter, exporter.exports[0], NOW_S)


def test_activation_token_is_bound_to_exporter_importer_subject_and_time() -> None:
    assert grant(tokens.activation_token("E", "I", "private.>", "stream"))
    assert not grant("")
    assert not grant("not a token")
    assert not grant(tokens.activation_token("E", "J", "private.>", "stream"))
    assert not grant(tokens.activation_token("X", "I", "private.>", "stream"))
    assert not grant(tokens.activation_token("E", "I", "private.b", "stream"))
    assert not grant(tokens.activation_token("E", "I", "private.>", "service"))
    assert not grant(tokens.activation_token("E", "I", "private.>", "stream", exp=1))
    revoked = {public(KeyKind.ACCOUNT, "I"): ISSUED_AT_S}
    assert not grant(tokens.activation_token("E", "I", "private.>", "stream"), revocations=revoked)


def test_activation_by_a_signing_key_counts_for_the_account_it_names_only() -> None:
    def signed_by(key: str, issuer_account: str) -> str:
        nats = {"type": "activation", "version": 2, "subject": "private.>", "kind": "stream"}
        payload: dict[str, Any] = {
            "sub": public(KeyKind.ACCOUNT, "I"),
            "iat": ISSUED_AT_S,
            "nats": {**nats, "issuer_account": public(KeyKind.ACCOUNT, issuer_account)},
        }
        return write_token(payload, seed(KeyKind.ACCOUNT, key))

    assert grant(signed_by("K", "E"))
    assert not grant(signed_by("L", "E"))
    assert not grant(signed_by("K", "F"))
