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
        fields: Document = {"server": server.name, **self._domain()}
        if server.system_account is not None:
            fields["dropped"] = count
            self.tell(server.system_account, "API.LIMIT_REACHED", "api_limit_reached", fields)

    def meta_rescued(self, fields: Document) -> None:
        """Fewer nodes than a majority decide about the catalog for a while."""
        server = self._jetstream.server
        options = server.options.cluster
        if server.system_account is not None and options is not None:
            fields = {**fields, "cluster": options.name or "", **self._domain()}
            self.tell(server.system_account, "SERVER.META_RESCUE", "meta_rescue", fields)

    def stream_action(self, stream: Stream, word: str, action: str) -> None:
        """A stream was UPDATED or DELETED."""
        self._stream_action(stream.account.account, stream.name, word, action)

    def stream_created(self, account: Account, name: str) -> None:
        """A stream was made, here or on other nodes."""
        self._stream_action(account, name, "CREATED", "create")

    def _stream_action(self, account: Account, name: str, word: str, action: str) -> None:
        fields = {"stream": name, "action": action}
        self.tell(account, f"STREAM.{word}.{name}", "stream_action", fields)

    def leader_elected(self, stream: Stream) -> None:
        """This server leads a stream from now on that others have as well."""
        cluster = self._jetstream.cluster
        assert cluster is not None
        fields: Document = {"stream": stream.name, "leader": self._jetstream.server.name}
        fields["replicas"] = cluster.replicas_document(stream.group)
        account = stream.account.account
        self.tell(account, f"STREAM.LEADER_ELECTED.{stream.name}", "stream_leader_elected", fields)

    def quorum_lost(self, stream: Stream) -> None:
        """Nobody can lead a stream, as too few of those who have it are there."""
        cluster = self._jetstream.cluster
        assert cluster is not None
        fields = {"stream": stream.name, "replicas": cluster.replicas_document(stream.group)}
        account = stream.account.account
        self.tell(account, f"STREAM.QUORUM_LOST.{stream.name}", "stream_quorum_lost", fields)

    def batch_abandoned(self, stream: Stream, batch_id: bytes, reason: str) -> None:
        """An atomic batch was given up."""
        account = stream.account.account
        fields = {"stream": stream.name, "batch": text(batch_id), "reason": reason}
        subject = f"STREAM.BATCH_ABANDONED.{stream.name}"
        self.tell(account, subject, "stream_batch_abandoned", fields)

    def snapshot_began(self, stream: Stream, state: Document, client: Document) -> None:
        """An archive of a stream is about to be sent to the client who asked."""
        fields = {"stream": stream.name, "state": state, "client": client}
        subject = f"STREAM.SNAPSHOT_CREATE.{stream.name}"
        self.tell(stream.account.account, subject, "snapshot_create", fields)

    def snapshot_ended(self, stream: Stream, start_ns: int, client: Document, error: str) -> None:
        """It was sent, or given up for this error."""
        fields = {"stream": stream.name, **self._period(start_ns), "client": client}
        if error:
            # Behind the domain, as nats-server has it.
            fields |= self._domain() | {"error": error}
        subject = f"STREAM.SNAPSHOT_COMPLETE.{stream.name}"
        self.tell(stream.account.account, subject, "snapshot_complete", fields)

    def restore_began(self, account: Account, stream_name: str, client: Document) -> None:
        """A client is about to send an archive."""
        fields = {"stream": stream_name, "client": client}
        self.tell(account, f"STREAM.RESTORE_CREATE.{stream_name}", "restore_create", fields)

    def restore_ended(
        self, account: Account, stream_name: str, start_ns: int, size: int, client: Document
    ) -> None:
        """So many bytes of it came. Whether a stream came of them is told to the client alone."""
        fields = {"stream": stream_name, **self._period(start_ns), "bytes": size, "client": client}
        self.tell(account, f"STREAM.RESTORE_COMPLETE.{stream_name}", "restore_complete", fields)

    def _period(self, start_ns: int) -> Document:
        end_ns = self._jetstream.server.now_ns()
        return {"start": format_rfc3339(start_ns), "end": format_rfc3339(end_ns)}

    def _domain(self) -> Document:
        domain = self._jetstream.options.domain
        return {"domain": domain} if domain else {}

    def tell(
        self,
        account: Account,
        name: str,
        kind: str,
        fields: Document,
        prefix: str = PREFIX,
        types: str = TYPES,
    ) -> None:
        """Publish an advisory, if somebody listens."""
        subject = (prefix + name).encode()
        if not account.has_interest(subject):
            return
        document = {
            "type": types + kind,
            "id": "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_CHARACTERS)),
            "timestamp": format_rfc3339(self._jetstream.server.now_ns()),
            **fields,
        }
        for key, value in self._domain().items():
            document.setdefault(key, value)
        account.publish(subject, None, compact(document).encode())
