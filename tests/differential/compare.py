"""Two transcripts of one case, side by side: equal or not, and where.

Pure: takes what the runner recorded, gives back text for a person.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import SequenceMatcher

COLUMN_CHARS = 96
CONTEXT_LINES = 12


@dataclass(slots=True)
class Transcript:
    """What one server answered to a case, line by line.

    `missing` lists texts that the case must show and did not; `stopped` says why the script could not be
    finished.
    """

    server: str
    lines: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    stopped: str = ""


def difference(reference: Transcript, subject: Transcript) -> str | None:
    """None when both said the same, else the two transcripts side by side."""
    if reference.stopped:
        return _failure(
            "the script cannot be finished against the reference: " + reference.stopped, reference, subject
        )
    if reference.missing:
        return _failure(f"the case does not show what it is for: {reference.missing}", reference, subject)
    if reference.lines != subject.lines:
        return _failure("the answers differ", reference, subject)
    return None


def _failure(message: str, reference: Transcript, subject: Transcript) -> str:
    header = _row(" ", reference.server, subject.server)
    return "\n".join([message, header, _row(" ", "-" * 20, "-" * 20), *_rows(reference.lines, subject.lines)])


def _rows(left: list[str], right: list[str]) -> list[str]:
    rows: list[str] = []
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for name, start, end, other_start, other_end in matcher.get_opcodes():
        ours, theirs = left[start:end], right[other_start:other_end]
        if name == "equal":
            rows.extend(_shortened(ours))
            continue
        for position in range(max(len(ours), len(theirs))):
            one = ours[position] if position < len(ours) else ""
            other = theirs[position] if position < len(theirs) else ""
            rows.append(_row("!", one, other))
    return rows


def _shortened(lines: list[str]) -> list[str]:
    """Equal lines far from any difference say little: keep some on both ends."""
    if len(lines) <= 2 * CONTEXT_LINES + 1:
        return [_row(" ", line, line) for line in lines]
    hidden = _row(" ", f"… {len(lines) - 2 * CONTEXT_LINES} equal lines", "…")
    head, tail = lines[:CONTEXT_LINES], lines[-CONTEXT_LINES:]
    return [_row(" ", line, line) for line in head] + [hidden] + [_row(" ", line, line) for line in tail]


def _row(mark: str, left: str, right: str) -> str:
    """One row of the table; a long differing line is shown whole, because its end may be what differs."""
    if mark == " ":
        left, right = left[:COLUMN_CHARS], right[:COLUMN_CHARS]
    return f"{mark} {left:<{COLUMN_CHARS}} {mark} {right}"
