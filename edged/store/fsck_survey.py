"""What the journal tells of streams, whatever has become of the checkpoints: a first pass before a replay.

Rules: all files count whose nonce is known, also those that wait to be used again: what an earlier use left
in them tells of streams made long ago. Memory is bounded by the streams and by the commands that were
refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edged.core.batch_record import BatchRecord
from edged.core.commands import PutStream, RemoveStream, decode
from edged.core.frame_twins import scan
from edged.core.frames import BATCH
from edged.store.errors import Damaged
from edged.store.fsck_files import StoreFiles
from edged.store.group import CATALOG
from edged.store.journal_file import HEADER_BYTES, JOURNAL, JournalHeader, file_path, spare_names
from edged.store.journal_reader import Chain, Part, read_parts


@dataclass(slots=True)
class Survey:
    """What was found. `first_index` has every group that has commands in the chain."""

    first_index: dict[int, int] = field(default_factory=dict)
    # Commands that are known to have changed nothing: refused, or there before.
    refused: dict[int, set[int]] = field(default_factory=dict)
    reported: set[int] = field(default_factory=set)
    # By group: the index of the last word on a stream, and the word.
    words: dict[int, tuple[int, PutStream | RemoveStream]] = field(default_factory=dict)

    @property
    def streams(self) -> dict[int, PutStream]:
        """The streams that are there, as their last configuration says."""
        return {group: word for group, (_, word) in self.words.items() if isinstance(word, PutStream)}

    def hear(self, index: int, word: PutStream | RemoveStream) -> None:
        """A command of the catalog."""
        known = self.words.get(word.group)
        if known is None or known[0] < index:
            self.words[word.group] = index, word


def survey(files: StoreFiles, chain: Chain) -> Survey:
    """Look through the journal, and through what is left in other files."""
    found = Survey()
    for part in read_parts(files, chain):
        _survey_part(part, found)
    counted = {file_path(header.number) for header, _ in chain.files}
    names = [f"{JOURNAL}/{name}" for name in spare_names(files.list(JOURNAL))]
    names += [one.path for one in files.found(JOURNAL) if one.path.endswith(".log")]
    for path in dict.fromkeys(names):
        if path not in counted:
            _survey_leftover(files, path, found)
    return found


def _survey_part(part: Part, found: Survey) -> None:
    for _, kind, group, index, start, size in part.frames:
        if kind == BATCH:
            for report in BatchRecord.decode(part.data[start : start + size]).applied:
                found.reported.add(report.group)
                if report.refused:
                    found.refused.setdefault(report.group, set()).update(report.refused)
            continue
        found.first_index.setdefault(group, index)
        if group == CATALOG:
            _hear(part.data[start : start + size], index, found)


def _survey_leftover(files: StoreFiles, path: str, found: Survey) -> None:
    try:
        header = JournalHeader.decode(files.read_head(path, HEADER_BYTES)[0], path)
    except Damaged:
        return
    if header is None:
        return
    data = files.read_all(path)
    for _, kind, group, index, start, size in scan(data, header.nonce, HEADER_BYTES).frames:
        if kind != BATCH and group == CATALOG:
            _hear(data[start : start + size], index, found)


def _hear(body: bytes, index: int, found: Survey) -> None:
    command = decode(body)
    if isinstance(command, PutStream | RemoveStream):
        found.hear(index, command)
