"""From a configuration file to Options: the keys of the top level, and the way from path to checked options.

Rules: load_file reads, parses, types and checks; it either returns options that can be started or raises
ConfigError. What edged does differently or not at all is said in warnings, or refused when silence would be
dangerous. The environment is an argument.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edged.config.accounts import ACCOUNT, DESTINATION, accounts, mappings
from edged.config.check import check_options
from edged.config.document import ConfigError, Document, Value
from edged.config.jetstream import JETSTREAM, jetstream
from edged.config.language import parse_file, parse_text
from edged.config.links import CLUSTER, LEAFNODES, WEBSOCKET, cluster, leafnodes, websocket
from edged.config.options import LoggingOptions, Options, ResolverOptions
from edged.config.readers import (
    INT31_MAX,
    boolean,
    duration,
    flag_map,
    go_duration,
    integer,
    listen,
    name_without_spaces,
    off_only,
    port,
    required_text,
    size_from_zero,
    text,
    text_map,
    texts,
    write_timeout,
)
from edged.config.table import Context, Reader, Table, key, read_pairs
from edged.config.tls import TLS, read_tls
from edged.config.trust import RESOLVER, operator_defaults, operators, preload, resolver, trusted_keys
from edged.config.users import AUTHORIZATION, authorization

# Keys of the top level whose fields belong to LoggingOptions have this in front.
_LOGGING = "logging."
MAX_PAYLOAD_ADVISED = 8 * 1024 * 1024
_LAME_DUCK_DURATION_MIN_S = 30.0


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """Checked options, what to tell the operator about them, and the digest of the file."""

    options: Options
    warnings: tuple[str, ...]
    digest: str


def load_file(path: str | Path, environment: Mapping[str, str]) -> LoadedConfig:
    """Options from a file; files that it names must be readable."""
    return _load(parse_file(path, environment), check_files=True)


def load_text(content: str, environment: Mapping[str, str], path: str = "<text>") -> LoadedConfig:
    """Options from text, without a look at the certificates and credentials it names."""
    return _load(parse_text(content, environment, path), check_files=False)


def _load(document: Document, *, check_files: bool) -> LoadedConfig:
    context = Context(used=document.used, warnings=list(document.warnings))
    if not document.root:
        context.warnings.append("the configuration is empty: every option has its default")
    for pair in document.root.values():
        if (known := TOP.find(pair.key)) is not None:
            context.places[known.name] = pair.position
    digest = document.digest()
    options = _finish(read_pairs(context, document.root, TOP), digest)
    if check_files:
        _check_files(context)
    check_options(options, context.places)
    _refuse_unfinished(options, context)
    if options.max_payload > MAX_PAYLOAD_ADVISED:
        context.warnings.append(
            f"max_payload of more than {MAX_PAYLOAD_ADVISED} bytes costs memory: split messages"
        )
    return LoadedConfig(options, tuple(context.warnings), digest)


def _finish(found: dict[str, Any], digest: str) -> Options:
    """Options from the fields that were set, with what one block says about another filled in."""
    logging = {name: found.pop(name) for name in list(found) if name.startswith(_LOGGING)}
    options = Options(
        **found,
        logging=LoggingOptions(**{name.removeprefix(_LOGGING): value for name, value in logging.items()}),
        config_digest=digest,
    )
    if options.jetstream is not None and options.jetstream.store_dir is None:
        options = replace(options, jetstream=replace(options.jetstream, store_dir=options.store_dir))
    elif options.jetstream is not None and options.store_dir is not None:
        raise ConfigError("store_dir is at the top and in the jetstream block: write it in one place")
    implied = operator_defaults(options.operators)
    if options.system_account is None:
        options = replace(options, system_account=implied.system_account)
    if options.resolver is None and implied.account_server_url is not None:
        # The tool that pushes accounts keeps them below this path.
        url = implied.account_server_url + "/accounts"
        options = replace(options, resolver=ResolverOptions("url", url=url))
    return options


def _check_files(context: Context) -> None:
    for name, position in context.files:
        try:
            with Path(name).expanduser().open("rb"):
                pass
        except (OSError, ValueError, RuntimeError) as error:
            reason = (
                error.strerror if isinstance(error, OSError) and error.strerror else "not a usable file name"
            )
            raise ConfigError(f"cannot read {name!r}: {reason}", position) from None


def _refuse_unfinished(options: Options, context: Context) -> None:
    """What is understood here but not done by the server yet must not look as if it were."""
    if options.authorization.auth_callout is not None:
        position = context.places.get("auth_callout")
        raise ConfigError("auth_callout: edged does not ask an outside service about users", position)


def _max_connections(context: Context, value: Value, name: str) -> int:
    """nats-server reads 0 as no limit and reports it as -1."""
    return integer(-1, INT31_MAX)(context, value, name) or -1


def _tags(context: Context, value: Value, name: str) -> tuple[str, ...]:
    found = (tag.strip().lower() for tag in texts(context, value, name))
    return tuple(dict.fromkeys(tag for tag in found if tag))


def _base_path(context: Context, value: Value, name: str) -> str:
    return posixpath.normpath("/" + (text(context, value, name) or "").lstrip("/"))


def _lame_duck_duration(_context: Context, value: Value, name: str) -> float:
    found = go_duration(value, name)
    if found < _LAME_DUCK_DURATION_MIN_S:
        raise ConfigError(f'{name}: expected at least "30s"', value.position)
    return found


def _grace_period(_context: Context, value: Value, name: str) -> float:
    return go_duration(value, name)


def _trace_too(field: str) -> Reader:
    """trace_verbose and trace_headers turn trace on or off as well."""

    def read(context: Context, value: Value, name: str) -> dict[str, object]:
        found = boolean(context, value, name)
        return {_LOGGING + field: found, _LOGGING + "trace": found}

    return read


_NO_PROFILER = "edged has no profiling port"

TOP = Table(
    "the configuration",
    (
        key("server_name", name_without_spaces),
        key("listen", listen("host", "port"), None),
        key("host net", required_text),
        key("port", port, zero_is_default=True),
        key("client_advertise", text),
        key("server_tags", _tags),
        key("server_metadata", text_map),
        key("feature_flags", flag_map),
        key("http", listen("http_host", "http_port"), None),
        key("http_port monitor_port", port),
        key("https", listen("http_host", "https_port"), None),
        key("https_port", port),
        key("http_base_path", _base_path),
        key("max_connections max_conn", _max_connections),
        key("max_subscriptions max_subs", integer(0, INT31_MAX)),
        key("max_subscription_tokens max_sub_tokens", integer(1, 255)),
        key("max_control_line", integer(0, INT31_MAX), zero_is_default=True),
        key("max_payload", integer(0, INT31_MAX), zero_is_default=True),
        key("max_pending", integer(), zero_is_default=True),
        key("max_closed_clients", integer(), zero_is_default=True),
        key("ping_interval", duration, "ping_interval_s", zero_is_default=True),
        key("ping_max", integer(0, INT31_MAX), zero_is_default=True),
        key("write_deadline", duration, "write_deadline_s", zero_is_default=True),
        key("write_timeout", write_timeout),
        key("no_fast_producer_stall", boolean),
        key("no_header_support", boolean),
        key("lame_duck_duration", _lame_duck_duration, "lame_duck_duration_s"),
        key("lame_duck_grace_period", _grace_period, "lame_duck_grace_period_s", zero_is_default=True),
        key("proxy_protocol", boolean),
        key("connect_error_reports", integer(), zero_is_default=True),
        key("reconnect_error_reports", integer(), zero_is_default=True),
        key("authorization", authorization, block=AUTHORIZATION),
        key("accounts", accounts, block=ACCOUNT, named=True),
        key("mappings maps", mappings, block=DESTINATION, named=True),
        key("no_auth_user", text),
        key("system_account system", text),
        key("no_system_account no_system no_sys_acc", boolean),
        key("operator operators roots root root_operators root_operator", operators, "operators"),
        key("trusted_keys trusted", trusted_keys),
        key("resolver account_resolver accounts_resolver", resolver, block=RESOLVER),
        key("resolver_preload", preload),
        key("resolver_pinned_accounts", texts),
        key("resolver_tls", read_tls(), block=TLS),
        key("tls", read_tls(), block=TLS),
        key("allow_non_tls", boolean),
        key("websocket ws", websocket, block=WEBSOCKET),
        key("jetstream", jetstream, block=JETSTREAM),
        key("default_js_domain", text_map),
        key("store_dir storedir", text),
        key("leafnodes leaf", leafnodes, block=LEAFNODES),
        key("cluster", cluster, block=CLUSTER),
        key("debug", boolean, "logging.debug"),
        key("trace", boolean, "logging.trace"),
        key("trace_verbose", _trace_too("trace_verbose"), None),
        key("trace_headers", _trace_too("trace_headers"), None),
        key("logtime", boolean, "logging.logtime"),
        key("logtime_utc", boolean, "logging.logtime_utc"),
        key("log_file logfile", text, "logging.file"),
        key("logfile_size_limit log_size_limit", size_from_zero, "logging.size_limit"),
        key("logfile_max_num log_max_num", integer(), "logging.max_files"),
        key("syslog", boolean, "logging.syslog"),
        key("remote_syslog", text, "logging.remote_syslog"),
        key("max_traced_msg_len", integer(), "logging.max_traced_msg_len"),
        key("pid_file pidfile", text),
        key("ports_file_dir", text),
        key("ocsp", off_only("edged does not staple OCSP responses: leave it off"), None),
    ),
    refused={
        "gateway": "edged links clusters by leaf nodes and sync: use leafnodes",
        "mqtt": "edged speaks no MQTT: remove the block, or bridge MQTT clients",
        "proxies": "edged does not know trusted proxies",
        "default_sentinel": "edged does not log in clients without credentials by a sentinel JWT",
    },
    ignored={
        "prof_port": _NO_PROFILER,
        "prof_block_rate": _NO_PROFILER,
        "ocsp_cache": "edged keeps no OCSP responses",
        "disable_sublist_cache": "the cache of subject matches is always bounded here",
        "no_sublist_cache": "the cache of subject matches is always bounded here",
    },
)
