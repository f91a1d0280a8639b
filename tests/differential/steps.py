"""The steps of a wire script, as data: what a parsed line asks the runner to do.

A connection is a capital letter. Text may hold escapes and variables; the runner resolves them when it sends.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Open:
    """Open a connection and record the INFO it is greeted with. `listener` is a kind of the ports file."""

    connection: str
    listener: str = "nats"


@dataclass(frozen=True, slots=True)
class StartTls:
    """Do the TLS handshake of a client on an open connection; `certificate` names the client's, if any."""

    connection: str
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """Send text after escapes are resolved; `line` adds CRLF."""

    connection: str
    text: str
    line: bool = True


@dataclass(frozen=True, slots=True)
class Publish:
    """Send PUB with the size of `payload` counted after variables are resolved."""

    connection: str
    arguments: str
    payload: str
    # Lines of a header block, separated by "; "; with any it is HPUB.
    headers: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """Publish with a reply subject that is listened to, and record the next `count` frames.

    A JSON answer is compared by the table `API`, and in the order of its fields.
    """

    publish: Publish
    count: int = 1


@dataclass(frozen=True, slots=True)
class Connect:
    """Send CONNECT with the usual options changed by `options`, and PING, and record up to the PONG."""

    connection: str
    options: str = "{}"


@dataclass(frozen=True, slots=True)
class Reading:
    """How the frames of a reading step are recorded.

    `json` names the table of allowed differences to use; `silent` records only the end of the connection,
    where how much arrived before it is a matter of timing.
    """

    unordered: bool = False
    silent: bool = False
    json: str = ""


@dataclass(frozen=True, slots=True)
class Sync:
    """Send PING on each connection, and record what arrives up to its PONG or its end."""

    connections: tuple[str, ...]
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True, slots=True)
class Take:
    """Record the next `count` frames."""

    connection: str
    count: int
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True, slots=True)
class TakeUntilClosed:
    """Record everything up to the end of the connection."""

    connection: str
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True, slots=True)
class TakeUntilQuiet:
    """Record what arrives until nothing has for a while: for what has no barrier."""

    connection: str
    reading: Reading = field(default_factory=Reading)
    # 0: a moment.
    quiet_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Close:
    """End a connection from the client's side."""

    connection: str


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal, for example USR2, to the server."""

    name: str


@dataclass(frozen=True, slots=True)
class Reload:
    """Replace the configuration file, send SIGHUP and wait until the server says it has loaded it."""

    config: str


@dataclass(frozen=True, slots=True)
class Http:
    """Ask the monitoring port and record status, content type and body."""

    method: str
    target: str
    json: str = ""


@dataclass(frozen=True, slots=True)
class Shows:
    """The case proves nothing unless the transcript of nats-server holds this text by now."""

    text: str


Step = (
    Open
    | StartTls
    | Send
    | Publish
    | Request
    | Connect
    | Sync
    | Take
    | TakeUntilClosed
    | TakeUntilQuiet
    | Close
    | Signal
    | Reload
    | Http
    | Shows
)


@dataclass(frozen=True, slots=True)
class Header:
    """What a case runs on.

    `config` is configuration text; `own_server` asks for servers nobody else uses; `tls_first` says that
    nothing is sent in clear, so that INFO comes after the handshake.
    """

    config: str = ""
    own_server: bool = False
    pings_shown: bool = False
    tls_first: bool = False
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One scripted conversation."""

    file: str
    title: str
    header: Header
    steps: tuple[Step, ...]

    @property
    def id(self) -> str:
        """The name of the case in test reports."""
        return f"{self.file}: {self.title}"
