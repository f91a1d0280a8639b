"""What two nodes say to each other before anything else, and when one does not want the other.

The end that dials says who it is, with its credentials. The other end refuses with a reason, or says who it
is itself; then the end that dialled takes the link into use with READY, or goes away because it has one.

Rules: the end that accepts tells nothing about itself before the credentials are good. What is said is
checked field by field, whoever says it. Credentials are never shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hub.links.frames import FrameError, Kind, pack, unpack
from hub.raft.members import NodeId

PROTOCOL: Final = 1
CONTROL: Final = "control"
ROUTE: Final = "route"

_TEXT_MAX: Final = 1024
_URLS_MAX: Final = 256
_NODE_MAX: Final = 2**63
_ADDRESS: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s/@\[\]:]*):(\d{1,5})", re.ASCII)

# Why a node is not wanted. Words, not numbers: they stand in the log of the other end.
SELF: Final = "it is this node itself"
DUPLICATE: Final = "there is a link to this node already"
NOT_LINKED: Final = "there is no control link to this node"
BAD_CREDENTIALS: Final = "the credentials are not those of this cluster"


class Refused(Exception):  # noqa: N818 - says what happened
    """One end does not want this link; the text says why. `node` is who says so, if that may be known."""

    def __init__(self, text: str, node: NodeId = 0) -> None:
        super().__init__(text)
        self.node = node


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a node tells about itself, and others about it."""

    node: NodeId
    id: str
    name: str
    # Where other nodes reach it; without a host it is where its connection comes from.
    address: str
    client_urls: tuple[str, ...] = ()
    websocket_urls: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "id": self.id,
            "name": self.name,
            "address": self.address,
            "client_urls": list(self.client_urls),
            "websocket_urls": list(self.websocket_urls),
        }

    @classmethod
    def read(cls, document: object) -> Introduction:
        """From what another node sent. FrameError when it is none."""
        if not isinstance(document, dict):
            raise FrameError("an introduction is no map")
        address = _text(document, "address")
        if address and not is_address(address):
            raise FrameError(f"no address: {address!r}")
        return cls(
            _node(document),
            _text(document, "id"),
            _text(document, "name"),
            address,
            _addresses(document, "client_urls"),
            _addresses(document, "websocket_urls"),
        )


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of either end."""

    link: str
    cluster: str
    introduction: Introduction
    # The layout of journal frames that this node writes: whoever cannot read them cannot follow it.
    frames_version: int
    # Whether it wants what it sends compressed: "off", "accept" (if the other end wants it), or "on".
    compression: str = "off"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    protocol: int = PROTOCOL

    def frame(self) -> bytes:
        document = {
            "protocol": self.protocol,
            "link": self.link,
            "cluster": self.cluster,
            "frames_version": self.frames_version,
            "compression": self.compression,
            "introduction": self.introduction.document(),
        }
        if self.user is not None:
            document |= {"user": self.user, "password": self.password or ""}
        return pack(Kind.HELLO, document)

    @classmethod
    def read(cls, body: memoryview) -> Hello:
        """From the first frame of the other end. FrameError, or Refused for a protocol that is not known."""
        document = unpack(body)
        if not isinstance(document, dict):
            raise FrameError("a hello is no map")
        protocol = _number(document, "protocol")
        if protocol != PROTOCOL:
            raise Refused(f"it speaks version {protocol} of the links, and this node version {PROTOCOL}")
        has_user = "user" in document
        return cls(
            _text(document, "link"),
            _text(document, "cluster"),
            Introduction.read(document.get("introduction")),
            _number(document, "frames_version"),
            _text(document, "compression"),
            _text(document, "user") if has_user else None,
            _text(document, "password") if has_user else None,
        )


def check(ours: Hello, theirs: Hello) -> None:
    """Refused unless the other end may be linked with, credentials aside."""
    if theirs.link not in (CONTROL, ROUTE):
        raise Refused(f"it wants a link of unknown kind {theirs.link!r}")
    if theirs.cluster != ours.cluster:
        raise Refused(f"its cluster is {theirs.cluster!r}, and not {ours.cluster!r}")
    if theirs.introduction.node == ours.introduction.node:
        raise Refused(SELF)
    if theirs.frames_version != ours.frames_version:
        raise Refused(
            f"its journal has version {theirs.frames_version}, and that of this node {ours.frames_version}"
        )


def is_compressed(ours: Hello, theirs: Hello) -> bool:
    """Whether two ends compress: one of them wants it, and neither refuses."""
    wishes = (ours.compression, theirs.compression)
    return "on" in wishes and "off" not in wishes


def refusal(refused: Refused) -> bytes:
    """The frame that says why the other end is not wanted."""
    return pack(Kind.REFUSED, {"reason": str(refused), "node": refused.node})


def read_refusal(body: memoryview) -> Refused:
    """The reason that the other end has. FrameError."""
    document = unpack(body)
    if not isinstance(document, dict):
        raise FrameError("a refusal is no map")
    return Refused(_text(document, "reason"), _number(document, "node"))


def is_address(text: str) -> bool:
    """Whether a text is host:port; the host may be missing."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match[1]) < 65536


def _text(document: Mapping[object, object], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or len(value) > _TEXT_MAX:
        raise FrameError(f"{key} is no text")
    return value


def _number(document: Mapping[object, object], key: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _NODE_MAX:
        raise FrameError(f"{key} is no number")
    return value


def _node(document: Mapping[object, object]) -> NodeId:
    node = _number(document, "node")
    if node == 0:
        raise FrameError("0 is no node")
    return node


def _addresses(document: Mapping[object, object], key: str) -> tuple[str, ...]:
    values = document.get(key)
    if not isinstance(values, list) or len(values) > _URLS_MAX:
        raise FrameError(f"{key} is no list of addresses")
    for value in values:
        if not isinstance(value, str) or len(value) > _TEXT_MAX or not is_address(value):
            raise FrameError(f"{key} holds {value!r}, which is no address")
    return tuple(values)
