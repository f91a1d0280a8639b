"""What a dead letter looks like: the message that was given up, with headers that say why, and from where.

Headers of the message are passed on as they are, but for those that begin with `Nats-` or `Edged-`, in
whatever case: they get `Edged-Original-` in front of their names. Else they would tell the stream that takes
the letter what to do with it, or be taken for ours.

Rules: the id of a letter is made of what is in the journal before the command that gives the message up, and
does not change by what happens meanwhile: a letter that is published again after a crash has the same one. A
message that is given up again after a reset of its consumer has another. Whatever a client said is one line,
and not longer than TEXT_BYTES_MAX.
"""

from __future__ import annotations

import re
from typing import Final

from edged.core import headers
from edged.core.dead_letters import DeadLetter
from edged.core.gotime import format_rfc3339
from edged.core.message import Message
from edged.core.publish_headers import MESSAGE_ID
from edged.core.publish_rules import HEADER_BYTES_MAX

PREFIX: Final = b"Edged-Dead-Letter-"
ORIGINAL: Final = b"Edged-Original-"
TEXT_BYTES_MAX: Final = 1024

_LINE: Final = b"\r\n"
_OURS: Final = re.compile(rb"[ \t]*(?:Nats|Edged)-", re.IGNORECASE)
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]+")


def letter_id(letter: DeadLetter, stream_id: bytes) -> bytes:
    """The message id of a letter of the stream with this id."""
    places = (letter.consumer, letter.resets, letter.seq, letter.delivery_seq)
    return b"dead-letter-%s-%d-%d-%d-%d" % (stream_id.hex().encode(), *places)


def letter_text(text: bytes) -> str:
    """What a client said when it terminated a message, as it is stored and passed on."""
    line = _CONTROL.sub(b" ", text).strip()[:TEXT_BYTES_MAX]
    return line.decode("utf-8", "ignore")


def letter_message(
    letter: DeadLetter, stream_id: bytes, stream_name: str, message: Message | None
) -> tuple[bytes, bytes]:
    """The header block and the payload of a letter; without a payload if the message is gone."""
    fields = [
        (MESSAGE_ID, letter_id(letter, stream_id)),
        (PREFIX + b"Reason", letter.reason),
        (PREFIX + b"Stream", stream_name.encode()),
        (PREFIX + b"Consumer", letter.consumer_name.encode()),
        (PREFIX + b"Sequence", b"%d" % letter.seq),
        (PREFIX + b"Deliveries", b"%d" % letter.deliveries),
    ]
    if letter.text:
        fields.append((PREFIX + b"Text", letter.text.encode()))
    if letter.delivered_ns:
        fields.append((PREFIX + b"Delivered", format_rfc3339(letter.delivered_ns).encode()))
    if message is None:
        fields.append((PREFIX + b"Missing", b"true"))
        return headers.encode(fields), b""
    fields.append((PREFIX + b"Subject", message.subject))
    fields.append((PREFIX + b"Time", format_rfc3339(message.ts_ns).encode()))
    added = headers.encode(fields)
    block = message.data[: message.header_bytes]
    lines = _original_lines(block)
    if len(added) + len(lines) > HEADER_BYTES_MAX:
        # No stream would take it.
        lines = PREFIX + b"Headers: too large\r\n"
    return added.removesuffix(_LINE) + lines + _LINE, message.data[message.header_bytes :]


def _original_lines(block: bytes) -> bytes:
    """The lines of a header block, each with its end, without the first and the empty one."""
    lines = [line for line in block.split(_LINE)[1:] if line]
    named = [ORIGINAL + line.lstrip() if _OURS.match(line) else line for line in lines]
    return b"".join(line + _LINE for line in named)
