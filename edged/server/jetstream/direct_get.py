"""Direct gets: messages as they are stored, without JSON around them, in the turn that asks for them.

Rules: whatever is asked is answered by messages, or by an empty one whose status says why not. Answers of
more than one message end with the status EOB, which says how much more there would be. The commonest question
by far is for the last message of a subject, with the subject in the request's own and no body: it goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from edged.core import headers
from edged.core.gojson import JsonError, document
from edged.core.gotime import format_rfc3339
from edged.core.message import Message
from edged.server.jetstream.api_request import asks_too_much
from edged.server.jetstream.message_api import GET_SHAPE, find, last_seq_of
from edged.server.jetstream.origins import mirror_for
from edged.store.errors import Damaged

if TYPE_CHECKING:
    from edged.core.wire import Publish
    from edged.server.jetstream.account_streams import AccountStreams
    from edged.server.jetstream.jetstream import JetStream
    from edged.server.jetstream.stream import Stream

Fields = dict[str, Any]
# Fields that go on behind those which every message gets.
Place = bytes

RESULTS_MAX: Final = 1024
"""To how many subjects the last messages can be asked for at once."""
BATCH_READ_MAX: Final = 256
"""So many messages are read at once."""

_NOT_FOUND: Final = b"404 Message Not Found"
_NO_RESULTS: Final = b"404 No Results"
_EMPTY: Final = b"408 Empty Request"
_MALFORMED: Final = b"408 Malformed Request"
_BAD: Final = b"408 Bad Request"
_DAMAGED: Final = b"500 Message Damaged"
_LEVEL: Final = b"412 Required Api Level"
_TOO_MANY: Final = b"413 Too Many Results"
_END_OF_BATCH: Final = b"204 EOB"
_END: Final = b"\r\n\r\n"
_BARE: Final = headers.VERSION + _END
# What a request by subject must not ask for besides.
_SELECTORS: Final = (
    "last_by_subj",
    "next_by_subj",
    "multi_last",
    "seq",
    "batch",
    "start_time",
    "up_to_seq",
    "up_to_time",
)


class DirectGet:
    """Answers the direct gets of all accounts."""

    def __init__(self, jetstream: JetStream) -> None:
        self._jetstream = jetstream

    def answer(self, account: AccountStreams, name: bytes, message: Publish) -> bool:
        """Answer one request; False when there is no stream that does so. `name` is what it asks for."""
        stream_name, dot, subject = name.partition(b".")
        stream = account.direct.get(stream_name) or mirror_for(account, stream_name)
        if stream is None:
            return False
        _, reply, header_bytes, data = message
        if reply is None:
            return True
        if not stream.certainty.is_there:
            self._ask(account, stream, name, message)
            return True
        try:
            if subject and not data:
                log = stream.log
                seq = log.last_of(subject)
                found = None if seq is None else log.get(seq)
                if found is not None:
                    block = stored_headers(stream.name.encode(), found)
                    account.account.publish(reply, None, block + found[4][found[3] :], len(block))
                    return True
            answer = _Answer(self._jetstream, account, stream, reply)
            split = max(header_bytes, 0)
            if asks_too_much(data[:split]):
                answer.status(_LEVEL)
            elif dot:
                answer.last_of(subject, data[split:])
            else:
                answer.asked(data[split:])
        except Damaged:
            _Answer(self._jetstream, account, stream, reply).status(_DAMAGED)
        return True

    def _ask(self, account: AccountStreams, stream: Stream, name: bytes, message: Publish) -> None:
        """Answer when it is certain that nobody else leads the stream, or not at all."""

        def again(is_certain: bool) -> None:
            if is_certain:
                self.answer(account, name, message)

        stream.certainty.ask(message, again)


class _Answer:
    """What one request is answered."""

    def __init__(self, jetstream: JetStream, account: AccountStreams, stream: Stream, reply: bytes) -> None:
        self._account = account.account
        self._stream = stream
        self._log = stream.reads
        self._name = stream.name.encode()
        self._reply = reply
        # Answers that are too large for the outbox of a client would end its connection.
        self._bytes_max = jetstream.server.options.max_pending

    def last_of(self, subject: bytes, body: bytes) -> None:
        """The last message of a subject; the body may say how it is to be sent."""
        options = self._options(body) if body else {}
        if options is None:
            return
        if not subject or any(options.get(name) for name in _SELECTORS):
            self.status(_BAD)
            return
        seq = last_seq_of(self._stream, subject)
        self._one(None if seq is None else self._log.get(seq), bool(options.get("no_hdr")))

    def asked(self, body: bytes) -> None:
        """What the body asks for."""
        if not body:
            self.status(_EMPTY)
            return
        options = self._options(body)
        if options is None:
            return
        refusal = _refusal(options)
        if refusal is not None:
            self.status(refusal)
        elif options.get("multi_last"):
            self._many_last(options)
        else:
            start_time = options.get("start_time")
            seq = options.get("seq", 0) if start_time is None else self._log.seq_at_time(start_time.ns)
            if options.get("batch"):
                self._batch(options, seq)
            else:
                last_of, next_of = options.get("last_by_subj", ""), options.get("next_by_subj", "")
                self._one(find(self._stream, seq, last_of, next_of), bool(options.get("no_hdr")))

    def _options(self, body: bytes) -> Fields | None:
        """The body as fields; None when it has been refused."""
        try:
            value = document(body)
            return {} if value is None else GET_SHAPE.read(value, "", strict=False)
        except JsonError:
            self.status(_MALFORMED)
            return None

    def _one(self, message: Message | None, is_bare: bool) -> None:
        if message is None:
            self.status(_NOT_FOUND)
        else:
            self._send(message, is_bare, b"")

    def _batch(self, options: Fields, seq: int) -> None:
        """Messages from a seq on, of a subject or of all."""
        count, is_bare = options["batch"], bool(options.get("no_hdr"))
        next_of = options.get("next_by_subj", "")
        filters = (next_of.encode(),) if next_of else ()
        bytes_left = options.get("max_bytes") or self._bytes_max
        pending, last_sent = self._log.count_matching(filters, seq), 0
        is_refused = count > 0
        while count > 0:
            found = self._log.messages(filters, seq, min(count, BATCH_READ_MAX), max(bytes_left, 1))
            if not found.messages:
                break
            is_refused = False
            for message in found.messages:
                # As with nats-server, who wants no headers is not told how the number goes down.
                pending -= not is_bare
                self._send(message, is_bare, _place(pending, last_sent))
                last_sent = message.seq
                bytes_left -= len(message.subject) + len(message.data)
                count = count - 1 if bytes_left > 0 else 0
                if not count:
                    break
            seq = found.next_seq
        if not is_refused:
            self.status(_END_OF_BATCH, _place(pending, last_sent))
        else:
            self.status(_NOT_FOUND)

    def _many_last(self, options: Fields) -> None:
        """The last message of each subject, in the order of their seqs."""
        log = self._log
        up_to = options.get("up_to_seq", 0)
        if options.get("up_to_time") is not None:
            up_to = log.seq_at_time(options["up_to_time"].ns)
            if up_to <= log.first_seq:
                self.status(_NO_RESULTS)
                return
            up_to -= 1
        up_to = up_to or log.last_seq
        seqs = log.last_seqs([one.encode() for one in options["multi_last"]], up_to)
        if not seqs or len(seqs) > RESULTS_MAX:
            self.status(_TOO_MANY if seqs else _NO_RESULTS)
            return
        count, bytes_left = options.get("batch", 0), options.get("max_bytes") or self._bytes_max
        pending, last_sent = len(seqs), 0
        for seq in seqs:
            pending -= 1
            if seq < options.get("seq", 0):
                continue
            message = log.get(seq)
            if message is None:
                self.status(_NOT_FOUND)
                return
            self._send(message, False, _place(pending, last_sent))
            last_sent = seq
            bytes_left -= len(message.subject) + len(message.data)
            count -= 1
            if bytes_left <= 0 or count == 0:
                break
        self.status(_END_OF_BATCH, _place(pending, last_sent) + b"\r\nNats-UpTo-Sequence: %d" % up_to)

    def _send(self, message: Message, is_bare: bool, place: Place) -> None:
        payload = message.data[message.header_bytes :]
        if is_bare:
            self._account.publish(self._reply, None, payload)
        else:
            block = stored_headers(self._name, message, place)
            self._account.publish(self._reply, None, block + payload, len(block))

    def status(self, status: bytes, place: Place = b"") -> None:
        """Send no message, but why there is none, or none more."""
        block = b"%s %s%s%s" % (headers.VERSION, status, place, _END)
        self._account.publish(self._reply, None, block, len(block))


def stored_headers(stream: bytes, message: Message, place: Place = b"") -> bytes:
    """The headers of a stored message, and what is known of it besides."""
    seq, ts_ns, subject, header_bytes, data = message
    head = data[: header_bytes - len(_END)] if header_bytes else headers.VERSION
    return b"%s\r\nNats-Stream: %s\r\nNats-Subject: %s\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %s%s%s" % (
        head,
        stream,
        subject,
        seq,
        format_rfc3339(ts_ns).encode(),
        place,
        _END,
    )


def _place(pending: int, last_seq: int) -> Place:
    """Where in a batch a message is."""
    return b"\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d" % (max(pending, 0), last_seq)


def _refusal(options: Fields) -> bytes | None:
    """The status of a request that asks for nothing, or for what does not go together."""
    seq, last_of, next_of = options.get("seq"), options.get("last_by_subj"), options.get("next_by_subj")
    is_timed, multi = options.get("start_time") is not None, options.get("multi_last")
    if not (seq or last_of or next_of or multi or is_timed):
        return _EMPTY
    if seq and (last_of or is_timed):
        return _BAD
    if last_of and (is_timed or next_of or multi or options.get("batch", 0) > 0):
        return _BAD
    if (next_of and multi) or (options.get("up_to_seq") and options.get("up_to_time") is not None):
        return _BAD
    return None
