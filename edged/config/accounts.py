"""accounts{}: users, limits, JetStream, exports, imports and mappings of each account.

Rules: accounts are a block by name, or an array of names. $G is always there and cannot be configured here.
Whether imports fit exports is for sharing.py, once every account is known.
"""

from dataclasses import replace

from edged.config.document import ConfigError, Position, Value
from edged.config.options import (
    GLOBAL_ACCOUNT,
    AccountJetStream,
    AccountLimits,
    AccountOptions,
    MappingDestination,
    MappingOptions,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
)
from edged.config.readers import (
    INT31_MAX,
    boolean,
    choice,
    integer,
    percent,
    required_text,
    text,
    text_duration,
    texts,
    wrong_type,
)
from edged.config.table import Context, Table, items_of, key, pairs_of, read_block
from edged.config.users import PERMISSIONS, USER, finish_users, nkey, permissions, users
from edged.core.nkeys import KeyKind
from edged.core.subjects import valid_literal, valid_subscription
from edged.core.transform import SubjectTransform, TransformError

DESTINATION = Table(
    "mappings",
    (
        key("destination dest", required_text, "subject"),
        key("weight", percent, "weight_percent"),
        key("cluster", text),
    ),
)


def _destination(context: Context, value: Value, name: str) -> MappingDestination:
    fields = read_block(context, value, DESTINATION, name)
    if "subject" not in fields or "weight_percent" not in fields:
        raise ConfigError(f"{name}: a destination block needs destination and weight", value.position)
    return MappingDestination(**fields)


def mappings(context: Context, value: Value, name: str) -> tuple[MappingOptions, ...]:
    """source subject to a destination, or to destinations with weights."""
    found = []
    for source, pair in pairs_of(value, name).items():
        if not valid_subscription(source.encode()):
            raise ConfigError(f"{name}: {source!r} is not a valid subject", pair.position)
        data = pair.value.data
        if isinstance(data, str):
            destinations: tuple[MappingDestination, ...] = (MappingDestination(data),)
        elif isinstance(data, tuple):
            destinations = tuple(_destination(context, item, name) for item in data)
        else:
            destinations = (_destination(context, pair.value, name),)
        _check_destinations(source, destinations, pair.position, name)
        found.append(MappingOptions(source, destinations))
    return tuple(found)


def _check_destinations(
    source: str, destinations: tuple[MappingDestination, ...], position: Position, name: str
) -> None:
    if len({destination.subject for destination in destinations}) < len(destinations):
        raise ConfigError(f"{name}: {source!r} has the same destination twice", position)
    total_by_cluster: dict[str | None, int] = {}
    for destination in destinations:
        total = total_by_cluster.get(destination.cluster, 0) + destination.weight_percent
        total_by_cluster[destination.cluster] = total
        if total > 100:
            raise ConfigError(f"{name}: the weights of {source!r} are more than 100 together", position)
        try:
            SubjectTransform.parse(source, destination.subject)
        except TransformError as error:
            raise ConfigError(f"{name}: {source!r} to {destination.subject!r}: {error}", position) from None


ACCOUNT_LIMITS = Table(
    "account limits",
    (
        key("max_connections max_conn", integer(-1, INT31_MAX)),
        key("max_subscriptions max_subs", integer(-1, INT31_MAX)),
        key("max_payload max_pay", integer(-1, INT31_MAX)),
        key("max_leafnodes max_leafs", integer(-1, INT31_MAX)),
    ),
)


def _limits(context: Context, value: Value, name: str) -> AccountLimits:
    return AccountLimits(**read_block(context, value, ACCOUNT_LIMITS, name))


_limit = integer(-1)

ACCOUNT_JETSTREAM = Table(
    "account jetstream",
    (
        key("max_memory max_mem mem memory", _limit),
        key("max_store max_file max_disk store disk", _limit),
        key("max_streams streams", _limit),
        key("max_consumers consumers", _limit),
        key("max_ack_pending", _limit),
        key("memory_max_stream_bytes mem_max_stream_bytes", _limit),
        key("store_max_stream_bytes disk_max_stream_bytes", _limit),
        key("max_bytes_required max_stream_bytes max_bytes", boolean),
        key("cluster_traffic", choice(system="", owner="")),
    ),
)


def _jetstream(context: Context, value: Value, name: str) -> AccountJetStream | None:
    data = value.data
    if isinstance(data, str):
        if data.lower() not in ("enabled", "enable", "disabled", "disable"):
            raise ConfigError(f"{name}: expected enabled, disabled, or a block of limits", value.position)
        return AccountJetStream() if data.lower().startswith("enable") else None
    if isinstance(data, bool):
        return AccountJetStream() if data else None
    return AccountJetStream(**read_block(context, value, ACCOUNT_JETSTREAM, name))


def _sampling(context: Context, value: Value, name: str) -> int:
    """1 to 100 percent; 0 stands for "as the request's headers say"."""
    if isinstance(value.data, str) and value.data.strip().lower() == "headers":
        return 0
    found = percent(context, value, name)
    if found == 0:
        raise ConfigError(f'{name}: expected 1 to 100 percent, or "headers"', value.position)
    return found


LATENCY = Table("latency", (key("subject", required_text), key("sampling", _sampling, "sampling_percent")))


def _latency(context: Context, value: Value, name: str) -> ServiceLatency:
    context.warn("latency is checked, but no samples are sent yet", value.position)
    if isinstance(value.data, str):
        return ServiceLatency(required_text(context, value, name))
    fields = read_block(context, value, LATENCY, name)
    if "subject" not in fields:
        raise ConfigError(f"{name}: the subject is missing", value.position)
    return ServiceLatency(**fields)


