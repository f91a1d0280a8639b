"""A segment for `edged inspect`: what its footer says, its blocks, and its most frequent subjects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edged.core.expiry import message_expires_ns
from edged.store.block_cache import BlockCache
from edged.store.box import LABEL_PLAIN, Keyring, WrongKey
from edged.store.errors import Damaged, StoreError
from edged.store.fsck_files import StoreFiles
from edged.store.fsck_state import CACHE_BYTES
from edged.store.segment import Segment
from edged.store.segment_footer import Span
from edged.store.segment_format import CODES, EXPIRIES, SEQS, SIZES, SUBJECTS, segment_name
from edged.store.segment_rebuild import read_contents
from edged.store.segment_sections import SectionFile

_COLUMNS = {SEQS: "seqs", CODES: "codes", SIZES: "sizes", SUBJECTS: "subjects", EXPIRIES: "expiries"}


def segment_items(
    files: StoreFiles, path: str, keys: Keyring, subjects_max: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kinds and fields of what is in a segment, under whatever name it stands."""
    name = segment_name(path)
    try:
        contents = read_contents(SectionFile(files, path, keys), name, message_expires_ns)
        segment = Segment.open(
            files, path, BlockCache(CACHE_BYTES), keys, message_expires_ns, any_name=name is None
        )
    except StoreError as error:
        yield "damage", {"path": path, "offset": error.offset, "what": error.what}
        return
    whole = contents.whole
    yield (
        "segment",
        {
            "path": path,
            "bytes": segment.file_bytes,
            "stream": whole.stream_id.hex(),
            "generation": whole.generation,
            "messages": segment.count,
            "first_seq": segment.first_seq,
            "last_seq": segment.last_seq,
            "first_ts_ns": segment.first_ts_ns,
            "last_ts_ns": segment.last_ts_ns,
            "counted_bytes": segment.message_bytes,
            "key": "none" if whole.label == LABEL_PLAIN else whole.label.hex(),
            "footer": "lost, rebuilt from the blocks" if contents.footer is None else contents.footer.offset,
        },
    )
    for entry in contents.table.entries():
        place = {"number": entry.number, "offset": entry.offset, "bytes": entry.size}
        seqs = {"messages": entry.message_count, "first_seq": entry.first_seq, "last_seq": entry.last_seq}
        yield "block", {**place, **seqs, "first_ts_ns": entry.first_ts_ns}
    for kind, column in contents.columns.items():
        if isinstance(column, Span):
            yield "column", {"of": _COLUMNS[kind], "offset": column.offset, "bytes": column.size}
        else:
            yield "column", {"of": _COLUMNS[kind], "in": "footer", "bytes": len(column)}
    yield from _subject_items(segment, subjects_max)
    try:
        problems = segment.verify()
    except WrongKey as error:
        yield "damage", {"path": path, "offset": None, "what": error.what}
        return
    for problem in problems:
        cost = {} if problem.costs_nothing else {"first_seq": problem.first_seq, "last_seq": problem.last_seq}
        place = {"offset": problem.offset, "bytes": problem.size}
        yield "damage", {"path": path, **place, "what": problem.what, **cost}


def _subject_items(segment: Segment, subjects_max: int) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        subjects = segment.subjects
    except (Damaged, WrongKey) as error:
        yield "damage", {"path": segment.path, "offset": error.offset, "what": error.what}
        return
    frequent = sorted(subjects, key=lambda one: (-one.count, one.subject))
    for one in frequent[:subjects_max]:
        seqs = {"first_seq": one.first_seq, "last_seq": one.last_seq}
        yield "subject", {"subject": one.subject, "messages": one.count, **seqs}
    if len(frequent) > subjects_max:
        yield "more subjects", {"count": len(frequent) - subjects_max}
