"""Runs one case against one server and records a transcript.

Rules: the runner never judges an answer. What cannot be awaited stops the script and is part of the
transcript, so that a server that hangs differs from one that answers. Connections open on first use and are
closed at the end.
"""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import time
from itertools import groupby
from typing import Any

from tests.differential import steps
from tests.differential.compare import Transcript
from tests.differential.connection import FRAME_DEADLINE_S, QUIET_S, Connection, Frame, NoFrameError
from tests.differential.identities import certificates_directory
from tests.differential.normalise import frame_lines, json_lines, show
from tests.differential.script import unescape
from tests.differential.variables import of_nonce, resolve
from tests.servers import POLL_INTERVAL_S, RunningServer, config_of_process

# What the `connect` step sends unless the script changes it. Protocol 0 keeps the asynchronous INFO away.
CONNECT_OPTIONS = {
    "verbose": False,
    "pedantic": False,
    "headers": True,
    "no_responders": True,
    "lang": "script",
    "version": "1.0.0",
    "protocol": 0,
}

ENDING_SIGNALS = ("INT", "TERM")

# Pages for people and pages about the inside of the Go implementation: only the status is compared.
PAGES_NOT_COMPARED = ("/stacksz", "/debug/vars", "/ipqueuesz")


def run(case: steps.Case, server: RunningServer) -> Transcript:
    """Play the case against the server."""
    player = _Player(case, server)
    try:
        looks = any(isinstance(step, steps.Http) or "CONNZ" in str(step) for step in case.steps)
        if looks and not case.header.own_server:
            player.wait_alone()
        for step in case.steps:
            player.play(step)
    except NoFrameError as error:
        player.transcript.stopped = str(error)
        player.record(f"stopped: {error}")
    finally:
        player.close()
        player.remove_streams()
    if any(isinstance(step, steps.Signal) and step.name in ENDING_SIGNALS for step in case.steps):
        player.record(f"the server ended with status {server.wait_exit()}")
    elif not server.is_running():
        player.record("the server ended")
    return player.transcript


