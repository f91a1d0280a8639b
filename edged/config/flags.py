"""The command line of nats-server: which flags there are, how they are written, what they change.

Rules: Go's. One dash or two, `=value` or the next word; a boolean flag takes its value only with `=`; the
first word without a dash ends the flags. A flag given twice counts the last time. Flags override the
configuration file, at start and at every reload, so applying them is a function from options to options.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from edged.config.document import ConfigError
from edged.config.jetstream_options import JetStreamOptions
from edged.config.options import ClusterOptions, Options, TlsOptions

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class FlagError(Exception):
    """The command line is wrong; the text names the flag and what to write."""


Apply = Callable[[Options, Any], Options]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag; kind is bool, int or str. Without apply it is an action of the command line itself."""

    names: tuple[str, ...]
    kind: type
    placeholder: str
    help: str
    apply: Apply | None = None

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True, slots=True)
class ParsedFlags:
    """Flags with their values in the order given, and the words after them."""

    given: tuple[tuple[Flag, Any], ...] = ()
    words: tuple[str, ...] = ()

    def value(self, name: str) -> Any:
        """The last value of a flag by its first name, or None."""
        return next((value for flag, value in reversed(self.given) if flag.name == name), None)


def parse_flags(arguments: Sequence[str]) -> ParsedFlags:
    """The flags at the front of the arguments; FlagError when one is unknown or has a wrong value."""
    given: list[tuple[Flag, Any]] = []
    waiting = list(arguments)
    while waiting and waiting[0].startswith("-") and waiting[0] != "-":
        word = waiting.pop(0)
        if word == "--":
            break
        name, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        flag = _BY_NAME.get(name)
        if flag is None:
            raise FlagError(f"unknown flag {word.split('=')[0]}{_suggestion(name)}")
        if flag.kind is bool:
            text = text if equals else "true"
        elif not equals:
            if not waiting:
                raise FlagError(f"flag {word} needs a value: {flag.placeholder}")
            text = waiting.pop(0)
        given.append((flag, _value(flag, word.split("=")[0], text)))
    return ParsedFlags(tuple(given), tuple(waiting))


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, _BY_NAME, n=1)
    if not close:
        return ": see edged --help"
    return f": did you mean {'--' if len(close[0]) > 2 else '-'}{close[0]}?"


def _value(flag: Flag, written: str, text: str) -> bool | int | str:
    if flag.kind is str:
        return text
    if flag.kind is bool:
        if text not in _TRUE | _FALSE:
            raise FlagError(f"flag {written} is true or false: write {written} or {written}=false")
        return text in _TRUE
    try:
        return int(text[:32], 0)
    except ValueError:
        raise FlagError(f"flag {written} needs a number: {flag.placeholder}") from None


def apply_flags(options: Options, flags: ParsedFlags) -> Options:
    """The options with every given flag on top; ConfigError when they do not fit together."""
    for flag, value in flags.given:
        if flag.apply is not None:
            options = flag.apply(options, value)
    options = _apply_tls(options, flags)
    if options.cluster is not None and flags.value("routes") and options.cluster.port == 0:
        raise ConfigError("--routes needs a cluster to be part of: add --cluster nats://host:port")
    return options


def _apply_tls(options: Options, flags: ParsedFlags) -> Options:
    """--tls=false turns TLS off; any other of these flags replaces the tls block of the file."""
    if flags.value("tls") is False:
        return replace(options, tls=None)
    if all(flags.value(name) is None for name in ("tls", "tlscert", "tlskey", "tlsverify", "tlscacert")):
        return options
    certificate, key = flags.value("tlscert"), flags.value("tlskey")
    if not certificate or not key:
        raise ConfigError("TLS by flags needs both --tlscert <file> and --tlskey <file>")
    tls = TlsOptions(
        cert_file=certificate,
        key_file=key,
        ca_file=flags.value("tlscacert") or None,
        verify=bool(flags.value("tlsverify")),
    )
    return replace(options, tls=tls)


def _with(target: Any, **changes: Any) -> Any:
    """replace() for fields named at run time, which a type checker cannot follow."""
    return replace(target, **changes)


