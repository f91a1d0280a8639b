"""Relations between options that no single block can see: who may be named where, what excludes what.

Rules: check_options raises ConfigError for the first relation that does not hold, at the place where it was
written if that is known; it changes nothing. It runs on options from a file, and again after flags.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from edged.config.document import ConfigError, Position
from edged.config.options import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, Options, UserOptions
from edged.config.sharing import check_sharing
from edged.core.nkeys import KeyKind, is_public

_RESERVED_HEADERS = frozenset({"host", "content-length", "connection", "upgrade", "nats-no-masking"})
_NO_PLACES: Mapping[str, Position] = {}


def check_options(options: Options, places: Mapping[str, Position] = _NO_PLACES) -> None:
    _check_limits(options, places)
    _check_users(options, places)
    _check_trust(options, places)
    _check_accounts(options, places)
    _check_no_auth_user(options, options.no_auth_user, places.get("no_auth_user"))
    check_sharing(options.accounts, places)
    _check_monitoring(options, places)
    _check_websocket(options, places)
    _check_leafnodes(options, places)
    _check_cluster(options, places)


def all_users(options: Options) -> Iterator[UserOptions]:
    """Users of the authorization block and of every account."""
    yield from options.authorization.users or ()
    for account in options.accounts:
        yield from account.users


def _check_limits(options: Options, places: Mapping[str, Position]) -> None:
    if options.max_payload > options.max_pending:
        position = places.get("max_payload") or places.get("max_pending")
        raise ConfigError("max_payload must not be larger than max_pending", position)
    if options.lame_duck_grace_period_s >= options.lame_duck_duration_s:
        position = places.get("lame_duck_grace_period") or places.get("lame_duck_duration")
        raise ConfigError("lame_duck_grace_period must be shorter than lame_duck_duration", position)


def _check_users(options: Options, places: Mapping[str, Position]) -> None:
    seen = set()
    for user in all_users(options):
        name = user.nkey or user.user
        if name in seen:
            raise ConfigError(f"user {name!r} is there twice", places.get(f"user {name}"))
        seen.add(name)
    _check_logins(options, places.get("authorization"))
    callout = options.authorization.auth_callout
    known = {account.name for account in options.accounts}
    if callout is not None and not known.issuperset(callout.allowed_accounts):
        raise ConfigError("allowed_accounts names an account that does not exist", places.get("auth_callout"))


def _check_logins(options: Options, position: Position | None) -> None:
    login = options.authorization
    if login.token is not None and (login.user is not None or login.password is not None):
        raise ConfigError("authorization: use either a user and password, or a token", position)
    if login.user is None and login.token is None:
        return
    if login.users is not None or any(account.users for account in options.accounts):
        raise ConfigError("authorization: use either one user or token, or a list of users", position)


def _check_trust(options: Options, places: Mapping[str, Position]) -> None:
    if not options.operators:
        return
    position = places.get("operator")
    if options.resolver is None:
        raise ConfigError("operator needs a resolver that says where account JWTs come from", position)
    if options.accounts or any(True for _user in all_users(options)):
        raise ConfigError("with an operator, accounts and users come from JWTs: remove them here", position)
    if options.trusted_keys:
        raise ConfigError("use either operator or trusted_keys", position)
    if options.system_account is None and options.resolver.kind in ("full", "cache"):
        raise ConfigError("this resolver needs a system_account, here or in the operator JWT", position)


def _check_accounts(options: Options, places: Mapping[str, Position]) -> None:
    if options.operators or options.trusted_keys:
        return
    known = {account.name for account in options.accounts} | {GLOBAL_ACCOUNT, SYSTEM_ACCOUNT}
    if options.system_account is not None and options.system_account not in known:
        message = f"system_account: account {options.system_account!r} does not exist"
        raise ConfigError(message, places.get("system_account"))
    with_jetstream = {account.name for account in options.accounts if account.jetstream is not None}
    for name, domain in options.default_js_domain:
        position = places.get("default_js_domain")
        if name not in known or name == (options.system_account or SYSTEM_ACCOUNT):
            raise ConfigError(f"default_js_domain: {name!r} is not an account that can have one", position)
        if name in with_jetstream and domain:
            raise ConfigError(f"default_js_domain: account {name!r} has JetStream of its own", position)


def _check_no_auth_user(options: Options, name: str | None, position: Position | None) -> None:
    if name is None:
        return
    if options.operators:
        raise ConfigError("no_auth_user does not go with an operator", position)
    if all(name not in (user.user, user.nkey) for user in all_users(options)):
        raise ConfigError("no_auth_user names a user that does not exist", position)


def _check_monitoring(options: Options, places: Mapping[str, Position]) -> None:
    position = places.get("https_port") or places.get("https")
    if options.http_port != 0 and options.https_port != 0:
        raise ConfigError("use either http_port or https_port", position)
    if options.https_port != 0 and options.tls is None:
        raise ConfigError("https_port needs a tls block", position)


def _check_websocket(options: Options, places: Mapping[str, Position]) -> None:
    websocket = options.websocket
    position = places.get("websocket")
    if websocket is None or websocket.port == 0:
        return
    if websocket.tls is None and not websocket.no_tls:
        raise ConfigError("websocket: needs a tls block, or no_tls: true if that is meant", position)
    for origin in websocket.allowed_origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError('websocket: an allowed origin is a URL such as "https://example.org"', position)
    _check_no_auth_user(options, websocket.no_auth_user, position)
    own = websocket.authorization
    if own is not None and (own.user or own.token) and any(True for _user in all_users(options)):
        raise ConfigError("websocket: a user or token of its own does not go with a list of users", position)
    if websocket.jwt_cookie is not None and not options.operators and not options.trusted_keys:
        raise ConfigError("websocket: jwt_cookie needs an operator or trusted_keys", position)
    for name, _text in websocket.headers:
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith("sec-websocket-"):
            raise ConfigError(f"websocket: the header {name!r} is set by the server itself", position)


def _check_leafnodes(options: Options, places: Mapping[str, Position]) -> None:
    leafnodes = options.leafnodes
    if leafnodes is None:
        return
    position = places.get("leafnodes")
    login = leafnodes.authorization
    named = [(remote.account, places.get(f"remote account {remote.account}")) for remote in leafnodes.remotes]
    if login is not None:
        named += [(login.account, position), *((user.account, position) for user in login.users)]
    if options.operators:
        if login is not None and login.users:
            raise ConfigError("leafnodes: with an operator, users come from JWTs: remove them here", position)
        for remote in leafnodes.remotes:
            if remote.account is None or not is_public(remote.account, KeyKind.ACCOUNT):
                place = places.get(f"remote account {remote.account}")
                raise ConfigError("leafnodes: with an operator, account is a public key, A...", place)
        return
    known = {None, GLOBAL_ACCOUNT, *(account.name for account in options.accounts)}
    if options.system_account is None and not options.no_system_account:
        known.add(SYSTEM_ACCOUNT)
    for account, place in named:
        if account not in known:
            raise ConfigError(f"leafnodes: account {account!r} does not exist", place)


def _check_cluster(options: Options, places: Mapping[str, Position]) -> None:
    cluster = options.cluster
    if cluster is None:
        return
    position = places.get("cluster")
    if cluster.accounts and cluster.pool_size < 0:
        raise ConfigError("cluster: accounts need a pool_size that is not negative", position)
    if options.jetstream is not None and cluster.port != 0:
        if options.server_name is None:
            raise ConfigError("JetStream in a cluster needs a server_name", position)
        if cluster.name is None:
            raise ConfigError("JetStream in a cluster needs a cluster name", position)
