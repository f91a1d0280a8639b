"""Authentication: from a login to the identity behind it, or a refusal.

An Authenticator is built from the configuration and replaced as a whole when that is reloaded. It tries, in
the order of nats-server: user JWTs when operators are configured; else nkeys, users (by certificate with
verify_and_map, by password otherwise), the token, the single user.

Rules: which account a connection gets depends on its credentials alone. Every refusal of a login reads the
same to the client and, for passwords, takes the same time whether the user exists or not. Without any
users, keys or tokens configured, everybody is in the global account. Auth callouts are not implemented:
when one is configured, only the users named for the callout itself may log in.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import trio

from edged.config.options import (
    GLOBAL_ACCOUNT,
    SYSTEM_ACCOUNT,
    Authorization,
    LeafAuthorization,
    Options,
    UserOptions,
)
from edged.server import passwords
from edged.server.certificate_names import read_names
from edged.server.identity import AuthFailed, AuthRequest, Credentials, Identity, credentials_of
from edged.server.signatures import check_signature
from edged.server.user_table import UserTable, peer_certificate

if TYPE_CHECKING:
    from edged.server.operator_auth import AccountResolver, OperatorAuth

_REFUSED: Final = "user, password or token is wrong"


class Authenticator:
    """Decides about logins, by the configuration it was built from."""

    def __init__(
        self,
        options: Options,
        *,
        now_s: float,
        resolver: "AccountResolver | None" = None,
        limiter: trio.CapacityLimiter | None = None,
    ) -> None:
        """Raises ClaimsError for an operator's token that is not usable.

        limiter bounds the threads of bcrypt; hand the old one on at a reload, so that there is only one.
        """
        self._options = options
        self.limiter = limiter or passwords.new_limiter()
        self.operator: OperatorAuth | None = None
        if options.operators or options.trusted_keys:
            # Much code that only daemons with operators need.
            from edged.server import operator_auth

            resolver = resolver or operator_auth.resolver_from(options)
            self.operator = operator_auth.OperatorAuth(options, resolver, now_s)
        self._table = UserTable(options)
        self._decoy = passwords.decoy_for(self._stored_passwords())
        self._global_is_open = _only_system_users(options)
        websocket = options.websocket
        own = websocket.authorization if websocket is not None else None
        # A websocket block with credentials or a default user of its own replaces the general ones.
        self._websocket_own: Authorization | None = None
        self._websocket_default = websocket.no_auth_user if websocket is not None else None
        if (own is not None and (own.user or own.token)) or self._websocket_default:
            self._websocket_own = own or Authorization()

    @property
    def auth_required(self) -> bool:
        """Whether clients have to log in, be it as no_auth_user."""
        authorization, table = self._options.authorization, self._table
        simple = authorization.user or authorization.token
        return bool(self.operator or table.by_name or table.by_nkey or simple)

    @property
    def no_auth_user(self) -> str | None:
        """The user that clients without credentials become."""
        return self._options.no_auth_user

    @property
    def nonce_required(self) -> bool:
        """Whether INFO carries a nonce for clients to sign; leaf links always get one."""
        return bool(self.operator or self._table.by_nkey)

    @property
    def system_account(self) -> str | None:
        if self.operator is not None:
            return self.operator.system_account
        if self._options.system_account is None and self._options.no_system_account:
            return None
        return self._options.system_account or SYSTEM_ACCOUNT

    def auth_required_in_info(self, connection_type: str) -> bool:
        """auth_required as INFO shows it: not when clients without credentials get in by configuration."""
        if connection_type == "WEBSOCKET" and self._websocket_own is not None:
            return self._websocket_default is None
        return self.auth_required and self.no_auth_user is None

    async def authenticate(self, request: AuthRequest) -> Identity:
        """Who this is, for a connection that logs in. Every refusal has the same text for the client."""
        try:
            return await self.reauthenticate(request)
        except AuthFailed as refusal:
            raise AuthFailed(refusal.reason) from None

    async def reauthenticate(self, request: AuthRequest) -> Identity:
        """Who this still is, for a connection that logged in before the configuration or an account changed.

        The same decision, but the refusal says to the client what it lost: expired, revoked, or just refused.
        """
        credentials = credentials_of(request.connect)
        leafnodes = self._options.leafnodes
        own = leafnodes.authorization if request.is_leaf and leafnodes is not None else None
        if own is not None and (own.user or own.nkey or own.users):
            return await self._leaf_login(request, credentials, own)
        if not self.auth_required and not (request.is_websocket and self._websocket_own is not None):
            account = (own.account if own is not None else None) or GLOBAL_ACCOUNT
            return self._table.limited(Identity(account_name=account, user=credentials.display_name))
        if self.operator is not None:
            return await self.operator.authenticate(request, credentials)
        identity = await self._configured_login(request, credentials)
        callout = self._options.authorization.auth_callout
        if callout is not None and identity.user not in callout.auth_users:
            raise AuthFailed("logins are delegated to an auth callout")
        return identity

    async def _configured_login(self, request: AuthRequest, credentials: Credentials) -> Identity:
        table = self._table
        if table.by_nkey and credentials.nkey:
            return self._nkey_login(request, credentials)
        by_certificate = bool(table.by_name) and table.maps_certificates(request.connection_type)
        if not (credentials.user or credentials.password or credentials.token):
            default = self._default_user(request)
            if default is not None and (default.nkey or not by_certificate):
                return table.identity(default, request)
            if self._global_is_open and not by_certificate:
                return table.limited(Identity())
        if by_certificate:
            user = table.from_certificate(request)
            if user.password:
                await self._check_password(credentials.password, user.password)
            return table.identity(user, request)
        if table.by_name and credentials.user:
            return await self._password_login(request, credentials)
        return await self._single_login(request, credentials)

    def _default_user(self, request: AuthRequest) -> UserOptions | None:
        name = self._options.no_auth_user
        if request.is_websocket and self._websocket_own is not None:
            name = self._websocket_default
        elif request.connection_type == "LEAFNODE_WS":
            name = self._websocket_default or name
        return self._table.find(name) if name is not None else None

    def _nkey_login(self, request: AuthRequest, credentials: Credentials) -> Identity:
        # The signature comes first: whether a key is configured is told only to somebody who holds it.
        check_signature(credentials.nkey, request, credentials)
        user = self._table.by_nkey.get(credentials.nkey)
        if user is None:
            raise AuthFailed("the nkey is not known")
        return self._table.identity(user, request)

    async def _password_login(self, request: AuthRequest, credentials: Credentials) -> Identity:
        user = self._table.by_name.get(credentials.user)
        if user is not None and self._table.certificate_only(user):
            user = None
        await self._check_password(credentials.password, self._decoy if user is None else user.password or "")
        if user is None:
            raise AuthFailed(_REFUSED)
        return self._table.identity(user, request)

    async def _single_login(self, request: AuthRequest, credentials: Credentials) -> Identity:
        wanted: Authorization = self._options.authorization
        if request.is_websocket and self._websocket_own is not None:
            wanted = self._websocket_own
        if self._options.authorization.proxy_required:
            raise AuthFailed("clients must come through a trusted proxy")
        if wanted.token:
            await self._check_password(credentials.token, wanted.token)
        elif wanted.user:
            known = credentials.user == wanted.user
            await self._check_password(
                credentials.password, (wanted.password or "") if known else self._decoy
            )
            if not known:
                raise AuthFailed(_REFUSED)
        else:
            raise AuthFailed("credentials are required")
        return self._table.limited(Identity(user=credentials.display_name))

    async def _leaf_login(
        self, request: AuthRequest, credentials: Credentials, own: LeafAuthorization
    ) -> Identity:
        """With credentials in the leafnodes block, only those count for leaf links."""
        if own.proxy_required:
            raise AuthFailed("leaf links must come through a trusted proxy")
        if own.nkey and not own.user:
            check_signature(own.nkey, request, credentials)
            if credentials.nkey != own.nkey:
                raise AuthFailed("the nkey is not known")
            return self._table.limited(Identity(own.account or GLOBAL_ACCOUNT, own.nkey, nkey=own.nkey))
        single = None
        if own.user:
            single = UserOptions(own.user, own.password, account=own.account or GLOBAL_ACCOUNT)
        by_name = {user.user: user for user in ((single,) if single else own.users)}
        name = credentials.user
        if single is None and self._table.maps_certificates(request.connection_type):
            names = read_names(peer_certificate(request))
            texts = (*names.alternative, *names.subject_texts)
            name = next((text for text in texts if text in by_name), "")
        user = by_name.get(name)
        await self._check_password(credentials.password, self._decoy if user is None else user.password or "")
        if user is None or user.proxy_required:
            raise AuthFailed(_REFUSED)
        return self._table.limited(Identity(user.account, name))

    async def _check_password(self, plain: str, stored: str) -> None:
        if await passwords.check(plain, stored, self.limiter):
            return
        if not passwords.is_bcrypt(stored) and passwords.is_bcrypt(self._decoy):
            # Where some passwords are hashed, a wrong plain one must not be refused faster than the rest.
            await passwords.check(plain, self._decoy, self.limiter)
        raise AuthFailed(_REFUSED)

    def _stored_passwords(self) -> Iterable[str]:
        options = self._options
        yield from self._table.passwords()
        yield options.authorization.password or ""
        if options.leafnodes is not None and options.leafnodes.authorization is not None:
            yield options.leafnodes.authorization.password or ""
            yield from (user.password or "" for user in options.leafnodes.authorization.users)
        if options.websocket is not None and options.websocket.authorization is not None:
            yield options.websocket.authorization.password or ""


def _only_system_users(options: Options) -> bool:
    """Whether users exist for the system account only, without any word about who else may connect.

    Then the global account stays open to everybody, as without any users. An authorization block says that
    logins are wanted, and closes it.
    """
    if options.no_auth_user or options.authorization.is_stated:
        return False
    system = options.system_account or SYSTEM_ACCOUNT
    names = {account.name for account in options.accounts}
    return system in names and names <= {system, GLOBAL_ACCOUNT}
