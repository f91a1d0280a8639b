"""Logins by the configuration: token, users, nkeys, default user, leaf and websocket blocks."""

import contextlib
from typing import Any

import bcrypt
import pytest

from edged.config.options import (
    AccountLimits,
    AccountOptions,
    AuthCalloutOptions,
    Authorization,
    LeafAuthorization,
    LeafnodesOptions,
    Options,
    PermissionsOptions,
    SubjectRules,
    UserOptions,
    WebsocketOptions,
)
from edged.core import nkeys
from edged.core.nkeys import KeyKind
from edged.core.permissions import ALL
from edged.server.auth import Authenticator
from edged.server.identity import AuthFailed, AuthRequest
from tests.server.logins import NONCE, NOW_S, login, refused, request
from tests.tokens import public, sign_nonce

SECRET = "correct horse"
HASHED = bcrypt.hashpw(SECRET.encode(), bcrypt.gensalt(4)).decode()
NKEY = public(KeyKind.USER, "device")

TOKEN = Options(authorization=Authorization(token=SECRET))
SINGLE = Options(authorization=Authorization(user="admin", password=SECRET))
USERS = Options(
    accounts=(
        AccountOptions(
            "A",
            users=(
                UserOptions(
                    "alice",
                    SECRET,
                    permissions=PermissionsOptions(publish=SubjectRules(allow=("foo",))),
                    account="A",
                ),
                UserOptions("web", SECRET, account="A", allowed_connection_types=frozenset({"WEBSOCKET"})),
                UserOptions("open", account="A"),
                UserOptions("behind", SECRET, account="A", proxy_required=True),
            ),
            limits=AccountLimits(max_subscriptions=7, max_payload=100),
        ),
        AccountOptions("B", users=(UserOptions("bob", HASHED, account="B"),)),
        AccountOptions("K", users=(UserOptions(nkey=NKEY, account="K"),)),
    ),
)


async def test_without_configured_users_everybody_is_in_the_global_account() -> None:
    authenticator = Authenticator(Options(), now_s=NOW_S)
    assert not authenticator.auth_required
    assert not authenticator.nonce_required
    identity = await login(authenticator, user="anyone", password="anything")
    assert (identity.account_name, identity.user, identity.permissions) == ("$G", "anyone", ALL)


async def test_token_lets_in_and_is_never_shown() -> None:
    identity = await login(TOKEN, auth_token=SECRET)
    assert (identity.account_name, identity.user) == ("$G", "[REDACTED]")
    for fields in ({}, {"auth_token": ""}, {"auth_token": "wrong"}, {"user": SECRET}, {"password": SECRET}):
        await refused(TOKEN, **fields)


async def test_hashed_token_lets_in() -> None:
    options = Options(authorization=Authorization(token=HASHED))
    await login(options, auth_token=SECRET)
    await refused(options, auth_token=HASHED)


async def test_single_user_lets_in_with_its_password() -> None:
    assert (await login(SINGLE, user="admin", password=SECRET)).user == "admin"
    for fields in ({"user": "admin"}, {"user": "root", "password": SECRET}, {"auth_token": SECRET}, {}):
        await refused(SINGLE, **fields)


async def test_user_gets_its_account_permissions_and_limits() -> None:
    identity = await login(USERS, user="alice", password=SECRET)
    assert (identity.account_name, identity.user) == ("A", "alice")
    assert identity.permissions.may_publish(b"foo")
    assert not identity.permissions.may_publish(b"bar")
    assert (identity.max_subscriptions, identity.max_payload) == (7, 100)
    other = await login(USERS, user="bob", password=SECRET)
    assert (other.account_name, other.max_subscriptions, other.permissions) == ("B", None, ALL)


async def test_wrong_or_missing_password_is_refused() -> None:
    for user in ("alice", "bob", "nobody", ""):
        for password in ("", "wrong", HASHED):
            await refused(USERS, user=user, password=password)
    await refused(USERS)


async def test_user_without_password_logs_in_without_password_as_in_nats_server() -> None:
    assert (await login(USERS, user="open")).account_name == "A"
    await refused(USERS, user="open", password="x")


async def test_connection_type_that_is_not_allowed_is_refused() -> None:
    await login(USERS, user="web", password=SECRET, connection_type="WEBSOCKET")
    await refused(USERS, user="web", password=SECRET)
    await refused(USERS, user="web", password=SECRET, connection_type="LEAFNODE")


async def test_user_that_needs_a_proxy_is_refused() -> None:
    await refused(USERS, user="behind", password=SECRET)


@pytest.mark.parametrize(
    "fields",
    [
        {"account": "B"},
        {"account": "$SYS"},
        {"account": ["$SYS"]},
        {"new_account": True},
        {"account": "A", "new_account": True},
    ],
)
async def test_account_fields_in_connect_are_refused(fields: dict[str, object]) -> None:
    for options in (Options(), USERS):
        await refused(options, user="alice", password=SECRET, **fields)


