"""Two transcripts of one case, side by side: equal or not, and where.

Pure: takes what the runner recorded, gives back text for a person.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import SequenceMatcher

# A line that says what a script does; what follows is the answer.
STEP = re.compile(r"[A-Z]>|close |http ")
CLUSTER = re.compile(r'( *)"cluster": (\{|"<object>",)$')
COPIES = re.compile(r' *"num_replicas": \d,$')
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


def difference_from_either(clustered: Transcript, alone: Transcript, subject: Transcript) -> str | None:
    """None when each step was answered as by one of the references, else that step side by side with both.

    The second one is a single server, which shows nothing of a cluster.
    """
    if alone.stopped or alone.missing:
        return difference(clustered, subject)
    said = _by_step(subject.lines)
    in_cluster, by_one = _by_step(clustered.lines), _by_step(alone.lines)
    for place, lines in enumerate(said):
        is_clustered = place < len(in_cluster) and lines == in_cluster[place]
        is_alone = place < len(by_one) and _unclustered(lines) == _unclustered(by_one[place])
        if not is_clustered and not is_alone:
            message = f"the answers to step {place} differ"
            ours = Transcript(subject.server, _unclustered(lines))
            theirs = Transcript("alone", _unclustered(by_one[place]) if place < len(by_one) else [])
            return f"{_failure(message, clustered, subject)}\n\n{_failure(message, theirs, ours)}"
    if len(said) not in (len(in_cluster), len(by_one)):
        return _failure("the script ended at another step", clustered, subject)
    return None


def _by_step(lines: list[str]) -> list[list[str]]:
    """A transcript, cut before each line that says what was asked."""
    found: list[list[str]] = [[]]
    for line in lines:
        if STEP.match(line):
            found.append([])
        found[-1].append(line)
    return found


def _unclustered(lines: list[str]) -> list[str]:
    """The same without what documents say of a cluster, and of the number of copies."""
    kept: list[str] = []
    end = ""
    for line in lines:
        if end:
            end = "" if line.rstrip(",") == end else end
        elif opening := CLUSTER.match(line):
            end = f"{opening.group(1)}}}" if line.endswith("{") else ""
        elif not COPIES.match(line):
            # What was asked is the same but for the number of copies, and is cut off where it is long.
            kept.append(line.partition(" = ")[0] if STEP.match(line) else line)
    return kept


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
