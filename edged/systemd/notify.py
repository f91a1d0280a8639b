"""Readiness, reload and stop notifications for `Type=notify` units.

Rules: without NOTIFY_SOCKET every call does nothing. A failed notification is not an error of the daemon.
"""

from __future__ import annotations

import os
import socket
import time


def ready(status: str = "") -> None:
    """The daemon serves; also ends a reload."""
    _send("READY=1", status)


def reloading() -> None:
    """The configuration is being read again."""
    _send("RELOADING=1", extra=f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def stopping() -> None:
    """The daemon is on its way out."""
    _send("STOPPING=1")


def _send(state: str, status: str = "", extra: str = "") -> None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    lines = [state, *([f"STATUS={status}"] if status else []), *([extra] if extra else [])]
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.sendto("\n".join(lines).encode(), address)
    except OSError:
        return  # systemd is not listening; the daemon works all the same.
