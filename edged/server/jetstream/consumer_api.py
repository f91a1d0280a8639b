"""The endpoints that make, change, show and remove consumers.

Rules: everything is asked in nats-server's order, so that a request with several faults is refused for the
same one; most of it is in `consumer_rules`. Whoever resets a consumer speaks to the consumer: that is neither
counted nor audited, and where there is none nobody answers.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import Final

from edged.core import api_errors, headers
from edged.core.api_errors import ApiFailure
from edged.core.consumer_checks import GROUP_NAME
from edged.core.consumer_config import ConsumerRequest
from edged.core.consumer_rules import ConsumerSubject, check_consumer_create
from edged.core.consumer_update_rules import with_pause
from edged.core.gojson import JsonError, document
from edged.core.gojson_shapes import INT, TEXT, TIME, UINT64, Structure, read_request
from edged.core.gojson_time import Instant
from edged.core.gotime import format_rfc3339
from edged.core.short_names import stream_identity
from edged.server.jetstream.account_limits import consumer_bounds
from edged.server.jetstream.api_request import ApiRequest, Document
from edged.server.jetstream.consumer_advisories import consumer_paused, group_unpinned
from edged.server.jetstream.consumer_info import described, listed
from edged.server.jetstream.consumers.consumer import Consumer
from edged.server.jetstream.stream import Stream

LIST_LIMIT: Final = 256
NAMES_LIMIT: Final = 1024
NAME_CHANCE_BYTES: Final = 16

PAGE: Final = Structure("server.JSApiConsumersRequest", {"offset": INT})
_PAUSE: Final = Structure("server.JSApiConsumerPauseRequest", {"pause_until": TIME})
_UNPIN: Final = Structure("server.JSApiConsumerUnpinRequest", {"group": TEXT})
_RESET: Final = Structure("server.JSApiConsumerResetRequest", {"seq": UINT64})
_IDENTITY: Final = b"Nats-Stream-Identity"


async def create(request: ApiRequest) -> Document:
    """Make a consumer, or change one; what is there already as it is asked for is as good."""
    return await _create(request, is_durable_form=False)


async def durable_create(request: ApiRequest) -> Document:
    """The same, by the subject that only durable ones had in earlier times."""
    return await _create(request, is_durable_form=True)


async def _create(request: ApiRequest, *, is_durable_form: bool) -> Document:
    asked = ConsumerRequest.parse(request.body, request.is_strict)
    request.check_right()
    arguments = request.arguments
    form = ConsumerSubject.durable_create if is_durable_form else ConsumerSubject.create
    account = request.account
    stream = account.streams.get(asked.stream_name)
    identity = "" if stream is None else stream_identity(stream.created_ns)
    checked = check_consumer_create(
        asked,
        form(arguments),
        None if stream is None else stream.config,
        consumer_bounds(account, 1 if stream is None else stream.config.num_replicas),
        {} if stream is None else stream.consumers.configs(),
        chance=secrets.token_bytes(NAME_CHANCE_BYTES),
        has_interest=lambda subject: account.account.has_interest(subject.encode()),
        identity=identity,
        expected_identity=(headers.value(request.headers, _IDENTITY) or b"").decode("utf-8", "replace"),
    )
    assert stream is not None, "checked above"
    document = await stream.consumers.put(checked.name, checked.config)
    consumer = stream.consumers.find(checked.name)
    if consumer is not None and consumer.is_paused:
        request.afterwards.append(partial(consumer_paused, consumer))
    if checked.config.is_internal:
        request.answer_headers.append((_IDENTITY, identity.encode()))
    return document


def names(request: ApiRequest) -> Document:
    """The names of a stream's consumers."""
    consumers, page = _page(request, NAMES_LIMIT)
    return {**page, "consumers": [consumer.machine.name for consumer in consumers]}


def listing(request: ApiRequest) -> Document:
    """The same with everything about them."""
    consumers, page = _page(request, LIST_LIMIT)
    return {**page, "consumers": [listed(consumer) for consumer in consumers]}


