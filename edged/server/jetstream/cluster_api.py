"""What only a cluster can do, and a server that stands alone refuses."""

from __future__ import annotations

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.server.jetstream.api_request import ApiRequest, Document


def refuse(request: ApiRequest) -> Document:
    """There are no peers and no leaders here."""
    raise ApiFailure(api_errors.CLUSTER_REQUIRED)
