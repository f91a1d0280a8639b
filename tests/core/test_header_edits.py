"""Lines of header blocks taken out, replaced and added, as nats-server edits what it stores."""

from __future__ import annotations

from edged.core import header_edits

BLOCK = b"NATS/1.0\r\nA: 1\r\nAb: 2\r\nA:3\r\na: 4\r\n\r\n"


def test_all_lines_of_a_key_are_removed_and_no_others() -> None:
    assert header_edits.removed(BLOCK, b"A") == b"NATS/1.0\r\nAb: 2\r\na: 4\r\n\r\n"
    assert header_edits.removed(BLOCK, b"A", b"Ab") == b"NATS/1.0\r\na: 4\r\n\r\n"


def test_a_prefix_removes_every_line_that_begins_with_it() -> None:
    assert header_edits.removed_prefix(BLOCK, b"A") == b"NATS/1.0\r\na: 4\r\n\r\n"
    assert header_edits.removed_prefix(BLOCK, b"1") == BLOCK


def test_a_block_without_lines_is_none() -> None:
    assert header_edits.removed(b"NATS/1.0\r\nA: 1\r\n\r\n", b"A") == b""
    assert header_edits.removed(b"", b"A") == b""


def test_a_value_is_replaced_in_its_place_and_its_blank_kept() -> None:
    assert header_edits.replaced(BLOCK, b"A", b"new") == BLOCK.replace(b"A: 1", b"A: new")
    assert header_edits.replaced(b"NATS/1.0\r\nA:1\r\n\r\n", b"A", b"") == b"NATS/1.0\r\nA:\r\n\r\n"


def test_a_key_that_is_not_there_is_added_at_the_end() -> None:
    assert (
        header_edits.replaced(b"NATS/1.0\r\nA: 1\r\n\r\n", b"B", b"2") == b"NATS/1.0\r\nA: 1\r\nB: 2\r\n\r\n"
    )
    assert header_edits.replaced(b"", b"B", b"2") == b"NATS/1.0\r\nB: 2\r\n\r\n"
