"""Who connects to whom: websocket{}, leafnodes{} with its remotes, and cluster{}.

Rules: URLs and seeds may hold secrets and are never shown. A remote has credentials or an nkey, not both; its
URLs are all WebSocket ones or none is. Compression has nats-server's names for its modes.
"""

import re
from urllib.parse import urlsplit

from edged.config.document import ConfigError, Value
from edged.config.options import (
    ClusterOptions,
    CompressionOptions,
    LeafAuthorization,
    LeafnodesOptions,
    LeafRemote,
    PermissionsOptions,
    ProxyOptions,
    UserOptions,
    WebsocketOptions,
)
from edged.config.readers import (
    boolean,
    duration,
    file_name,
    go_duration,
    integer,
    listen,
    name_without_spaces,
    off_only,
    port,
    required_text,
    seconds,
    subjects,
    text,
    text_map,
    texts,
    url,
    urls,
    write_timeout,
)
from edged.config.table import Context, Reader, Table, items_of, key, read_block
from edged.config.tls import TLS, read_tls
from edged.config.users import (
    AUTHORIZATION,
    NO_PROXIES,
    PERMISSIONS,
    SIMPLE_AUTHORIZATION,
    authorization,
    nkey,
    permissions,
    simple_authorization,
)
from edged.core import nkeys
from edged.core.nkeys import KeyKind

_COMPRESSION_MODES = {
    "not supported": "not supported not_supported",
    "off": "off disabled false",
    "accept": "accept",
    "s2_auto": "s2_auto auto",
    "s2_fast": "s2_fast fast",
    "s2_better": "s2_better better",
    "s2_best": "s2_best best",
}
_THRESHOLDS_MAX = 4


def _thresholds(_context: Context, value: Value, name: str) -> tuple[float, ...]:
    found = [max(0.0, go_duration(item, name, negative=True)) for item in items_of(value, name)]
    while found and found[-1] == 0:
        found.pop()
    rising = [one for one in found if one != 0]
    if not found or len(found) > _THRESHOLDS_MAX or rising != sorted(rising):
        raise ConfigError(f"{name}: expected one to four rising durations", value.position)
    return tuple(found)


COMPRESSION = Table(
    "compression",
    (key("mode", text), key("rtt_thresholds thresholds rtts rtt", _thresholds, "rtt_thresholds_s")),
)


def compression(when_on: str) -> Reader:
    """A mode, true or false, or a block; when_on is the mode that a plain "on" stands for."""

    def read(context: Context, value: Value, name: str) -> CompressionOptions:
        fields: dict[str, object] = {"mode": value.data}
        if isinstance(value.data, dict):
            fields = read_block(context, value, COMPRESSION, name)
        written = str(fields.get("mode", when_on)).lower()
        if written in ("on", "enabled", "true"):
            written = when_on
        for mode, spellings in _COMPRESSION_MODES.items():
            if written == mode or written in spellings.split():
                return CompressionOptions(**{**fields, "mode": mode})  # type: ignore[arg-type]
        raise ConfigError(f"{name}: expected one of {', '.join(_COMPRESSION_MODES)}", value.position)

    return read


WEBSOCKET = Table(
    "websocket",
    (
        key("listen", listen("host", "port"), None),
        key("host net", required_text),
        key("port", port),
        key("advertise", text),
        key("tls", read_tls(), block=TLS),
        key("no_tls", boolean),
        key("same_origin", boolean),
        key("allowed_origins allowed_origin allow_origins allow_origin origins origin", texts),
        key("compression compress", boolean),
        key("handshake_timeout", seconds, "handshake_timeout_s", zero_is_default=True),
        key("authorization authentication", simple_authorization, block=SIMPLE_AUTHORIZATION),
        key("no_auth_user", text),
        key("jwt_cookie", text),
        key("user_cookie", text),
        key("pass_cookie", text),
        key("token_cookie", text),
        key("headers", text_map),
        key("ping_interval", duration, "ping_interval_s", zero_is_default=True),
    ),
)


def websocket(context: Context, value: Value, name: str) -> WebsocketOptions:
    return WebsocketOptions(**read_block(context, value, WEBSOCKET, name))


LEAF_USER = Table(
    "leafnodes.authorization.users",
    (
        key("user username", required_text),
        key("password pass", text),
        key("account", required_text),
        key("proxy_required", off_only(NO_PROXIES), None),
    ),
)


