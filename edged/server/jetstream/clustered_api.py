"""The endpoints about streams and accounts that the leader of the catalog answers in a cluster.

Rules: it decides which streams there are, and where; what is in them is told by the nodes that lead them. So
a stream is made, or changed, when the catalog says so, and answered for when its leader serves it that way.
Streams that nobody tells of are named as missing.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, Final

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.commands import ASSIGNED, CREATED, PEERS, PutStream, RemoveStream, assigned_to
from edged.core.stream_config import StreamConfig, StreamRequest
from edged.core.stream_rules import check_create
from edged.core.stream_update_rules import ConsumerUse, check_update
from edged.ports import Cluster
from edged.server.jetstream import consumer_api, stream_api
from edged.server.jetstream.account_limits import NOTHING, limits_document, limits_of
from edged.server.jetstream.api_request import ApiRequest, Document
from edged.server.jetstream.cluster_questions import ask_leader, ask_leaders, describe, wait_gone
from edged.store.group import CATALOG
from edged.version import API_LEVEL


async def create(request: ApiRequest) -> Document:
    """Make a stream; one that exists already with the same configuration is as good."""
    asked = StreamRequest.parse(request.body, request.is_strict)
    account, jetstream = request.account, request.jetstream
    config = check_create(
        asked.config,
        account.bounds(asked.config.num_replicas),
        account.configs(),
        pedantic=asked.pedantic,
        subject_name=request.arguments[0],
    )
    group = account.group_of(config.name)
    if group:
        return await describe(jetstream, group)
    peers = _cluster(request).place(config, ())
    stored = {**config.document(), CREATED: jetstream.now_ns(), PEERS: peers}
    group = jetstream.store.catalog.highest_group + 1
    command = PutStream(group, uuid.uuid4().bytes, account.account.name, config.name, stored)
    await jetstream.commit(CATALOG, command)
    await _cluster(request).serving(group)
    jetstream.advisories.stream_created(account.account, config.name)
    return {**await describe(jetstream, group), "did_create": True}


async def update(request: ApiRequest) -> Document:
    """Replace the configuration of a stream, and have it elsewhere if that follows."""
    asked = StreamRequest.parse(request.body, request.is_strict)
    account, name, jetstream = request.account, request.arguments[0], request.jetstream
    group, configs = account.group_of(name), account.configs()
    known = configs.get(name)
    config = check_update(
        known,
        asked.config,
        # No stream is promised more than a node has.
        replace(
            account.bounds(asked.config.num_replicas),
            server_file_bytes_max=jetstream.options.max_store,
            server_memory_bytes_max=jetstream.options.max_memory,
        ),
        configs,
        pedantic=asked.pedantic,
        consumers=await _uses(request, group) if group else (),
        subject_name=name,
    )
    assert known is not None, "checked above"
    stream_id, before = account.identity(group)
    stored = {**config.document(), CREATED: before.get(CREATED, 0)}
    stored |= {name: value for name, value in before.items() if name in ASSIGNED}
    if config.num_replicas != known.num_replicas or config.placement != known.placement:
        # Of the nodes that have it the leader is the last to be taken away.
        leader = _cluster(request).leader(group)
        here = sorted(before[PEERS], key=lambda node: node != leader)
        stored |= assigned_to(before, _cluster(request).place(config, here))
    await jetstream.commit(CATALOG, PutStream(group, stream_id, account.account.name, name, stored))
    return await describe(jetstream, group, stored)


async def delete(request: ApiRequest) -> Document:
    """Remove a stream with everything in it."""
    request.expect_nothing()
    group = request.account.group_of(request.arguments[0])
    if not group:
        raise ApiFailure(api_errors.STREAM_NOT_FOUND)
    leader = _cluster(request).leader(group)
    await request.jetstream.commit(CATALOG, RemoveStream(group))
    await wait_gone(request.jetstream, leader, group)
    return {"success": True}


async def listing(request: ApiRequest) -> Document:
    """All streams, or those that would get messages on some subject, with everything about them."""
    account = request.account
    found, page = stream_api.page_of(request, stream_api.LIST, stream_api.LIST_LIMIT)
    groups = {config.name: account.group_of(config.name) for config in found}
    said = await ask_leaders(request.jetstream, groups.values(), "list")
    document: Document = {
        **page,
        "streams": [said[group] for group in groups.values() if group in said],
    }
    missing = [name for name, group in groups.items() if group not in said]
    return {**document, "missing": missing} if missing else document


async def account_info(request: ApiRequest) -> Document:
    """The account of the requester."""
    account = request.account
    groups = {account.group_of(config.name): config for config in account.configs().values()}
    said = await ask_leaders(request.jetstream, groups, "figures")
    tiers = account.account.options.jetstream_tiers
    document = _figures(groups, said)
    document["limits"] = limits_document(NOTHING if tiers else limits_of(account))
    domain = request.jetstream.options.domain
    if domain:
        document["domain"] = domain
    document["api"] = {"level": API_LEVEL, "total": account.requests, "errors": account.errors}
    if tiers:
        document["tiers"] = {}
        for tier, limits in tiers:
            of_tier = {group: one for group, one in groups.items() if f"R{one.num_replicas}" == tier}
            document["tiers"][tier] = {**_figures(of_tier, said), "limits": limits_document(limits)}
    return document


def consumer_listing(request: ApiRequest) -> Document:
    """The consumers of a stream with everything about them. A stream that is not there has none."""
    if not request.account.group_of(request.arguments[0]):
        request.options(consumer_api.PAGE)
        return {"total": 0, "offset": 0, "limit": consumer_api.LIST_LIMIT, "consumers": []}
    return consumer_api.listing(request)


# --- inside ---


def _cluster(request: ApiRequest) -> Cluster:
    cluster = request.jetstream.cluster
    assert cluster is not None
    return cluster


async def _uses(request: ApiRequest, group: int) -> list[ConsumerUse]:
    """What the consumers of a stream need. Raises ApiFailure when its leader does not tell."""
    body = {"what": "uses", "groups": [group]}
    answer = await ask_leader(request.jetstream, group, body, "is_known")
    return [ConsumerUse(*use) for use in answer["uses"]]


_NO_FIGURES: Final = (0, 0)


def _figures(groups: dict[int, StreamConfig], said: dict[int, Any]) -> Document:
    """What streams have and reserve, each as its leader knows it."""
    document: Document = {"memory": 0, "storage": 0, "reserved_memory": 0, "reserved_storage": 0}
    consumers = 0
    for group, config in groups.items():
        kind = "memory" if config.storage == "memory" else "storage"
        size, consumer_count = said.get(group, _NO_FIGURES)
        document[kind] += size
        document[f"reserved_{kind}"] += max(config.max_bytes, 0)
        consumers += consumer_count
    return {**document, "streams": len(groups), "consumers": consumers}
