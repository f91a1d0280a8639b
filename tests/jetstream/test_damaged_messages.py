"""A message that the disk has lost: whoever asks for it is told so, and everything else is as it was."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.jetstream.jetstream_servers import running
from tests.jetstream.raw_client import RawClient, block_of

pytestmark = pytest.mark.real

COUNTER_BROKEN = 10172
LOST = b"what was written here is not what is read"


def test_a_damaged_message_is_reported_and_the_others_are_there(tmp_path: Path) -> None:
    with running("edged", tmp_path) as server:
        client = RawClient(server.host, server.port)
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "allow_direct": True})
        for subject, payload in (("s.a", b"first"), ("s.b", LOST), ("s.c", b"third")):
            assert "error" not in client.ask(subject, b"", payload).document
        client.close()
        server.signal(signal.SIGKILL)
        server.wait_exit()
    _damage(next(tmp_path.rglob("journal")))
    with running("edged", tmp_path) as again:
        assert "messages are lost account=$G stream=S first_seq=2 last_seq=2" in again.log_tail()
        client = RawClient(again.host, again.port)
        assert b" 500 Message Damaged" in client.ask("$JS.API.DIRECT.GET.S", b"", b'{"seq":2}').block
        assert "error" in client.ask("$JS.API.STREAM.MSG.GET.S", b"", b'{"seq":2}').document
        assert client.ask("$JS.API.DIRECT.GET.S.s.a").payload == b"first"
        assert client.ask("$JS.API.DIRECT.GET.S.s.c").payload == b"third"
        state = client.api("STREAM.INFO.S")["state"]
        assert (state["messages"], state["last_seq"]) == (2, 3)
        assert client.ask("s.a", b"", b"fourth").document["seq"] == 4
        client.close()


def _damage(journal: Path) -> None:
    for path in journal.iterdir():
        content = bytearray(path.read_bytes())
        place = content.find(LOST)
        if place >= 0:
            content[place] ^= 1
            path.write_bytes(content)
            return
    raise AssertionError("the message is not in the journal")


def test_a_counter_whose_total_cannot_be_read_is_broken_and_the_others_count_on(tmp_path: Path) -> None:
    with running("edged", tmp_path) as server:
        client = RawClient(server.host, server.port)
        client.api("STREAM.CREATE.C", {"name": "C", "subjects": ["c.*"], "allow_msg_counter": True})
        for subject in ("c.a", "c.b"):
            note = LOST.decode() if subject == "c.a" else "x"
            assert client.ask(subject, block_of(Nats_Incr="5", Note=note)).document["val"] == "5"
        client.close()
    with running("edged", tmp_path) as again:
        # It was whole when the store was opened.
        _damage(next(tmp_path.rglob("journal")))
        client = RawClient(again.host, again.port)
        refused = client.ask("c.a", block_of(Nats_Incr="1")).document
        assert refused["error"]["err_code"] == COUNTER_BROKEN
        assert client.ask("c.b", block_of(Nats_Incr="1")).document["val"] == "6"
        assert client.ask("c.a", block_of(Nats_Incr="1")).document["error"]["err_code"] == COUNTER_BROKEN
        assert "the total of a counter cannot be read account=$G stream=C subject=c.a" in again.log_tail()
        client.close()
