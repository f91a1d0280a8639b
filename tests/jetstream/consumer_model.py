"""A stream and its consumers as anybody would write them down, without a thought for speed or disks.

What the server does after every step is compared with this. Rules: time is an argument, in nanoseconds; what
clients say takes effect at once, unless the caller keeps it back; nothing here looks at the server, except
after a crash, when it says how much of the last quarter of a second is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Delivery = tuple[int, int, int]
"""The seq in the stream, how often it was delivered, and the seq of the delivery."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The configuration of a consumer."""

    name: str
    subject: str = ""
    ack_policy: str = "explicit"
    ack_wait_ns: int = 10**9
    backoff_ns: tuple[int, ...] = ()
    deliver_max: int = -1
    ack_pending_max: int = -1

    def wait_ns(self, count: int) -> int:
        """How long a message has that was delivered so often."""
        if not self.backoff_ns:
            return self.ack_wait_ns
        return self.backoff_ns[min(count, len(self.backoff_ns)) - 1]


@dataclass(slots=True)
class Entry:
    """A message that waits for its acknowledgement."""

    first: int
    count: int
    sent_ns: int
    due_ns: int


@dataclass(slots=True)
class Request:
    """Somebody who waits for so many messages, until then."""

    slot: int
    left: int
    until_ns: int


@dataclass(slots=True)
class NaiveConsumer:
    """Sets and lists."""

    terms: Terms
    reach: int = 0
    deliveries: int = 0
    pending: dict[int, Entry] = field(default_factory=dict)
    # Those that are due again, in order.
    again: list[int] = field(default_factory=list)
    settled: set[int] = field(default_factory=set)
    # Pending ones whose acknowledgement waits for the disk: they take no room any more.
    on_their_way: set[int] = field(default_factory=set)
    given_up: set[int] = field(default_factory=set)
    has_given_up: bool = False
    requests: list[Request] = field(default_factory=list)
    # What was delivered since the caller looked, and how much to which slot.
    sent: list[Delivery] = field(default_factory=list)
    slots: dict[int, int] = field(default_factory=dict)

    def wants(self, subject: str) -> bool:
        return self.terms.subject in ("", subject)

    def fresh(self, messages: dict[int, str]) -> list[int]:
        """What it has before it."""
        last_seq = next(reversed(messages), 0)
        seqs = range(self.reach + 1, last_seq + 1)
        return [seq for seq in seqs if seq in messages and self.wants(messages[seq])]

    def needs(self, seq: int, subject: str) -> bool:
        """Whether a message must stay for it."""
        return self.wants(subject) and seq not in self.settled

    # --- deliveries ---

    def serve(self, messages: dict[int, str], now_ns: int) -> None:
        """Deliver what can be: what is due again first, each message to whoever has a turn."""
        fresh = self.fresh(messages) if self.requests else []
        while self.requests:
            if self.again:
                seq = self.again.pop(0)
                entry = self.pending.get(seq)
                if entry is None:
                    continue
                if seq in self.on_their_way:
                    entry.due_ns = now_ns + self.terms.wait_ns(entry.count)
                    continue
                if 0 < self.terms.deliver_max <= entry.count:
                    self._give_up(seq)
                    continue
                entry.count += 1
            elif fresh and self._has_room():
                seq = fresh.pop(0)
                entry = Entry(self.deliveries + 1, 1, 0, 0)
                self.reach = seq
                if self.terms.ack_policy != "none":
                    self.pending[seq] = entry
            else:
                return
            entry.sent_ns = now_ns
            entry.due_ns = now_ns + self.terms.wait_ns(entry.count)
            self._send(seq, entry.count)

    def _has_room(self) -> bool:
        limit = self.terms.ack_pending_max
        return limit <= 0 or len(self.pending) - len(self.on_their_way) < limit

    def _send(self, seq: int, count: int) -> None:
        request = self.requests.pop(0)
        request.left -= 1
        if request.left:
            self.requests.append(request)
        self.deliveries += 1
        self.sent.append((seq, count, self.deliveries))
        self.slots[request.slot] = self.slots.get(request.slot, 0) + 1

    # --- time ---

    def next_ns(self) -> int | None:
        """When something is due."""
        times = [entry.due_ns for seq, entry in self.pending.items() if seq not in self.again]
        return min([*times, *(request.until_ns for request in self.requests)], default=None)

    def expire(self, now_ns: int) -> None:
        """Whose time is over is due again, or is given up; requests whose time is over go."""
        for seq in sorted(self.pending):
            entry = self.pending[seq]
            if entry.due_ns <= now_ns and seq not in self.again:
                if seq in self.on_their_way:
                    entry.due_ns = now_ns + self.terms.wait_ns(entry.count)
                elif 0 < self.terms.deliver_max <= entry.count:
                    self._give_up(seq)
                else:
                    self.again.append(seq)
        self.requests = [request for request in self.requests if request.until_ns > now_ns]

    def _give_up(self, seq: int) -> None:
        del self.pending[seq]
        self.given_up.add(seq)
        self.has_given_up = True

    # --- what clients say ---

    def announce(self, seq: int) -> None:
        """It is acknowledged, but not durably yet."""
        if self.terms.ack_policy != "all" and seq in self.pending:
            self.on_their_way.add(seq)

    def settled_by(self, seq: int) -> list[int]:
        """Which messages an acknowledgement settles."""
        is_all = self.terms.ack_policy == "all"
        return [one for one in (*self.pending, *self.given_up) if one == seq or (is_all and one < seq)]

    def settle(self, seq: int) -> None:
        """It is done with, and all before it if the policy says so."""
        if self.terms.ack_policy == "none" or not 0 < seq <= self.reach:
            return
        self.settled.add(seq)
        self.on_their_way.discard(seq)
        for one in self.settled_by(seq):
            self.pending.pop(one, None)
            self.given_up.discard(one)
            self.settled.add(one)

    def send_back(self, seq: int, delay_ns: int | None, now_ns: int) -> None:
        """It is to be delivered again, at once or later."""
        if seq not in self.pending:
            return
        if delay_ns is None:
            if seq not in self.again:
                self.again.append(seq)
        else:
            self.again = [one for one in self.again if one != seq]
            self.pending[seq].due_ns = now_ns + delay_ns

    def work_on(self, seq: int, now_ns: int) -> None:
        """It has its time anew."""
        entry = self.pending.get(seq)
        if entry is not None and seq not in self.again:
            entry.due_ns = now_ns + self.terms.wait_ns(entry.count)

    def forget_gone(self, messages: dict[int, str]) -> None:
        """Messages that the stream has no more wait for nobody."""
        self.pending = {seq: entry for seq, entry in self.pending.items() if seq in messages}
        self.given_up &= messages.keys()

    def begin_life(self, now_ns: int) -> None:
        """The server was started: requests are gone, and so is whatever was said but acknowledgements."""
        self.requests.clear()
        self.again.clear()
        self.on_their_way.clear()
        for entry in self.pending.values():
            entry.due_ns = entry.sent_ns + self.terms.wait_ns(entry.count)
        self.expire(now_ns)

    # --- figures ---

    @property
    def ack_pending(self) -> int:
        """How many are shown to wait: no more than may, unless those on their way do not explain it."""
        limit, count = self.terms.ack_pending_max, len(self.pending)
        return count if limit <= 0 or count <= limit else max(limit, count - len(self.on_their_way))

    @property
    def redelivered(self) -> int:
        """How many were delivered more than once and are not settled."""
        return sum(entry.count > 1 for entry in self.pending.values()) + len(self.given_up)

    @property
    def floor_consumer_seq(self) -> int:
        """Up to which delivery all is settled, if nothing was given up."""
        lowest = min(self.pending, default=None)
        return self.deliveries if lowest is None else self.pending[lowest].first - 1


