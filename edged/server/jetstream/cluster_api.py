"""What only a cluster can do: who leads, and who has which stream. A server that stands alone refuses it.

Rules: what is asked is read here, and whether there is what it is about; who can lead and who can have a
stream is for the cluster to say. Consumers are where their stream is, so they cannot be moved without it.
"""

from __future__ import annotations

from typing import Final

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.commands import PEERS, RemoveStream
from edged.core.gojson_shapes import INT, TEXT, ListOf, Structure
from edged.core.stream_config import PLACEMENT
from edged.ports import Cluster
from edged.server.jetstream.api_request import ApiRequest, Document
from edged.server.jetstream.cluster_questions import describe
from edged.store.group import CATALOG

_STEPDOWN: Final = Structure("server.JSApiLeaderStepdownRequest", {"placement": PLACEMENT})
_PEER: Final = Structure("server.JSApiStreamRemovePeerRequest", {"peer": TEXT})
_SERVER: Final = Structure("server.JSApiMetaServerRemoveRequest", {"peer": TEXT, "peer_id": TEXT})
_RESCUE: Final = Structure("server.JSApiMetaRescueRequest", {"quorum_needed": INT})
_MOVE: Final = Structure(
    "server.JSApiMetaServerStreamMoveRequest",
    {"server": TEXT, "cluster": TEXT, "domain": TEXT, "tags": ListOf(TEXT)},
)


def refuse(request: ApiRequest) -> Document:
    """There are no peers and no leaders here."""
    raise ApiFailure(api_errors.CLUSTER_REQUIRED)


async def stream_stepdown(request: ApiRequest) -> Document:
    """Let another node lead a stream. One that a single node has stays there."""
    stream = request.stream()
    placement = request.options(_STEPDOWN).get("placement", {})
    if len(stream.entry.config.get(PEERS, ())) > 1:
        await _cluster(request).stepdown(stream.group, placement)
    return {"success": True}


async def consumer_stepdown(request: ApiRequest) -> Document:
    """Let another node lead a consumer, and with it the stream."""
    if request.stream().consumers.find(request.arguments[1]) is None:
        raise ApiFailure(api_errors.CONSUMER_NOT_FOUND)
    return await stream_stepdown(request)


async def meta_stepdown(request: ApiRequest) -> Document:
    """Let another node lead the catalog."""
    placement = request.options(_STEPDOWN).get("placement", {})
    await _cluster(request).stepdown(CATALOG, placement)
    return {"success": True}


async def remove_peer(request: ApiRequest) -> Document:
    """Let another node have the copy of a stream that a peer has."""
    peer = _peer(request)
    await _cluster(request).remove_peer(_group(request), peer)
    return {"success": True}


def remove_consumer_peer(request: ApiRequest) -> Document:
    """The same for a consumer, which is where its stream is."""
    peer = _peer(request)
    stream = request.stream()
    if stream.consumers.find(request.arguments[1]) is None:
        raise ApiFailure(api_errors.CONSUMER_NOT_FOUND)
    members = _cluster(request).replicas_document(stream.group)
    if not any(peer in (one.get("name"), one.get("peer")) for one in members):
        raise ApiFailure(api_errors.CLUSTER_PEER_NOT_MEMBER)
    raise ApiFailure(api_errors.PEER_REMAP)


async def cancel_move(request: ApiRequest) -> Document:
    """Let a stream stay where it was."""
    await _cluster(request).cancel_move(_group(request))
    return {"success": True}


# --- for the system account ---


async def remove_server(request: ApiRequest) -> Document:
    """Let a server be no member any more, whatever it has."""
    return await _remove_server(request, is_evacuated=False)


async def evacuate_server(request: ApiRequest) -> Document:
    """Let a server be no member any more once others have what it has."""
    return await _remove_server(request, is_evacuated=True)


async def _remove_server(request: ApiRequest, *, is_evacuated: bool) -> Document:
    request.expect_something()
    asked = request.fields(_SERVER)
    peer, peer_id = asked.get("peer", ""), asked.get("peer_id", "")
    if not peer and not peer_id:
        raise ApiFailure(api_errors.BAD_REQUEST)
    await _cluster(request).remove_server(peer, peer_id, is_evacuated=is_evacuated)
    return {"success": True}


def rescue(request: ApiRequest) -> Document:
    """Let fewer nodes decide than a majority, until those that are gone are removed. Each node answers."""
    server = request.jetstream.server
    who: Document = {"server": server.name, "server_id": server.id}
    try:
        request.expect_something()
        quorum: int = request.fields(_RESCUE).get("quorum_needed", 0)
        before, now = _cluster(request).begin_rescue(quorum)
    except ApiFailure as failure:
        return {"error": failure.error.document(), **who}
    quorums = {"prev_quorum": before, "new_quorum": now}
    request.jetstream.advisories.meta_rescued({**who, **quorums})
    return {**who, **quorums}


async def move_stream(request: ApiRequest) -> Document:
    """Let a stream of some account move to other servers."""
    asked = request.options(_MOVE)
    group = _foreign_group(request)
    await _cluster(request).move(group, asked)
    return await describe(request.jetstream, group)


async def cancel_foreign_move(request: ApiRequest) -> Document:
    """Let it stay where it was."""
    await _cluster(request).cancel_move(_foreign_group(request))
    return {"success": True}


async def purge_account(request: ApiRequest) -> Document:
    """Remove all streams of an account, of one that is not configured any more too."""
    jetstream, name = request.jetstream, request.arguments[0]
    if "/" in name or "\\" in name:
        raise ApiFailure(api_errors.stream_general("account name can not contain path separators"))
    here = [group for group, entry in jetstream.store.catalog.streams.items() if entry.account == name]
    for group in (*here, *_cluster(request).assignments(name)):
        await jetstream.commit(CATALOG, RemoveStream(group))
    return {"initiated": True}


# --- inside ---


def _cluster(request: ApiRequest) -> Cluster:
    cluster = request.jetstream.cluster
    assert cluster is not None
    return cluster


def _peer(request: ApiRequest) -> str:
    """The name or the id of a node. Raises ApiFailure."""
    request.expect_something()
    peer: str = request.fields(_PEER).get("peer", "")
    if not peer:
        raise ApiFailure(api_errors.BAD_REQUEST)
    return peer


def _group(request: ApiRequest) -> int:
    """The group of the stream that the first argument names. Raises ApiFailure."""
    group = request.account.group_of(request.arguments[0])
    if not group:
        raise ApiFailure(api_errors.STREAM_NOT_FOUND)
    return group


def _foreign_group(request: ApiRequest) -> int:
    """The group of the stream that account and stream name. Raises ApiFailure."""
    account_name, name = request.arguments
    account = request.jetstream.accounts.get(account_name)
    group = 0 if account is None else account.group_of(name)
    if not group:
        raise ApiFailure(api_errors.STREAM_NOT_FOUND)
    return group
