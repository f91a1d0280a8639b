"""Runs the endpoint that a request names, and makes a document of whatever comes of it.

Rules: whoever changes something holds a lock from looking what there is to the outcome; who reads needs none.
A fault in one request must not end the others. That another node leads is no answer: whoever knows the other
nodes deals with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

import trio

from edged.core import api_errors
from edged.core.api_errors import ApiError, ApiFailure
from edged.server.jetstream.api_request import ApiRequest, Document
from edged.store.errors import LeadershipLost, NotLeader, StoreError


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request came to; without a document nobody is answered."""

    document: Document | None
    is_failed: bool = False


def refused(request: ApiRequest, error: ApiError) -> Reply:
    """A request is refused for this reason."""
    return Reply({"error": error.document(), **request.endpoint.failed}, is_failed=True)


async def serve(request: ApiRequest, lock: trio.Lock) -> Reply:
    """Do what a request asks for. Raises NotLeader and LeadershipLost."""
    endpoint, log = request.endpoint, request.jetstream.server.log
    try:
        if not endpoint.is_unconditional:
            request.check_right()
        if not inspect.iscoroutinefunction(endpoint.service):
            answer = endpoint.service(request)
            assert answer is None or isinstance(answer, dict), answer
            return Reply(answer)
        service = cast(Callable[[ApiRequest], Awaitable[Document | None]], endpoint.service)
        if endpoint.is_reading:
            return Reply(await service(request))
        async with lock:
            return Reply(await service(request))
    except ApiFailure as failure:
        return refused(request, failure.error)
    except (NotLeader, LeadershipLost):
        raise
    except StoreError as error:
        log.error("request failed", subject=request.subject, error=str(error))
        return refused(request, api_errors.stream_general(str(error)))
    except Exception as error:  # A fault in one request must not end the others.
        log.error("a fault in edged failed a request", error=repr(error))
        return refused(request, api_errors.stream_general("internal error"))
