"""The clients: they publish, publish again what was not acknowledged, read, and remember what they were told.

Rules: an acknowledgement names an id and its seq, and both are true for ever. A read sees at least what had
been acknowledged or read when it began. What is not acknowledged may be stored or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sim.checkers import Violation

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

OPEN_MAX: Final = 200
CLIENTS: Final = 3
# How likely a client asks another node, as if the one that it asked had not answered in time.
IMPATIENCE: Final = 0.1


class Clients:
    """All clients together."""

    __slots__ = ("_believed", "_ids", "_open", "_tokens", "_world", "answered", "floor", "id_of", "seq_of")

    def __init__(self, world: World) -> None:
        self._world = world
        self._ids = 0
        self._tokens = 0
        # Whom each of them takes for the leader.
        self._believed = [1] * CLIENTS
        # Not acknowledged yet, or only just.
        self._open: list[int] = []
        self.seq_of: dict[int, int] = {}
        self.id_of: dict[int, int] = {}
        # What every read that begins now has to see.
        self.floor = 0
        # The reads that were answered.
        self.answered: set[int] = set()

    def begin(self) -> None:
        """Do something now, and again later."""
        world = self._world
        if world.is_healing:
            return
        random = world.random
        world.events.after(int(random.expovariate(1.0) * world.scenario.operation_us) + 1, self.begin)
        if random.random() < world.scenario.reads:
            self.read_at(world.hosts[random.choice(world.up())])
        else:
            self._publish()

    def _publish(self) -> None:
        random = self._world.random
        commands = []
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            if self._open and random.random() < 0.2:
                commands.append(random.choice(self._open))
            else:
                commands.append(self.new_id())
        self._world.hosts[self._target()].publish(commands)

    def new_id(self) -> int:
        """The id of a message that was never published."""
        self._ids += 1
        if len(self._open) >= OPEN_MAX:
            del self._open[: OPEN_MAX // 2]
        self._open.append(self._ids)
        return self._ids

    def _target(self) -> int:
        """The node that seems to lead: as the last one said that was asked, or any."""
        world = self._world
        client = world.random.randrange(CLIENTS)
        host = world.hosts[self._believed[client]]
        raft = host.raft
        if raft is None or host.is_paused or not raft.leader or world.random.random() < IMPATIENCE:
            self._believed[client] = world.random.choice(world.up())
        elif raft.leader != host.node and raft.leader in world.hosts:
            self._believed[client] = raft.leader
        return self._believed[client]

    def read_at(self, host: Host) -> int:
        """Read what a node has; the token of that read."""
        self._tokens += 1
        host.read(self._tokens, self.floor)
        return self._tokens

    def forget(self, last_seq: int) -> None:
        """Nobody has the messages behind this seq any more, and nobody had to keep them."""
        self.seq_of = {command: seq for command, seq in self.seq_of.items() if seq <= last_seq}
        self.id_of = {seq: command for seq, command in self.id_of.items() if seq <= last_seq}
        self.floor = min(self.floor, last_seq)

    # --- what they are told ---

    def acknowledged(self, host: Host, command: int, seq: int) -> None:
        """A node says that a message is stored, with this seq."""
        if self.seq_of.setdefault(command, seq) != seq:
            raise Violation(
                f"message {command} got seq {self.seq_of[command]} and, from node {host.node}, {seq}"
            )
        if self.id_of.setdefault(seq, command) != command:
            raise Violation(
                f"seq {seq} was given to {self.id_of[seq]} and, by node {host.node}, to {command}"
            )
        self.floor = max(self.floor, seq)

    def has_read(self, host: Host, token: int, floor: int) -> None:
        """A node answers a read."""
        seen = host.machine.last_seq
        if seen < floor:
            raise Violation(
                f"read {token} sees seq {seen} on node {host.node}, and began after seq {floor} was known"
            )
        self.floor = max(self.floor, seen)
        self.answered.add(token)

    def check_stored(self, host: Host) -> None:
        """Everything that was acknowledged is there, as it was acknowledged."""
        seqs = host.machine.seqs
        for command, seq in self.seq_of.items():
            if seqs.get(command) != seq:
                there = f"node {host.node} has it with {seqs.get(command)}"
                raise Violation(f"message {command} was acknowledged with seq {seq}; {there}")
        if len(set(seqs.values())) != len(seqs) or host.machine.last_seq != len(seqs):
            raise Violation(f"node {host.node} gave a seq twice")
