"""Messages that a stream takes over from another: what their headers say, which are taken, and their
subjects.

A sourced message says where it is from: `Nats-Stream-Source: <stream> <seq> <filters> <transforms>
<subject> <identity>`. The stream is followed by `:<hash>` of the API it is reached through, if it is
elsewhere, and by `:C=<hash>` of the consumer it is read through, if that was named. Several filters are
separated by form feeds; `>` stands for none. The identity is a hash of when the origin was made, so that
another one of its name is known for another.

Rules: everything is the same as nats-server writes it, because streams are moved between the two, and a
source goes on where the last header says. Expectations and batches were between a publisher and the origin:
their headers are not taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edged.core import header_edits, headers
from edged.core.publish_headers import STREAM_SOURCE
from edged.core.short_names import short_hash
from edged.core.source_config import StreamSource
from edged.core.transform import Draw, SubjectTransform

_EVERYTHING: Final = ">"
_BETWEEN_FILTERS: Final = "\f"
_EXPECTED: Final = b"Nats-Expected-"
_BATCH: Final = b"Nats-Batch-"


def index_of(source: StreamSource) -> str:
    """How a source is called in headers, and by the machine: one stream may be a source several times."""
    name = source.name
    if source.external is not None:
        name += ":" + short_hash(_bytes(source.external.api))
    if source.consumer is not None:
        name += ":C=" + short_hash(_bytes(source.consumer.name))
    if not source.subject_transforms:
        return f"{name} {source.filter_subject or _EVERYTHING} {_EVERYTHING}"
    filters = _BETWEEN_FILTERS.join(one.src or _EVERYTHING for one in source.subject_transforms)
    targets = _BETWEEN_FILTERS.join(one.dest or _EVERYTHING for one in source.subject_transforms)
    return f"{name} {filters} {targets}"


def mirrored_block(block: bytes) -> bytes:
    """The header block that a mirror stores."""
    return header_edits.removed_prefix(header_edits.removed_prefix(block, _EXPECTED), _BATCH)


class SourceHeader:
    """Writes the headers of messages from one source."""

    def __init__(self, source: StreamSource) -> None:
        self.index = index_of(source)
        name, filters, targets = self.index.split(" ", 2)
        self._name = name.encode("utf-8", "surrogatepass")
        self._selection = f"{filters} {targets}".encode("utf-8", "surrogatepass")

    def block(self, block: bytes, seq: int, subject: bytes, identity: bytes) -> bytes:
        """The header block to be stored for the origin's message with this seq, subject and block."""
        if block:
            block = mirrored_block(header_edits.removed(block, STREAM_SOURCE))
        text = b"%b %d %b %b" % (self._name, seq, self._selection, subject)
        if identity:
            text += b" " + identity
        return headers.adding(block, STREAM_SOURCE, text)


class OriginSubjects:
    """Which messages of an origin are taken, and under which subjects. `filters` are empty when all are."""

    def __init__(self, source: StreamSource) -> None:
        chosen = [one.src or _EVERYTHING for one in source.subject_transforms]
        if source.filter_subject:
            chosen = [source.filter_subject]
        self.filters: Sequence[bytes] = ()
        if _EVERYTHING not in chosen:
            self.filters = tuple(one.encode("utf-8", "surrogatepass") for one in chosen)
        self._transforms = [
            SubjectTransform.parse(one.src, one.dest) for one in source.subject_transforms if one.dest
        ]

    def apply(self, subject: bytes, draw: Draw) -> bytes:
        """The subject here of a message that has this one at the origin: the first transform that fits."""
        for transform in self._transforms:
            found = transform.apply_with_chance(subject, draw)
            if found is not None:
                return found
        return subject


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
