"""A request to the server itself: who asks, what for, and whether this server is meant.

Rules: the body is JSON or empty; its size is bounded by what a client may publish, its nesting by the parser.
Names of options are matched without regard to case, and null means absent, as Go programs read them. A
request with filters that do not fit this server is not answered at all: it is for another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edged.server.monitoring import BadRequest

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.client import ClientConnection
    from edged.server.server import Server

Options = Mapping[str, object]

_TEXT_FILTERS = ("server_name", "host", "cluster", "domain")


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as it arrived in an account; the answer goes out in the same account."""

    account: Account
    subject: bytes
    reply: bytes | None
    headers: bytes
    body: bytes
    requester: ClientConnection | None  # None when it did not come from a client

    def token(self, position: int) -> str:
        """One token of the subject, counted from 0."""
        return self.subject.split(b".")[position].decode("utf-8", "replace")

    def options(self) -> Options:
        """The body as options. BadRequest when it is something else."""
        if not self.body.strip():
            return {}
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            raise BadRequest("the request is not valid JSON") from None
        if document is None:
            return {}
        if not isinstance(document, dict):
            raise BadRequest("the request is not a JSON object")
        return {name.lower(): value for name, value in document.items() if value is not None}


def concerns(server: Server, options: Options) -> bool:
    """Whether the filters of a request let this server answer. BadRequest when a filter has a wrong type."""
    for name in _TEXT_FILTERS:
        if not isinstance(options.get(name, ""), str):
            raise BadRequest(f"{name} is not a string")
    tags = options.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise BadRequest("tags is not a list of strings")
    if not isinstance(options.get("exact_match", False), bool):
        raise BadRequest("exact_match is not true or false")
    own = server.options
    own_names = {
        "server_name": server.name,
        "host": own.host,
        "cluster": (own.cluster.name or "") if own.cluster is not None else "",
    }
    for name, own_name in own_names.items():
        wanted = str(options.get(name, ""))
        if wanted and (wanted != own_name if options.get("exact_match") else wanted not in own_name):
            return False
    domain = options.get("domain", "")
    own_domain = (own.jetstream.domain or "") if own.jetstream is not None else ""
    if domain and domain != own_domain:
        return False
    own_tags = {tag.strip().lower() for tag in own.server_tags}
    return all(tag.strip().lower() in own_tags for tag in tags)
