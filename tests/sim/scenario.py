"""What a seed stands for: how many nodes, how patient, what may go wrong and how often.

Every run has only some of the faults: what is rare beside everything else is often there when it is alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from hub.raft.options import RaftOptions

FAULTS: Final = (
    *(
        "crash",
        "power_cut",
        "restart",
        "pause",
        "split",
        "isolate",
        "one_way",
        "weather",
        "clock",
        "slow_disk",
    ),
    *("failing_disk", "damage", "scrub", "wipe", "churn", "transfer", "scripted", "deserted", "ambush"),
)
# Faults that need another voter to have what one of them lost.
NEEDS_OTHERS: Final = frozenset(("damage", "scrub", "wipe"))


@dataclass(frozen=True, slots=True)
class Scenario:
    """The circumstances of one run."""

    nodes: int
    voters_min: int
    options: RaftOptions
    faults: tuple[str, ...]
    fault_us: int
    operation_us: int
    # The share of reads among the operations.
    reads: float
    # How many Readys may be under way to the disk at once.
    in_flight_max: int
    # A checkpoint after so many entries, and how many entries at most stay behind it.
    checkpoint_every: int
    trail_max: int
    # The node whose disk lies, or 0.
    liar: int
    # Whether no node waits for its disk with what names no term, vote or member.
    is_lax: bool
    # How long what happens may gather until its work is taken; 0: everything by itself.
    batch_us: int
    is_stormy: bool
    # Nodes lose patience at nearly the same time.
    is_contended: bool


def draw_scenario(random: Random) -> Scenario:
    """The circumstances, by the numbers that follow the seed."""
    nodes = random.choice((1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5))
    election_ms = random.choice((150, 300, 300, 1000))
    options = RaftOptions(
        election_ms=election_ms,
        heartbeat_ms=election_ms // random.choice((3, 5, 8)),
        quiet_beats=random.choice((0, 0, 2, 5)),
        append_bytes_max=random.choice((1, 20_000, 100_000)),
        inflight_bytes_max=random.choice((10_000, 200_000)),
        inflight_messages_max=random.choice((1, 2, 8, 64)),
        snapshot_part_bytes=random.choice((100, 1000)),
        snapshot_parts_max=random.choice((1, 2, 8)),
    )
    share = random.choice((0.2, 0.4, 0.7))
    faults = [fault for fault in FAULTS if random.random() < share]
    liar = random.randint(1, nodes) if nodes >= 3 and random.random() < 0.15 else 0
    is_lax = not liar and random.random() < 0.15
    if liar or is_lax or nodes < 3:
        # One node at a time may forget, not two, but for what all may.
        faults = [fault for fault in faults if fault not in NEEDS_OTHERS]
    if liar or is_lax:
        faults.append("power_cut")
    if is_lax:
        faults.append("churn")
    if random.random() < 0.4:
        # Logs that disagree are what most of the protocol is about.
        faults.append("deserted")
    is_duel = nodes >= 3 and random.random() < 0.25
    if is_duel:
        faults = ["deserted", "deserted", "deserted", "crash", random.choice(FAULTS)]
        faults = [fault for fault in faults if not ((liar or is_lax) and fault in NEEDS_OTHERS)]
    needs_others = liar or any(fault in NEEDS_OTHERS for fault in faults)
    return Scenario(
        nodes=nodes,
        voters_min=3 if needs_others else 1,
        options=options,
        faults=tuple(faults),
        fault_us=(2500 if is_duel else random.choice((300, 700, 1500, 3000, 5000))) * election_ms,
        operation_us=random.choice((30, 100, 100, 300)) * election_ms,
        reads=random.choice((0.1, 0.3)),
        in_flight_max=random.choice((1, 2, 4)),
        checkpoint_every=random.choice((5, 30, 100, 400)),
        trail_max=random.choice((0, 5, 50)),
        liar=liar,
        is_lax=is_lax,
        batch_us=random.choice((0, 0, 2000, 300 * election_ms)),
        is_stormy=random.random() < 0.5,
        is_contended=random.random() < 0.3,
    )
