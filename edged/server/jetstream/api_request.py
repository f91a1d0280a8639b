"""A request to the JetStream API, and what an endpoint that answers such requests is.

Rules: what a request leaves out, or says in a way that some endpoints pass over, is not there; whatever else
it says is read in nats-server's words, so that a request with several faults is refused for the same one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from edged.core import api_errors, headers
from edged.core.api_errors import ApiFailure
from edged.core.gojson import JsonError, document
from edged.core.gojson_shapes import Structure, read_request
from edged.server.exchange import REQUEST_INFO
from edged.version import API_LEVEL

if TYPE_CHECKING:
    from edged.server.client import ClientConnection
    from edged.server.jetstream.account_streams import AccountStreams
    from edged.server.jetstream.jetstream import JetStream
    from edged.server.jetstream.stream import Stream

Document = dict[str, Any]

_REQUIRED_LEVEL: Final = b"Nats-Required-Api-Level"
_LEVEL: Final = re.compile(rb"[+-]?[0-9]{1,18}")
_BLANKS: Final = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request. `arguments` are the tokens of its subject behind the name of the endpoint."""

    account: AccountStreams
    endpoint: Endpoint
    arguments: tuple[str, ...]
    subject: bytes
    reply: bytes | None
    headers: bytes
    body: bytes
    requester: ClientConnection | None  # None when it did not come from a client
    # What the answer has in its headers.
    answer_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    # What is done when it was answered.
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    # Who asks, if the request came to another node first.
    asker: Document | None = None

    @property
    def jetstream(self) -> JetStream:
        """Whom it is asked of."""
        return self.account.jetstream

    @property
    def is_strict(self) -> bool:
        """Whether fields that nobody knows are errors."""
        return self.jetstream.options.strict

    def fields(self, shape: Structure) -> Document:
        """The body, read as this shape; what it leaves out is not there. Raises ApiFailure."""
        return read_request(self.body, shape, self.is_strict)

    def options(self, shape: Structure) -> Document:
        """The same where a body that is neither an object nor a list says nothing. Raises ApiFailure."""
        return self.fields(shape) if self.body.lstrip(_BLANKS)[:1] in (b"{", b"[") else {}

    def expect_something(self) -> None:
        """Raises ApiFailure when there is no body although the endpoint needs one."""
        if self._is_empty():
            raise ApiFailure(api_errors.BAD_REQUEST)

    def expect_nothing(self) -> None:
        """Raises ApiFailure when there is a body although the endpoint takes none."""
        if not self._is_empty():
            raise ApiFailure(api_errors.NOT_EMPTY_REQUEST)

    def _is_empty(self) -> bool:
        if not self.body:
            return True
        try:
            return bool(document(self.body) == {})
        except JsonError:
            return False

    def check_level(self) -> None:
        """Raises ApiFailure when it wants another level of the API."""
        if asks_too_much(self.headers):
            raise ApiFailure(api_errors.REQUIRED_API_LEVEL)

    def check_right(self) -> None:
        """Raises ApiFailure when it wants another level of the API, or its account has no JetStream."""
        self.check_level()
        if not self.account.is_enabled:
            raise ApiFailure(api_errors.NOT_ENABLED_FOR_ACCOUNT)

    def client(self) -> Document:
        """Who asks, for advisories. Of a request from another account its importer's header says it."""
        if self.asker is not None:
            return self.asker
        server, own = self.jetstream.server, self.account.account
        if self.requester is None:
            return {}
        if self.requester.account is own:
            return dict(json.loads(server.info.requester(self.requester, is_shared=True)))
        described: Document = json.loads(headers.value(self.headers, REQUEST_INFO) or b"{}")
        client: Document = {}
        for key, value in described.items():
            client[key] = value
            if key == "acc":
                client["svc"] = own.name
        client.setdefault("server", server.name)
        return client

    def stream(self) -> Stream:
        """The stream that the first argument names. Raises ApiFailure."""
        return self.account.stream(self.arguments[0])


def asks_too_much(block: bytes) -> bool:
    """Whether the headers of a request want a server of another API level."""
    level = headers.value(block, _REQUIRED_LEVEL) if _REQUIRED_LEVEL in block else None
    if not level:
        return False
    return _LEVEL.fullmatch(level) is None or int(level) > API_LEVEL


# What answers; whatever it raises as ApiFailure becomes an error. None: nothing is answered.
Service = Callable[[ApiRequest], Awaitable[Document | None] | Document | None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`type` ends the type of its answers. `failed` are fields that an error is accompanied by.

    `is_unconditional`: it asks for itself whether the requester has a right to it. `is_reading`:
    it changes nothing, and waits in a queue of its own size. `is_unnoted`: a success is neither counted nor
    told to auditors. `is_private`: a failure is not, either; it speaks to one consumer, and without that
    nobody answers. `is_meta`: in a cluster the leader of the catalog answers, and not the one of the stream
    that the first argument names. `is_everywhere`: there each node answers for itself.
    """

    name: str
    type: str
    service: Service
    arguments_min: int = 1
    arguments_max: int = 1
    failed: Mapping[str, Any] = field(default_factory=dict)
    is_unconditional: bool = False
    is_reading: bool = False
    is_unnoted: bool = False
    is_private: bool = False
    is_meta: bool = False
    is_everywhere: bool = False