@dataclass(slots=True)
class NaiveStream:
    """The messages, and who waits for them."""

    retention: str
    messages_max: int
    consumers: list[NaiveConsumer]
    last_seq: int = 0
    messages: dict[int, str] = field(default_factory=dict)

    def store(self, subject: str) -> int:
        """A message comes, and another one may go for it."""
        self.last_seq += 1
        if self.retention != "interest" or any(one.wants(subject) for one in self.consumers):
            self.messages[self.last_seq] = subject
        while 0 < self.messages_max < len(self.messages):
            del self.messages[min(self.messages)]
        self.clean()
        return self.last_seq

    def clean(self) -> None:
        """What nobody waits for any more goes, where acknowledgements decide."""
        if self.retention != "limits":
            self.messages = {
                seq: subject
                for seq, subject in self.messages.items()
                if any(one.needs(seq, subject) for one in self.consumers)
            }
        for one in self.consumers:
            one.forget_gone(self.messages)

    def serve(self, now_ns: int) -> None:
        """Everybody delivers what can be delivered."""
        for one in self.consumers:
            one.serve(self.messages, now_ns)

    def advance(self, now_ns: int, until_ns: int) -> None:
        """Time passes."""
        for one in self.consumers:
            due_ns = one.next_ns()
            while due_ns is not None and due_ns <= until_ns:
                one.expire(max(due_ns, now_ns))
                one.serve(self.messages, max(due_ns, now_ns))
                due_ns = one.next_ns()
            self.clean()
