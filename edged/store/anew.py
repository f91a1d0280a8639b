"""A node of a cluster whose files do not tell its state any more begins anew: the others have what it had.

Everything it has goes to lost+found/, and it is a node that knows nothing but that it has forgotten: in every
group it rejoins (edged/store/found_log.py). A stream that only this node had stays away until somebody
decides about it; its messages are in lost+found/.

Rules: a mark lies in the store from before the first file is moved until the journal says that the node
rejoins, so that an interruption never makes it a node without a past, which could vote at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edged.core.replica_records import HardRecord, MembersRecord
from edged.store.checkpoint import CHECKPOINTS
from edged.store.found_log import FoundLog
from edged.store.group import CATALOG
from edged.store.journal import START
from edged.store.journal_file import JOURNAL, file_numbers
from edged.store.segment_format import STREAMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from edged.store.files import Files
    from edged.store.store import Store

MARK: Final = "rejoining"
NOBODY: Final = 0


def is_under_way(files: Files) -> bool:
    """Whether a node was interrupted when it began anew."""
    return MARK in files.list("")


def begin_anew(store: Store, move_aside: Callable[[str], None]) -> None:
    """Make an empty store of one that cannot be read, whose node rejoins."""
    files = store.files
    if not is_under_way(files):
        files.create(MARK).close()
        files.sync_directory("")
    number = max(file_numbers(files.list(JOURNAL)), default=0) + 1
    directories = [CHECKPOINTS, JOURNAL, *(f"{STREAMS}/{name}" for name in files.list(STREAMS))]
    for directory in directories:
        for name in files.list(directory):
            move_aside(f"{directory}/{name}")
        files.sync_directory(directory)
    store.store_id = store.options.draw_nonce()
    store.begin_journal(number, START, 0, [])
    catalog = store.groups[CATALOG]
    # Who the members are it hears from them, with the first entries.
    catalog.found = FoundLog(catalog, MembersRecord(0, (NOBODY,)), HardRecord(is_rejoining=True))


def end_anew(store: Store) -> None:
    """The node knows that it rejoins: let that be durable, and do it once."""
    store.settle()
    store.files.remove(MARK)
    store.files.sync_directory("")
