"""The whole configuration as typed, frozen values: what the daemon, the server and the hub read.

Rules: every default is stated once, here, and is nats-server's unless a comment says otherwise. Nothing here
reads a file. Durations are seconds, sizes are bytes. A port of 0 is "off" and -1 is "any free port", as in
nats-server. Fields that hold secrets are left out of repr(), so that printing options never shows them.
Invariant: whatever load.py returns satisfies the relations that check.py verifies.
"""

from dataclasses import dataclass, field

from edged.config.jetstream_options import JetStreamOptions

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
UNLIMITED = -1

CONNECTION_TYPES = ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """A tls{} block; server side, and client side for routes and leaf remotes."""

    cert_file: str | None = None
    key_file: str | None = None
    ca_file: str | None = None
    certs: tuple[tuple[str, str], ...] = ()  # (cert_file, key_file) pairs, instead of the two above
    verify: bool = False  # ask for a client certificate and check it
    verify_and_map: bool = False  # and take the user from it; implies verify
    verify_cert_and_check_known_urls: bool = False  # routes only: the certificate must name a known route
    insecure: bool = False  # client side: accept any server certificate
    timeout_s: float = 2.0
    cipher_suites: tuple[str, ...] = ()  # Go names; empty means the library's secure default
    allow_insecure_cipher_suites: bool = False
    curve_preferences: tuple[str, ...] = ()
    min_version: str = "1.2"
    pinned_certs: frozenset[str] = frozenset()  # lower-case hex SHA-256 of the SubjectPublicKeyInfo
    handshake_first: bool = False
    handshake_first_delay_s: float = 0.0  # > 0: wait this long for the handshake, then send INFO in clear
    connection_rate_limit: int = 0  # handshakes per second; 0 means no limit


@dataclass(frozen=True, slots=True)
class SubjectRules:
    """What is allowed and denied in one direction. allow None means everything, () means nothing."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResponseRule:
    """allow_responses: how many answers, for how long; negative means no bound."""

    max_messages: int = 1
    expires_s: float = 120.0


@dataclass(frozen=True, slots=True)
class PermissionsOptions:
    """Entries of subscribe may be "subject queue". With allow_responses, publish.allow is never None."""

    publish: SubjectRules = SubjectRules()
    subscribe: SubjectRules = SubjectRules()
    allow_responses: ResponseRule | None = None


@dataclass(frozen=True, slots=True)
class UserOptions:
    """One user: either user (and password) or nkey. Default permissions are already filled in."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    nkey: str | None = None
    permissions: PermissionsOptions | None = None
    allowed_connection_types: frozenset[str] = frozenset()  # empty means every type
    account: str = GLOBAL_ACCOUNT
    proxy_required: bool = False


@dataclass(frozen=True, slots=True)
class AuthCalloutOptions:
    """authorization.auth_callout: an outside service decides about users."""

    issuer: str
    auth_users: tuple[str, ...]
    account: str = GLOBAL_ACCOUNT
    xkey: str | None = None
    allowed_accounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Authorization:
    """The top-level authorization{} block. users None means the block had no users list."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    timeout_s: float | None = None  # None: 2 s, or the TLS timeout and 1 s more; see Options.auth_timeout_s
    users: tuple[UserOptions, ...] | None = None
    default_permissions: PermissionsOptions | None = None
    auth_callout: AuthCalloutOptions | None = None
    proxy_required: bool = False
    is_stated: bool = False  # there is such a block, even an empty one


@dataclass(frozen=True, slots=True)
class MappingDestination:
    """Where a mapped subject goes, with its share in percent, maybe only in one cluster."""

    subject: str
    weight_percent: int = 100
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class MappingOptions:
    """One entry of mappings: messages for source go to one of the destinations, by weight."""

    source: str
    destinations: tuple[MappingDestination, ...]


@dataclass(frozen=True, slots=True)
class ServiceLatency:
    """Where latency samples of a service export go; sampling 0 means "as the request's headers say"."""

    subject: str
    sampling_percent: int = 100


@dataclass(frozen=True, slots=True)
class StreamExport:
    """A subject other accounts may receive; accounts () means every account."""

    subject: str
    accounts: tuple[str, ...] = ()
    account_token_position: int = 0


@dataclass(frozen=True, slots=True)
class ServiceExport:
    """A subject other accounts may send requests to; response is "singleton", "stream" or "chunked"."""

    subject: str
    accounts: tuple[str, ...] = ()
    account_token_position: int = 0
    response: str = "singleton"
    response_threshold_s: float = 120.0
    latency: ServiceLatency | None = None
    allow_trace: bool = False


@dataclass(frozen=True, slots=True)
class StreamImport:
    """Messages of another account's export, under prefix or as to."""

    account: str
    subject: str
    prefix: str | None = None
    to: str | None = None
    allow_trace: bool = False


