"""Answers what other nodes of a cluster ask of this one.

Rules: whoever asks counts the request and tells its client; here is only what comes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edged.server.jetstream.api_request import ApiRequest
from edged.server.jetstream.cluster_questions import answer_question
from edged.server.jetstream.endpoints import endpoints_of, find_endpoint

if TYPE_CHECKING:
    from edged.server.jetstream.account_streams import AccountStreams
    from edged.server.jetstream.jetstream import JetStream

Body = dict[str, Any]


async def answer_call(jetstream: JetStream, body: Body) -> Body:
    """What another node asks. The links of a cluster call this for the method `api`."""
    if body["what"] == "request":
        return await _answer_passed_on(jetstream, body)
    return await answer_question(jetstream, body)


async def _answer_passed_on(jetstream: JetStream, body: Body) -> Body:
    """Answer a request that came to another node."""
    account = _account(jetstream, body["account"])
    relay = jetstream.relay
    assert relay is not None
    endpoints = endpoints_of(is_clustered=True)
    name = bytes(body["subject"]).decode("utf-8", "replace").removeprefix("$JS.API.")
    is_system = account is not None and account.account.is_system
    found = find_endpoint(name, endpoints.system if is_system else endpoints.usual)
    if account is None or found is None:
        # The other node runs with another configuration, or is of another version.
        return {"document": None, "is_failed": True, "headers": []}
    endpoint, arguments = found
    request = ApiRequest(
        *(account, endpoint, arguments, bytes(body["subject"]), None),
        *(bytes(body["headers"]), bytes(body["body"]), None),
        asker=body["client"],
    )
    reply = await relay.answer(request, int(body["hops"]))
    for call in request.afterwards:
        call()
    jetstream.server.flush()
    return {"document": reply.document, "is_failed": reply.is_failed, "headers": request.answer_headers}


def _account(jetstream: JetStream, name: str) -> AccountStreams | None:
    system = jetstream.system
    if system is not None and system.account.name == name:
        return system
    return jetstream.accounts.get(name)