def _leaf_users(context: Context, value: Value, name: str) -> tuple[UserOptions, ...]:
    found = tuple(UserOptions(**read_block(context, item, LEAF_USER, name)) for item in items_of(value, name))
    names = {user.user for user in found}
    if None in names or len(names) < len(found):
        raise ConfigError(f"{name}: each entry needs a user of its own", value.position)
    return found


LEAF_AUTHORIZATION = Table(
    "leafnodes.authorization",
    (
        key("user username", text),
        key("password pass", text),
        key("nkey", nkey(KeyKind.USER)),
        key("account", text),
        key("timeout", seconds, "timeout_s", zero_is_default=True),
        key("users", _leaf_users, block=LEAF_USER),
        key("proxy_required", off_only(NO_PROXIES), None),
    ),
)


def _leaf_authorization(context: Context, value: Value, name: str) -> LeafAuthorization:
    found = LeafAuthorization(**read_block(context, value, LEAF_AUTHORIZATION, name))
    if found.users and (found.user is not None or found.nkey is not None):
        raise ConfigError(f"{name}: use either one user or nkey, or a list of users", value.position)
    return found


def _seed(context: Context, value: Value, name: str) -> str:
    found = required_text(context, value, name)
    try:
        kind, _raw = nkeys.decode_seed(found)
    except nkeys.NkeyError:
        kind = None
    if kind != KeyKind.USER:
        raise ConfigError(f"{name}: expected the seed of a user, SU...", value.position)
    return found


def _one_or_more_urls(context: Context, value: Value, name: str) -> tuple[str, ...]:
    return (url(context, value, name),) if isinstance(value.data, str) else urls(context, value, name)


MIGRATE = Table(
    "jetstream_cluster_migrate", (key("leader_migrate_delay", duration, "leader_migrate_delay_s"),)
)


def _migrate(context: Context, value: Value, name: str) -> dict[str, object]:
    if isinstance(value.data, dict):
        return {"jetstream_cluster_migrate": True, **read_block(context, value, MIGRATE, name)}
    return {"jetstream_cluster_migrate": boolean(context, value, name)}


PROXY = Table(
    "proxy",
    (
        key("url", url),
        key("username", text),
        key("password", text),
        key("timeout", duration, "timeout_s", zero_is_default=True),
    ),
)


def _proxy(context: Context, value: Value, name: str) -> ProxyOptions:
    fields = read_block(context, value, PROXY, name)
    if urlsplit(fields.get("url", "")).scheme not in ("http", "https"):
        raise ConfigError(f"{name}: needs a url that starts with http:// or https://", value.position)
    if bool(fields.get("username")) != bool(fields.get("password")):
        raise ConfigError(f"{name}: username and password go together", value.position)
    return ProxyOptions(**fields)


REMOTE = Table(
    "leafnodes.remotes",
    (
        key("urls url", _one_or_more_urls),
        key("account local", text),
        key("credentials creds", file_name),
        key("nkey seed", _seed, "nkey_seed"),
        key("tls", read_tls(), block=TLS),
        key("hub", boolean),
        key("deny_imports deny_import", subjects),
        key("deny_exports deny_export", subjects),
        key("no_randomize dont_randomize", boolean),
        key("compression", compression("s2_auto"), block=COMPRESSION),
        key("first_info_timeout", duration, "first_info_timeout_s", zero_is_default=True),
        key("dial_timeout", duration, "dial_timeout_s", zero_is_default=True),
        key("ws_compression ws_compress websocket_compress websocket_compression", boolean),
        key("ws_no_masking websocket_no_masking", boolean),
        key("jetstream_cluster_migrate js_cluster_migrate", _migrate, None, block=MIGRATE),
        key("isolate isolate_leafnode_interest", boolean),
        key("request_isolation", boolean),
        key("disabled", boolean),
        key("ignore_discovered_servers", boolean),
        key("proxy", _proxy, block=PROXY),
    ),
)