@dataclass(frozen=True, slots=True)
class ServiceImport:
    """Requests to another account's service, sent locally to `to` (the same subject when not given)."""

    account: str
    subject: str
    to: str
    share: bool = False


@dataclass(frozen=True, slots=True)
class AccountJetStream:
    """JetStream limits of an account; -1 means no limit of its own."""

    max_memory: int = UNLIMITED
    max_store: int = UNLIMITED
    max_streams: int = UNLIMITED
    max_consumers: int = UNLIMITED
    max_ack_pending: int = UNLIMITED
    memory_max_stream_bytes: int = UNLIMITED
    store_max_stream_bytes: int = UNLIMITED
    max_bytes_required: bool = False
    cluster_traffic: str = "system"  # or "owner"


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """Limits of an account; -1 means no limit of its own."""

    max_connections: int = UNLIMITED
    max_subscriptions: int = UNLIMITED
    max_payload: int = UNLIMITED
    max_leafnodes: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class AccountOptions:
    """One entry of accounts{}; jetstream None means JetStream is off in this account."""

    name: str
    nkey: str | None = None
    users: tuple[UserOptions, ...] = ()
    jetstream: AccountJetStream | None = None
    # Limits by number of replicas ("R1", "R3"), which only tokens have; with any, `jetstream` is that of R1.
    jetstream_tiers: tuple[tuple[str, AccountJetStream], ...] = ()
    stream_exports: tuple[StreamExport, ...] = ()
    service_exports: tuple[ServiceExport, ...] = ()
    stream_imports: tuple[StreamImport, ...] = ()
    service_imports: tuple[ServiceImport, ...] = ()
    mappings: tuple[MappingOptions, ...] = ()
    limits: AccountLimits = AccountLimits()
    default_permissions: PermissionsOptions | None = None
    trace_dest: str | None = None
    trace_sampling_percent: int = 0
    name_tag: str = ""  # the name in its JWT; name is the public key then


@dataclass(frozen=True, slots=True)
class WebsocketOptions:
    """The websocket{} block; without tls, no_tls must say that this is meant."""

    host: str = "0.0.0.0"
    port: int = 0
    advertise: str | None = None
    tls: TlsOptions | None = None
    no_tls: bool = False
    same_origin: bool = False
    allowed_origins: tuple[str, ...] = ()
    compression: bool = False
    handshake_timeout_s: float = 2.0
    authorization: Authorization | None = (
        None  # user, password, token, timeout only; replaces the general one
    )
    no_auth_user: str | None = None
    jwt_cookie: str | None = None
    user_cookie: str | None = None
    pass_cookie: str | None = None
    token_cookie: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    ping_interval_s: float | None = None  # None: as for other clients


@dataclass(frozen=True, slots=True)
class CompressionOptions:
    """Of a leaf or route link; mode: s2_auto, s2_fast, s2_better, s2_best, accept, off, not supported."""

    mode: str = "s2_auto"
    rtt_thresholds_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LeafAuthorization:
    """leafnodes.authorization: replaces the general one for leaf links."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    nkey: str | None = None
    account: str | None = None
    timeout_s: float | None = None
    users: tuple[UserOptions, ...] = ()
    proxy_required: bool = False


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """An HTTP CONNECT proxy in front of a leaf remote (WebSocket only)."""

    url: str = field(repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class LeafRemote:
    """One entry of leafnodes.remotes: a hub this daemon dials. URLs may hold credentials."""

    urls: tuple[str, ...] = field(repr=False)
    account: str | None = None
    credentials: str | None = None
    nkey_seed: str | None = field(default=None, repr=False)
    tls: TlsOptions | None = None
    hub: bool = False
    deny_imports: tuple[str, ...] = ()
    deny_exports: tuple[str, ...] = ()
    no_randomize: bool = False
    compression: CompressionOptions = CompressionOptions()
    first_info_timeout_s: float = 1.0
    dial_timeout_s: float | None = None  # None: that of the leafnodes block
    ws_compression: bool = False
    ws_no_masking: bool = False
    jetstream_cluster_migrate: bool = False
    leader_migrate_delay_s: float = 0.0
    isolate: bool = False
    request_isolation: bool = False
    disabled: bool = False
    ignore_discovered_servers: bool = False
    proxy: ProxyOptions | None = None


@dataclass(frozen=True, slots=True)
class LeafnodesOptions:
    """The leafnodes{} block; port 0 means that none are accepted, remotes may still be dialled."""

    host: str = "0.0.0.0"
    port: int = 0
    advertise: str | None = None
    no_advertise: bool = False
    authorization: LeafAuthorization | None = None
    tls: TlsOptions | None = None
    compression: CompressionOptions = CompressionOptions()
    min_version: str | None = None
    isolate_leafnode_interest: bool = False
    reconnect_interval_s: float = 1.0
    dial_timeout_s: float = 1.0
    write_deadline_s: float | None = None  # None: the general one
    write_timeout: str = "default"
    remotes: tuple[LeafRemote, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster{} block: links between the servers of a hub. Route URLs may hold credentials."""

    name: str | None = None
    host: str = "0.0.0.0"
    port: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    auth_timeout_s: float | None = None
    permissions: PermissionsOptions | None = None  # publish is import, subscribe is export
    routes: tuple[str, ...] = field(default=(), repr=False)
    tls: TlsOptions | None = None
    advertise: str | None = None
    no_advertise: bool = False
    connect_retries: int = 0
    connect_backoff: bool = False
    pool_size: int = 3
    accounts: tuple[str, ...] = ()
    compression: CompressionOptions = CompressionOptions(mode="accept")
    ping_interval_s: float | None = None
    ping_max: int = 0
    write_deadline_s: float | None = None
    write_timeout: str = "default"