@pytest.mark.parametrize(
    "field",
    ["Account", "remote_account", "account_name", "issuer_account", "acc", "jwt", "tags", "permissions"],
)
async def test_no_field_of_connect_switches_the_account(field: str) -> None:
    for value in ("$SYS", "B", True, {"allow": [">"]}):
        # Refused is as good as unmoved; any other exception fails the test.
        with contextlib.suppress(AuthFailed):
            identity = await login(USERS, user="alice", password=SECRET, **{field: value})
            assert identity.account_name == "A"
            assert not identity.permissions.may_publish(b"bar")


@pytest.mark.parametrize("value", [5, True, ["x"], {"a": 1}, 1.5, "x" * (1024 * 1024 + 1)])
@pytest.mark.parametrize("field", ["user", "password", "auth_token", "nkey", "jwt", "sig"])
async def test_credential_that_is_no_reasonable_text_is_refused(field: str, value: object) -> None:
    await refused(USERS, **{"user": "alice", "password": SECRET, field: value})


async def test_null_credentials_count_as_absent() -> None:
    assert (await login(USERS, user="alice", password=SECRET, auth_token=None, nkey=None)).user == "alice"


# Nkeys.


async def test_nkey_lets_in_with_the_nonce_signed() -> None:
    authenticator = Authenticator(USERS, now_s=NOW_S)
    assert authenticator.nonce_required
    identity = await login(authenticator, nkey=NKEY, sig=sign_nonce("device", NONCE))
    assert (identity.account_name, identity.user, identity.nkey) == ("K", NKEY, NKEY)


async def test_nonce_replay_signature_of_another_connection_is_refused() -> None:
    signature = sign_nonce("device", NONCE)
    await refused(USERS, nkey=NKEY, sig=signature, nonce=b"AnotherNonce123")
    await refused(USERS, nkey=NKEY, sig=signature, nonce=None)
    await refused(USERS, nkey=NKEY, sig=sign_nonce("device", b""), nonce=b"")


async def test_nkey_with_a_bad_signature_is_refused() -> None:
    good = nkeys.decode_signature(sign_nonce("device", NONCE))
    assert good is not None
    bad = [b"", good[:-1], good + b"\0", bytes(64), good[32:] + good[:32]]
    for signature in [nkeys.encode_signature(one) for one in bad] + ["", "!", "é"]:
        await refused(USERS, nkey=NKEY, sig=signature)
    await refused(USERS, nkey=NKEY)
    await refused(USERS, nkey=NKEY, sig=sign_nonce("other", NONCE))


async def test_unknown_nkey_is_refused_although_it_signed_the_nonce() -> None:
    other = public(KeyKind.USER, "other")
    await refused(USERS, nkey=other, sig=sign_nonce("other", NONCE))
    # The password of another user does not help.
    await refused(USERS, nkey=other, sig=sign_nonce("other", NONCE), user="alice", password=SECRET)


# The default user.


def with_default(name: str) -> Options:
    return Options(no_auth_user=name, accounts=USERS.accounts)


async def test_default_user_is_taken_only_without_credentials() -> None:
    for name, account in (("alice", "A"), ("bob", "B"), (NKEY, "K")):
        options = with_default(name)
        assert (await login(options)).account_name == account
        assert (await login(options, user="bob", password=SECRET)).account_name == "B"
        for fields in ({"user": "alice"}, {"password": "x"}, {"auth_token": "x"}, {"nkey": "x"}):
            await refused(options, **fields)


async def test_default_user_hides_auth_required_in_info_only() -> None:
    authenticator = Authenticator(with_default("alice"), now_s=NOW_S)
    assert authenticator.auth_required
    assert not authenticator.auth_required_in_info("STANDARD")
    assert authenticator.no_auth_user == "alice"
    assert Authenticator(USERS, now_s=NOW_S).auth_required_in_info("STANDARD")


async def test_default_user_of_another_connection_type_is_refused() -> None:
    await refused(with_default("web"))
    assert (await login(with_default("web"), connection_type="WEBSOCKET")).user == "web"


async def test_users_for_the_system_account_alone_leave_the_global_account_open() -> None:
    system = AccountOptions("$SYS", users=(UserOptions("sys", SECRET, account="$SYS"),))
    options = Options(accounts=(system,))
    assert (await login(options)).account_name == "$G"
    assert (await login(options, user="sys", password=SECRET)).account_name == "$SYS"
    await refused(options, user="sys", password="wrong")
    await refused(options, auth_token="x")


async def test_authorization_block_beside_system_users_closes_the_global_account() -> None:
    system = AccountOptions("$SYS", users=(UserOptions("sys", SECRET, account="$SYS"),))
    await refused(Options(accounts=(system,), authorization=Authorization(is_stated=True)))
    other = AccountOptions("A", users=(UserOptions("a", SECRET, account="A"),))
    await refused(Options(accounts=(system, other)))


