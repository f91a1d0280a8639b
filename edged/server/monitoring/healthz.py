"""/healthz: whether this server can do its work, as load balancers and orchestrators ask.

Rules: 200 when it can; 400 for a question that makes no sense, 404 for something that does not exist, 500
when clients are not accepted, 503 when JetStream cannot be used. With `details` every error is listed with
its kind, else the first one is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edged.core.commands import CATALOG
from edged.server.monitoring.answers import Answer, Document, shown
from edged.server.monitoring.parameters import Kind, option

if TYPE_CHECKING:
    from edged.server.server import Server

_NO_LEADER = "JetStream has not established contact with a meta leader"


@dataclass(frozen=True, slots=True)
class HealthzOptions:
    """What /healthz can be asked."""

    js_enabled: bool = option(Kind.FLAG, "js-enabled")
    js_enabled_only: bool = option(Kind.FLAG, "js-enabled-only")
    js_server_only: bool = option(Kind.FLAG, "js-server-only")
    js_meta_only: bool = option(Kind.FLAG, "js-meta-only")
    account: str = option(Kind.TEXT, "account")
    stream: str = option(Kind.TEXT, "stream")
    consumer: str = option(Kind.TEXT, "consumer")
    details: bool = option(Kind.FLAG, "details")


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the server is not healthy; `status_text` is what nats-server calls that state."""

    status: int
    status_text: str
    kind: str
    error: str
    account: str = ""
    stream: str = ""
    consumer: str = ""


def healthz(server: Server, options: HealthzOptions) -> Answer:
    """The verdict."""
    problem = _question_problem(options) or _server_problem(server)
    if problem is None and not options.js_server_only:
        problem = _jetstream_problem(server, options)
    if problem is None:
        return Answer(200, {"status": "ok"})
    if not options.details:
        return Answer(problem.status, {"status": problem.status_text, "error": problem.error})
    error: Document = shown(
        {
            "type": problem.kind,
            "account": problem.account,
            "stream": problem.stream,
            "consumer": problem.consumer,
            "error": problem.error,
        }
    )
    return Answer(problem.status, {"status": "error", "errors": [error]})


def _question_problem(options: HealthzOptions) -> Problem | None:
    missing = ""
    if options.stream and not options.account:
        missing = '"account" must not be empty when checking stream health'
    elif options.consumer and not options.stream:
        missing = '"stream" must not be empty when checking consumer health'
    return Problem(400, "error", "BAD_REQUEST", missing) if missing else None


def _server_problem(server: Server) -> Problem | None:
    """A server that is leaving, or has not bound its port yet, takes no clients."""
    if server.info.port and not server.is_lame_duck:
        return None
    reason = "lame duck mode" if server.is_lame_duck else "server"
    return Problem(500, "error", "CONNECTION", f"failed to be ready for connections: {reason}")


def _jetstream_problem(server: Server, options: HealthzOptions) -> Problem | None:
    """Accounts, streams and consumers are looked for only where JetStream is on."""
    if server.options.jetstream is None or options.js_enabled_only or options.js_enabled:
        return None
    cluster = server.jetstream.cluster if server.jetstream is not None else None
    if cluster is not None and not cluster.leader(CATALOG):
        return Problem(503, "unavailable", "JETSTREAM", _NO_LEADER)
    if not options.account or options.js_meta_only:
        return None
    name = options.account
    account = server.jetstream.accounts.get(name) if server.jetstream is not None else None
    if account is None or not account.is_enabled:
        return Problem(404, "unavailable", "ACCOUNT", f'JetStream account "{name}" not found', name)
    stream = account.streams.get(options.stream)
    if options.stream and stream is None:
        error = f'JetStream stream "{options.stream}" not found on account "{name}"'
        return Problem(404, "unavailable", "STREAM", error, name, options.stream)
    if options.consumer and (stream is None or not stream.has_consumer(options.consumer)):
        error = f'JetStream consumer "{options.consumer}" not found for stream "{options.stream}" on account'
        error = f'{error} "{name}"'
        return Problem(404, "unavailable", "CONSUMER", error, name, options.stream, options.consumer)
    return None