EXPORT = Table(
    "exports",
    (
        key("stream", required_text),
        key("service", required_text),
        key("accounts", texts),
        key("account_token_position", integer(0, 255)),
        key("response response_type", choice(singleton="single", stream="", chunked="chunk")),
        key(
            "response_threshold threshold response_max_time response_time",
            text_duration,
            "response_threshold_s",
            zero_is_default=True,
        ),
        key("latency", _latency, block=LATENCY),
        key("allow_trace", boolean),
    ),
)


def _exports(context: Context, value: Value, name: str) -> dict[str, object]:
    streams: list[StreamExport] = []
    services: list[ServiceExport] = []
    for item in items_of(value, name):
        fields = read_block(context, item, EXPORT, name)
        if ("stream" in fields) == ("service" in fields):
            raise ConfigError(f"{name}: each entry needs either a stream or a service", item.position)
        if "service" in fields:
            services.append(ServiceExport(subject=fields.pop("service"), **fields))
            continue
        only_services = sorted(fields.keys() - {"stream", "accounts", "account_token_position"})
        if only_services:
            raise ConfigError(f"{name}: {only_services[0]} is for services, not for streams", item.position)
        streams.append(StreamExport(subject=fields.pop("stream"), **fields))
    return {"stream_exports": tuple(streams), "service_exports": tuple(services)}


SOURCE = Table("imports", (key("account", required_text), key("subject", required_text)))


def _source(context: Context, value: Value, name: str) -> tuple[str, str]:
    fields = read_block(context, value, SOURCE, name)
    if len(fields) < 2:
        raise ConfigError(f"{name}: needs an account and a subject", value.position)
    return fields["account"], fields["subject"]


IMPORT = Table(
    "imports",
    (
        key("stream", _source, block=SOURCE),
        key("service", _source, block=SOURCE),
        key("prefix", text),
        key("to", text),
        key("share", boolean),
        key("allow_trace", boolean),
    ),
)


def _imports(context: Context, value: Value, name: str) -> dict[str, object]:
    streams: list[StreamImport] = []
    services: list[ServiceImport] = []
    for item in items_of(value, name):
        fields = read_block(context, item, IMPORT, name)
        if ("stream" in fields) == ("service" in fields):
            raise ConfigError(f"{name}: each entry needs either a stream or a service", item.position)
        if "stream" in fields:
            account, subject = fields.pop("stream")
            if fields.get("prefix") and fields.get("to"):
                raise ConfigError(f"{name}: use either prefix or to", item.position)
            fields.pop("share", None)
            streams.append(StreamImport(account, subject, **fields))
            continue
        account, subject = fields.pop("service")
        if "allow_trace" in fields:
            raise ConfigError(f"{name}: allow_trace is for streams, not for services", item.position)
        local = fields.get("to") or subject
        if any(one.to == local and one.account == account for one in services):
            raise ConfigError(f"{name}: {local!r} of {account!r} is imported twice", item.position)
        services.append(ServiceImport(account, subject, local, fields.get("share", False)))
    return {"stream_imports": tuple(streams), "service_imports": tuple(services)}


TRACE = Table(
    "trace_dest", (key("dest", text, "trace_dest"), key("sampling", percent, "trace_sampling_percent"))
)


def _trace(context: Context, value: Value, name: str) -> dict[str, object]:
    context.warn("trace_dest is checked, but messages are not traced yet", value.position)
    if isinstance(value.data, str):
        fields: dict[str, object] = {"trace_dest": value.data}
    else:
        fields = read_block(context, value, TRACE, name)
    subject = fields.get("trace_dest")
    if not isinstance(subject, str) or not valid_literal(subject.encode()):
        raise ConfigError(f"{name}: expected the subject that traces are sent to", value.position)
    if fields.setdefault("trace_sampling_percent", 100) == 0:
        raise ConfigError(f"{name}: sampling is 1 to 100 percent", value.position)
    return fields


ACCOUNT = Table(
    "accounts",
    (
        key("users", users, block=USER),
        key("nkey", nkey(KeyKind.ACCOUNT)),
        key("jetstream", _jetstream, block=ACCOUNT_JETSTREAM),
        key("exports", _exports, None, block=EXPORT),
        key("imports", _imports, None, block=IMPORT),
        key("mappings maps", mappings, block=DESTINATION, named=True),
        key("limits", _limits, block=ACCOUNT_LIMITS),
        key("default_permissions", permissions, block=PERMISSIONS),
        key("trace_dest msg_trace", _trace, None, block=TRACE),
    ),
)


def accounts(context: Context, value: Value, name: str) -> tuple[AccountOptions, ...]:
    if isinstance(value.data, tuple):
        names = [(required_text(context, item, name), item.position) for item in value.data]
        for one, position in names:
            _check_name(one, position)
        if len({one for one, _position in names}) < len(names):
            raise ConfigError(f"{name}: an account is there twice", value.position)
        return tuple(AccountOptions(one) for one, _position in names)
    found = []
    for one, pair in pairs_of(value, name).items():
        if pair.position in context.used:
            continue
        _check_name(one, pair.position)
        context.places[f"account {one}"] = pair.position
        if not isinstance(pair.value.data, dict):
            raise wrong_type(pair.value, one, "a block")
        account = AccountOptions(name=one, **read_block(context, pair.value, ACCOUNT, one))
        members = finish_users(account.users, one, account.default_permissions)
        found.append(replace(account, users=members))
    return tuple(found)


def _check_name(name: str, position: Position) -> None:
    if name == GLOBAL_ACCOUNT or not name:
        raise ConfigError(f"{name!r} is a reserved account name: choose another", position)
