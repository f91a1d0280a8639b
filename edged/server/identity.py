"""Who is asking, and who that turned out to be: the values that go into and come out of authentication.

Rules: nothing a client sends names the account it ends up in; only the credentials do. Secrets are left out
of repr(), and no error holds one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from edged.config.options import GLOBAL_ACCOUNT
from edged.core.permissions import ALL, Permissions

# What goes into -ERR. A client that logs in hears only the first, whatever the reason, as from nats-server;
# the others are for connections that lose the right they had.
AUTHORIZATION_VIOLATION: Final = "Authorization Violation"
AUTHENTICATION_TIMEOUT: Final = "Authentication Timeout"
USER_EXPIRED: Final = "User Authentication Expired"
USER_REVOKED: Final = "User Authentication Revoked"
ACCOUNT_EXPIRED: Final = "Account Authentication Expired"

# A token, in whole, fits into the control line; anything longer is not a credential of ours.
_CREDENTIAL_CHARACTERS_MAX: Final = 1024 * 1024

REDACTED: Final = "[REDACTED]"


class AuthFailed(Exception):  # noqa: N818 - it is the answer to a login, not a fault of the program
    """The login is refused. text goes to the client in -ERR, reason into the log; neither holds a secret."""

    def __init__(self, reason: str, text: str = AUTHORIZATION_VIOLATION) -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """A login: the fields of CONNECT and what the transport knows about the peer."""

    connect: Mapping[str, object] = field(repr=False)
    nonce: bytes | None
    connection_type: str  # one of edged.config.options.CONNECTION_TYPES
    remote_ip: str
    now_s: float
    tls_peer_certificate_der: bytes | None = field(default=None, repr=False)

    @property
    def is_leaf(self) -> bool:
        return self.connection_type in ("LEAFNODE", "LEAFNODE_WS")

    @property
    def is_websocket(self) -> bool:
        return self.connection_type == "WEBSOCKET"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client brought to prove who it is; empty text means that it brought none."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nkey: str = ""
    jwt: str = field(default="", repr=False)
    signature: str = field(default="", repr=False)

    @property
    def display_name(self) -> str:
        """What monitoring and the log show."""
        return self.nkey or self.user or (REDACTED if self.token else "")


@dataclass(frozen=True, slots=True)
class Identity:
    """The user behind a connection, bound to one account, with what it may do there."""

    account_name: str = GLOBAL_ACCOUNT
    user: str = ""  # as shown by monitoring
    permissions: Permissions = ALL
    nkey: str | None = None  # public key, of a user with an nkey or a JWT
    jwt: str | None = field(default=None, repr=False)
    name_tag: str = ""  # the name in the JWT
    tags: tuple[str, ...] = ()
    issuer: str | None = None  # the key that signed the JWT
    issued_at_s: int = 0
    expires_at_s: float | None = None
    account_expires_at_s: float | None = None
    max_subscriptions: int | None = None  # the tighter of the user's and the account's; None means no limit
    max_payload: int | None = None
    allowed_connection_types: frozenset[str] = frozenset()  # empty means every type

    @property
    def issuer_key(self) -> str:
        """Who vouches for a user with a key: the signer of its token, or the account that lists its key."""
        return self.issuer or (self.account_name if self.nkey else "")


def credentials_of(connect: Mapping[str, object]) -> Credentials:
    """The credentials in CONNECT; refuses values that are no text and any attempt to choose an account."""
    if connect.get("account") or connect.get("new_account"):
        raise AuthFailed("the client asked for an account")
    return Credentials(
        user=_text(connect, "user"),
        password=_text(connect, "pass"),
        token=_text(connect, "auth_token"),
        nkey=_text(connect, "nkey"),
        jwt=_text(connect, "jwt"),
        signature=_text(connect, "sig"),
    )


def tighter_limit(*limits: int) -> int | None:
    """The smallest of the limits that are set; a negative one is not."""
    return min((limit for limit in limits if limit >= 0), default=None)


def _text(connect: Mapping[str, object], name: str) -> str:
    value = connect.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _CREDENTIAL_CHARACTERS_MAX:
        raise AuthFailed(f"{name} in CONNECT is not a text of reasonable length")
    return value