@dataclass(frozen=True, slots=True)
class ResolverOptions:
    """Where account JWTs come from: kind is "memory", "url", "full" or "cache"."""

    kind: str
    url: str | None = None
    dir: str | None = None
    allow_delete: bool = False
    hard_delete: bool = False
    limit: int = 0
    ttl_s: float = 0.0
    interval_s: float = 0.0
    timeout_s: float = 1.9


@dataclass(frozen=True, slots=True)
class LoggingOptions:
    """What is logged and where; with neither file nor syslog it goes to stderr."""

    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    trace_headers: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    file: str | None = None
    size_limit: int = 0  # 0: never rotated
    max_files: int = 0  # 0: none is ever removed
    syslog: bool = False
    remote_syslog: str | None = None
    max_traced_msg_len: int = 0  # 0: whole messages


@dataclass(frozen=True, slots=True)
class Options:
    """Everything the daemon can be told, by file and by command line."""

    server_name: str | None = None  # None: the server's id
    host: str = "0.0.0.0"
    port: int = 4222
    client_advertise: str | None = None
    server_tags: tuple[str, ...] = ()
    server_metadata: tuple[tuple[str, str], ...] = ()
    feature_flags: tuple[tuple[str, bool], ...] = ()

    http_host: str | None = None  # None: as host
    http_port: int = 0
    https_port: int = 0
    http_base_path: str = "/"

    max_connections: int = 65_536  # -1: no limit
    max_subscriptions: int = 0  # per connection; 0: no limit
    max_subscription_tokens: int = 0  # 0: no limit
    max_control_line: int = 4096
    max_payload: int = 1024 * 1024
    max_pending: int = 64 * 1024 * 1024
    max_closed_clients: int = 10_000
    ping_interval_s: float = 120.0
    ping_max: int = 2
    write_deadline_s: float = 10.0
    write_timeout: str = "default"  # or "close", "retry"
    no_fast_producer_stall: bool = False
    no_header_support: bool = False
    lame_duck_duration_s: float = 120.0
    lame_duck_grace_period_s: float = 10.0
    proxy_protocol: bool = False
    connect_error_reports: int = 3600
    reconnect_error_reports: int = 1

    authorization: Authorization = Authorization()
    accounts: tuple[AccountOptions, ...] = ()
    mappings: tuple[MappingOptions, ...] = ()  # of the global account
    no_auth_user: str | None = None
    system_account: str | None = None  # None: $SYS unless no_system_account
    no_system_account: bool = False
    operators: tuple[str, ...] = field(default=(), repr=False)  # operator JWTs, files already read
    trusted_keys: tuple[str, ...] = ()
    resolver: ResolverOptions | None = None
    resolver_preload: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    resolver_pinned_accounts: tuple[str, ...] = ()
    resolver_tls: TlsOptions | None = None

    tls: TlsOptions | None = None
    allow_non_tls: bool = False
    websocket: WebsocketOptions | None = None
    jetstream: JetStreamOptions | None = None
    default_js_domain: tuple[tuple[str, str], ...] = ()  # account to domain
    store_dir: str | None = None  # where JetStream keeps its files when its own block does not say
    leafnodes: LeafnodesOptions | None = None
    cluster: ClusterOptions | None = None

    logging: LoggingOptions = LoggingOptions()
    pid_file: str | None = None
    ports_file_dir: str | None = None
    executable_name: str = "edged"  # names the file in ports_file_dir
    config_digest: str = ""

    @property
    def auth_timeout_s(self) -> float:
        """How long a client may take to log in."""
        if self.authorization.timeout_s:
            return self.authorization.timeout_s
        return 2.0 if self.tls is None else self.tls.timeout_s + 1.0
