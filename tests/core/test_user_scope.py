"""Scoped signing keys: templates expanded for a user, and refused when they cannot be."""

from typing import Any

import pytest

from edged.core.claims import (
    PermissionClaims,
    UserLimits,
    UserScope,
    decode_account,
    decode_user,
)
from edged.core.jwt import ClaimsError
from edged.core.nkeys import KeyKind
from edged.core.user_scope import SUBJECTS_EXPANDED_MAX, scoped_limits
from tests import tokens
from tests.tokens import ISSUED_AT_S, public

NOW_S = ISSUED_AT_S + 100.0


# Scoped signing keys.


def expanded(
    template: dict[str, Any], *, tags: tuple[str, ...] = (), name: str = "alice", **account: Any
) -> UserLimits:
    key = public(KeyKind.ACCOUNT, "S")
    scope = {"kind": "user_scope", "key": key, "template": template}
    claims = decode_account(tokens.account_token("A", signing_keys=[scope], **account))
    user = decode_user(tokens.scoped_user_token("u", "A", "S", top={"name": name}, tags=list(tags)))
    user_scope = claims.signing_keys[key]
    assert user_scope is not None
    return scoped_limits(user_scope, user, claims)


def test_scoped_user_gets_the_template_of_its_signing_key() -> None:
    limits = expanded({"subs": 5, "bearer_token": True, "src": ["10.0.0.0/8"], "pub": {"allow": ["a"]}})
    assert (limits.max_subscriptions, limits.max_payload) == (5, -1)
    assert limits.bearer_token
    assert limits.permissions.publish_allow == ("a",)


def test_template_functions_stand_for_names_keys_and_tags() -> None:
    subjects = ["{{name()}}.x", "{{ Subject() }}", "{{account-name()}}", "{{account-subject()}}.>"]
    limits = expanded({"pub": {"allow": subjects}})
    user, account = public(KeyKind.USER, "u"), public(KeyKind.ACCOUNT, "A")
    assert limits.permissions.publish_allow == ("alice.x", user, "A", f"{account}.>")


def test_tags_expand_to_every_value_and_combination() -> None:
    tags = ("dept:sales", "dept:hr", "region:eu")
    limits = expanded({"sub": {"allow": ["{{tag(Dept)}}.{{tag(region)}}"]}}, tags=tags)
    assert limits.permissions.subscribe_allow == ("sales.eu", "hr.eu")


def test_account_tags_come_from_the_account() -> None:
    account = decode_account(tokens.account_token("A", tags=["plant:one", "plant:two"]))
    user = decode_user(tokens.scoped_user_token("u", "A", "S", tags=["plant:mine"]))
    template = UserLimits(PermissionClaims(publish_allow=("{{account-tag(plant)}}.{{tag(plant)}}",)))
    limits = scoped_limits(UserScope(user.token.issuer, "", template), user, account)
    assert limits.permissions.publish_allow == ("one.mine", "two.mine")


def test_same_tag_twice_in_one_subject_has_one_value() -> None:
    limits = expanded({"pub": {"allow": ["{{tag(d)}}.{{tag(d)}}"]}}, tags=("d:a", "d:b"))
    assert limits.permissions.publish_allow == ("a.a", "b.b")


def test_allow_list_that_expands_to_nothing_denies_everything() -> None:
    limits = expanded({"pub": {"allow": ["{{tag(none)}}.x"]}, "sub": {"allow": ["{{tag(none)}} q"]}})
    permissions = limits.permissions.permissions()
    assert not permissions.may_publish(b"x")
    assert not permissions.may_subscribe(b"q")
    assert not permissions.may_subscribe(b"x", b"q")


@pytest.mark.parametrize("entry", ["{{tag(none)}}.x", "{{name()}}", "{{unknown()}}", "{{name()}}."])
def test_denied_subject_that_does_not_come_out_refuses_the_user(entry: str) -> None:
    with pytest.raises(ClaimsError):
        expanded({"sub": {"deny": [entry]}}, name="with blank")


def test_unknown_template_function_refuses_the_user() -> None:
    with pytest.raises(ClaimsError, match="unknown function"):
        expanded({"pub": {"allow": ["{{nonsense()}}"]}})


def test_template_expansion_is_bounded() -> None:
    tags = tuple(f"{name}:{number}" for name in "abc" for number in range(17))
    with pytest.raises(ClaimsError, match="too many"):
        expanded({"pub": {"allow": ["{{tag(a)}}.{{tag(b)}}.{{tag(c)}}"]}}, tags=tags)
    assert 17**3 > SUBJECTS_EXPANDED_MAX > 17**2
    assert (
        len(expanded({"pub": {"allow": ["{{tag(a)}}.{{tag(b)}}"]}}, tags=tags).permissions.publish_allow)
        == 289
    )


def test_scoped_user_with_limits_of_its_own_is_refused() -> None:
    key = public(KeyKind.ACCOUNT, "S")
    scope = {"kind": "user_scope", "key": key, "template": {}}
    account = decode_account(tokens.account_token("A", signing_keys=[scope]))
    user_scope = account.signing_keys[key]
    assert user_scope is not None
    for own in ({"subs": -1}, {"pub": {"allow": [">"]}}, {"bearer_token": True}):
        user = decode_user(tokens.scoped_user_token("u", "A", "S", **own))
        with pytest.raises(ClaimsError, match="no limits of its own"):
            scoped_limits(user_scope, user, account)
    other = decode_user(tokens.scoped_user_token("u", "A", "T"))
    with pytest.raises(ClaimsError, match="not signed"):
        scoped_limits(user_scope, other, account)
