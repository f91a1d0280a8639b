"""The ports file: where a daemon that chose its ports tells a test or a supervisor what they are."""

from __future__ import annotations

import json

from edged.config.options import Options
from edged.server.listener import Listener


def ports_document(options: Options, listeners: list[Listener], monitoring: list[str]) -> str:
    """The JSON that nats-server's ports file has, with the lists that are in use."""
    document: dict[str, list[str]] = {}
    for listener in listeners:
        if listener.is_websocket:
            is_tls = options.websocket is not None and options.websocket.tls is not None
            document["websocket"] = [_url("wss" if is_tls else "ws", listener)]
        else:
            document["nats"] = [_url("tls" if options.tls is not None else "nats", listener)]
    if monitoring:
        document["monitoring"] = monitoring
    return json.dumps(document)


def _url(scheme: str, listener: Listener) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(listener.host, listener.host)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"{scheme}://{host}:{listener.port}"
