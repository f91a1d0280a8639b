"""Advisories: what happens in JetStream, told to whoever listens in the account that it happened in.

Rules: they are advice: made only when somebody listens, and never waited for. No token of a user is
told.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from edged.core.gotime import format_rfc3339
from edged.server.monitoring.gojson import compact, text

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.jetstream.jetstream import JetStream
    from edged.server.jetstream.stream import Stream

Document = dict[str, Any]

PREFIX = "$JS.EVENT.ADVISORY."
TYPES = "io.nats.jetstream.advisory.v1."
_API: Final = (PREFIX + "API").encode()
_ID_ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_CHARACTERS: Final = 22


class Advisories:
    """Tells what happens."""

    def __init__(self, jetstream: JetStream) -> None:
        self._jetstream = jetstream

    def answered(
        self,
        account: Account,
        client: Callable[[], Document] | None,
        subject: bytes,
        request: bytes,
        answer: str,
    ) -> None:
        """A request was answered. `client` describes who asked; None if that is not known."""
        if not account.has_interest(_API):
            return
        server = self._jetstream.server
        who = None if client is None else client()
        fields: Document = {"server": server.name, "client": who, "subject": text(subject)}
        if request:
            fields["request"] = text(request)
        self.tell(account, "API", "api_audit", {**fields, "response": answer})

    def requests_dropped(self, count: int) -> None:
        """So many requests waited that all were dropped."""
        server = self._jetstream.server
        fields: Document = {"server": server.name}
        domain = self._jetstream.options.domain
        if domain:
            fields["domain"] = domain
        if server.system_account is not None:
            fields["dropped"] = count
            self.tell(server.system_account, "API.LIMIT_REACHED", "api_limit_reached", fields)

    def stream_action(self, stream: Stream, word: str, action: str) -> None:
        """A stream was CREATED, UPDATED or DELETED."""
        fields = {"stream": stream.name, "action": action}
        self.tell(stream.account.account, f"STREAM.{word}.{stream.name}", "stream_action", fields)

    def batch_abandoned(self, stream: Stream, batch_id: bytes, reason: str) -> None:
        """An atomic batch was given up."""
        account = stream.account.account
        fields = {"stream": stream.name, "batch": text(batch_id), "reason": reason}
        subject = f"STREAM.BATCH_ABANDONED.{stream.name}"
        self.tell(account, subject, "stream_batch_abandoned", fields)

    def tell(self, account: Account, name: str, kind: str, fields: Document) -> None:
        """Publish an advisory, if somebody listens."""
        subject = (PREFIX + name).encode()
        if not account.has_interest(subject):
            return
        document = {
            "type": TYPES + kind,
            "id": "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_CHARACTERS)),
            "timestamp": format_rfc3339(self._jetstream.server.now_ns()),
            **fields,
        }
        domain = self._jetstream.options.domain
        if domain:
            document.setdefault("domain", domain)
        account.publish(subject, None, compact(document).encode())
