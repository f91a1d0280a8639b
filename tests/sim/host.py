"""A node: carries out what its consensus core wants done, in the order that it wants.

Rules: what a Ready wants written is in the log in memory before a message is filled in from it, and is
durable before the messages that promise it are sent. A message whose entries are not there any more is not
sent. Whoever is stopped, or whose disk failed, is built anew from the disk's image.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hub.raft.log import Recovered
from hub.raft.members import Members
from hub.raft.messages import Append, HardState, Message, SnapshotPart
from hub.raft.raft import Raft, Role
from hub.raft.ready import Ready
from tests.sim import disk as records
from tests.sim.checkers import Violation
from tests.sim.disk import Disk, Entry
from tests.sim.events import Clock
from tests.sim.machine import Machine, State, command_bytes
from tests.sim.repair import Repair
from tests.sim.snapshots import Snapshots

if TYPE_CHECKING:
    from tests.sim.world import World

# To whom, and what: None if it could not be filled in.
_Outgoing = list[tuple[int, Message | None]]
_LEADER: Final = Role.LEADER


class Host:
    """One node, over all its starts."""

    def __init__(self, world: World, node: int, genesis: Members, *, lies: bool = False) -> None:
        self.world = world
        self.node = node
        # Nobody can tell what is durable of it.
        self.lies = lies or world.scenario.is_lax
        self.clock = Clock(world.events, world.random.randint(0, 10**7))
        self.disk = Disk(world.events, world.random, genesis, lies=lies, is_lax=world.scenario.is_lax)
        self.disk.attach(self.on_synced)
        self.raft: Raft | None = None
        self.boot = 0
        self.is_paused = False
        self.is_gone = False
        # What would have happened while it is paused.
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.repair = Repair(self)
        world.network.receivers[node] = self.receive
        self._forget_memory()

    def _forget_memory(self) -> None:
        image = self.disk.image
        self.machine = Machine(image.checkpoint)
        self.entries: list[Entry] = list(image.entries)
        self.base_index = image.base_index
        self.base_term = image.base_term
        self.apply_target = self._checkpoint_index = image.checkpoint.index
        self.in_flight: deque[tuple[Ready, _Outgoing]] = deque()
        # By index: commands that are proposed and not handed out yet; and who waits, since which term.
        self.proposed: dict[int, int] = {}
        self.waiting: dict[int, tuple[int, int]] = {}
        # Token -> what has to be seen; (index, token) of those that may be answered from that index on.
        self.reads: dict[int, int] = {}
        self._reads_due: list[tuple[int, int]] = []
        self._boots: dict[int, int] = {}
        self.snapshots = Snapshots(self)
        self._timer_us = 0
        self._is_work_planned = False
        self.led_term = 0
        self.led_commit = 0
        self.led_members = image.base_members
        self.led_change = 0

    # --- starting and stopping ---

    def start(self) -> None:
        """Begin, with what is on the disk."""
        assert self.raft is None
        if self.is_gone:
            return
        image = self.disk.image
        image.boot += 1
        self.boot = image.boot
        self._forget_memory()
        hard_state, recovered = self.recover()
        world = self.world
        now_ms = self.clock.now_ms()
        self.raft = Raft(
            self.node,
            hard_state,
            recovered,
            world.scenario.options,
            world.draw,
            now_ms,
            boot=self.boot,
            must_rejoin=self.lies and not world.scenario.is_lax and self.boot > 1,
            is_unsure=world.scenario.is_lax and self.boot > 1,
        )
        world.checkers.started(self)
        world.trace("start", self.node, "boot", self.boot, hard_state, recovered.base_index, image.last)
        self.repair.start(now_ms)
        self.pump()

    def recover(self) -> tuple[HardState, Recovered]:
        """What the disk says."""
        return self.disk.image.recovered()

    def stop(self, *, keeps_all: bool = False) -> None:
        """Be gone from one moment to the next. `keeps_all`: what was written is not lost with the process."""
        if self.raft is None:
            return
        self.world.trace("stop", self.node)
        self.raft = None
        self.is_paused = False
        self._held.clear()
        self.disk.stop(keeps_all=keeps_all)
        if self.world.scenario.is_lax:
            self.world.losses.look()

    def has(self, index: int, term: int) -> bool:
        """Whether it has an entry: in memory while it runs, else on its disk."""
        if self.raft is None:
            image = self.disk.image
            return image.base_index >= index or image.term_at(index) == term
        place = index - self.base_index - 1
        return place < 0 or (place < len(self.entries) and self.entries[place][0] == term)

    def pause(self) -> None:
        """Do nothing for a while."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on; everything that came meanwhile is handled now."""
        self.is_paused = False
        held, self._held = self._held, []
        for number, (action, arguments) in enumerate(held):
            if self.is_paused:
                self._held.extend(held[number:])
                return
            action(*arguments)

    def is_held(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Whether this has to wait for the end of a pause."""
        if self.is_paused:
            self._held.append((action, arguments))
        return self.is_paused

    # --- what happens to it ---

    def receive(self, sender: int, boot: int, message: Any) -> None:
        """A message arrives."""
        raft = self.raft
        if raft is None or (self.is_paused and self.is_held(self.receive, sender, boot, message)):
            return
        if boot < self._boots.get(sender, 0):
            return
        self._boots[sender] = boot
        if self.world.is_traced:
            self.world.trace(f"{sender} -> {self.node}", message)
        if type(message) is tuple:
            self.repair.receive(sender, message)
        else:
            raft.step(sender, message, self.clock.now_ms())
        self.pump()

    def on_timer(self, boot: int, time_us: int) -> None:
        """The time has come that the core wanted to be told of, or it wants another one by now."""
        raft = self.raft
        if raft is None or boot != self.boot or time_us != self._timer_us:
            return
        if self.is_paused and self.is_held(self.on_timer, boot, time_us):
            return
        self._timer_us = 0
        now_ms = self.clock.now_ms()
        due_ms = raft.due_ms
        if due_ms is not None and due_ms <= now_ms:
            raft.tick(now_ms)
        self.pump()

    def restart_timer(self) -> None:
        """The clock has another rate."""
        self._timer_us = 0
        if self.raft is not None:
            self.pump()

    def on_synced(self, is_durable: bool) -> None:
        """The oldest sync came to an end."""
        raft = self.raft
        if raft is None or (self.is_paused and self.is_held(self.on_synced, is_durable)):
            return
        if not is_durable:
            self.on_disk_failed()
            return
        ready, messages = self.in_flight.popleft()
        self._finish(raft, ready, messages)
        self.pump()

    def on_disk_failed(self) -> None:
        """Nothing that was not durable before counts."""
        self.stop()
        self.world.events.after(self.world.random.randint(10_000, 500_000), self.start_if_stopped)

    def start_if_stopped(self) -> None:
        """Unless somebody else did it."""
        if self.raft is None:
            self.start()

    def publish(self, commands: list[int]) -> bool:
        """Propose messages; False if another node has to do it."""
        raft = self.raft
        if raft is None or self.is_paused:
            return False
        size = sum(map(command_bytes, commands))
        first = raft.propose(len(commands), size, self.clock.now_ms())
        if first is None:
            return False
        for index, command in enumerate(commands, first):
            self.proposed[index] = command
            self.waiting[index] = (raft.term, command)
        self.pump()
        return True

    def read(self, token: int, floor: int) -> None:
        """Somebody wants to read, and has to see at least `floor`."""
        raft = self.raft
        if raft is None or self.is_paused:
            return
        self.reads[token] = floor
        raft.read(token, self.clock.now_ms())
        self.pump()

    def call(self, action: Callable[[Raft, int], Any]) -> Any:
        """Have the core do something, as an operator or a link would; None if it is stopped or paused."""
        raft = self.raft
        if raft is None or self.is_paused:
            return None
        answer = action(raft, self.clock.now_ms())
        self.pump()
        return answer

    # --- the work ---

    def pump(self) -> None:
        """Do all the work there is."""
        raft = self.raft
        if raft is None:
            return
        if not self.world.batch_us:
            self._work_off(raft)
        elif not self._is_work_planned:
            self._is_work_planned = True
            delay_us = self.world.random.randint(0, self.world.batch_us)
            self.world.events.after(delay_us, self.on_batch, self.boot)
        if raft.role is _LEADER:
            self.world.checkers.leads(self, raft)
        due_ms = raft.due_ms
        if due_ms is not None:
            time_us = max(self.clock.when_us(due_ms), self.world.events.now_us + 1)
            if not self._timer_us or time_us < self._timer_us:
                self._timer_us = time_us
                self.world.events.at(time_us, self.on_timer, self.boot, time_us)

    def on_batch(self, boot: int) -> None:
        """Take the work of all that happened meanwhile."""
        raft = self.raft
        if raft is None or boot != self.boot or (self.is_paused and self.is_held(self.on_batch, boot)):
            return
        self._is_work_planned = False
        self._work_off(raft)
        if raft.role is _LEADER:
            self.world.checkers.leads(self, raft)

    def _work_off(self, raft: Raft) -> None:
        while raft.has_ready and len(self.in_flight) < self.world.scenario.in_flight_max:
            if not self._carry_out(raft, raft.ready(self.clock.now_ms())):
                break

    def _carry_out(self, raft: Raft, ready: Ready) -> bool:
        """Begin the work of one Ready; False if there was none."""
        is_synced = ready.needs_sync
        if is_synced:
            self.disk.write(self._records(raft, ready))
        for to, message in ready.early:
            self.send(to, self._filled(message))
        messages = [(to, self._filled(message)) for to, message in ready.messages]
        if is_synced or (messages and self.in_flight):
            self.in_flight.append((ready, messages))
            self.disk.sync()
        elif messages:
            self._finish(raft, ready, messages)
        if ready.apply_to:
            self.apply_target = max(self.apply_target, ready.apply_to)
            self.apply()
        for token, index in ready.reads:
            if token in self.reads:
                self._answer(token, index)
        for peer in ready.snapshots_wanted:
            self.snapshots.plan(peer)
        return is_synced or bool(messages or ready.early or ready.apply_to or ready.reads)

    def _records(self, raft: Raft, ready: Ready) -> list[records.Record]:
        """Change the log in memory, and say how the disk is to be changed."""
        found: list[records.Record] = []
        if ready.hard_state is not None:
            found.append((records.HARD_STATE, ready.hard_state.term, ready.hard_state.vote))
        for part in ready.snapshot_parts:
            self.snapshots.keep(part)
            found.append((records.PART,))
        if ready.install is not None:
            state = self.snapshots.take(ready.install)
            self.adopt_state(state)
            found.append((records.INSTALL, state))
        if ready.truncate_from is not None:
            self.world.checkers.truncates(self, raft, ready.truncate_from)
            found.append((records.TRUNCATE, ready.truncate_from))
            self._truncate(ready.truncate_from)
        for block in ready.append:
            place = self.base_index + len(self.entries) + 1
            if block.first != place:
                raise Violation(f"node {self.node} is to append {block} at {place}")
            new: list[Entry]
            if block.members is not None:
                new = [(block.term, 0, block.members)]
            else:
                payload = block.payload
                if payload is None:
                    payload = [self.proposed.pop(index) for index in range(block.first, block.last + 1)]
                if len(payload) != block.count:
                    raise Violation(f"node {self.node} got {len(payload)} commands for {block}")
                new = [(block.term, command, None) for command in payload]
            self.world.checkers.appends(self, block.first, new)
            self.entries.extend(new)
            found.append((records.APPEND, block.first, new))
        return found

    def _finish(self, raft: Raft, ready: Ready, messages: _Outgoing) -> None:
        """It is durable: send what promises it."""
        for to, message in messages:
            self.send(to, message)
        raft.persisted(ready, self.clock.now_ms())

    def send(self, to: int, message: Any) -> None:
        """Put a message on its way, if it could be filled in."""
        if message is not None:
            self.world.checkers.sends(self, to, message)
            self.world.network.send(self.node, self.boot, to, message)

    def _filled(self, message: Message) -> Message | None:
        """With the commands of its blocks, or the bytes of its snapshot; None if they are gone."""
        if type(message) is Append:
            return self._filled_append(message) if message.blocks else message
        if type(message) is SnapshotPart:
            state = self.snapshots.offered(message.snapshot.identity)
            if state is None:
                assert self.raft is not None
                self.raft.lose_snapshot(message.snapshot)
                return None
            return replace(message, payload=state)
        return message

    def _filled_append(self, message: Append) -> Append | None:
        blocks = []
        for block in message.blocks:
            if block.members is None:
                place = block.first - self.base_index - 1
                entries = self.entries[place : place + block.count] if place >= 0 else []
                payload = tuple([entry[1] for entry in entries if entry[0] == block.term])
                if len(payload) < block.count or None in payload:
                    self.world.unfilled += 1
                    return None
                blocks.append(replace(block, payload=payload))
            else:
                blocks.append(block)
        return replace(message, blocks=tuple(blocks))

    # --- the log in memory ---

    def _truncate(self, index: int) -> None:
        del self.entries[index - self.base_index - 1 :]
        self.give_up_waiting(index)
        self.repair.truncated(index)

    def give_up_waiting(self, index: int) -> None:
        """Nobody will hear of the entries from here on."""
        for waiting in [place for place in self.waiting if place >= index]:
            del self.waiting[waiting]

    def adopt_state(self, state: State) -> None:
        """A state takes the place of the log."""
        self.entries.clear()
        self.base_index, self.base_term = state.index, state.term
        self.machine = Machine(state)
        self._checkpoint_index = state.index
        self.apply_target = max(self.apply_target, state.index)
        self.world.checkers.installed(self)
        self.give_up_waiting(0)
        self.repair.truncated(0)

    # --- applying ---

    def apply(self) -> None:
        """Apply what is committed, up to what is damaged."""
        machine, entries, waiting = self.machine, self.entries, self.waiting
        check = self.world.checkers.applied
        start = machine.index
        offset = self.base_index + 1
        for index in range(start + 1, self.apply_target + 1):
            term, command, members = entries[index - offset]
            if command is None:
                break
            seq = machine.apply(term, command, members)
            check(self, index, term, machine)
            if index in waiting:
                self.acknowledge(index, term, command, seq)
        if self._reads_due:
            self._answer_due()
        if machine.index - self._checkpoint_index >= self.world.scenario.checkpoint_every:
            self.take_checkpoint()

    def acknowledge(self, index: int, term: int, command: int, seq: int) -> None:
        """Tell who waits for this index, if it is still that message's."""
        proposed_term, proposed_command = self.waiting.pop(index)
        if proposed_term == term:
            self.world.clients.acknowledged(self, proposed_command, seq)

    def take_checkpoint(self) -> None:
        """Write the state, and forget entries that are in it, but for some that others may still need."""
        raft = self.raft
        assert raft is not None
        state = self.machine.state()
        self._checkpoint_index = state.index
        forgotten = max(
            self.base_index, state.index - self.world.random.randint(0, self.world.scenario.trail_max)
        )
        self.disk.write([(records.CHECKPOINT, state, forgotten)])
        count = forgotten - self.base_index
        if count:
            self.base_term = self.entries[count - 1][0]
            self.base_index = forgotten
            del self.entries[:count]
            raft.forget(forgotten)
            self.repair.forgotten(forgotten)

    # --- reading ---

    def _answer(self, token: int, index: int) -> None:
        if index < 0:
            del self.reads[token]
        elif index <= self.machine.index:
            self.world.clients.has_read(self, token, self.reads.pop(token))
        else:
            self._reads_due.append((index, token))

    def _answer_due(self) -> None:
        due, self._reads_due = self._reads_due, []
        for index, token in due:
            self._answer(token, index)
