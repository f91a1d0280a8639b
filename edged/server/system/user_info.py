"""`$SYS.REQ.USER.INFO`: tells a user who it is and what it may do.

Rules: the answer is about the connection that asked and nobody else; a request that did not come from a
client is refused. An empty list of permissions is left out, and all of them for a user without restrictions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edged.core.permissions import Permissions, SubscribeEntry
from edged.server.system.envelope import BAD_REQUEST, Document, Envelope

if TYPE_CHECKING:
    from edged.server.client import ClientConnection
    from edged.server.server import Server
    from edged.server.system.request import Request

_SECOND_NS = 1_000_000_000


class UserInfo:
    """Answers the question who am I."""

    def __init__(self, server: Server, envelope: Envelope) -> None:
        self._server = server
        self._envelope = envelope

    def answer(self, request: Request) -> None:
        if request.requester is None:
            self._envelope.refuse(request, BAD_REQUEST, "the request did not come from a client")
        else:
            self._envelope.answer(request, user_document(request.requester, self._server.now_ns()))


def user_document(connection: ClientConnection, now_ns: int) -> Document:
    """What a client may know about itself."""
    identity = connection.identity
    document: Document = {
        "user": identity.user if identity is not None else "",
        "account": connection.account.name,
        "account_name": connection.account.name_tag,
    }
    if identity is not None and identity.name_tag:
        document["user_name"] = identity.name_tag
    if not connection.permissions.unrestricted:
        document["permissions"] = permissions_document(connection.permissions)
    if identity is not None and identity.expires_at_s is not None:
        left_s = int(identity.expires_at_s - now_ns / 1e9)
        if left_s:
            document["expires"] = left_s * _SECOND_NS
    return document


def permissions_document(permissions: Permissions) -> Document:
    """Permissions in the form of the configuration."""
    document: Document = {
        "publish": _lists(permissions.publish_allow or (), permissions.publish_deny),
        "subscribe": _lists(
            [_entry(entry) for entry in permissions.subscribe_allow or ()],
            [_entry(entry) for entry in permissions.subscribe_deny],
        ),
    }
    rule = permissions.allow_responses
    if rule is not None:
        document["responses"] = {"max": rule.max_messages, "ttl": rule.expires_ns}
    return document


def _lists(allow: tuple[bytes, ...] | list[bytes], deny: tuple[bytes, ...] | list[bytes]) -> Document:
    lists = {"allow": allow, "deny": deny}
    return {name: [_text(entry) for entry in entries] for name, entries in lists.items() if entries}


def _entry(entry: SubscribeEntry) -> bytes:
    return entry.subject if entry.queue is None else entry.subject + b" " + entry.queue


def _text(subject: bytes) -> str:
    return subject.decode("utf-8", "replace")
