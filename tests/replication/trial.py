"""One trial: a cluster under load, with faults; then all is well, and has to be equal and complete."""

from __future__ import annotations

import errno
import traceback
from random import Random
from typing import Any, Final

from edged.core.commands import Ack, Delete, Dispatch, Purge, PutConsumer
from edged.core.frames import MORE
from edged.core.stream_machine import Duplicate, Refused
from edged.store.box import Keyring
from edged.store.errors import StoreError
from edged.store.group import CATALOG
from tests.replication.cluster import Cluster, Node, messages_of, state_of

GROUPS: Final = (1, 2)


class Trial:
    """By its seed."""

    def __init__(self, seed: int, *, nodes: int = 3, file_bytes: int | None = None) -> None:
        self.random = Random(seed * 7919 + 1)
        file_bytes = file_bytes or self.random.choice((9_000, 16_000, 40_000))
        self.cluster = Cluster(seed, nodes, file_bytes)
        self.cluster.drop = self.random.choice((0.0, 0.02, 0.1))
        self.cluster.delay_us = self.random.choice((300, 3000, 15_000))
        if seed % 4 == 0:
            # One node encrypts, which is nobody else's business.
            self.cluster.nodes[1].options["keys"] = Keyring.read("some secret that is long enough")
        # By group: the payload of each seq that was acknowledged, and seqs that may be gone by a command.
        self.stored: dict[int, dict[int, bytes]] = {group: {} for group in GROUPS}
        self.removed: dict[int, set[int]] = {group: set() for group in GROUPS}
        self.purged_to: dict[int, int] = dict.fromkeys(GROUPS, 0)
        self.count = 0
        self.acknowledged = self.lost = self.refused = self.restarts = 0

    # --- clients ---

    def submit(self) -> None:
        """Somebody asks a node for something."""
        node = self.random.choice(list(self.cluster.nodes.values()))
        group = self.random.choice(GROUPS)
        leader = self.cluster.leader(group)
        if leader is not None and self.random.random() < 0.9:
            node = leader
        store = node.store
        if store is None or group not in store.catalog.streams:
            return
        now_ns = self.cluster.now_us * 1000
        kind = self.random.random()
        if kind < 0.75:
            messages = self._messages()
            store.add_appends(group, messages, now_ns, self._told(group, messages))
        elif kind < 0.8:
            seq = self.random.randint(1, 50)
            self.removed[group].add(seq)
            store.add(group, Delete(seq, False), self._ignored)
        elif kind < 0.82:
            to_seq = self.random.randint(1, 30)
            self.purged_to[group] = max(self.purged_to[group], to_seq)
            store.add(group, Purge(to_seq, b"", 0), self._ignored)
        elif kind < 0.9:
            number = self.random.randint(1, 2)
            config = {"ack_policy": "explicit", "edged.created": 1, "durable_name": f"C{number}"}
            store.add(group, PutConsumer(number, f"C{number}", config), self._ignored)
        else:
            consumers = store.catalog.streams[group].group.machine.consumers  # type: ignore[attr-defined]
            if not consumers:
                return
            number = self.random.choice(sorted(consumers))
            seqs = tuple(sorted(self.random.sample(range(1, 40), 3)))
            if self.random.random() < 0.5:
                store.add(group, Dispatch(number, now_ns, seqs, 0), self._ignored)
            else:
                store.add(group, Ack(number, 0, seqs), self._ignored)
        node.wake()

    def _messages(self) -> list[Any]:
        found: list[Any] = []
        is_atomic = self.random.random() < 0.1
        for place in range(count := self.random.choice((1, 1, 2, 7, 30))):
            self.count += 1
            payload = b"%d " % self.count + bytes(self.random.choice((0, 20, 200)))
            subject = b"s.%d" % self.random.randint(1, 5)
            if is_atomic and count > 1:
                headers = b"NATS/1.0\r\nNats-Batch-Id: b%d\r\n\r\n" % (self.count - place)
                flags = MORE if place < count - 1 else 0
                found.append((subject, None, len(headers) | flags, headers + payload))
            elif self.random.random() < 0.2:
                headers = b"NATS/1.0\r\nNats-Msg-Id: i%d\r\n\r\n" % self.random.randint(1, 60)
                found.append((subject, None, len(headers), headers + payload))
            else:
                found.append((subject, None, -1, payload))
        return found

    def _told(self, group: int, messages: list[Any]) -> Any:
        def done(outcomes: Any) -> None:
            if isinstance(outcomes, StoreError):
                self._ignored(outcomes)
                return
            assert len(outcomes) == len(messages), (len(outcomes), len(messages))
            for message, outcome in zip(messages, outcomes, strict=True):
                if isinstance(outcome, Refused | Duplicate):
                    self.refused += 1
                    continue
                self.acknowledged += 1
                before = self.stored[group].setdefault(outcome, message[3])
                assert before == message[3], f"seq {outcome} of {group} was given to two messages"

        return done

    def _ignored(self, outcomes: Any) -> None:
        if isinstance(outcomes, StoreError):
            self.lost += 1

    def load(self) -> None:
        self.submit()
        if self.is_loaded:
            self.cluster.after(self.random.randint(1000, 12_000), self.load)

    # --- misfortune ---

    def strike(self) -> None:
        """Something happens to somebody."""
        if not self.is_loaded:
            return
        self.cluster.after(self.random.randint(50_000, 600_000), self.strike)
        node = self.random.choice(list(self.cluster.nodes.values()))
        kind = self.random.random()
        if kind < 0.5:
            if len(self.cluster.up()) < len(self.cluster.nodes) and self.random.random() < 0.7:
                return
            node.stop(is_power_cut=self.random.random() < 0.7)
            self.cluster.after(self.random.randint(1000, 800_000), self.restart, node)
        elif kind < 0.6:
            for one in list(self.cluster.up()):
                one.stop(is_power_cut=True)
                self.cluster.after(self.random.randint(1000, 300_000), self.restart, one)
        elif kind < 0.7:
            self._break_disk(node)
        elif kind < 0.87:
            pairs = [
                (one, other) for one in self.cluster.nodes for other in self.cluster.nodes if one != other
            ]
            self.cluster.cut_links = set(self.random.sample(pairs, self.random.randint(0, len(pairs) // 2)))
        else:
            self.cluster.cut_links = set()
            if node.store is not None:
                for group in (CATALOG, *GROUPS):
                    if node.replicas.leads(group):
                        node.replicas.transfer(group, self.random.choice(list(self.cluster.nodes)))

    def _break_disk(self, node: Node) -> None:
        """The journal's disk is full, or fails, for a while."""
        code = self.random.choice((errno.ENOSPC, errno.EIO))
        operation = self.random.choice(("write", "sync", "allocate"))
        likely = self.random.choice((0.3, 1.0))

        def fault(asked: str, path: str) -> OSError | None:
            is_hit = asked == operation and path.startswith("journal") and self.random.random() < likely
            return OSError(code, "trouble", path) if is_hit else None

        disk = node.disk
        disk.fault = fault
        self.cluster.after(self.random.randint(1000, 200_000), setattr, disk, "fault", None)

    def restart(self, node: Node) -> None:
        if node.store is None:
            node.disk.fault = None
            self.restarts += 1
            node.start()

    # --- the whole of it ---

    def run(self, duration_us: int) -> None:
        cluster = self.cluster
        self.is_loaded = False
        cluster.start()
        peers = tuple(cluster.nodes)
        cluster.put_stream(1, peers, subjects=["s.>"], allow_atomic=True)
        cluster.put_stream(2, peers[:3], subjects=["s.>"], allow_atomic=True)
        self.is_loaded = True
        cluster.after(1000, self.load)
        cluster.after(100_000, self.strike)
        cluster.run(duration_us)
        self.heal()
        self.check()

    def heal(self) -> None:
        cluster = self.cluster
        self.is_loaded = False
        cluster.drop, cluster.cut_links, cluster.delay_us = 0.0, set(), 500
        for node in cluster.nodes.values():
            node.disk.fault = None
            self.restart(node)
        cluster.run_until(self._is_even, 60_000_000)

    def _is_even(self) -> bool:
        cluster = self.cluster
        for group in (CATALOG, *GROUPS):
            leader = cluster.leader(group)
            if leader is None:
                return False
            status = leader.replicas.status(group)
            if status.applied != status.last:
                return False
            for node in cluster.up():
                if not node.replicas.has(group):
                    return False
                one = node.replicas.status(group)
                if one.applied != status.applied or one.is_rejoining:
                    return False
        return True

    def check(self) -> None:
        """All nodes are equal, and nothing is missing that was acknowledged."""
        for group in GROUPS:
            stores = [node.store for node in self.cluster.up() if node.store is not None]
            states = [state_of(store, group) for store in stores]
            found = [messages_of(store, group) for store in stores]
            for state, messages in zip(states, found, strict=True):
                assert state == states[0]
                assert messages == found[0]
            for seq, payload in self.stored[group].items():
                if seq in self.removed[group] or seq < self.purged_to[group]:
                    continue
                assert seq in found[0], f"seq {seq} of group {group} was acknowledged and is gone"
                assert found[0][seq][4] == payload, f"seq {seq} of group {group} is another message"


def trouble_of(seed: int, duration_us: int, **options: Any) -> str:
    """What went wrong in a trial; nothing if all was well."""
    trial = Trial(seed, **options)
    try:
        trial.run(duration_us)
    except Exception:  # Whatever is raised is what the trial was made to find.
        return f"seed {seed}: {traceback.format_exc()}{trial.cluster.describe()}"
    return ""
