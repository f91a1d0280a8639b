"""Logins with JWTs: an operator vouches for accounts, an account for its users.

The chain of a login: the user's token is signed by its account or one of that account's signing keys; the
account's token comes from the resolver and is signed by a trusted key of an operator; the nonce is signed
by the user's key.

Rules: the account is the one whose claims confirm the issuer of the user, whatever else the token says.
Claims of accounts are decoded once per token and kept, since the text that the resolver returns decides.
Every refusal is an AuthFailed whose reason quotes no token. Auth callouts are not implemented: an account
that delegates its logins admits only the users it names for the callout itself.
"""

import datetime
import zoneinfo
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import trio

from edged.config.options import CONNECTION_TYPES, Options
from edged.core import nkeys
from edged.core.claim_rules import (
    allows_address,
    check_account,
    check_operator,
    check_user,
    is_revoked,
    seconds_left_today,
)
from edged.core.claims import (
    AccountClaims,
    OperatorClaims,
    PermissionClaims,
    UserClaims,
    UserLimits,
    decode_account,
    decode_operator,
    decode_user,
)
from edged.core.jwt import ClaimsError
from edged.core.user_scope import scoped_limits
from edged.server.identity import (
    ACCOUNT_EXPIRED,
    USER_EXPIRED,
    USER_REVOKED,
    AuthFailed,
    AuthRequest,
    Credentials,
    Identity,
    tighter_limit,
)
from edged.server.signatures import check_signature
from edged.store.jwt_directory import JwtDirectory, JwtDirectoryError

ACCOUNTS_CACHED_MAX: Final = 4096  # decoded claims; when full, the oldest are decoded again when next needed
_SERVER_VERSION: Final = (2, 15, 1)  # the nats-server whose behaviour an operator may insist on


class AccountResolver(Protocol):
    """Where the tokens of accounts come from."""

    async def fetch(self, public_key: str) -> str | None:
        """The token of this account; None when there is none."""


class MemoryResolver:
    """Accounts from resolver_preload, and those added while the daemon runs."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = dict(tokens)

    async def fetch(self, public_key: str) -> str | None:
        return self._tokens.get(public_key)

    def store(self, public_key: str, token: str) -> None:
        self._tokens[public_key] = token


class DirectoryResolver:
    """Accounts from a directory; what the directory does not hold may still be preloaded."""

    def __init__(self, directory: JwtDirectory, preload: Mapping[str, str]) -> None:
        self.directory = directory
        self._preload = dict(preload)

    async def fetch(self, public_key: str) -> str | None:
        try:
            token = await trio.to_thread.run_sync(self.directory.read, public_key)
        except JwtDirectoryError as error:
            raise AuthFailed(f"account lookup failed: {error}") from error
        return token if token is not None else self._preload.get(public_key)


class OperatorAuth:
    """The trusted operators, and the accounts seen so far."""

    def __init__(self, options: Options, resolver: AccountResolver, now_s: float) -> None:
        """Raises ClaimsError when an operator's token is not usable."""
        operators = tuple(map(decode_operator, options.operators))
        for operator in operators:
            check_operator(operator, now_s)
            _check_asserted_version(operator)
        self.trusted_keys = frozenset(options.trusted_keys).union(*(one.trusted_keys for one in operators))
        self.system_account = options.system_account or next(
            (operator.system_account for operator in operators if operator.system_account), None
        )
        # Accounts signed by these keys sign their users with signing keys only.
        self._strict_keys = frozenset(
            key
            for operator in operators
            if operator.strict_signing_key_usage
            for key in operator.trusted_keys
        )
        self._pinned = frozenset(options.resolver_pinned_accounts)
        if self._pinned and self.system_account:
            self._pinned |= {self.system_account}
        self._resolver = resolver
        self._accounts: dict[str, tuple[str, AccountClaims]] = {}

    @property
    def resolver(self) -> AccountResolver:
        """Where the tokens of accounts are kept."""
        return self._resolver

    async def authenticate(self, request: AuthRequest, credentials: Credentials) -> Identity:
        if not credentials.jwt:
            raise AuthFailed("a user JWT is required")
        user = _user_claims(credentials.jwt, request.now_s)
        if self._pinned and user.account_key not in self._pinned:
            raise AuthFailed("the account is not one of the pinned accounts")
        account = await self.account(user.account_key, request.now_s)
        limits = self._limits(user, account)
        self._check_login(request, credentials, user, limits, account)
        expires_at_s = _expiry(user, limits, request.now_s)
        return _identity(user, limits, account, credentials.jwt, expires_at_s)

    async def account(self, public_key: str, now_s: float) -> AccountClaims:
        """The claims of an account that a trusted operator signed; AuthFailed when there are none."""
        if not nkeys.is_public(public_key, nkeys.KeyKind.ACCOUNT):
            raise AuthFailed("the account is no account key")
        token = await self._resolver.fetch(public_key)
        if token is None:
            raise AuthFailed("the account is not known")
        cached = self._accounts.get(public_key)
        if cached is None or cached[0] != token:
            cached = (token, self._decode_account(public_key, token, now_s))
            if len(self._accounts) >= ACCOUNTS_CACHED_MAX:
                del self._accounts[next(iter(self._accounts))]
            self._accounts[public_key] = cached
        claims = cached[1]
        if claims.token.expired(now_s):
            raise AuthFailed("the account's token has expired", ACCOUNT_EXPIRED)
        return claims

    def _decode_account(self, public_key: str, token: str, now_s: float) -> AccountClaims:
        try:
            claims = decode_account(token)
        except ClaimsError as error:
            raise AuthFailed(f"the account's token is not valid: {error}") from None
        if claims.key != public_key or claims.token.issuer not in self.trusted_keys:
            raise AuthFailed("the account's token is not signed by a trusted operator")
        if claims.token.expired(now_s):
            raise AuthFailed("the account's token has expired", ACCOUNT_EXPIRED)
        try:
            check_account(claims, now_s)
        except ClaimsError as error:
            raise AuthFailed(f"the account's claims are not valid: {error}") from None
        return claims

    def _limits(self, user: UserClaims, account: AccountClaims) -> UserLimits:
        """What the user may do, once the account confirmed that the issuer may sign for it."""
        issuer = user.token.issuer
        if issuer in account.signing_keys:
            scope = account.signing_keys[issuer]
            if scope is None:
                return user.limits
            try:
                return scoped_limits(scope, user, account)
            except ClaimsError as error:
                raise AuthFailed(f"the user does not fit its signing key: {error}") from None
        if issuer != account.key or account.token.issuer in self._strict_keys:
            raise AuthFailed("the account does not know the issuer of the user")
        return user.limits

    def _check_login(
        self,
        request: AuthRequest,
        credentials: Credentials,
        user: UserClaims,
        limits: UserLimits,
        account: AccountClaims,
    ) -> None:
        if account.auth_users and user.key not in account.auth_users:
            raise AuthFailed("the account delegates logins to an auth callout")
        if limits.proxy_required:
            raise AuthFailed("the user must come through a trusted proxy")
        if limits.bearer_token and account.limits.disallow_bearer:
            raise AuthFailed("the account does not allow bearer tokens")
        if limits.allowed_connection_types:
            allowed = _connection_types(limits)
            if request.connection_type not in allowed:
                raise AuthFailed("the connection type is not allowed")
        if not limits.bearer_token:
            check_signature(user.key, request, credentials)
        if is_revoked(account.revocations, user.key, user.token.issued_at_s):
            raise AuthFailed("the user is revoked", USER_REVOKED)
        if not allows_address(limits, request.remote_ip):
            raise AuthFailed("the user may not connect from this address")