def info(request: ApiRequest) -> Document:
    """Everything about one consumer. That nothing else is asked comes before all."""
    request.expect_nothing()
    request.check_right()
    return described(_consumer(request))


async def delete(request: ApiRequest) -> Document:
    """Remove a consumer."""
    request.expect_nothing()
    consumer = _consumer(request)
    await consumer.stream.consumers.remove(consumer)
    return {"success": True}


async def pause(request: ApiRequest) -> Document:
    """Let a consumer rest until some time, or go on."""
    until: Instant | None = request.options(_PAUSE).get("pause_until")
    request.check_right()
    consumer = _consumer(request)
    config = with_pause(consumer.config, None if until is None else until.ns)
    await consumer.stream.consumers.put(consumer.machine.name, config)
    until_ns, now_ns = config.pause_until, request.jetstream.server.now_ns()
    is_paused = until_ns is not None and until_ns > now_ns
    document: Document = {"paused": is_paused, "pause_until": format_rfc3339(until_ns)}
    if until_ns is not None and is_paused:
        document["pause_remaining"] = until_ns - now_ns
    return document


def unpin(request: ApiRequest) -> Document:
    """Let another client than the pinned one have messages."""
    request.check_level()
    try:
        document(request.body)
        group = str(read_request(request.body, _UNPIN, strict=False).get("group", ""))
    except JsonError as error:
        raise ApiFailure(api_errors.invalid_json(str(error))) from None
    if not group:
        raise ApiFailure(api_errors.invalid_json("consumer group not specified"))
    if not GROUP_NAME.fullmatch(group):
        raise ApiFailure(api_errors.CONSUMER_INVALID_GROUP_NAME)
    request.check_right()
    consumer = _consumer(request)
    if group not in consumer.config.priority_groups:
        raise ApiFailure(api_errors.CONSUMER_INVALID_PRIORITY_GROUP)
    consumer.unpin(group)
    group_unpinned(consumer, group, "admin")
    return {}


async def reset(request: ApiRequest) -> Document:
    """Let a consumer go on behind what it has settled, or with a message of choice."""
    request.check_level()
    seq = 0
    if request.body:
        try:
            seq = int(read_request(request.body, _RESET, strict=False).get("seq", 0))
        except JsonError as error:
            raise ApiFailure(api_errors.invalid_json(str(error))) from None
    consumer = _consumer(request)
    if seq:
        _check_reset(consumer, seq)
    reset_seq = await consumer.stream.consumers.reset(consumer, seq)
    if headers.value(request.headers, _IDENTITY) is not None:
        identity = stream_identity(consumer.stream.created_ns)
        request.answer_headers.append((_IDENTITY, identity.encode()))
    return {**described(consumer), "reset_seq": reset_seq}


def _check_reset(consumer: Consumer, seq: int) -> None:
    """Raises ApiFailure when the configuration does not let a consumer go there."""
    config, reason = consumer.config, ""
    if config.deliver_policy == "by_start_sequence":
        reason = "below start seq" if seq < config.opt_start_seq else ""
    elif config.deliver_policy == "by_start_time":
        start_seq = consumer.stream.log.seq_at_time(config.opt_start_time or 0)
        reason = "below start time" if seq < start_seq else ""
    elif config.deliver_policy != "all":
        reason = "not allowed"
    if reason:
        raise ApiFailure(api_errors.consumer_invalid_reset(reason))


def _consumer(request: ApiRequest) -> Consumer:
    """The consumer that the second argument names. Raises ApiFailure."""
    found = request.stream().consumers.find(request.arguments[1])
    if found is None:
        raise ApiFailure(api_errors.CONSUMER_NOT_FOUND)
    return found


def _page(request: ApiRequest, limit: int) -> tuple[list[Consumer], Document]:
    options = request.options(PAGE)
    stream: Stream = request.stream()
    consumers = stream.consumers.public()
    offset = min(max(0, options.get("offset", 0)), len(consumers))
    page = {"total": len(consumers), "offset": offset, "limit": limit}
    return consumers[offset : offset + limit], page
