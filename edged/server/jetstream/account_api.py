"""The endpoints about accounts: what one has and may have, and, for the system account, to empty one."""

from __future__ import annotations

from edged.config.options import AccountJetStream
from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.commands import RemoveStream
from edged.server.jetstream.account_limits import NOTHING, limits_document, limits_of
from edged.server.jetstream.api_request import ApiRequest, Document
from edged.server.jetstream.figures import reserved_bytes, used_bytes
from edged.server.jetstream.stream import Stream
from edged.store.group import CATALOG
from edged.version import API_LEVEL


def info(request: ApiRequest) -> Document:
    """The account of the requester."""
    account = request.account
    streams = list(account.streams.values())
    tiers = account.account.options.jetstream_tiers
    document = _figures(streams, NOTHING if tiers else limits_of(account))
    domain = request.jetstream.options.domain
    if domain:
        document["domain"] = domain
    document["api"] = {"level": API_LEVEL, "total": account.requests, "errors": account.errors}
    if tiers:
        by_replicas = {name: [s for s in streams if f"R{s.config.num_replicas}" == name] for name, _ in tiers}
        document["tiers"] = {name: _figures(by_replicas[name], limits) for name, limits in tiers}
    return document


def _figures(streams: list[Stream], limits: AccountJetStream) -> Document:
    memory_bytes, file_bytes = used_bytes(streams)
    memory_reserved, file_reserved = reserved_bytes(streams)
    return {
        "memory": memory_bytes,
        "storage": file_bytes,
        "reserved_memory": memory_reserved,
        "reserved_storage": file_reserved,
        "streams": len(streams),
        "consumers": sum(len(stream.consumers) for stream in streams),
        "limits": limits_document(limits),
    }


async def purge(request: ApiRequest) -> Document:
    """Remove all streams of an account, of one that is not configured any more too."""
    jetstream, name = request.jetstream, request.arguments[0]
    if "/" in name or "\\" in name:
        raise ApiFailure(api_errors.stream_general("account name can not contain path separators"))
    account = jetstream.accounts.get(name)
    for stream in list(account.streams.values()) if account is not None else ():
        await stream.account.remove(stream)
    groups = [
        entry.group.number for entry in jetstream.store.catalog.streams.values() if entry.account == name
    ]
    for group in groups:
        await jetstream.commit(CATALOG, RemoveStream(group))
    return {"initiated": True}