def _user_claims(token: str, now_s: float) -> UserClaims:
    try:
        user = decode_user(token)
        if user.token.expired(now_s):
            raise AuthFailed("the user's token has expired", USER_EXPIRED)
        check_user(user, now_s)
    except ClaimsError as error:
        raise AuthFailed(f"the user's token is not valid: {error}") from None
    return user


def _connection_types(limits: UserLimits) -> frozenset[str]:
    """The types we know; a user that is only for types we do not know is for none, not for all."""
    return frozenset(kind.upper() for kind in limits.allowed_connection_types) & frozenset(CONNECTION_TYPES)


def _expiry(user: UserClaims, limits: UserLimits, now_s: float) -> float | None:
    """When the login ends: with the token or with today's hours; AuthFailed outside of the hours."""
    ends = [float(user.token.expires_at_s)] if user.token.expires_at_s > 0 else []
    if limits.times:
        left_s = seconds_left_today(limits.times, _local_time(limits.times_location, now_s))
        if left_s is None:
            raise AuthFailed("the user may not connect at this time of day", USER_EXPIRED)
        ends.append(now_s + left_s)
    return min(ends, default=None)


def _local_time(location: str, now_s: float) -> datetime.datetime:
    now = datetime.datetime.fromtimestamp(now_s, datetime.UTC)
    if not location:
        return now.astimezone()
    try:
        return now.astimezone(zoneinfo.ZoneInfo(location))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise AuthFailed("the user's time zone is not known here") from error


def _identity(
    user: UserClaims, limits: UserLimits, account: AccountClaims, jwt: str, expires_at_s: float | None
) -> Identity:
    claims = limits.permissions
    if claims == PermissionClaims():
        claims = account.default_permissions
    try:
        permissions = claims.permissions()
    except ValueError as error:
        raise AuthFailed(f"the user's permissions are not valid: {error}") from None
    account_expires_at_s = account.token.expires_at_s
    return Identity(
        account_name=account.key,
        user=user.key,
        permissions=permissions,
        nkey=user.key,
        jwt=jwt,
        name_tag=user.token.name,
        tags=user.token.tags,
        issuer=user.token.issuer,
        issued_at_s=user.token.issued_at_s,
        expires_at_s=expires_at_s,
        account_expires_at_s=float(account_expires_at_s) if account_expires_at_s > 0 else None,
        max_subscriptions=tighter_limit(limits.max_subscriptions, account.limits.subscriptions),
        max_payload=tighter_limit(limits.max_payload, account.limits.payload),
        allowed_connection_types=_connection_types(limits),
    )


def _check_asserted_version(operator: OperatorClaims) -> None:
    wanted = operator.assert_server_version
    if not wanted:
        return
    parts = wanted.split(".")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise ClaimsError("the operator's assert_server_version is not major.minor.patch")
    if tuple(map(int, parts)) > _SERVER_VERSION:
        raise ClaimsError("the operator asks for a newer server than this one is compatible with")


def resolver_from(options: Options) -> AccountResolver:
    """The resolver that the configuration describes; a memory resolver when it names none."""
    preload = dict(options.resolver_preload)
    resolver = options.resolver
    if resolver is None or resolver.kind == "memory":
        return MemoryResolver(preload)
    if resolver.kind not in ("full", "cache") or not resolver.dir:
        raise ValueError(f"a resolver of kind {resolver.kind} is not supported: use memory, full or cache")
    directory = JwtDirectory(
        Path(resolver.dir),
        is_cache=resolver.kind == "cache",
        allow_delete=resolver.allow_delete,
        hard_delete=resolver.hard_delete,
        limit=resolver.limit,
        ttl_s=resolver.ttl_s,
    )
    return DirectoryResolver(directory, preload)
