"""Requests that a cluster refuses for want of their stream before it looks at anything else.

A server that stands alone reads a request first, and then looks for the stream. The nodes of a cluster have
to find out who answers, and so they look for the stream first, as those of nats-server do.
"""

from __future__ import annotations

from typing import Final

from edged.core import api_errors
from edged.core.api_errors import ApiError
from edged.server.jetstream.api_request import ApiRequest

_AFTER_RIGHT: Final = frozenset(("STREAM.INFO", "STREAM.PURGE", "STREAM.MSG.GET", "STREAM.MSG.DELETE"))
"""Those that ask before whether the account may use JetStream at all."""
_AT_ONCE: Final = frozenset(("STREAM.LEADER.STEPDOWN", "CONSUMER.LEADER.STEPDOWN", "CONSUMER.UNPIN"))


def missing_stream(request: ApiRequest) -> ApiError | None:
    """Why a request is refused before it is read; None if there is its stream, or it is read first."""
    name = request.endpoint.name
    if name not in _AFTER_RIGHT and name not in _AT_ONCE:
        return None
    if name in _AFTER_RIGHT and not request.account.is_enabled:
        return api_errors.NOT_ENABLED_FOR_ACCOUNT
    return None if request.account.group_of(request.arguments[0]) else api_errors.STREAM_NOT_FOUND
