"""Users, their permissions, and the authorization{} block.

Rules: a user is either a name (with a password) or an nkey. default_permissions fill in for users without
their own. allow_responses turns "may publish everything" into "may publish nothing but answers".
"""

from dataclasses import replace

from edged.config.document import ConfigError, Value
from edged.config.options import (
    CONNECTION_TYPES,
    GLOBAL_ACCOUNT,
    AuthCalloutOptions,
    Authorization,
    PermissionsOptions,
    ResponseRule,
    SubjectRules,
    UserOptions,
)
from edged.config.readers import (
    go_duration,
    integer,
    off_only,
    required_text,
    seconds,
    subjects_or_queues,
    text,
    texts,
)
from edged.config.table import Context, Reader, Table, items_of, key, read_block
from edged.core import nkeys
from edged.core.nkeys import KeyKind

NO_PROXIES = "edged does not know trusted proxies, so it cannot require one"


def nkey(kind: KeyKind) -> Reader:
    """A public key of one kind, such as a user's U..."""

    def read(context: Context, value: Value, name: str) -> str:
        found = required_text(context, value, name)
        if not nkeys.is_public(found, kind):
            raise ConfigError(f"{name}: not a valid public nkey of kind {kind.name.lower()}", value.position)
        return found

    return read


def _rules(*, queues: bool) -> Reader:
    def listed(context: Context, value: Value, name: str) -> tuple[str, ...]:
        return subjects_or_queues(context, value, name, queues=queues)

    table = Table("permissions", (key("allow", listed), key("deny", listed)))

    def read(context: Context, value: Value, name: str) -> SubjectRules:
        if isinstance(value.data, dict):
            return SubjectRules(**read_block(context, value, table, name))
        return SubjectRules(allow=listed(context, value, name))

    return read


def _expires(_context: Context, value: Value, name: str) -> float:
    return go_duration(value, name, negative=True)


RESPONSES = Table(
    "allow_responses",
    (
        key(
            "max max_msgs max_messages max_responses",
            integer(minimum=-(2**31)),
            "max_messages",
            zero_is_default=True,
        ),
        key("expires expiration ttl", _expires, "expires_s", zero_is_default=True),
    ),
)


def _responses(context: Context, value: Value, name: str) -> ResponseRule | None:
    if isinstance(value.data, bool):
        return ResponseRule() if value.data else None
    return ResponseRule(**read_block(context, value, RESPONSES, name))


_ALLOW_DENY = Table("permissions", (key("allow", texts), key("deny", texts)))

PERMISSIONS = Table(
    "permissions",
    (
        key("publish pub import", _rules(queues=False), block=_ALLOW_DENY),
        key("subscribe sub export", _rules(queues=True), block=_ALLOW_DENY),
        key("allow_responses publish_allow_responses", _responses, block=RESPONSES),
    ),
)


def permissions(context: Context, value: Value, name: str) -> PermissionsOptions:
    found = PermissionsOptions(**read_block(context, value, PERMISSIONS, name))
    if found.allow_responses is not None and found.publish.allow is None:
        return replace(found, publish=replace(found.publish, allow=()))
    return found


def _connection_types(context: Context, value: Value, name: str) -> frozenset[str]:
    found = frozenset(one.upper() for one in texts(context, value, name))
    if not found.issubset(CONNECTION_TYPES):
        raise ConfigError(f"{name}: expected some of {', '.join(CONNECTION_TYPES)}", value.position)
    return found


USER = Table(
    "users",
    (
        key("user username", text),
        key("password pass", text),
        key("nkey", nkey(KeyKind.USER)),
        key("permissions permission authorization", permissions, block=PERMISSIONS),
        key("allowed_connection_types connection_types clients", _connection_types),
        key("proxy_required", off_only(NO_PROXIES), None),
    ),
)


def users(context: Context, value: Value, name: str) -> tuple[UserOptions, ...]:
    """The users of a list, still without account and default permissions."""
    found = []
    for item in items_of(value, name):
        user = UserOptions(**read_block(context, item, USER, name))
        if user.nkey is None and user.user is None:
            raise ConfigError(f"{name}: each entry needs a user or an nkey", item.position)
        if user.nkey is not None and (user.user is not None or user.password is not None):
            raise ConfigError(f"{name}: an entry with an nkey takes neither user nor password", item.position)
        context.places.setdefault(f"user {user.nkey or user.user}", item.position)
        found.append(user)
    return tuple(found)


def finish_users(
    found: tuple[UserOptions, ...], account: str, default: PermissionsOptions | None
) -> tuple[UserOptions, ...]:
    """The users as part of an account, with its default permissions where they have none."""
    return tuple(
        replace(user, account=account, permissions=default if user.permissions is None else user.permissions)
        for user in found
    )


CALLOUT = Table(
    "auth_callout",
    (
        key("issuer", nkey(KeyKind.ACCOUNT)),
        key("account acc", required_text),
        key("auth_users users", texts),
        key("xkey key", nkey(KeyKind.CURVE)),
        key("allowed_accounts", texts),
    ),
)


def _callout(context: Context, value: Value, name: str) -> AuthCalloutOptions:
    fields = read_block(context, value, CALLOUT, name)
    if "issuer" not in fields or not fields.get("auth_users"):
        raise ConfigError(f"{name}: needs an issuer and auth_users", value.position)
    context.places["auth_callout"] = value.position
    return AuthCalloutOptions(**fields)


AUTHORIZATION = Table(
    "authorization",
    (
        key("user username", text),
        key("password pass", text),
        key("token", text),
        key("timeout", seconds, "timeout_s", zero_is_default=True),
        key("users", users, block=USER),
        key("default_permissions default_permission permissions", permissions, block=PERMISSIONS),
        key("auth_callout auth_hook", _callout, block=CALLOUT),
        key("proxy_required", off_only(NO_PROXIES), None),
    ),
)


def authorization(context: Context, value: Value, name: str) -> Authorization:
    found = Authorization(**read_block(context, value, AUTHORIZATION, name), is_stated=True)
    if found.users is None:
        return found
    return replace(found, users=finish_users(found.users, GLOBAL_ACCOUNT, found.default_permissions))


SIMPLE_AUTHORIZATION = Table(
    "authorization",
    (
        key("user username", text),
        key("password pass", text),
        key("token", text),
        key("timeout", seconds, "timeout_s", zero_is_default=True),
    ),
)


def simple_authorization(context: Context, value: Value, name: str) -> Authorization:
    """What replaces the general block for WebSocket clients: one user or one token."""
    return Authorization(**read_block(context, value, SIMPLE_AUTHORIZATION, name))