def _remotes(context: Context, value: Value, name: str) -> tuple[LeafRemote, ...]:
    found: list[LeafRemote] = []
    for item in items_of(value, name):
        fields = read_block(context, item, REMOTE, name)
        if not fields.get("urls"):
            raise ConfigError(f"{name}: each entry needs urls", item.position)
        remote = LeafRemote(**fields)
        if remote.credentials is not None and remote.nkey_seed is not None:
            raise ConfigError(f"{name}: use either credentials or nkey", item.position)
        if len({urlsplit(one).scheme in ("ws", "wss") for one in remote.urls}) > 1:
            raise ConfigError(
                f"{name}: the URLs of a remote are all WebSocket ones, or none is", item.position
            )
        if any(_same_remote(remote, other) for other in found):
            raise ConfigError(f"{name}: this remote is there twice", item.position)
        context.places.setdefault(f"remote account {remote.account}", item.position)
        found.append(remote)
    return tuple(found)


def _same_remote(one: LeafRemote, other: LeafRemote) -> bool:
    same_login = (one.credentials, one.nkey_seed) == (other.credentials, other.nkey_seed)
    return same_login and (one.urls, one.account) == (other.urls, other.account)


def _min_version(context: Context, value: Value, name: str) -> str:
    written = required_text(context, value, name)
    found = re.fullmatch(r"v?([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})(-.*)?", written)
    if found is None or (int(found[1]), int(found[2])) < (2, 8):
        raise ConfigError(f'{name}: expected a version of at least "2.8.0"', value.position)
    return written


LEAFNODES = Table(
    "leafnodes",
    (
        key("listen", listen("host", "port"), None),
        key("host net", required_text),
        key("port", port),
        key("advertise leafnode_advertise", text),
        key("no_advertise", boolean),
        key("authorization", _leaf_authorization, block=LEAF_AUTHORIZATION),
        key("tls", read_tls(), block=TLS),
        key("compression", compression("s2_auto"), block=COMPRESSION),
        key("min_version minimum_version", _min_version),
        key("isolate_leafnode_interest isolate", boolean),
        key(
            "reconnect_interval reconnect_delay reconnect",
            duration,
            "reconnect_interval_s",
            zero_is_default=True,
        ),
        key("dial_timeout", duration, "dial_timeout_s", zero_is_default=True),
        key("write_deadline", duration, "write_deadline_s", zero_is_default=True),
        key("write_timeout", write_timeout),
        key("remotes", _remotes, block=REMOTE),
    ),
)


def leafnodes(context: Context, value: Value, name: str) -> LeafnodesOptions:
    return LeafnodesOptions(**read_block(context, value, LEAFNODES, name))


def _cluster_authorization(context: Context, value: Value, name: str) -> dict[str, object]:
    found = authorization(context, value, name)
    if found.users is not None or found.token is not None or found.auth_callout is not None:
        raise ConfigError(f"{name}: routes log in with one user and password", value.position)
    fields: dict[str, object] = {
        "user": found.user,
        "password": found.password,
        "auth_timeout_s": found.timeout_s,
    }
    if found.default_permissions is not None:
        context.warn("write permissions into the cluster block itself", value.position)
        fields["permissions"] = found.default_permissions
    return fields


def _cluster_permissions(context: Context, value: Value, name: str) -> PermissionsOptions:
    found = permissions(context, value, name)
    if found.allow_responses is not None:
        raise ConfigError(f"{name}: allow_responses makes no sense between servers", value.position)
    return found


CLUSTER = Table(
    "cluster",
    (
        key("name", name_without_spaces),
        key("listen", listen("host", "port"), None),
        key("host net", required_text),
        key("port", port),
        key("authorization", _cluster_authorization, None, block=AUTHORIZATION),
        key("permissions", _cluster_permissions, block=PERMISSIONS),
        key("routes", urls),
        key("tls", read_tls(routes=True), block=TLS),
        key("advertise cluster_advertise", text),
        key("no_advertise", boolean),
        key("connect_retries", integer()),
        key("connect_backoff", boolean),
        key("pool_size", integer(minimum=-1), zero_is_default=True),
        key("accounts", texts),
        key("compression", compression("s2_fast"), block=COMPRESSION),
        key("ping_interval", duration, "ping_interval_s", zero_is_default=True),
        key("ping_max", integer()),
        key("write_deadline", duration, "write_deadline_s", zero_is_default=True),
        key("write_timeout", write_timeout),
    ),
)


def cluster(context: Context, value: Value, name: str) -> ClusterOptions:
    return ClusterOptions(**read_block(context, value, CLUSTER, name))
