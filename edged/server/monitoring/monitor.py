"""Monitoring as a whole: documents by name, the paths they are served at, and the ports that serve them.

Rules: whoever asks over HTTP is counted by path in the server's statistics; the system account is not. The
HTTP parts and prometheus_client are imported only when a port is configured, because they cost memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import trio

from edged.config.options import Options
from edged.server.listener import bind
from edged.server.monitoring.accountz import AccountzOptions, AccstatzOptions, accountz, accstatz
from edged.server.monitoring.answers import Answer, Document, without_rows
from edged.server.monitoring.connz import ConnzOptions, connz, without_lone_filter
from edged.server.monitoring.healthz import HealthzOptions, healthz
from edged.server.monitoring.internals import (
    ExpvarzOptions,
    IpqueueszOptions,
    RaftzOptions,
    expvarz,
    ipqueuesz,
    raftz,
)
from edged.server.monitoring.jsz import JszOptions, jsz
from edged.server.monitoring.links import (
    GatewayzOptions,
    LeafzOptions,
    RoutezOptions,
    gatewayz,
    leafz,
    routez,
)
from edged.server.monitoring.parameters import from_json, from_query
from edged.server.monitoring.process import Process, Usage
from edged.server.monitoring.subsz import SubszOptions, subsz
from edged.server.monitoring.varz import VarzOptions, idz, statsz, varz
from edged.server.tls_context import server_context

if TYPE_CHECKING:
    from edged.server.monitoring.http_port import HttpPort
    from edged.server.server import Server


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """A document: how its options are called, and the function that makes it from them."""

    options: type[Any]
    make: Callable[[Monitor, Any], Answer]


class Monitor:
    """Describes a server, over HTTP when a port is configured, and to the system account always."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.process = Process()
        self._ports: list[HttpPort] = []

    # --- ports ---

    @property
    def addresses(self) -> list[str]:
        """URLs of the monitoring ports, for the ports file."""
        return [
            f"{'https' if port.is_secure else 'http'}://{_reachable(port.host)}:{port.port}"
            for port in self._ports
        ]

    async def start(self, nursery: trio.Nursery) -> None:
        """Listen on http_port and https_port, as configured. ListenError when that fails."""
        options = self.server.options
        if options.http_port == 0 and options.https_port == 0:
            return
        from edged.server.monitoring.http_port import HttpPort
        from edged.server.monitoring.site import Site

        site = Site(self)
        log = self.server.log
        host = options.http_host or options.host
        if options.http_port != 0:
            self._ports.append(HttpPort(bind(host, options.http_port), site.respond, log))
        if options.https_port != 0:
            context = _tls_context(options)
            self._ports.append(HttpPort(bind(host, options.https_port), site.respond, log, context))
        for port in self._ports:
            scheme = "https" if port.is_secure else "http"
            log.info(f"Starting {scheme} monitor on {_bracketed(port.host)}:{port.port}")
            nursery.start_soon(port.run)

    def configure(self, options: Options) -> None:
        """Take over certificates at reload. TlsConfigError when they cannot be used."""
        for port in self._ports:
            if port.is_secure:
                port.tls_context = _tls_context(options)

    def close(self) -> None:
        """Accept nothing more."""
        for port in self._ports:
            port.close()

    # --- documents ---

    def usage(self) -> Usage:
        """What the process costs."""
        return self.process.usage()

    def answer(self, name: str, query: Mapping[str, str]) -> Answer:
        """A document as HTTP serves it: long lists in it are Rows. Raises BadRequest."""
        endpoint = _ENDPOINTS[name]
        if name == "connz":
            query = without_lone_filter(query)
        return endpoint.make(self, from_query(endpoint.options, query))

    def document(self, name: str, query: Mapping[str, str]) -> Answer:
        """The document `varz`, `connz`, `healthz`... for the options of an HTTP query. Raises BadRequest."""
        return _whole(self.answer(name, query))

    def document_from_options(self, name: str, options: Mapping[str, object]) -> Answer:
        """The same for options as typed JSON, as requests to the system account carry them. BadRequest."""
        endpoint = _ENDPOINTS[name]
        return _whole(endpoint.make(self, from_json(endpoint.options, options)))


def _whole(answer: Answer) -> Answer:
    return replace(answer, body=without_rows(answer.body)) if isinstance(answer.body, dict) else answer


def _of_server(make: Callable[[Server, Any], Document]) -> Callable[[Monitor, Any], Answer]:
    """An endpoint that looks at nothing but the server and its options."""
    return lambda monitor, options: Answer(200, make(monitor.server, options))


_ENDPOINTS: dict[str, _Endpoint] = {
    "varz": _Endpoint(VarzOptions, lambda monitor, _: Answer(200, varz(monitor.server, monitor.usage()))),
    "statsz": _Endpoint(VarzOptions, lambda monitor, _: Answer(200, statsz(monitor.server, monitor.usage()))),
    "idz": _Endpoint(VarzOptions, lambda monitor, _: Answer(200, idz(monitor.server))),
    "connz": _Endpoint(ConnzOptions, _of_server(connz)),
    "subsz": _Endpoint(SubszOptions, _of_server(subsz)),
    "routez": _Endpoint(RoutezOptions, _of_server(routez)),
    "leafz": _Endpoint(LeafzOptions, _of_server(leafz)),
    "gatewayz": _Endpoint(GatewayzOptions, _of_server(gatewayz)),
    "accountz": _Endpoint(AccountzOptions, _of_server(accountz)),
    "accstatz": _Endpoint(AccstatzOptions, _of_server(accstatz)),
    "jsz": _Endpoint(JszOptions, _of_server(jsz)),
    "healthz": _Endpoint(HealthzOptions, lambda monitor, options: healthz(monitor.server, options)),
    "raftz": _Endpoint(RaftzOptions, _of_server(raftz)),
    "ipqueuesz": _Endpoint(IpqueueszOptions, _of_server(ipqueuesz)),
    "expvarz": _Endpoint(
        ExpvarzOptions, lambda monitor, _: Answer(200, expvarz(monitor.server, monitor.usage()))
    ),
}


def _tls_context(options: Options) -> Any:
    """The clients' certificate serves the monitoring port too, which asks nobody for one of theirs."""
    assert options.tls is not None, "https_port needs tls; the configuration is checked for it"
    return server_context(
        replace(options.tls, verify=False, verify_and_map=False, verify_cert_and_check_known_urls=False)
    )


def _reachable(host: str) -> str:
    """An address that a client on this machine can use."""
    return _bracketed({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
