"""The endpoints that make, change, show and remove streams."""

from __future__ import annotations

import uuid
from typing import Final

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.commands import CREATED, Purge, PutStream
from edged.core.gojson_shapes import FLAG, INT, TEXT, UINT64, Structure
from edged.core.retention import LIMITS
from edged.core.stream_config import StreamConfig, StreamRequest
from edged.core.stream_rules import check_create
from edged.core.stream_update_rules import check_update
from edged.core.subjects import overlaps
from edged.server.jetstream.api_request import ApiRequest, Document
from edged.server.jetstream.stream_info import StateDetails, described, listed, subjects_of
from edged.store.errors import StoreError
from edged.store.group import CATALOG

NAMES_LIMIT: Final = 1024
LIST_LIMIT: Final = 256
SUBJECTS_LIMIT: Final = 100_000

NAMES: Final = Structure("server.JSApiStreamNamesRequest", {"offset": INT, "subject": TEXT})
LIST: Final = Structure("server.JSApiStreamListRequest", {"offset": INT, "subject": TEXT})
_INFO: Final = Structure(
    "server.JSApiStreamInfoRequest", {"offset": INT, "deleted_details": FLAG, "subjects_filter": TEXT}
)
_PURGE: Final = Structure("server.JSApiStreamPurgeRequest", {"seq": UINT64, "filter": TEXT, "keep": UINT64})


async def create(request: ApiRequest) -> Document:
    """Make a stream; one that exists already with the same configuration is as good."""
    asked = StreamRequest.parse(request.body, request.is_strict)
    account = request.account
    config = check_create(
        asked.config,
        account.bounds(asked.config.num_replicas),
        account.configs(),
        pedantic=asked.pedantic,
        subject_name=request.arguments[0],
    )
    stream = account.streams.get(config.name)
    if stream is None:
        jetstream = request.jetstream
        stored = {**config.document(), CREATED: jetstream.now_ns()}
        group = jetstream.store.catalog.highest_group + 1
        command = PutStream(group, uuid.uuid4().bytes, account.account.name, config.name, stored)
        await jetstream.commit(CATALOG, command)
        stream = account.stream(config.name)
        jetstream.advisories.stream_created(stream.account.account, stream.name)
    document = described(stream, with_cluster=False)
    document.pop("domain", None)
    return {**document, "did_create": True}


async def update(request: ApiRequest) -> Document:
    """Replace the configuration of a stream."""
    asked = StreamRequest.parse(request.body, request.is_strict)
    account, name = request.account, request.arguments[0]
    known = account.streams.get(name)
    config = check_update(
        None if known is None else known.config,
        asked.config,
        account.bounds(asked.config.num_replicas),
        account.configs(),
        pedantic=asked.pedantic,
        consumers=() if known is None else known.consumers.uses(),
        subject_name=name,
    )
    stream = account.stream(name)
    stored = {**config.document(), CREATED: stream.created_ns}
    entry = stream.entry
    command = PutStream(stream.group, entry.stream_id, entry.account, entry.name, stored)
    # Messages of origins are submitted as the configuration is: none of them may be on its way.
    await stream.origins.rest()
    holds = stream.origins.holds()
    if config.retention != LIMITS:
        stream.consumers.become_known()
    try:
        await request.jetstream.commit(CATALOG, command)
    except StoreError:
        # Its origins rest until it is configured.
        stream.reconfigure()
        raise
    kept = stream.origins.hold_names()
    for hold in holds:
        if hold.name not in kept:
            hold.release()
    request.jetstream.advisories.stream_action(stream, "UPDATED", "modify")
    return described(stream, with_cluster=False)


def names(request: ApiRequest) -> Document:
    """The names of all streams, or of those that would get messages on some subject."""
    found, page = page_of(request, NAMES, NAMES_LIMIT)
    return {**page, "streams": [config.name for config in found] or None}


def listing(request: ApiRequest) -> Document:
    """The same with everything about them."""
    found, page = page_of(request, LIST, LIST_LIMIT)
    return {**page, "streams": [listed(request.account.streams[config.name]) for config in found]}


def info(request: ApiRequest) -> Document:
    """Everything about one stream."""
    options = request.options(_INFO)
    stream = request.stream()
    page = {"total": 0, "offset": 0, "limit": 0}
    subjects: dict[str, int] = {}
    wanted = options.get("subjects_filter")
    if wanted:
        offset = max(0, options.get("offset", 0))
        total, subjects = subjects_of(stream, wanted, offset, SUBJECTS_LIMIT)
        if total:
            page = {"total": total, "offset": offset, "limit": SUBJECTS_LIMIT}
    details = StateDetails(subjects, bool(options.get("deleted_details")))
    return {**page, **described(stream, details=details, alternates=_alternates(request))}


def _alternates(request: ApiRequest) -> list[Document]:
    """Which streams of a cluster hold the same: the stream and its mirrors; none if it has none."""
    server, name = request.jetstream.server, request.arguments[0]
    if request.jetstream.cluster is None or server.options.cluster is None:
        return []
    configs = request.account.configs()
    mirrors = [one.name for one in configs.values() if one.mirror is not None and one.mirror.name == name]
    domain = request.jetstream.options.domain
    place = {**({"domain": domain} if domain else {}), "cluster": server.options.cluster.name or ""}
    return [{"name": one, **place} for one in (name, *mirrors)] if mirrors else []


async def delete(request: ApiRequest) -> Document:
    """Remove a stream with everything in it."""
    request.expect_nothing()
    await request.account.remove(request.stream())
    return {"success": True}


async def purge(request: ApiRequest) -> Document:
    """Remove messages: all, or those of a subject, before a seq, or but the last so many."""
    options = request.options(_PURGE)
    seq, keep = options.get("seq", 0), options.get("keep", 0)
    if seq and keep:
        raise ApiFailure(api_errors.BAD_REQUEST)
    stream = request.stream()
    if stream.config.sealed:
        raise ApiFailure(api_errors.STREAM_SEALED)
    if stream.config.deny_purge:
        raise ApiFailure(api_errors.stream_purge_failed("stream purge not permitted"))
    subject = options.get("filter", "").encode()
    purged = await stream.consumers.purge(Purge(seq, subject, keep))
    return {"success": True, "purged": purged}


def page_of(request: ApiRequest, shape: Structure, limit: int) -> tuple[list[StreamConfig], Document]:
    """The streams that a request asks for, as many as are shown at once."""
    options = request.options(shape)
    found = [config for _, config in sorted(request.account.configs().items())]
    wanted = options.get("subject", "").encode()
    if wanted:
        found = [
            config
            for config in found
            if any(overlaps(subject.encode(), wanted) for subject in config.subjects)
        ]
    offset = min(max(0, options.get("offset", 0)), len(found))
    return found[offset : offset + limit], {"total": len(found), "offset": offset, "limit": limit}
