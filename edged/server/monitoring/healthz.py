"""/healthz: whether this server can do its work, as load balancers and orchestrators ask.

Rules: 200 when it can; 400 for a question that makes no sense, 404 for something that does not exist, 500
when clients are not accepted, 503 when JetStream cannot be used. With `details` every error is listed with
its kind, else the first one is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edged.server.monitoring.answers import Answer, Document, shown
from edged.server.monitoring.parameters import Kind, option

if TYPE_CHECKING:
    from edged.server.server import Server


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


def healthz(server: Server, options: HealthzOptions) -> Answer:
    """The verdict."""
    problem = _question_problem(options) or _server_problem(server)
    if problem is None and not options.js_server_only:
        problem = _jetstream_problem(server, options)
    if problem is None:
        return Answer(200, {"status": "ok"})
    if not options.details:
        return Answer(problem.status, {"status": problem.status_text, "error": problem.error})
    error: Document = shown({"type": problem.kind, "account": problem.account, "error": problem.error})
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
    """Streams are looked for only where JetStream is on; there are none that could be unhealthy yet."""
    if server.options.jetstream is None or options.js_enabled_only or options.js_enabled:
        return None
    if not options.account:
        return None
    error = f'JetStream account "{options.account}" not found'
    return Problem(404, "unavailable", "ACCOUNT", error, options.account)
