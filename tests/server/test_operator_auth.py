"""Logins with JWTs: the chain from operator to user, and every way in which it can be broken."""

from pathlib import Path
from typing import Any

import pytest

from edged.config.options import Options, ResolverOptions
from edged.core.jwt import ClaimsError, write_token
from edged.core.nkeys import KeyKind
from edged.server.auth import Authenticator
from edged.server.identity import ACCOUNT_EXPIRED, USER_EXPIRED, USER_REVOKED, AuthFailed, Identity
from edged.server.operator_auth import MemoryResolver, resolver_from
from edged.store.jwt_directory import JwtDirectory
from tests import tokens
from tests.server.logins import NONCE, NOW_S, login, refused, request
from tests.tokens import ISSUED_AT_S, public, sign_nonce

A, B = public(KeyKind.ACCOUNT, "A"), public(KeyKind.ACCOUNT, "B")
USER = public(KeyKind.USER, "u")


def options(*accounts: str, operator: str | None = None, **more: Any) -> Options:
    by_key = tuple(
        (public(KeyKind.ACCOUNT, name), token) for name, token in zip("ABC", accounts, strict=False)
    )
    return Options(operators=(operator or tokens.operator_token(),), resolver_preload=by_key, **more)


PLAIN = options(tokens.account_token("A"), tokens.account_token("B"))


def signed(jwt: str, name: str = "u", **more: Any) -> dict[str, Any]:
    return {"jwt": jwt, "sig": sign_nonce(name, NONCE), **more}


async def enter(user: str, account: str | None = None, **more: Any) -> Identity:
    return await login(options(account or tokens.account_token("A")), **signed(user, **more))


async def refuse(user: str, account: str | None = None, **more: Any) -> str:
    return (await refused(options(account or tokens.account_token("A")), **signed(user, **more))).reason


async def test_user_signed_by_its_account_gets_in() -> None:
    authenticator = Authenticator(PLAIN, now_s=NOW_S)
    assert authenticator.auth_required
    assert authenticator.nonce_required
    jwt = tokens.user_token(
        "u", "A", pub={"allow": ["foo"]}, subs=5, tags=["t"], top={"exp": int(NOW_S) + 60}
    )
    identity = await login(authenticator, **signed(jwt))
    assert (identity.account_name, identity.user, identity.nkey, identity.issuer) == (A, USER, USER, A)
    assert (identity.name_tag, identity.tags, identity.issued_at_s) == ("u", ("t",), ISSUED_AT_S)
    assert (identity.max_subscriptions, identity.max_payload) == (5, None)
    assert identity.expires_at_s == NOW_S + 60
    assert not identity.permissions.may_publish(b"bar")
    assert jwt not in repr(identity)


async def test_login_without_a_user_token_is_refused() -> None:
    for fields in ({}, {"user": "u", "password": "p"}, {"nkey": USER, "sig": sign_nonce("u", NONCE)}):
        await refused(PLAIN, **fields)
    await refused(PLAIN, **signed(tokens.account_token("A")))
    await refused(PLAIN, **signed("not.a.token"))


async def test_nonce_replay_and_bad_signatures_are_refused() -> None:
    jwt = tokens.user_token("u", "A")
    await refused(PLAIN, jwt=jwt)
    await refused(PLAIN, jwt=jwt, sig=sign_nonce("u", b"old nonce"))
    await refused(PLAIN, jwt=jwt, sig=sign_nonce("other", NONCE))
    await refused(PLAIN, jwt=jwt, sig=sign_nonce("u", NONCE), nonce=None)
    await refused(PLAIN, jwt=jwt, sig="A" * 85)


async def test_bearer_token_needs_no_signature_unless_the_account_forbids_it() -> None:
    jwt = tokens.user_token("u", "A", bearer_token=True)
    assert (await login(PLAIN, jwt=jwt)).user == USER
    forbidding = tokens.account_token("A", limits={**tokens.UNLIMITED_ACCOUNT, "disallow_bearer": True})
    await refused(options(forbidding), jwt=jwt)


