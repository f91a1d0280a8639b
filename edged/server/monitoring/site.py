"""The paths of the monitoring port and what each of them answers with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edged.server.monitoring import gojson
from edged.server.monitoring.answers import Answer, BadRequest
from edged.server.monitoring.conversation import Request, Response, plain_text
from edged.server.monitoring.index import index
from edged.server.monitoring.internals import NO_RAFT, stacksz
from edged.server.monitoring.metrics import Metrics
from edged.server.monitoring.parameters import parse_query

if TYPE_CHECKING:
    from edged.server.monitoring.monitor import Monitor

_JSON = "application/json"
# Dashboards in a browser read these from anywhere; there is nothing in them that a cookie would unlock.
_ANY_ORIGIN = ("Access-Control-Allow-Origin", "*")
_DOCUMENTS = {
    "/varz": "varz",
    "/connz": "connz",
    "/routez": "routez",
    "/gatewayz": "gatewayz",
    "/leafz": "leafz",
    "/subsz": "subsz",
    "/subscriptionsz": "subsz",
    "/accountz": "accountz",
    "/accstatz": "accstatz",
    "/jsz": "jsz",
    "/healthz": "healthz",
    "/ipqueuesz": "ipqueuesz",
    "/raftz": "raftz",
    "/debug/vars": "expvarz",
}
# nats-server counts requests to these only; /metrics is ours.
_COUNTED = frozenset({*_DOCUMENTS, "/", "/metrics"} - {"/ipqueuesz", "/raftz", "/debug/vars"})


class Site:
    """Answers requests."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._metrics = Metrics(monitor.server, monitor.process)
        self._base_path = "/" + monitor.server.options.http_base_path.strip("/")
        self._pages: dict[str, Callable[[Request], Response]] = {
            "/": self._index,
            "/metrics": self._scrape,
            "/stacksz": self._stacks,
        }

    def respond(self, request: Request) -> Response:
        """The answer to a request."""
        path = self._without_base(request.path)
        if path is None or (path not in _DOCUMENTS and path not in self._pages):
            return plain_text(404, "404 page not found\n", ("X-Content-Type-Options", "nosniff"))
        if path in _COUNTED:
            counts = self._monitor.server.http_requests
            counted = "/subsz" if path == "/subscriptionsz" else path
            counts[counted] = counts.get(counted, 0) + 1
        page = self._pages.get(path)
        return page(request) if page is not None else self._document(path, request)

    def _without_base(self, path: str) -> str | None:
        """The path below http_base_path; None for one that is elsewhere."""
        if self._base_path == "/":
            return path
        if path == self._base_path:
            return "/"
        below = path.removeprefix(self._base_path + "/")
        return None if below == path or not below else "/" + below

    def _document(self, path: str, request: Request) -> Response:
        name = _DOCUMENTS[path]
        if name == "raftz":
            return plain_text(404, NO_RAFT)
        try:
            answer = self._monitor.answer(name, parse_query(request.query))
        except BadRequest as refusal:
            return plain_text(refusal.status, refusal.text)
        if name == "healthz":
            self._log_health(answer)
            return Response(answer.status, _JSON, [gojson.compact(answer.body)], (_ANY_ORIGIN,))
        return Response(answer.status, _JSON, gojson.indented(answer.body), (_ANY_ORIGIN,))

    def _log_health(self, answer: Answer) -> None:
        assert isinstance(answer.body, dict)
        if answer.status != 200:
            problem = answer.body.get("error") or answer.body["errors"][0]["error"]
            self._monitor.server.log.warn("health check failed", error=problem)

    def _index(self, request: Request) -> Response:
        page = index(self._monitor.server.name, self._base_path)
        return Response(200, "text/html; charset=utf-8", [page])

    def _scrape(self, request: Request) -> Response:
        page, content_type = self._metrics.page(request.accept)
        return Response(200, content_type, [page])

    def _stacks(self, request: Request) -> Response:
        return plain_text(200, stacksz())
