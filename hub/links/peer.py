"""What is known about another node, whether there is a link to it or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from hub.links.control import ControlLink
    from hub.links.hello import Introduction
    from hub.links.route import RouteLink
    from hub.raft.members import NodeId


class Peer:
    """Another node. `control` and `route` are its links; without the first it is down."""

    __slots__ = ("control", "gone", "introduction", "is_configured", "route", "since_ns")

    def __init__(self, introduction: Introduction) -> None:
        self.introduction = introduction
        self.control: ControlLink | None = None
        self.route: RouteLink | None = None
        # Whether the configuration has a route to it.
        self.is_configured = False
        # When it came up or went down last, by the clock on the wall.
        self.since_ns = 0
        # Set when the link that is there now is lost.
        self.gone = trio.Event()

    @property
    def node(self) -> NodeId:
        return self.introduction.node

    @property
    def id(self) -> str:
        """The id of its server, which is another one after each start."""
        return self.introduction.id

    @property
    def name(self) -> str:
        return self.introduction.name

    @property
    def address(self) -> str:
        """Where it is dialled."""
        return self.introduction.address

    @property
    def client_urls(self) -> tuple[str, ...]:
        return self.introduction.client_urls

    @property
    def is_up(self) -> bool:
        return self.control is not None

    @property
    def rtt_ns(self) -> int:
        """How long a ping took; 0 when that is not known."""
        return 0 if self.control is None else self.control.rtt_ns