def _set(field: str, *, empty: object = None) -> Apply:
    """Sets a field of Options; an empty text or 0 gives it its default or None again."""

    def apply(options: Options, value: Any) -> Any:
        return _with(options, **{field: value or empty})

    return apply


def _set_port(field: str, default: int) -> Apply:
    def apply(options: Options, value: int) -> Any:
        if not -1 <= value <= 65_535:
            raise ConfigError(f"{field} must be from 0 to 65535, or -1 for any free port")
        return _with(options, **{field: value or default})

    return apply


def _set_authorization(field: str) -> Apply:
    def apply(options: Options, value: str) -> Options:
        return replace(options, authorization=_with(options.authorization, **{field: value or None}))

    return apply


def _set_logging(*fields: str) -> Apply:
    def apply(options: Options, value: Any) -> Options:
        chosen = dict.fromkeys(fields, None if value == "" else value)
        return replace(options, logging=_with(options.logging, **chosen))

    return apply


def _set_cluster(field: str) -> Apply:
    def apply(options: Options, value: Any) -> Options:
        cluster = options.cluster or ClusterOptions()
        return replace(options, cluster=_with(cluster, **{field: None if value == "" else value}))

    return apply


def _jetstream(options: Options, value: bool) -> Options:
    if not value:
        return replace(options, jetstream=None)
    return replace(options, jetstream=options.jetstream or JetStreamOptions(store_dir=options.store_dir))


def _store_dir(options: Options, value: str) -> Options:
    directory = value or None
    jetstream = options.jetstream and replace(options.jetstream, store_dir=directory)
    return replace(options, store_dir=directory, jetstream=jetstream)


def _routes(options: Options, value: str) -> Options:
    cluster = options.cluster or ClusterOptions()
    routes = tuple(route.strip() for route in value.split(",") if route.strip())
    return replace(options, cluster=replace(cluster, routes=routes))


def _cluster_listen(options: Options, value: str) -> Options:
    """A URL to accept routes at; its user and password become those of the cluster. Empty turns it off."""
    cluster = options.cluster or ClusterOptions()
    if not value:
        return replace(options, cluster=replace(cluster, port=0))
    any_port = value.endswith(":-1")
    try:
        parts = urlsplit(value.removesuffix("-1") + "0" if any_port else value)
        port = parts.port
    except ValueError:
        port = None
    if port is None:
        raise ConfigError("--cluster needs a URL such as nats://0.0.0.0:6222")
    if parts.username is not None and parts.password is None:
        raise ConfigError("--cluster has a user without a password: write nats://user:password@host:port")
    listening = replace(
        cluster,
        host=parts.hostname or ClusterOptions().host,
        port=-1 if any_port else port,
        user=parts.username,
        password=parts.password,
    )
    return replace(options, cluster=listening)


def _unchanged(options: Options, _value: object) -> Options:
    return options