async def test_account_that_no_trusted_operator_signed_is_refused() -> None:
    assert "trusted" in await refuse(
        tokens.user_token("u", "A"), tokens.account_token("A", signer="stranger")
    )
    self_signed = write_token(
        {"sub": A, "nats": {"type": "account", "version": 2}}, tokens.seed(KeyKind.ACCOUNT, "A")
    )
    assert "trusted" in await refuse(tokens.user_token("u", "A"), self_signed)


async def test_unknown_account_is_refused() -> None:
    assert "not known" in await refuse(tokens.user_token("u", "Z"))


async def test_account_stored_under_the_name_of_another_is_refused() -> None:
    # Account B even lists A's key, so that only the name under which it is stored tells them apart.
    other = tokens.account_token("B", signing_keys=[A])
    swapped = Options(operators=(tokens.operator_token(),), resolver_preload=((A, other),))
    await refused(swapped, **signed(tokens.user_token("u", "A")))


async def test_issuer_mismatch_claiming_another_account_is_refused() -> None:
    jwt = tokens.user_token("u", "A", issuer_account=B)
    assert "issuer" in (await refused(PLAIN, **signed(jwt))).reason
    # A signing key of one account does not sign for another.
    account_a = tokens.account_token("A", signing_keys=[public(KeyKind.ACCOUNT, "K")])
    both = options(account_a, tokens.account_token("B"))
    await login(both, **signed(tokens.scoped_user_token("u", "A", "K", **tokens.UNLIMITED_USER)))
    await refused(both, **signed(tokens.scoped_user_token("u", "B", "K", **tokens.UNLIMITED_USER)))


async def test_strict_operator_wants_signing_keys_all_the_way_down() -> None:
    strict = tokens.operator_token(
        signing_keys=[public(KeyKind.OPERATOR, "signing")], strict_signing_key_usage=True
    )
    by_identity = options(tokens.account_token("A"), operator=strict)
    await refused(by_identity, **signed(tokens.user_token("u", "A")))
    account = tokens.account_token("A", signer="signing", signing_keys=[public(KeyKind.ACCOUNT, "K")])
    by_signing_key = options(account, operator=strict)
    await refused(by_signing_key, **signed(tokens.user_token("u", "A")))
    user = tokens.scoped_user_token("u", "A", "K", **tokens.UNLIMITED_USER)
    assert (await login(by_signing_key, **signed(user))).account_name == A


async def test_scoped_signing_key_gives_its_template_and_refuses_own_limits() -> None:
    template = {"pub": {"allow": ["{{name()}}.>"]}, "subs": 3, "allowed_connection_types": ["STANDARD"]}
    scope = {"kind": "user_scope", "key": public(KeyKind.ACCOUNT, "K"), "template": template}
    account = tokens.account_token("A", signing_keys=[scope])
    identity = await enter(tokens.scoped_user_token("u", "A", "K"), account)
    assert identity.permissions.may_publish(b"u.x")
    assert not identity.permissions.may_publish(b"v.x")
    assert identity.max_subscriptions == 3
    await refuse(tokens.scoped_user_token("u", "A", "K"), account, connection_type="WEBSOCKET")
    await refuse(tokens.scoped_user_token("u", "A", "K", **tokens.UNLIMITED_USER), account)


# Times.


