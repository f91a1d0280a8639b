"""The seams of the daemon: what the hub replaces to become a cluster.

The edge is built with the local implementations; `hub` brings its own and calls the same `daemon.serve`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from edged.core.commands import Command
    from edged.core.wire import Publish
    from edged.store.batch import Done


class Committer(Protocol):
    """The one door for every change of state. `done` is told when a command is durable and applied."""

    def submit(self, group: int, command: Command, done: Done) -> None:
        """Commit a command."""

    def submit_appends(self, group: int, messages: Sequence[Publish], ts_ns: int, done: Done) -> None:
        """Commit messages for one stream."""

    @property
    def is_full(self) -> bool:
        """Whether whoever submits should wait for room first."""

    def when_there_is_room(self, call: Callable[[], None]) -> None:
        """Call back once there is room."""

    def flush(self) -> None:
        """Everything of this turn is submitted."""


class Router(Protocol):
    """Learns of every change of local interest, and tells other nodes. The edge has nobody to tell."""

    def interest_added(self, account: str, subject: bytes, queue: bytes | None) -> None:
        """A subscription appeared in an account."""

    def interest_removed(self, account: str, subject: bytes, queue: bytes | None) -> None:
        """A subscription of an account is gone."""


class LocalRouter:
    """The router of a daemon that stands alone."""

    def interest_added(self, account: str, subject: bytes, queue: bytes | None) -> None:
        """Nobody to tell."""

    def interest_removed(self, account: str, subject: bytes, queue: bytes | None) -> None:
        """Nobody to tell."""