# The groups are those of the help text, in its order.
FLAG_GROUPS: tuple[tuple[str, tuple[Flag, ...]], ...] = (
    (
        "Server",
        (
            Flag(("c", "config"), str, "<file>", "read this configuration file"),
            Flag(("t",), bool, "", "check the configuration file and exit"),
            Flag(("a", "addr", "net"), str, "<host>", "listen on this address (default 0.0.0.0: all)",
                 _set("host", empty=Options().host)),
            Flag(("p", "port"), int, "<port>", "listen on this port (default 4222; -1: any free one)",
                 _set_port("port", Options().port)),
            Flag(("n", "name", "server_name"), str, "<name>", "name of this server (default: its id)",
                 _set("server_name")),
            Flag(("P", "pid"), str, "<file>", "write the process id to this file", _set("pid_file")),
            Flag(("m", "http_port"), int, "<port>", "serve monitoring by HTTP on this port",
                 _set_port("http_port", 0)),
            Flag(("ms", "https_port"), int, "<port>", "serve monitoring by HTTPS on this port",
                 _set_port("https_port", 0)),
            Flag(("sl", "signal"), str, "<command>[=<pid>]",
                 "tell a running server: reload, reopen, ldm, quit, term or stop; <pid> may be a pid file"),
            Flag(("client_advertise",), str, "<host:port>", "tell clients to connect here",
                 _set("client_advertise")),
            Flag(("ports_file_dir",), str, "<directory>", "write the ports in use to <program>_<pid>.ports",
                 _set("ports_file_dir")),
        ),
    ),
    (
        "Logging",
        (
            Flag(("l", "log"), str, "<file>", "log to this file", _set_logging("file")),
            Flag(("T", "logtime"), bool, "", "put the time on lines (default true)", _set_logging("logtime")),
            Flag(("logtime_utc",), bool, "", "in UTC", _set_logging("logtime_utc")),
            Flag(("s", "syslog"), bool, "", "log to syslog", _set_logging("syslog")),
            Flag(("r", "remote_syslog"), str, "<address>", "log to this syslog server (udp://localhost:514)",
                 _set_logging("remote_syslog")),
            Flag(("D", "debug"), bool, "", "log what helps to find faults", _set_logging("debug")),
            Flag(("V", "trace"), bool, "", "log every protocol line", _set_logging("trace")),
            Flag(("VV",), bool, "", "the same, and those of the system account",
                 _set_logging("trace", "trace_verbose")),
            Flag(("DV",), bool, "", "-D and -V", _set_logging("debug", "trace")),
            Flag(("DVV",), bool, "", "-D and -VV", _set_logging("debug", "trace", "trace_verbose")),
            Flag(("log_size_limit",), int, "<bytes>", "start a new log file at this size",
                 _set_logging("size_limit")),
            Flag(("max_traced_msg_len",), int, "<bytes>", "cut traced messages after so much",
                 _set_logging("max_traced_msg_len")),
        ),
    ),
    (
        "JetStream",
        (
            Flag(("js", "jetstream"), bool, "", "turn JetStream on", _jetstream),
            Flag(("sd", "store_dir"), str, "<directory>", "keep its files here", _store_dir),
        ),
    ),
    (
        "Authorization",
        (
            Flag(("user",), str, "<user>", "user that clients log in with", _set_authorization("user")),
            Flag(("pass",), str, "<password>", "its password (visible: prefer a file)",
                 _set_authorization("password")),
            Flag(("auth",), str, "<token>", "token that clients log in with (visible: prefer a file)",
                 _set_authorization("token")),
        ),
    ),
    (
        "TLS",
        (
            Flag(("tls",), bool, "", "use TLS for clients; --tls=false turns off what the file says"),
            Flag(("tlscert",), str, "<file>", "certificate of this server"),
            Flag(("tlskey",), str, "<file>", "its key"),
            Flag(("tlsverify",), bool, "", "ask clients for a certificate and check it"),
            Flag(("tlscacert",), str, "<file>", "authority to check it by"),
        ),
    ),
    (
        "Cluster",
        (
            Flag(("routes",), str, "<url, ...>", "connect to these servers", _routes),
            Flag(("cluster", "cluster_listen"), str, "<url>", "accept other servers here", _cluster_listen),
            Flag(("cluster_name",), str, "<name>", "name of the cluster", _set_cluster("name")),
            Flag(("cluster_advertise",), str, "<host:port>", "tell other servers to connect here",
                 _set_cluster("advertise")),
            Flag(("no_advertise",), bool, "", "do not tell clients about other servers",
                 _set_cluster("no_advertise")),
            Flag(("connect_retries",), int, "<number>", "how often to try servers learned from others",
                 _set_cluster("connect_retries")),
        ),
    ),
    (
        "Other",
        (
            Flag(("profile",), int, "<port>", "accepted for nats-server's sake; there is no profiling port",
                 _unchanged),
            Flag(("h", "help"), bool, "", "show this help"),
            Flag(("v", "version"), bool, "", "show the version"),
            Flag(("help_tls",), bool, "", "show help about TLS"),
        ),
    ),
)  # fmt: skip

_BY_NAME = {name: flag for _title, flags in FLAG_GROUPS for flag in flags for name in flag.names}
