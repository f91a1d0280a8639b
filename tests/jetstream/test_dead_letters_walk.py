"""Dead letters through random steps of a whole server: crashes, restarts, a disk that makes everybody wait.

What must hold: no message has two letters, and each that was not acknowledged has one in the end. The stream
that takes them has no memory of ids to speak of.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.jetstream.virtual_server import SECOND_NS, VirtualServer

NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.c"
SEEDS = 30
STEPS = 60
ACTIONS = (*("publish",) * 3, *("pull",) * 4, *("wait",) * 2, "busy", "free", "free", "crash", "restart")


class Walk:
    """One, and what its client knows."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.server = VirtualServer(seed)
        # Those of which the client has said that they are dealt with, be it that it arrived or not.
        self.acked: set[int] = set()
        dead = {"name": "D", "subjects": ["dead"], "duplicate_window": SECOND_NS // 10}
        self.server.api("STREAM.CREATE.D", dead)
        retention = self.chance.choice(["limits", "workqueue", "interest"])
        metadata = {"edged.dead_letter": "dead"}
        config = {"name": "S", "subjects": ["s"], "retention": retention, "metadata": metadata}
        self.server.api("STREAM.CREATE.S", config)
        policy = {"durable_name": "c", "ack_policy": "explicit", "max_deliver": 2, "ack_wait": SECOND_NS}
        self.server.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": policy})
        self.inbox = self.server.subscribe("to")

    def step(self) -> None:
        server, action = self.server, self.chance.choice(ACTIONS)
        if action == "publish":
            for _ in range(self.chance.randrange(1, 4)):
                server.publish("s", b"x")
        elif action == "pull":
            expires_ns = self.chance.choice([SECOND_NS // 10, SECOND_NS])
            server.publish(NEXT, b'{"batch":3,"expires":%d}' % expires_ns, "to")
            self.answer()
        elif action == "wait":
            server.advance(self.chance.randrange(2 * SECOND_NS))
        elif action in ("busy", "free"):
            server.is_disk_busy = action == "busy"
        else:
            server.crash() if action == "crash" else server.restart()

    def answer(self) -> None:
        for _, reply, _, _ in self.inbox.take():
            if reply:
                seq = int(reply.split(b".")[5])
                word = self.chance.choice(["+ACK", "+TERM", "+TERM why", "", ""])
                if word:
                    self.acked |= {seq} if word == "+ACK" else set()
                    self.server.publish(reply, word.encode())

    def end(self) -> None:
        """Let everything come to its end."""
        self.server.is_disk_busy = False
        for _ in range(200):
            info = self.server.info("S", "c")
            if not info["num_pending"] and not info["num_ack_pending"]:
                break
            self.server.publish(NEXT, b'{"batch":10,"expires":100000000}', "to")
            self.inbox.take()
            self.server.advance(2 * SECOND_NS)
        self.server.advance(20 * SECOND_NS)

    def letters(self) -> Counter[int]:
        stream = self.server.jetstream.accounts["$G"].streams["D"]
        found: Counter[int] = Counter()
        for seq in range(1, stream.log.last_seq + 1):
            message = stream.log.get(seq)
            assert message is not None
            block = message.data[: message.header_bytes].decode()
            fields = dict(line.split(": ", 1) for line in block.split("\r\n")[1:-2])
            assert "Edged-Dead-Letter-Missing" not in fields
            assert message.data.endswith(b"\r\n\r\nx")
            found[int(fields["Edged-Dead-Letter-Sequence"])] += 1
        return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_message_that_is_given_up_has_one_letter(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    walk.end()
    stream = walk.server.jetstream.accounts["$G"].streams["S"]
    letters = walk.letters()
    assert set(letters.values()) <= {1}, letters.most_common(3)
    assert not stream.machine.letters.owed
    everything = set(range(1, stream.log.last_seq + 1))
    assert everything - walk.acked <= letters.keys()
