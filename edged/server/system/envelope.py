"""What answers and events look like on the wire: JSON with a description of the server beside the data.

Rules: keys come in nats-server's order and are left out under the same conditions. `seq` counts everything
that this server says, so that a listener notices a gap. Answers are compressed when the requester says that
it can read that; snappy is not offered, and whoever accepts nothing else gets plain JSON, marked as such.
"""

from __future__ import annotations

import secrets
import string
from typing import TYPE_CHECKING, Any

from edged.core import headers
from edged.core.gotime import format_rfc3339
from edged.core.subjects import valid_literal
from edged.server.monitoring.gojson import compact
from edged.version import NATS_VERSION

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.server import Server
    from edged.server.system.request import Request

Document = dict[str, Any]

BAD_REQUEST = 400
FAILED = 500

_JETSTREAM_ENABLED = 1
_ID_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_CHARACTERS = 22


class Envelope:
    """Wraps, encodes and publishes what the server says about itself."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._seq = 0

    def server_info(self) -> Document:
        """The `server` part of a message; every call is a new message."""
        server = self._server
        options = server.options
        jetstream = options.jetstream
        self._seq += 1
        document: Document = {"name": server.name, "host": options.host, "id": server.id}
        optional: Document = {
            "cluster": options.cluster.name if options.cluster is not None else None,
            "domain": jetstream.domain if jetstream is not None else None,
        }
        document |= {key: value for key, value in optional.items() if value}
        document["ver"] = NATS_VERSION
        optional = {
            "tags": list(options.server_tags),
            "metadata": dict(sorted(options.server_metadata)),
            "feature_flags": dict(sorted(options.feature_flags)),
        }
        document |= {key: value for key, value in optional.items() if value}
        return document | {
            "jetstream": jetstream is not None,
            "flags": _JETSTREAM_ENABLED if jetstream is not None else 0,
            "seq": self._seq,
            "time": format_rfc3339(server.now_ns()),
        }

    def event_head(self, kind: str, at_ns: int) -> Document:
        """How a typed event begins."""
        event_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_CHARACTERS))
        return {
            "type": f"io.nats.server.advisory.v1.{kind}",
            "id": event_id,
            "timestamp": format_rfc3339(at_ns),
            "server": self.server_info(),
        }

    # --- answers ---

    def answer(self, request: Request, data: object) -> None:
        """Answer with data."""
        self._respond(request, {"server": self.server_info(), "data": data}, is_compressible=True)

    def confirm(self, request: Request) -> None:
        """Answer that it is done, when there is nothing else to say."""
        self._respond(request, {"server": self.server_info()}, is_compressible=True)

    def refuse(self, request: Request, code: int, text: str, has_data: bool = False) -> None:
        """Answer why not. Where data was asked for, `data` is there and null."""
        document: Document = {"server": self.server_info()}
        if has_data:
            document["data"] = None
        document["error"] = {"code": code, "description": text}
        self._respond(request, document)

    def reply(self, request: Request, document: object) -> None:
        """Answer with a document that has no envelope, or one of its own kind."""
        self._respond(request, document)

    def reply_bytes(self, request: Request, body: bytes) -> None:
        """Answer with bytes as they are."""
        if request.reply is not None:
            request.account.publish(request.reply, None, body)

    def _respond(self, request: Request, document: object, is_compressible: bool = False) -> None:
        if request.reply is None:
            return
        body = encode(document)
        block = b""
        if is_compressible:
            block, body = _encoded(body, request.headers)
        request.account.publish(request.reply, None, block + body, len(block) if block else -1)

    # --- events ---

    def publish(self, account: Account, subject: str, document: Document) -> None:
        """Tell of an event. The caller has asked `wanted()` before building the document."""
        account.publish(subject.encode(), None, encode(document))


def wanted(account: Account | None, subject: str) -> bool:
    """Whether anybody listens to an event. Names that would break a protocol line are nobody's."""
    if account is None:
        return False
    name = subject.encode()
    return valid_literal(name) and account.has_interest(name)


def encode(document: object) -> bytes:
    """JSON on one line; what is not valid text in it is replaced."""
    return compact(document).encode("utf-8", "replace")


def _encoded(body: bytes, header_block: bytes) -> tuple[bytes, bytes]:
    """(header block, body) in an encoding that the requester accepts."""
    accepted = headers.value(header_block, b"Accept-Encoding") if header_block else None
    if not accepted:
        return b"", body
    if b"gzip" in accepted.lower():
        import gzip

        return headers.encode([(b"Content-Encoding", b"gzip")]), gzip.compress(body, compresslevel=6, mtime=0)
    return headers.encode([(b"Content-Encoding", b"identity")]), body
