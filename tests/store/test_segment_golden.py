"""Segments that earlier versions wrote are still read, every message and every column."""

from __future__ import annotations

import pytest

from edged.core.message import counted_bytes
from edged.store.segment_format import VERSION
from tests.store.make_golden_segment import DIRECTORY, KEYS, PATH, golden_messages, name_of
from tests.store.segment_samples import MemoryFiles, expires_ns, opened


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_golden_segment_is_read_back(version: int, is_sealed: bool) -> None:
    files = MemoryFiles({PATH: (DIRECTORY / name_of(version, is_sealed)).read_bytes()})
    segment = opened(files, PATH, KEYS)
    kept = golden_messages()
    assert list(segment.messages()) == kept
    assert KEYS.is_current(segment.label) == is_sealed
    sizes = [counted_bytes(len(m.subject), m.header_bytes, len(m.data)) for m in kept]
    assert [segment.size_of(m.seq) for m in kept] == sizes
    assert segment.message_bytes == sum(sizes)
    subjects = [summary.subject for summary in segment.subjects]
    seqs, codes = segment.codes()
    assert [(seq, subjects[code]) for seq, code in zip(seqs, codes, strict=True)] == [
        (m.seq, m.subject) for m in kept
    ]
    expiries = [(m.seq, expires_ns(m)) for m in kept if m.header_bytes and m.seq % 2 == 0]
    assert list(zip(*segment.expiries(), strict=True)) == expiries
    assert segment.verify() == []
    # It has something of everything, so that nothing of the format goes untested.
    assert len(segment._contents.table) > 1
    assert {type(column).__name__ for column in segment._contents.columns.values()} == {"bytes", "Span"}
