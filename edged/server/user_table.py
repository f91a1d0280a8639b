"""The users of the configuration, found by name, by nkey or by the names in a certificate.

Rules: the table is built once per configuration and never changes. Names of users that spell a
distinguished name are parsed once; a certificate's subject is compared with them in order first, and only
then in any order.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from edged.config.options import Options, TlsOptions, UserOptions
from edged.core.distinguished_names import parse
from edged.core.permissions import Permissions
from edged.server.certificate_names import read_names
from edged.server.identity import AuthFailed, AuthRequest, Identity, tighter_limit

_LEAF_TYPES: Final = frozenset({"LEAFNODE", "LEAFNODE_WS"})


class UserTable:
    """Users and nkeys of authorization{} and of every account."""

    def __init__(self, options: Options) -> None:
        users = [*(options.authorization.users or ())]
        users += [user for account in options.accounts for user in account.users]
        self.by_name = {user.user: user for user in users if user.user is not None}
        self.by_nkey = {user.nkey: user for user in users if user.nkey is not None}
        self._permissions = {user: Permissions.from_options(user.permissions) for user in users}
        self._names = [(name, user) for user in users if (name := parse(user.user or "")) is not None]
        self._limits = {account.name: account.limits for account in options.accounts}
        self._mapping_types = _types_mapped_from_certificates(options)

    def find(self, name: str) -> UserOptions | None:
        """A user by its name or its nkey."""
        return self.by_name.get(name) or self.by_nkey.get(name)

    def maps_certificates(self, connection_type: str) -> bool:
        """Whether connections of this type take their user from the client certificate."""
        return connection_type in self._mapping_types

    def certificate_only(self, user: UserOptions) -> bool:
        """Whether a certificate is what proves this user: it has no password, and some listener maps it."""
        types = user.allowed_connection_types
        return not user.password and bool(self._mapping_types & types if types else self._mapping_types)

    def from_certificate(self, request: AuthRequest) -> UserOptions:
        """The user that the peer's certificate names; AuthFailed when there is none."""
        names = read_names(peer_certificate(request))
        allowed = {name: user for name, user in self.by_name.items() if type_allowed(user, request)}
        for text in names.alternative:
            if text in allowed:
                return allowed[text]
        if names.subject is not None:
            named = [(name, user) for name, user in self._names if user.user in allowed]
            for name, user in named:
                if name == names.subject:
                    return user
            for name, user in named:
                if name.same_parts(names.subject):
                    return user
        for text in names.subject_texts:
            if text in allowed:
                return allowed[text]
        raise AuthFailed("no user has a name of the client certificate")

    def identity(self, user: UserOptions, request: AuthRequest) -> Identity:
        """The identity of a user that proved who it is."""
        if not type_allowed(user, request):
            raise AuthFailed("the connection type is not allowed")
        if user.proxy_required:
            raise AuthFailed("the user must come through a trusted proxy")
        return self.limited(
            Identity(
                account_name=user.account,
                user=user.nkey or user.user or "",
                permissions=self._permissions[user],
                nkey=user.nkey,
                allowed_connection_types=user.allowed_connection_types,
            )
        )

    def limited(self, identity: Identity) -> Identity:
        """The identity with the limits of its account."""
        limits = self._limits.get(identity.account_name)
        if limits is None:
            return identity
        return replace(
            identity,
            max_subscriptions=tighter_limit(limits.max_subscriptions),
            max_payload=tighter_limit(limits.max_payload),
        )

    def passwords(self) -> Iterable[str]:
        return (user.password for user in self.by_name.values() if user.password)


def peer_certificate(request: AuthRequest) -> bytes:
    if request.tls_peer_certificate_der is None:
        raise AuthFailed("a client certificate is required")
    return request.tls_peer_certificate_der


def type_allowed(user: UserOptions, request: AuthRequest) -> bool:
    return not user.allowed_connection_types or request.connection_type in user.allowed_connection_types


def _types_mapped_from_certificates(options: Options) -> frozenset[str]:
    """The types of connections whose listener has verify_and_map."""
    types: set[str] = set()
    if _maps(options.tls):
        types.add("STANDARD")
    if options.websocket is not None and _maps(options.websocket.tls):
        types.add("WEBSOCKET")
    if options.leafnodes is not None and _maps(options.leafnodes.tls):
        types |= _LEAF_TYPES
    return frozenset(types)


def _maps(tls: TlsOptions | None) -> bool:
    return tls is not None and tls.verify_and_map
