"""The endpoints about consumers, of which there are none yet."""

from __future__ import annotations

from typing import Final

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.gojson_shapes import INT, Structure
from edged.server.jetstream.api_request import ApiRequest, Document

LIST_LIMIT = 256
NAMES_LIMIT = 1024

_PAGE: Final = Structure("server.JSApiConsumersRequest", {"offset": INT})


def names(request: ApiRequest) -> Document:
    """The consumers of a stream."""
    return _page(request, NAMES_LIMIT)


def listing(request: ApiRequest) -> Document:
    """The same with everything about them."""
    return _page(request, LIST_LIMIT)


def info(request: ApiRequest) -> Document:
    """One consumer. That nothing else is asked comes before all."""
    request.expect_nothing()
    request.check_right()
    request.stream()
    raise ApiFailure(api_errors.CONSUMER_NOT_FOUND)


def delete(request: ApiRequest) -> Document:
    """Remove a consumer."""
    request.expect_nothing()
    request.stream()
    raise ApiFailure(api_errors.CONSUMER_NOT_FOUND)


def _page(request: ApiRequest, limit: int) -> Document:
    request.options(_PAGE)
    request.stream()
    return {"total": 0, "offset": 0, "limit": limit, "consumers": []}
