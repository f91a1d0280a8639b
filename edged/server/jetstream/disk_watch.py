"""Tells the operator what goes wrong with the store while it runs: when it begins, and when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edged.committer import LocalCommitter
    from edged.server.log import Log
    from edged.store.store import Store


class DiskWatch:
    """Of one store; look() is called about every second."""

    def __init__(self, store: Store, committer: LocalCommitter, log: Log) -> None:
        self._store = store
        self._committer = committer
        self._log = log
        self._known: dict[str, str] = {}

    def look(self) -> None:
        """Say what is new."""
        found = self._troubles()
        for what, reason in found.items():
            if self._known.get(what) != reason:
                self._log.error(what, reason=reason)
        for what in self._known.keys() - found.keys():
            self._log.info(f"over: {what}")
        self._known = found
        failed_syncs = self._store.journal.failed_syncs
        while failed_syncs:
            self._log.error("a file of the journal could not be synced", reason=failed_syncs.pop(0))

    def _troubles(self) -> dict[str, str]:
        governor, error = self._store.room.governor, self._committer.sealing_error
        found = {
            "old files of the journal cannot be sealed, and are tried again": error and str(error),
            "the reserve of the disk is not as it should be": governor.problem,
            "the disk is full, publishes are refused": "no space left" if governor.is_full else None,
        }
        return {what: reason for what, reason in found.items() if reason}
