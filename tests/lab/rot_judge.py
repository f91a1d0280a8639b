"""Opens a store on a damaged disk and compares it with what it was: no wrong answer, nothing thrown away.

A store is right if it refuses in order (StoreBroken), or if it holds exactly what the model holds without the
commands that it says are lost. Messages that it says are lost or cannot be read may be missing as well. What
a crash could have left, too, is not known to be damaged: at the end of the journal records may be missing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from edged.store.checkpoint import CHECKPOINTS, Checkpoint, checkpoint_path, decode_checkpoint
from edged.store.errors import Damaged, StoreBroken
from edged.store.journal_file import HEADER_BYTES, JOURNAL
from edged.store.segment_format import segment_name
from tests.lab.fake_disk import FakeDisk
from tests.lab.life import Refused
from tests.lab.reference import Reference
from tests.lab.store_crash import described
from tests.lab.tested_store import TestedStore
from tests.lab.workload import BATCH_NS, Batch, Publish, StoreModel, StreamModel, difference

# Of so many disks one is used further.
USED_FURTHER_EVERY: Final = 32
LIMITS: Final = ("max_msgs", "max_msgs_per_subject")
WRONG: Final = "wrong"
REFUSED: Final = "refused"
SAME: Final = "same"
LESS: Final = "less"
SHORTER: Final = "shorter"


class Damage(NamedTuple):
    """A damaged disk. `is_small`: at most one record is hit. `steps_min`: how many steps must be there.

    `may_be_silent`: a power cut could have left the same, so nobody can tell that it is damage.
    """

    identity: str
    disk: FakeDisk
    is_small: bool
    steps_min: int
    may_be_silent: bool = False


class Verdict(NamedTuple):
    """WRONG, REFUSED in order, the SAME as before, LESS as was reported, or SHORTER as after a crash."""

    kind: str
    is_noticed: bool
    what: str
    seconds: float


def judge(reference: Reference, damage: Damage) -> Verdict:
    """What becomes of the store."""
    started = time.perf_counter()
    chance = random.Random(damage.identity)
    try:
        kind, is_noticed, what = _judged(reference, damage, chance)
    except Exception as error:
        kind, is_noticed, what = WRONG, False, described(error)
    return Verdict(kind, is_noticed, what, time.perf_counter() - started)


def _judged(reference: Reference, damage: Damage, chance: random.Random) -> tuple[str, bool, str]:
    before = damage.disk.contents()
    try:
        store = TestedStore(damage.disk, chance)
    except Refused as refusal:
        is_clean = isinstance(refusal.__cause__, StoreBroken)
        is_wrong = not is_clean or damage.is_small or _thrown_away(before, damage.disk)
        return WRONG if is_wrong else REFUSED, True, f"refused: {refusal}"
    gone = _thrown_away(before, damage.disk)
    if gone:
        return WRONG, False, f"thrown away: {gone}"
    found = store.observe_damaged()
    is_noticed = store.is_trouble_noticed()
    kind, what = _compared(reference, damage, store, found)
    if kind != WRONG and not store.unreadable and chance.randrange(USED_FURTHER_EVERY) == 0:
        wrong = wrong_when_used(reference, damage.disk, store, found, chance)
        if wrong:
            return WRONG, is_noticed, wrong
    else:
        store.close()
    if kind != WRONG and damage.disk.open_count:
        return WRONG, is_noticed, f"{damage.disk.open_count} files are left open"
    if not is_noticed and (kind == LESS or (kind == SHORTER and not damage.may_be_silent)):
        return WRONG, False, f"nobody is told: {what}"
    return kind, is_noticed, what


def _compared(reference: Reference, damage: Damage, store: TestedStore, found: StoreModel) -> tuple[str, str]:
    whole = reference.expected()
    if found == whole:
        return SAME, ""
    holes = store.store.report.replay.holes
    forgotten = {
        (hole.group, index) for hole in holes for index in range(hole.first_index, hole.last_index + 1)
    }
    if damage.is_small and len(forgotten) > 1:
        return WRONG, f"more than one command is lost: {holes}"
    steps = len(reference.done)
    first = ""
    for count in range(steps, damage.steps_min - 1, -1):
        expected = reference.expected(forgotten, count)
        if found == expected or (not damage.is_small and _is_less(reference, store, found, expected)):
            return (SHORTER if count < steps else LESS), f"{holes}, {steps - count} steps at the end"
        first = first or difference(found, expected)
    return WRONG, f"{first} (complaints: {store.complaints()})"


def _is_less(reference: Reference, store: TestedStore, found: StoreModel, expected: StoreModel) -> bool:
    """Whether it differs only by messages that are known to be lost, and what limits made of that."""
    if found.streams.keys() != expected.streams.keys():
        return False
    whole = reference.expected()
    for group, wanted in expected.streams.items():
        have = found.streams[group]
        if group not in whole.streams:
            # It was removed, and that is forgotten: nobody tells what else was done to it.
            messages = have.messages.items()
            if any(message != reference.message(group, seq) for seq, message in messages):
                return False
            continue
        if (have.name, have.config, have.last_seq) != (wanted.name, wanted.config, wanted.last_seq):
            return False
        if have.message_ids != wanted.message_ids or not _are_consumers_less(have, wanted):
            return False
        if not _are_less(reference, store, group, have, wanted):
            return False
    return True


def _are_consumers_less(have: StreamModel, wanted: StreamModel) -> bool:
    """Whether they differ only by messages that are gone: nobody waits for these, or looks at them."""
    if have.consumers.keys() != wanted.consumers.keys():
        return False
    for number, consumer in wanted.consumers.items():
        found = have.consumers[number]
        if (found.name, found.config) != (consumer.name, consumer.config):
            return False
        if (consumer.pending - found.pending) & have.messages.keys():
            return False
        if (found.pending - consumer.pending) & wanted.messages.keys():
            return False
        passed = range(consumer.delivered + 1, found.delivered + 1)
        if found.delivered < consumer.delivered or any(seq in have.messages for seq in passed):
            return False
    return True


def _are_less(
    reference: Reference, store: TestedStore, group: int, have: StreamModel, wanted: StreamModel
) -> bool:
    lost = store.store.catalog.streams[group].log.lost
    steps = [done.step for done in reference.done if done.step.group == group]
    # What a purge keeps is a limit, too.
    had_limits = any(getattr(step, "keep", 0) for step in steps) or any(
        getattr(step, "config", {}).get(name, -1) > 0 for name in LIMITS for step in steps
    )
    for seq in have.messages.keys() | wanted.messages.keys():
        message = have.messages.get(seq)
        if message is None:
            is_told = (group, seq) in store.unreadable or any(a <= seq <= b for a, b, _ in lost)
            if not is_told:
                return False
        elif seq in wanted.messages:
            if message != wanted.messages[seq]:
                return False
        elif not (had_limits and lost and message == reference.message(group, seq)):
            # A message that is lost leaves its place to an older one.
            return False
    return True


def wrong_when_used(
    reference: Reference, disk: FakeDisk, store: TestedStore, found: StoreModel, chance: random.Random
) -> str:
    """Go on: it must take messages, with the next seqs, and keep them."""
    now_ns = reference.done[-1].now_ns + BATCH_NS
    steps = tuple(Publish(group, b"a", b"after:" + chance.randbytes(900)) for group in found.streams)
    for step in steps:
        found.apply(step, now_ns)
    store.commit(Batch(steps, now_ns))
    store.maintain()
    wrong = difference(store.observe_damaged(), found)
    store.close()
    if wrong or store.unreadable:
        return f"used further: {wrong} {store.unreadable}"
    store = TestedStore(disk, chance)
    wrong = difference(store.observe_damaged(), found)
    store.close()
    return f"used further and opened again: {wrong}" if wrong or store.unreadable else ""


def _thrown_away(before: dict[str, bytes], disk: FakeDisk) -> str:
    """Bytes that are nowhere any more, though somebody may want them."""
    after = {bytes(node.content) for _, node in disk.files()}
    gone = [path for path, content in before.items() if content not in after and path != "lock"]
    return ", ".join(path for path in gone if not _is_worthless(path, before))


def _is_worthless(path: str, before: dict[str, bytes]) -> bool:
    """Files that wait for another use, or have room for a header only; and what an unfinished cycle left."""
    if path.startswith(JOURNAL):
        return "/spare-" in path or len(before[path]) <= HEADER_BYTES
    newest = max((found.next_file for found in _good_checkpoints(before)), default=0)
    name = segment_name(path)
    return name is not None and name.generation > newest


def _good_checkpoints(files: dict[str, bytes]) -> Iterator[Checkpoint]:
    for path, content in files.items():
        if path.startswith(CHECKPOINTS):
            with suppress(Damaged):
                found = decode_checkpoint(content, path)
                if checkpoint_path(found.next_file) == path:
                    yield found
