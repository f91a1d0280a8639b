"""What a consumer has delivered and what was acknowledged: the part that must survive.

Rules: every change is a command applied here; time is an argument.
Invariant: floor < every pending seq <= delivered.
"""

from __future__ import annotations

from typing import Any


class ConsumerState:
    """The durable side of one consumer."""

    __slots__ = ("config", "delivered", "deliveries", "floor", "name", "pending")

    def __init__(self, name: str, config: dict[str, Any]) -> None:
        self.name = name
        self.config = config
        # Every message up to `floor` is settled; `delivered` is the highest one ever handed out.
        self.floor = 0
        self.delivered = 0
        # How many deliveries there were in all, repeated ones included.
        self.deliveries = 0
        # Handed out and not settled yet: seq -> (when last, how often).
        self.pending: dict[int, tuple[int, int]] = {}

    @property
    def filters(self) -> tuple[bytes, ...]:
        """The subjects that it wants; `>` without a filter."""
        wanted = self.config.get("filter_subjects") or [self.config.get("filter_subject") or ">"]
        return tuple(subject.encode() for subject in wanted)

    def dispatched(self, seqs: tuple[int, ...], ts_ns: int) -> None:
        """Messages were handed out."""
        for seq in seqs:
            _, times = self.pending.get(seq, (0, 0))
            if seq > self.floor:
                self.pending[seq] = (ts_ns, times + 1)
            self.delivered = max(self.delivered, seq)
            self.deliveries += 1

    def settled(self, seqs: tuple[int, ...]) -> None:
        """Messages were acknowledged or given up. Those that were never handed out count as well."""
        for seq in seqs:
            self.pending.pop(seq, None)
            self.delivered = max(self.delivered, seq)
        self.floor = max(self.floor, min(self.pending) - 1 if self.pending else self.delivered)

    def snapshot(self) -> list[Any]:
        """Everything, for a checkpoint."""
        pending = [[seq, ts_ns, times] for seq, (ts_ns, times) in sorted(self.pending.items())]
        return [self.name, self.config, self.floor, self.delivered, self.deliveries, pending]

    @classmethod
    def restore(cls, snapshot: list[Any]) -> ConsumerState:
        """The reverse of snapshot()."""
        name, config, floor, delivered, deliveries, pending = snapshot
        state = cls(name, config)
        state.floor, state.delivered, state.deliveries = floor, delivered, deliveries
        state.pending = {seq: (ts_ns, times) for seq, ts_ns, times in pending}
        return state
