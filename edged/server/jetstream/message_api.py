"""The endpoints that show and remove single messages."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from edged.core import api_errors
from edged.core.api_errors import ApiError, ApiFailure
from edged.core.commands import Delete
from edged.core.gojson_shapes import FLAG, INT, TEXT, TIME, UINT64, ListOf, Structure
from edged.core.gotime import format_rfc3339
from edged.core.message import Message
from edged.core.stream_machine import Refused
from edged.server.jetstream.api_request import ApiRequest, Document
from edged.server.jetstream.stream import Stream
from edged.server.monitoring.gojson import text

GET_SHAPE: Final = Structure(
    "server.JSApiMsgGetRequest",
    {
        "seq": UINT64,
        "last_by_subj": TEXT,
        "next_by_subj": TEXT,
        "batch": INT,
        "max_bytes": INT,
        "start_time": TIME,
        "multi_last": ListOf(TEXT),
        "up_to_seq": UINT64,
        "up_to_time": TIME,
        "no_hdr": FLAG,
    },
)
_DELETE: Final = Structure("server.JSApiMsgDeleteRequest", {"seq": UINT64, "no_erase": FLAG})


def get(request: ApiRequest) -> Document:
    """One message, by its seq, as the last of a subject, or as the next one from somewhere on."""
    request.expect_something()
    options = request.fields(GET_SHAPE)
    seq, start_time = options.get("seq", 0), options.get("start_time")
    last_of, next_of = options.get("last_by_subj", ""), options.get("next_by_subj", "")
    # Many messages at once are for direct gets.
    if options.get("batch", 0) > 0 or options.get("max_bytes", 0) > 0:
        raise ApiFailure(api_errors.BAD_REQUEST)
    if (seq > 0) + bool(last_of) + (start_time is not None) > 1 or (last_of and next_of):
        raise ApiFailure(api_errors.BAD_REQUEST)
    if not (seq or last_of or next_of or start_time is not None):
        raise ApiFailure(api_errors.BAD_REQUEST)
    stream = request.stream()
    if start_time is not None:
        seq = stream.log.seq_at_time(start_time.ns)
    message = find(stream, seq, last_of, next_of)
    if message is None:
        raise ApiFailure(api_errors.NO_MESSAGE_FOUND)
    return {"message": _shown(message, bool(options.get("no_hdr")))}


def find(stream: Stream, seq: int, last_of: str, next_of: str) -> Message | None:
    """A message by its seq, the next one of a subject from there on, or else the last one of a subject."""
    log = stream.log
    found: int | None = seq
    if next_of:
        found = log.next_matching((next_of.encode(),), max(seq, log.first_seq))
    elif not seq:
        found = last_seq_of(stream, last_of.encode())
    return None if found is None else log.get(found)


def last_seq_of(stream: Stream, subject: bytes) -> int | None:
    """The last message of a subject. That of all is the last one of the stream, be it there or not."""
    log = stream.log
    return log.last_seq if subject in (b"", b">") else log.previous_matching((subject,), log.last_seq)


async def delete(request: ApiRequest) -> Document:
    """Remove one message."""
    request.expect_something()
    options = request.fields(_DELETE)
    stream = request.stream()
    if stream.config.sealed:
        raise ApiFailure(api_errors.STREAM_SEALED)
    if stream.config.deny_delete:
        raise ApiFailure(api_errors.stream_message_delete_failed("message delete not permitted"))
    seq = options.get("seq", 0)
    outcome = await request.jetstream.commit(stream.group, Delete(seq, not options.get("no_erase")))
    if isinstance(outcome, Refused):
        # Not counted as an error: the request as such was right.
        return {"error": _missing(stream, seq).document()}
    stream.consumers.removed()
    return {"success": True}


def _missing(stream: Stream, seq: int) -> ApiError:
    """Why there is no such message, as the two kinds of stores of nats-server tell it."""
    if stream.config.storage != "memory":
        if seq > stream.log.last_seq:
            return api_errors.stream_message_delete_failed("stream store EOF")
        if seq < stream.log.first_seq:
            return api_errors.stream_message_delete_failed("no message found")
    return api_errors.sequence_not_found(seq)


def _shown(message: Message, is_without_headers: bool) -> Document:
    split = message.header_bytes
    document: Document = {"subject": text(message.subject), "seq": message.seq}
    if split and not is_without_headers:
        document["hdrs"] = b64encode(message.data[:split]).decode()
    if len(message.data) > split:
        document["data"] = b64encode(message.data[split:]).decode()
    document["time"] = format_rfc3339(message.ts_ns)
    return document