class _Player:
    def __init__(self, case: steps.Case, server: RunningServer) -> None:
        self.case = case
        self.server = server
        self.transcript = Transcript(server.name)
        self._connections: dict[str, Connection] = {}
        self._infos: dict[str, dict[str, Any]] = {}
        self._replies: dict[str, str] = {}
        # The connections that have a subscription for the answers to their requests.
        self._asking: set[str] = set()

    def record(self, line: str) -> None:
        self.transcript.lines.append(line)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def remove_streams(self) -> None:
        """Leave a server that the next case uses too without streams, if it lets anybody in."""
        info = self.server.info
        if self.case.header.own_server or not info.get("jetstream") or info.get("auth_required"):
            return
        # nats-server removes the directory of an account without streams, also while the next one is made.
        directories = list(self.server.config_path.parent.glob("*/jetstream/*/streams"))
        for directory in directories:
            (directory / "kept").touch()
        connection = Connection(*self._listener("nats"))
        try:
            connection.frame()
            connection.send(
                b'CONNECT {"verbose":false}\r\nSUB gone 1\r\nPUB $JS.API.STREAM.NAMES gone 0\r\n\r\n'
            )
            answer = connection.frame()
            assert answer is not None and answer.payload is not None
            names = json.loads(answer.payload)["streams"] or ()
            for name in names:
                connection.send(f"PUB $JS.API.STREAM.DELETE.{name} gone 0\r\n\r\n".encode())
                connection.frame()
        finally:
            connection.close()
        # It says so before the files are gone, and a stream of that name would find them.
        until = time.monotonic() + FRAME_DEADLINE_S
        while any((directory / name).exists() for directory in directories for name in names):
            if time.monotonic() > until:
                break
            time.sleep(POLL_INTERVAL_S)

    def wait_alone(self) -> None:
        """Wait until the connections of the case before are forgotten: this case looks at connections."""
        until = time.monotonic() + FRAME_DEADLINE_S
        while self._request("GET", "/connz")[0] == 200 and self._get("/connz")["num_connections"]:
            if time.monotonic() > until:
                raise NoFrameError("connections of an earlier case are still there")
            time.sleep(POLL_INTERVAL_S)

    def play(self, step: steps.Step) -> None:
        match step:
            case steps.Open(name, listener):
                self._open(name, listener, shown=True)
            case steps.StartTls(name, certificate):
                self._start_tls(name, certificate)
            case steps.Send(name, text, line):
                self.record(f"{name}> {text[:120]}")
                data = unescape(self._resolve(text, name))
                self._connection(name).send(data + b"\r\n" if line else data)
            case steps.Publish():
                self.record(f"{step.connection}> publish {step.arguments} = {step.payload[:120]}")
                self._publish(step)
            case steps.Request(publish, count):
                self._ask(publish, count)
            case steps.Connect(name, options):
                self._connect(name, options)
            case steps.Sync(names, reading):
                for name in names:
                    self._sync(name, reading)
            case steps.Take(name, count, reading):
                frames = [self._connection(name).frame() for _ in range(count)]
                self._record_frames(name, frames, reading)
            case steps.TakeUntilClosed(name, reading):
                self._until_closed(name, reading)
            case steps.TakeUntilQuiet(name, reading, quiet_s):
                self._until_quiet(name, reading, quiet_s or QUIET_S)
            case steps.Close(name):
                self.record(f"close {name}")
                self._connections.pop(name).close()
                self._asking.discard(name)
            case steps.Signal(name):
                self.record(f"signal {name}")
                self.server.signal(signal.Signals[f"SIG{name}"])
            case steps.Reload(config):
                self._reload(config)
            case steps.Http(method, target, where):
                self._http(method, target, where)
            case steps.Shows(text):
                if not any(text in line for line in self.transcript.lines):
                    self.transcript.missing.append(text)

    def _connection(self, name: str) -> Connection:
        if name not in self._connections:
            self._open(name, "nats", shown=False)
        return self._connections[name]

    def _listener(self, name: str) -> tuple[str, int]:
        if name not in self.server.listeners:
            raise NoFrameError(f"there is no {name} listener")
        return self.server.listeners[name]

    def _open(self, name: str, listener: str, *, shown: bool) -> None:
        host, port = self._listener(listener)
        try:
            connection = Connection(host, port, pings_shown=self.case.header.pings_shown)
        except OSError as error:
            raise NoFrameError(
                f"cannot connect to the {listener} listener: {type(error).__name__}"
            ) from error
        self._connections[name] = connection
        if self.case.header.tls_first:  # The greeting comes after the handshake.
            return
        frame = connection.frame()
        if shown:
            self._record_frames(name, [frame], steps.Reading())
        if frame is not None and frame.kind == b"INFO":
            self._infos[name] = json.loads(frame.line[5:])

    def _start_tls(self, name: str, certificate: str) -> None:
        directory = certificates_directory()
        context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        if certificate:
            context.load_cert_chain(directory / f"{certificate}.pem", directory / f"{certificate}-key.pem")
        try:
            self._connections[name].start_tls(context)
        except (
            OSError
        ) as error:  # Which error exactly is the TLS library's business, that there is one is ours.
            self.record(f"{name}: TLS handshake failed ({type(error).__name__})")
        else:
            self.record(f"{name}: TLS handshake done")

    def _resolve(self, text: str, connection_name: str = "") -> str:
        def lookup(name: str) -> str | None:
            kind, _, rest = name.partition(".")
            if name == "server.id":
                return str(self.server.info["server_id"])
            if kind == "reply":
                return self._replies[rest]
            if kind == "cid":
                return str(self._infos[rest]["client_id"])
            return None

        if connection_name:
            self._connection(connection_name)
        nonce = self._infos.get(connection_name, {}).get("nonce", "")
        return resolve(text, lookup, of_nonce(nonce))

    def _connect(self, name: str, options: str) -> None:
        self.record(f"{name}> connect {options}")
        changed = {**CONNECT_OPTIONS, **json.loads(self._resolve(options, name))}
        kept = {key: value for key, value in changed.items() if value is not None}
        self._connection(name).send(f"CONNECT {json.dumps(kept)}\r\n".encode())
        self._sync(name, steps.Reading())

    def _publish(self, step: steps.Publish, reply: str = "") -> None:
        name = step.connection
        body = unescape(self._resolve(step.payload, name))
        subjects = unescape(self._resolve(step.arguments, name) + reply)
        if not step.headers:
            self._connection(name).send(b"PUB %b %d\r\n%b\r\n" % (subjects, len(body), body))
            return
        lines = self._resolve(step.headers, name).split("; ")
        block = unescape("".join(f"{line}\\r\\n" for line in ["NATS/1.0", *lines, ""]))
        sizes = b"%d %d" % (len(block), len(block) + len(body))
        self._connection(name).send(b"HPUB %b %b\r\n%b%b\r\n" % (subjects, sizes, block, body))

    def _ask(self, publish: steps.Publish, count: int) -> None:
        """The replies of all requests arrive on one subscription."""
        name = publish.connection
        self.record(f"{name}> request {publish.arguments} = {publish.payload[:120]}")
        if name not in self._asking:
            self._asking.add(name)
            self._connection(name).send(b"SUB asked.> asked\r\n")
        self._publish(publish, " asked.it")
        frames = [self._connection(name).frame() for _ in range(count)]
        table = "API.CONSUMER" if ".CONSUMER." in publish.arguments else "API"
        self._record_frames(name, frames, steps.Reading(json=table))

    def _sync(self, name: str, reading: steps.Reading) -> None:
        connection = self._connection(name)
        connection.send(b"PING\r\n")
        frames: list[Frame | None] = []
        try:
            while not frames or (frames[-1] is not None and frames[-1].line != b"PONG"):
                frames.append(connection.frame())
        finally:
            self._record_frames(name, frames, reading)

    def _until_closed(self, name: str, reading: steps.Reading) -> None:
        connection = self._connection(name)
        frames: list[Frame | None] = []
        try:
            while not frames or frames[-1] is not None:
                frames.append(connection.frame())
        finally:
            self._record_frames(name, frames, reading)

    def _until_quiet(self, name: str, reading: steps.Reading, quiet_s: float) -> None:
        connection = self._connection(name)
        frames: list[Frame | None] = []
        try:
            while not frames or frames[-1] is not None:
                frames.append(connection.frame(quiet_s))
        except NoFrameError:  # Quiet is what was waited for.
            pass
        self._record_frames(name, frames, reading)

    def _record_frames(self, name: str, frames: list[Frame | None], reading: steps.Reading) -> None:
        for frame in frames:
            if frame is not None and frame.reply is not None:
                self._replies[name] = frame.reply.decode(errors="replace")
        if reading.silent:
            frames = [frame for frame in frames if frame is None]
        shown = [["closed"] if frame is None else frame_lines(frame, reading.json) for frame in frames]
        if reading.unordered:
            shown.sort()
        for lines, equal in groupby(shown):
            count = sum(1 for _ in equal)
            times = f" ({count} times)" if count > 1 else ""
            self.record(f"{name}< {lines[0]}{times}")
            for line in lines[1:]:
                self.record(f"   {line}")

    def _reload(self, config: str) -> None:
        self.record("reload")
        before = self._get("/varz")["config_load_time"]
        own = resolve(config)
        self.server.config_path.write_text(config_of_process(own, self.server.config_path.parent))
        self.server.signal(signal.SIGHUP)
        until = time.monotonic() + FRAME_DEADLINE_S
        while self._get("/varz")["config_load_time"] == before:
            if time.monotonic() > until:
                raise NoFrameError("the configuration was not reloaded")
            time.sleep(POLL_INTERVAL_S)

    def _get(self, target: str) -> dict[str, Any]:
        return dict(json.loads(self._request("GET", target)[2]))

    def _request(self, method: str, target: str) -> tuple[int, str, bytes]:
        host, port = self._listener("monitoring")
        connection = http.client.HTTPConnection(host, port, timeout=FRAME_DEADLINE_S)
        try:
            connection.request(method, target)
            response = connection.getresponse()
            return response.status, response.getheader("Content-Type", "none"), response.read()
        except OSError as error:
            raise NoFrameError(f"the monitoring port did not answer: {type(error).__name__}") from error
        finally:
            connection.close()

    def _http(self, method: str, target: str, where: str) -> None:
        self.record(f"http {method} {target}")
        status, content_type, body = self._request(method, self._resolve(target))
        if content_type.startswith("text/html") or target.startswith(PAGES_NOT_COMPARED):
            self.record(f"   {status}")
            return
        layout = "indented" if body.startswith((b"{\n  ", b"[\n  ")) else "plain"
        newline = " newline" if body.endswith(b"\n") else ""
        self.record(f"   {status} {content_type} {layout}{newline}")
        lines = json_lines(body, where or target.partition("?")[0])
        for line in lines if lines is not None else [show(body)]:
            self.record(f"   {line}")