async def test_configured_auth_callout_admits_only_its_own_users() -> None:
    callout = AuthCalloutOptions("issuer", ("alice",))
    options = Options(accounts=USERS.accounts, authorization=Authorization(auth_callout=callout))
    await login(options, user="alice", password=SECRET)
    await refused(options, user="bob", password=SECRET)


# Leaf links and websockets.


def leaf(authorization: LeafAuthorization | None, general: Options = USERS) -> Options:
    return Options(accounts=general.accounts, leafnodes=LeafnodesOptions(authorization=authorization))


async def test_leaf_credentials_replace_the_general_ones_for_leaf_links() -> None:
    options = leaf(LeafAuthorization("edge", SECRET, account="A"))
    identity = await login(options, connection_type="LEAFNODE", user="edge", password=SECRET)
    assert (identity.account_name, identity.user, identity.max_subscriptions) == ("A", "edge", 7)
    await refused(options, connection_type="LEAFNODE", user="alice", password=SECRET)
    await refused(options, connection_type="LEAFNODE")
    await refused(options, user="edge", password=SECRET)


async def test_leaf_users_are_bound_to_their_accounts() -> None:
    users = (UserOptions("one", SECRET, account="A"), UserOptions("two", HASHED, account="B"))
    options = leaf(LeafAuthorization(users=users))
    for user, account in (("one", "A"), ("two", "B")):
        identity = await login(options, connection_type="LEAFNODE_WS", user=user, password=SECRET)
        assert identity.account_name == account
        await refused(options, connection_type="LEAFNODE", user=user, password="x")
    await refused(options, connection_type="LEAFNODE", user="three", password=SECRET)


async def test_leaf_nkey_signs_the_nonce() -> None:
    options = leaf(LeafAuthorization(nkey=NKEY, account="B"))
    signature = sign_nonce("device", NONCE)
    assert (await login(options, connection_type="LEAFNODE", nkey=NKEY, sig=signature)).account_name == "B"
    await refused(options, connection_type="LEAFNODE", nkey=NKEY, sig=signature, nonce=b"other")
    other = public(KeyKind.USER, "other")
    await refused(options, connection_type="LEAFNODE", nkey=other, sig=sign_nonce("other", NONCE))


async def test_leaf_without_credentials_of_its_own_block_logs_in_like_a_client() -> None:
    options = leaf(None)
    identity = await login(options, connection_type="LEAFNODE", user="alice", password=SECRET)
    assert identity.account_name == "A"
    await refused(options, connection_type="LEAFNODE")


async def test_leaf_account_applies_when_nobody_has_to_log_in() -> None:
    options = Options(
        accounts=(AccountOptions("A"),),
        leafnodes=LeafnodesOptions(authorization=LeafAuthorization(account="A")),
    )
    assert (await login(options, connection_type="LEAFNODE")).account_name == "A"
    assert (await login(options)).account_name == "$G"


async def test_websocket_authorization_replaces_the_general_one_for_websockets() -> None:
    websocket = WebsocketOptions(authorization=Authorization(token="ws secret"))
    options = Options(authorization=Authorization(token=SECRET), websocket=websocket)
    await login(options, connection_type="WEBSOCKET", auth_token="ws secret")
    await refused(options, connection_type="WEBSOCKET", auth_token=SECRET)
    await login(options, auth_token=SECRET)
    alone = Options(websocket=websocket)
    await login(alone)
    await refused(alone, connection_type="WEBSOCKET")


async def test_websocket_default_user_is_for_websockets_only() -> None:
    options = Options(accounts=USERS.accounts, websocket=WebsocketOptions(no_auth_user="alice"))
    authenticator = Authenticator(options, now_s=NOW_S)
    assert (await login(authenticator, connection_type="WEBSOCKET")).user == "alice"
    assert not authenticator.auth_required_in_info("WEBSOCKET")
    assert authenticator.auth_required_in_info("STANDARD")
    await refused(authenticator)


# Secrets.


async def test_no_secret_shows_in_reprs_or_refusals() -> None:
    secrets = (SECRET, HASHED, "sig-secret", "jwt-secret", "token-secret")
    fields: dict[str, Any] = {
        "user": "alice",
        "password": SECRET + "x",
        "sig": "sig-secret",
        "jwt": "jwt-secret",
        "auth_token": "token-secret",
    }
    refusal = await refused(USERS, **fields)
    login_request = request(**fields)
    assert isinstance(login_request, AuthRequest)
    identity = await login(USERS, user="alice", password=SECRET)
    shown = [str(refusal), repr(refusal), refusal.reason, repr(login_request), repr(identity), repr(USERS)]
    assert refusal.__cause__ is None
    for text in shown:
        assert not any(secret in text for secret in secrets), text
