"""What opening the store has found, told to the operator: nothing that was lost is passed over in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from edged.server.log import Log
    from edged.store.store import Store

LINES_MAX: Final = 20
"""How many losses are named one by one; `edged fsck` names all."""


def tell_recovery(store: Store, log: Log) -> None:
    """Say what there is, and what is not there any more."""
    report = store.report
    log.info("the store is open", streams=len(store.catalog.streams), journal_files=report.replay.files)
    if report.has_begun_anew:
        log.error(
            "the store could not be read: its files are in lost+found, and the node gets from the others what"
            " it had; streams with a single copy that was here stay away",
            files=len(report.moved_aside),
        )
        return
    if report.is_clean:
        return
    for name, reason in report.bad_checkpoints[:LINES_MAX]:
        log.warn("a checkpoint is damaged, an older one was taken", file=name, reason=reason)
    for name, reason in report.damaged_segments[:LINES_MAX]:
        log.error("a segment is damaged", file=name, reason=reason)
    for number in report.replay.missing_files[:LINES_MAX]:
        log.error("a file of the journal is missing", number=number)
    for name, start, end in report.replay.damage[:LINES_MAX]:
        log.error("a part of the journal is damaged", file=name, start=start, end=end)
    lost = store.holes
    for missing in lost[:LINES_MAX]:
        log.error(
            "messages are lost",
            account=missing.account,
            stream=missing.stream,
            first_seq=missing.first_seq,
            last_seq=missing.last_seq,
            reason=missing.reason,
        )
    log.error("the disk has not kept everything: `edged fsck` on the stopped store lists it", lost=len(lost))