async def test_expired_user_and_account_are_refused_and_told_so_when_connected() -> None:
    late = tokens.user_token("u", "A", top={"exp": int(NOW_S) + 10})
    authenticator = Authenticator(PLAIN, now_s=NOW_S)
    await login(authenticator, **signed(late))
    with pytest.raises(AuthFailed) as caught:
        await authenticator.reauthenticate(request(**signed(late), now_s=NOW_S + 10))
    assert caught.value.text == USER_EXPIRED
    await refused(authenticator, **signed(late), now_s=NOW_S + 10)

    expiring = tokens.account_token("A", top={"exp": int(NOW_S) + 5})
    authenticator = Authenticator(options(expiring), now_s=NOW_S)
    jwt = tokens.user_token("u", "A")
    assert (await login(authenticator, **signed(jwt))).account_expires_at_s == NOW_S + 5
    with pytest.raises(AuthFailed) as caught:
        await authenticator.reauthenticate(request(**signed(jwt), now_s=NOW_S + 5))
    assert caught.value.text == ACCOUNT_EXPIRED


async def test_exp_nbf_iat_skew_is_judged_by_the_servers_clock() -> None:
    now = int(NOW_S)
    await refuse(tokens.user_token("u", "A", top={"exp": now}))
    await refuse(tokens.user_token("u", "A", top={"nbf": now + 1}))
    await enter(tokens.user_token("u", "A", top={"nbf": now, "exp": now + 1}))
    await enter(tokens.user_token("u", "A", top={"iat": now + 3600}))
    await refuse(tokens.user_token("u", "A"), tokens.account_token("A", top={"nbf": now + 1}))


async def test_hours_of_the_day_bound_the_login() -> None:
    # NOW_S is 22:15 in UTC.
    inside: dict[str, Any] = {"times": [{"start": "22:00:00", "end": "23:00:00"}], "times_location": "UTC"}
    identity = await enter(tokens.user_token("u", "A", **inside))
    assert identity.expires_at_s is not None
    assert 0 < identity.expires_at_s - NOW_S <= 3600
    await refuse(tokens.user_token("u", "A", **{**inside, "times_location": "Asia/Tokyo"}))
    for location in ("Nowhere/Land", "../etc/passwd", "/etc/passwd", "\0"):
        await refuse(tokens.user_token("u", "A", **{**inside, "times_location": location}))


async def test_revoked_user_is_refused_and_told_so_when_connected() -> None:
    jwt = tokens.user_token("u", "A")
    resolver = MemoryResolver({A: tokens.account_token("A")})
    authenticator = Authenticator(options(), now_s=NOW_S, resolver=resolver)
    await login(authenticator, **signed(jwt))
    for revocations in ({USER: ISSUED_AT_S}, {"*": ISSUED_AT_S}):
        resolver.store(A, tokens.account_token("A", revocations=revocations))
        with pytest.raises(AuthFailed) as caught:
            await authenticator.reauthenticate(request(**signed(jwt)))
        assert caught.value.text == USER_REVOKED
        await refused(authenticator, **signed(jwt))
    later = tokens.user_token("u", "A", top={"iat": ISSUED_AT_S + 1})
    await login(authenticator, **signed(later))


# Where from, and how.


async def test_source_networks_and_connection_types_bound_the_login() -> None:
    jwt = tokens.user_token("u", "A", src=["10.0.0.0/8"], allowed_connection_types=["websocket"])
    await enter(jwt, remote_ip="10.1.1.1", connection_type="WEBSOCKET")
    await refuse(jwt, remote_ip="11.1.1.1", connection_type="WEBSOCKET")
    await refuse(jwt, remote_ip="10.1.1.1", connection_type="STANDARD")


async def test_user_for_unknown_connection_types_only_is_for_none() -> None:
    await refuse(tokens.user_token("u", "A", allowed_connection_types=["CARRIER_PIGEON"]))
    await enter(tokens.user_token("u", "A", allowed_connection_types=["CARRIER_PIGEON", "STANDARD"]))


async def test_user_without_permissions_gets_the_defaults_of_the_account() -> None:
    account = tokens.account_token("A", default_permissions={"pub": {"deny": ["secret"]}})
    assert not (await enter(tokens.user_token("u", "A"), account)).permissions.may_publish(b"secret")
    own = await enter(tokens.user_token("u", "A", pub={"deny": ["other"]}), account)
    assert own.permissions.may_publish(b"secret")


