"""The seams of the daemon: what the hub replaces to become a cluster.

The edge is built with the local implementations; `hub` brings its own and calls the same `daemon.serve`.
"""

from __future__ import annotations

from typing import Protocol


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
