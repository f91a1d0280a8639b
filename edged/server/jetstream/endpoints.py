"""The endpoints of the JetStream API by name: what stands behind `$JS.API.` without its arguments."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from edged.core.gotime import ZERO_TIME
from edged.server.jetstream import (
    account_api,
    cluster_api,
    clustered_api,
    consumer_api,
    message_api,
    restore,
    snapshot,
    stream_api,
)
from edged.server.jetstream.api_request import Endpoint, Service

_PAGE: Final = {"total": 0, "offset": 0, "limit": 0}
_NOT_PAUSED: Final = {"paused": False, "pause_until": ZERO_TIME}


def _fields(**values: Any) -> MappingProxyType[str, Any]:
    return MappingProxyType(values)


_reading: Final = partial(Endpoint, is_reading=True)
# These look at what they were sent before they ask for a right.
_changing_consumer: Final = partial(Endpoint, is_unconditional=True)
_clustered: Final = partial(Endpoint, service=cluster_api.refuse, is_unconditional=True)

_ALL: Final = (
    _reading("INFO", "account_info_response", account_api.info, 0, 0),
    Endpoint("STREAM.CREATE", "stream_create_response", stream_api.create),
    Endpoint("STREAM.UPDATE", "stream_update_response", stream_api.update),
    _reading("STREAM.NAMES", "stream_names_response", stream_api.names, 0, 0, _fields(**_PAGE, streams=None)),
    _reading("STREAM.LIST", "stream_list_response", stream_api.listing, 0, 0, _fields(**_PAGE, streams=[])),
    _reading("STREAM.INFO", "stream_info_response", stream_api.info, failed=_fields(**_PAGE)),
    Endpoint("STREAM.DELETE", "stream_delete_response", stream_api.delete),
    Endpoint("STREAM.PURGE", "stream_purge_response", stream_api.purge, failed=_fields(purged=0)),
    Endpoint("STREAM.SNAPSHOT", "stream_snapshot_response", snapshot.snapshot),
    Endpoint(
        "STREAM.RESTORE", "stream_restore_response", restore.restore, failed=_fields(deliver_subject="")
    ),
    Endpoint("STREAM.MSG.GET", "stream_msg_get_response", message_api.get, is_unnoted=True),
    Endpoint("STREAM.MSG.DELETE", "stream_msg_delete_response", message_api.delete),
    _clustered("STREAM.LEADER.STEPDOWN", "stream_leader_stepdown_response"),
    _clustered("STREAM.PEER.REMOVE", "stream_remove_peer_response"),
    _clustered("STREAM.PEER.EVACUATE", "stream_evacuate_peer_response"),
    _clustered("STREAM.CANCEL_MOVE", "stream_cancel_move_response"),
    _reading(
        "CONSUMER.NAMES",
        "consumer_names_response",
        consumer_api.names,
        failed=_fields(**_PAGE, consumers=[]),
    ),
    _reading(
        "CONSUMER.LIST",
        "consumer_list_response",
        consumer_api.listing,
        failed=_fields(**_PAGE, consumers=[]),
    ),
    _changing_consumer("CONSUMER.CREATE", "consumer_create_response", consumer_api.create, 1, sys.maxsize),
    _changing_consumer(
        "CONSUMER.DURABLE.CREATE", "consumer_create_response", consumer_api.durable_create, 2, 2
    ),
    _changing_consumer(
        "CONSUMER.PAUSE", "consumer_pause_response", consumer_api.pause, 2, 2, failed=_fields(**_NOT_PAUSED)
    ),
    _changing_consumer("CONSUMER.UNPIN", "consumer_unpin_response", consumer_api.unpin, 2, 2),
    _changing_consumer(
        "CONSUMER.RESET",
        "consumer_reset_response",
        consumer_api.reset,
        2,
        2,
        failed=_fields(reset_seq=0),
        is_unnoted=True,
        is_private=True,
    ),
    _reading("CONSUMER.INFO", "consumer_info_response", consumer_api.info, 2, 2, is_unconditional=True),
    Endpoint("CONSUMER.DELETE", "consumer_delete_response", consumer_api.delete, 2, 2),
    _clustered(
        "CONSUMER.LEADER.STEPDOWN", "consumer_leader_stepdown_response", arguments_min=2, arguments_max=2
    ),
    _clustered("CONSUMER.PEER.REMOVE", "consumer_remove_peer_response", arguments_min=2, arguments_max=2),
    _clustered("CONSUMER.PEER.EVACUATE", "consumer_evacuate_peer_response", arguments_min=2, arguments_max=2),
)
Endpoints = Mapping[str, Endpoint]

ENDPOINTS: Final[Endpoints] = {endpoint.name: endpoint for endpoint in _ALL}
_system: Final = partial(Endpoint, is_unconditional=True)
# Those that only the system account has.
SYSTEM_ENDPOINTS: Final[Endpoints] = {
    "ACCOUNT.PURGE": _system("ACCOUNT.PURGE", "account_purge_response", account_api.purge)
}

# What is done otherwise in a cluster, and what can be done only there.
_OTHER_SERVICES: Final[Mapping[str, Service]] = {
    "INFO": clustered_api.account_info,
    "STREAM.CREATE": clustered_api.create,
    "STREAM.UPDATE": clustered_api.update,
    "STREAM.LIST": clustered_api.listing,
    "STREAM.DELETE": clustered_api.delete,
    "STREAM.LEADER.STEPDOWN": cluster_api.stream_stepdown,
    "STREAM.PEER.REMOVE": cluster_api.remove_peer,
    "STREAM.PEER.EVACUATE": cluster_api.remove_peer,
    "STREAM.CANCEL_MOVE": cluster_api.cancel_move,
    "CONSUMER.LIST": clustered_api.consumer_listing,
    "CONSUMER.LEADER.STEPDOWN": cluster_api.consumer_stepdown,
    "CONSUMER.PEER.REMOVE": cluster_api.remove_consumer_peer,
    "CONSUMER.PEER.EVACUATE": cluster_api.remove_consumer_peer,
}
# What the leader of the catalog answers.
_META: Final = (
    *("INFO", "STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.NAMES", "STREAM.LIST"),
    *("STREAM.RESTORE", "STREAM.PEER.REMOVE", "STREAM.PEER.EVACUATE", "STREAM.CANCEL_MOVE"),
)


@dataclass(frozen=True, slots=True)
class EndpointTables:
    """What usual accounts can ask for, and what the system account can."""

    usual: Endpoints
    system: Endpoints


def _in_cluster(endpoint: Endpoint) -> Endpoint:
    service = _OTHER_SERVICES.get(endpoint.name, endpoint.service)
    is_unconditional = endpoint.is_unconditional and service is endpoint.service
    return replace(
        endpoint, service=service, is_unconditional=is_unconditional, is_meta=endpoint.name in _META
    )


_clustered_system: Final = partial(_system, is_meta=True)
_CLUSTERED_SYSTEM: Final = (
    _clustered_system("ACCOUNT.PURGE", "account_purge_response", cluster_api.purge_account),
    _clustered_system(
        "META.LEADER.STEPDOWN", "meta_leader_stepdown_response", cluster_api.meta_stepdown, 0, 0
    ),
    _clustered_system("SERVER.REMOVE", "meta_server_remove_response", cluster_api.remove_server, 0, 0),
    _clustered_system("SERVER.EVACUATE", "meta_server_evacuate_response", cluster_api.evacuate_server, 0, 0),
    _system("META.RESCUE", "meta_rescue_response", cluster_api.rescue, 0, 0, is_everywhere=True),
    _clustered_system("ACCOUNT.STREAM.MOVE", "stream_update_response", cluster_api.move_stream, 2, 2),
    _clustered_system(
        "ACCOUNT.STREAM.CANCEL_MOVE", "stream_cancel_move_response", cluster_api.cancel_foreign_move, 2, 2
    ),
)
_ALONE: Final = EndpointTables(ENDPOINTS, SYSTEM_ENDPOINTS)
_CLUSTERED: Final = EndpointTables(
    {name: _in_cluster(endpoint) for name, endpoint in ENDPOINTS.items()},
    {endpoint.name: endpoint for endpoint in _CLUSTERED_SYSTEM},
)
_NAME_TOKENS_MAX: Final = max(name.count(".") + 1 for name in (*_CLUSTERED.usual, *_CLUSTERED.system))


def endpoints_of(is_clustered: bool) -> EndpointTables:
    """What can be asked of a server that stands alone, or of a node of a cluster."""
    return _CLUSTERED if is_clustered else _ALONE


def find_endpoint(name: str, endpoints: Endpoints = ENDPOINTS) -> tuple[Endpoint, tuple[str, ...]] | None:
    """The endpoint that a subject names, and its arguments; None when there is none with so many."""
    tokens = name.split(".")
    for count in range(1, min(_NAME_TOKENS_MAX, len(tokens)) + 1):
        endpoint = endpoints.get(".".join(tokens[:count]))
        if endpoint is not None:
            arguments = tuple(tokens[count:])
            if endpoint.arguments_min <= len(arguments) <= endpoint.arguments_max:
                return endpoint, arguments
    return None