async def test_limits_are_the_tighter_of_user_and_account() -> None:
    account = tokens.account_token("A", limits={**tokens.UNLIMITED_ACCOUNT, "subs": 3, "payload": 100})
    identity = await enter(tokens.user_token("u", "A", subs=5, payload=50), account)
    assert (identity.max_subscriptions, identity.max_payload) == (3, 50)


async def test_pinned_accounts_and_the_system_account_are_the_only_ones_let_in() -> None:
    system = tokens.operator_token(system_account=B)
    pinned = options(
        tokens.account_token("A"), tokens.account_token("B"), operator=system, resolver_pinned_accounts=(A,)
    )
    authenticator = Authenticator(pinned, now_s=NOW_S)
    assert authenticator.system_account == B
    await login(authenticator, **signed(tokens.user_token("u", "A")))
    await login(authenticator, **signed(tokens.user_token("u", "B")))
    await refused(authenticator, **signed(tokens.user_token("u", "C")))


async def test_account_that_delegates_logins_admits_only_its_callout_users() -> None:
    account = tokens.account_token("A", authorization={"auth_users": [USER]})
    await enter(tokens.user_token("u", "A"), account)
    await refuse(tokens.user_token("v", "A"), account, sig=sign_nonce("v", NONCE))


async def test_user_that_needs_a_proxy_is_refused() -> None:
    await refuse(tokens.user_token("u", "A", proxy_required=True))


async def test_account_with_broken_claims_is_refused() -> None:
    await refuse(tokens.user_token("u", "A"), tokens.account_token("A", signing_keys=["nonsense"]))


# Operators and resolvers.


@pytest.mark.parametrize(
    "token", ["", "x.y.z", tokens.operator_token(assert_server_version="99.0.0"), tokens.account_token("A")]
)
def test_unusable_operator_is_a_claims_error(token: str) -> None:
    with pytest.raises(ClaimsError):
        Authenticator(Options(operators=(token,)), now_s=NOW_S)


def test_operator_that_asserts_an_older_server_is_fine() -> None:
    Authenticator(options(operator=tokens.operator_token(assert_server_version="2.10.0")), now_s=NOW_S)


async def test_trusted_keys_stand_in_for_operators() -> None:
    keys = Options(
        trusted_keys=(public(KeyKind.OPERATOR, "operator"),),
        resolver_preload=((A, tokens.account_token("A")),),
    )
    assert (await login(keys, **signed(tokens.user_token("u", "A")))).account_name == A


async def test_directory_resolver_reads_accounts_as_they_come(tmp_path: Path) -> None:
    resolver = ResolverOptions("full", dir=str(tmp_path))
    authenticator = Authenticator(options(resolver=resolver), now_s=NOW_S)
    jwt = tokens.user_token("u", "A")
    await refused(authenticator, **signed(jwt))
    directory = JwtDirectory(tmp_path)
    directory.write(A, tokens.account_token("A"))
    await login(authenticator, **signed(jwt))
    revoking = tokens.account_token("A", top={"iat": ISSUED_AT_S + 1}, revocations={"*": ISSUED_AT_S})
    directory.write(A, revoking)
    await refused(authenticator, **signed(jwt))


async def test_account_text_that_is_no_key_never_reaches_the_resolver(tmp_path: Path) -> None:
    authenticator = Authenticator(options(resolver=ResolverOptions("full", dir=str(tmp_path))), now_s=NOW_S)
    for account in ("../../etc/passwd", "", "B" * 56):
        with pytest.raises(AuthFailed):
            assert authenticator.operator is not None
            await authenticator.operator.account(account, NOW_S)


def test_resolver_that_is_not_supported_is_refused() -> None:
    with pytest.raises(ValueError, match="not supported"):
        resolver_from(Options(resolver=ResolverOptions("url", url="http://127.0.0.1/")))
