"""A stream as naively as can be: a dict of messages, every check written out, everything searched for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edged.core.subjects import matches

Outcome = tuple[str, int]

HOUR_NS = 3_600_000_000_000
TTLS = {"1h": HOUR_NS, "7200": 2 * HOUR_NS, "never": -1, "00": 0}


@dataclass(slots=True)
class NaiveStream:
    """Messages are (time, subject, fields, bytes that count); outcomes are a word and a seq or error code."""

    config: dict[str, Any]
    counted: Any
    last_seq: int = 0
    last_id: str = ""
    messages: dict[int, tuple[int, str, dict[str, str], int]] = field(default_factory=dict)
    ids: dict[str, tuple[int, int]] = field(default_factory=dict)
    filters: list[str] = field(default_factory=list)

    # --- questions ---

    def seqs_of(self, pattern: str) -> list[int]:
        found = [seq for seq, one in self.messages.items() if matches(one[1].encode(), pattern.encode())]
        return sorted(found)

    def last_of(self, pattern: str) -> int:
        return max(self.seqs_of(pattern), default=0)

    @property
    def bytes(self) -> int:
        return sum(one[3] for one in self.messages.values())

    # --- one message ---

    def publish(self, now_ns: int, subject: str, fields: dict[str, str], sizes: tuple[int, int]) -> Outcome:
        """`sizes` are those of the header block and of block and payload."""
        seen = self.seen(fields.get("Nats-Msg-Id", ""), now_ns)
        error = self.first_fault(subject, fields, sizes)
        if error:
            return "refused", error
        if seen:
            return "duplicate", seen
        error = self.second_fault(fields) or self.room_fault(subject, fields, sizes)
        if error:
            return "refused", error
        return "taken", self.take(now_ns, subject, fields, sizes)

    def seen(self, message_id: str, now_ns: int) -> int:
        then_ns, seq = self.ids.get(message_id, (0, 0))
        return seq if message_id and now_ns - then_ns < self.config["duplicate_window"] else 0

    def first_fault(self, subject: str, fields: dict[str, str], sizes: tuple[int, int]) -> int:
        if self.config.get("sealed"):
            return 10109
        if 0 < self.config.get("max_msg_size", -1) < sizes[1]:
            return 10054
        if fields.get("Nats-Expected-Stream", self.config["name"]) != self.config["name"]:
            return 10060
        if TTLS.get(fields.get("Nats-TTL", "00"), 0) and not self.config.get("allow_msg_ttl"):
            return 10166
        asked = fields.get("Nats-Expected-Last-Subject-Sequence-Subject")
        wanted = fields.get("Nats-Expected-Last-Subject-Sequence")
        if wanted is None and asked is not None:
            return 10193
        if wanted is not None and int(wanted) != self.last_of(asked or subject):
            return 10071
        if int(fields.get("Nats-Expected-Last-Sequence", self.last_seq)) != self.last_seq:
            return 10071
        return 10227 if "Nats-Stream-Source" in fields else 0

    def second_fault(self, fields: dict[str, str]) -> int:
        if fields.get("Nats-Expected-Last-Msg-Id", self.last_id) != self.last_id:
            return 10070
        rollup = fields.get("Nats-Rollup")
        is_allowed = self.config.get("allow_rollup_hdrs") and rollup in ("sub", "all")
        return 10111 if rollup is not None and not is_allowed else 0

    def is_wanted(self, subject: str) -> bool:
        if self.config.get("retention") != "interest":
            return True
        return any(matches(subject.encode(), one.encode()) for one in self.filters)

    def room_fault(self, subject: str, fields: dict[str, str], sizes: tuple[int, int]) -> int:
        if not self.is_wanted(subject):
            return 0
        if fields.get("Nats-TTL", "1h") not in TTLS:
            return 10165
        if self.config.get("discard") != "new":
            return 0
        size = self.counted(len(subject), *sizes)
        mine = self.seqs_of(subject)
        is_replacing = 0 < self.config.get("max_msgs_per_subject", -1) <= len(mine)
        if is_replacing and self.config.get("discard_new_per_subject") and "Nats-Rollup" not in fields:
            return 10077
        if 0 < self.config.get("max_msgs", -1) <= len(self.messages) and not is_replacing:
            return 10077
        is_full = 0 < self.config.get("max_bytes", -1) < self.bytes + size
        has_no_room = is_full and (not is_replacing or self.messages[mine[0]][3] < size)
        return 10077 if has_no_room else 0

    def take(self, now_ns: int, subject: str, fields: dict[str, str], sizes: tuple[int, int]) -> int:
        self.last_seq += 1
        seq = self.last_seq
        if self.is_wanted(subject):
            size = self.counted(len(subject), *sizes)
            self.messages[seq] = (now_ns, subject, fields, size)
            self.keep_limits()
        self.last_id = fields.get("Nats-Msg-Id", "")
        if self.last_id:
            self.ids[self.last_id] = (now_ns, seq)
        pattern = {"sub": subject, "all": ">"}.get(fields.get("Nats-Rollup", ""))
        if pattern is not None and self.config.get("allow_rollup_hdrs"):
            for old in self.seqs_of(pattern):
                if old != seq:
                    del self.messages[old]
        return seq

    def keep_limits(self) -> None:
        per_subject = self.config.get("max_msgs_per_subject", -1)
        for subject in {one[1] for one in self.messages.values()} if per_subject > 0 else ():
            for old in self.seqs_of(subject)[:-per_subject]:
                del self.messages[old]
        if self.config.get("discard") == "new":
            return
        while 0 < self.config.get("max_msgs", -1) < len(self.messages):
            del self.messages[min(self.messages)]
        while 0 < self.config.get("max_bytes", -1) < self.bytes:
            del self.messages[min(self.messages)]

    # --- time ---

    def expire(self, now_ns: int) -> None:
        max_age = self.config.get("max_age", 0)
        for seq, (then_ns, _, fields, _) in list(self.messages.items()):
            ttl = TTLS.get(fields.get("Nats-TTL", "00"), 0)
            is_old = max_age and then_ns <= now_ns - max_age and ttl != -1
            if is_old or (ttl > 0 and self.config.get("allow_msg_ttl") and then_ns + ttl <= now_ns):
                del self.messages[seq]
