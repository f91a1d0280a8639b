"""Control links: who may link, what they carry, and what happens when they break."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from edged.config.options import ClusterOptions, CompressionOptions, TlsOptions
from hub import limits
from hub.links import hello, links
from hub.links.control import CallFailed
from hub.links.frames import Kind, frame
from hub.links.hello import Hello, Introduction
from hub.raft.messages import Append, AppendReply, Block, Heartbeat, Message
from tests.links.nodes import CLUSTER, Node, node, three_nodes, until


class Mailbox:
    """Keeps what a node was sent by others."""

    def __init__(self, owner: Node) -> None:
        self.messages: list[tuple[int, int, Message]] = []
        self.ups: list[int] = []
        self.downs: list[int] = []
        owner.links.on_raft = lambda *message: self.messages.append(message)
        owner.links.on_up = self.ups.append
        owner.links.on_down = self.downs.append


def append_of(size: int, first: int = 1) -> Append:
    block = Block(first, 1, 3, size, None, bytes(size))
    return Append(3, first - 1, 3, (block,), 0)


async def test_messages_of_consensus_arrive_in_order_whatever_their_size() -> None:
    async with three_nodes() as (first, second, third):
        mailbox = Mailbox(second)
        wanted: list[Message] = [
            append_of(size, place + 1) for place, size in enumerate((0, 1, 300_000, 2_000_000, 5))
        ]
        for message in wanted:
            first.links.send(second.number, 7, message)
        third.links.send(second.number, 8, Heartbeat(4, 5, 6, False))
        first.links.flush()
        third.links.flush()
        await until(lambda: len(mailbox.messages) == 6, "all have arrived")
        assert [message for sender, _, message in mailbox.messages if sender == 1] == wanted
        assert (3, 8, Heartbeat(4, 5, 6, False)) in mailbox.messages


async def test_messages_to_nobody_are_dropped() -> None:
    async with node(1) as alone:
        alone.links.send(9, 0, AppendReply(1, 1))
        alone.links.flush()


async def test_messages_that_wait_too_long_are_dropped_the_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hub.links.control.RAFT_QUEUE_BYTES_MAX", 10_000)
    async with three_nodes() as (first, second, _):
        mailbox = Mailbox(second)
        for index in range(1, 101):
            first.links.send(2, 0, append_of(1000, index))
        control = first.links.peers[2].control
        assert control is not None and control.pending_bytes <= 10_000
        assert control.raft_dropped >= 90
        first.links.flush()
        await until(
            lambda: bool(mailbox.messages) and mailbox.messages[-1][2] == append_of(1000, 100), "the last"
        )
        assert len(mailbox.messages) == 100 - control.raft_dropped


async def test_calls_are_answered_and_errors_come_back_as_such() -> None:
    async def double(sender: int, body: dict[str, Any]) -> dict[str, Any]:
        return {"sender": sender, "doubled": body["data"] * 2}

    async def refuse(_sender: int, _body: dict[str, Any]) -> dict[str, Any]:
        raise CallFailed("not today")

    async def break_down(_sender: int, _body: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("oops")

    async def never(_sender: int, _body: dict[str, Any]) -> dict[str, Any]:
        await trio.sleep_forever()
        raise AssertionError

    async with three_nodes() as (first, second, _):
        for one in (first, second):
            one.links.methods.update(double=double, refuse=refuse, break_down=break_down, never=never)
        call = first.links.call
        data = bytes(range(256)) * 2000
        assert await call(2, "double", {"data": data}, 5) == {"sender": 1, "doubled": data * 2}
        assert await call(1, "double", {"data": 2}, 5) == {"sender": 1, "doubled": 4}
        with pytest.raises(CallFailed, match="not today"):
            await call(2, "refuse", {}, 5)
        with pytest.raises(CallFailed, match="break_down failed: KeyError"):
            await call(2, "break_down", {}, 5)
        with pytest.raises(CallFailed, match="not known"):
            await call(2, "unheard_of", {}, 5)
        with pytest.raises(CallFailed, match="no link"):
            await call(77, "double", {}, 5)
        with pytest.raises(CallFailed, match="no answer") as late:
            await call(2, "never", {}, 0.01)
        assert late.value.is_unknown


async def test_a_call_fails_when_the_link_ends() -> None:
    async def never(_sender: int, _body: dict[str, Any]) -> dict[str, Any]:
        second.scope.cancel()
        await trio.sleep_forever()
        raise AssertionError

    async with three_nodes() as (first, second, _):
        second.links.methods["never"] = never
        with pytest.raises(CallFailed, match="ended") as ended:
            await first.links.call(2, "never", {}, 60)
        assert ended.value.is_unknown


async def test_too_many_calls_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.links.control.CALLS_SERVED_MAX", 2)
    released = trio.Event()

    async def wait(_sender: int, _body: dict[str, Any]) -> dict[str, Any]:
        await released.wait()
        return {}

    refusals = []

    async def ask() -> None:
        try:
            await first.links.call(2, "wait", {}, 5)
        except CallFailed as failure:
            refusals.append(str(failure))
            released.set()

    async with three_nodes() as (first, second, _):
        second.links.methods["wait"] = wait
        async with trio.open_nursery() as nursery:
            for _count in range(3):
                nursery.start_soon(ask)
    assert refusals == ["too many calls at once"]


async def test_a_link_that_breaks_is_reported_and_made_anew() -> None:
    async with three_nodes() as (first, second, _):
        here, there = Mailbox(first), Mailbox(second)
        control = first.links.peers[2].control
        assert control is not None
        control.close("cut by the test")
        await until(lambda: here.downs == [2] and there.downs == [1], "both know")
        await first.linked(second)
        await second.linked(first)
        assert here.ups == [2] and there.ups == [1]
        first.links.send(2, 1, AppendReply(1, 1))
        first.links.flush()
        await until(lambda: there.messages == [(1, 1, AppendReply(1, 1))], "it works again")


async def test_a_node_that_stops_is_missed_and_found_again_when_it_is_back() -> None:
    async with node(1) as first, node(2, first.address) as second:
        async with node(3, first.address) as third:
            await second.linked(first, third)
            assert second.links.peers[3].name == "n3"
            assert second.links.peers[3].rtt_ns >= 0
            cluster = replace(CLUSTER, port=third.links.port)
        await until(lambda: not second.links.peers[3].is_up, "it is gone")
        async with node(3, cluster=cluster) as third:
            # It has no routes of its own: the others find it where it was.
            await third.linked(first, second)
            await second.linked(third)


async def test_a_silent_peer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = replace(CLUSTER, ping_interval_s=0.02, ping_max=3)
    async with node(1, cluster=cluster) as first, node(2, first.address) as second:
        await first.linked(second)
        here = Mailbox(first)
        control = second.links.peers[1].control
        assert control is not None
        # It hears nothing and says nothing from now on.
        monkeypatch.setattr(control, "received", lambda _chunk: None)
        monkeypatch.setattr(control, "flush", lambda: None)
        await until(lambda: here.downs == [2], "it is given up")
        assert "silent for" in first.lines.text


async def test_when_both_dial_at_once_one_link_stays() -> None:
    async with node(1) as first, node(2, first.address) as second:
        await first.linked(second)
        await second.linked(first)
        mailboxes = Mailbox(first), Mailbox(second)
        # Both find the link lost at the same moment, and both dial.
        for one, other in ((first, 2), (second, 1)):
            control = one.links.peers[other].control
            assert control is not None
            control.close("cut by the test")
        await until(lambda: all(mailbox.downs for mailbox in mailboxes), "both know")

        def is_agreed() -> bool:
            ours, theirs = first.links.peers[2].control, second.links.peers[1].control
            return ours is not None and theirs is not None and ours.dialler == theirs.dialler

        await until(is_agreed, "both use the same link")
        first.links.send(2, 1, AppendReply(1, 1))
        second.links.send(1, 1, AppendReply(1, 1))
        first.links.flush()
        second.links.flush()
        await until(lambda: all(mailbox.messages for mailbox in mailboxes), "it works in both directions")


# --- who may link ---


async def refused(cluster: ClusterOptions, reason: str, **changes: Any) -> None:
    """A second node with other options is refused for a reason that both ends log."""
    async with (
        node(1, cluster=cluster) as first,
        node(2, first.address, cluster=replace(cluster, **changes)) as second,
    ):
        await until(lambda: reason in second.lines.text, f"the second node logs {reason!r}")
        await until(lambda: "refused" in first.lines.text, "the first node logs it")
        assert reason in first.lines.text
        assert not any(peer.is_up for peer in (*first.links.peers.values(), *second.links.peers.values()))


async def test_another_cluster_is_refused() -> None:
    await refused(CLUSTER, "its cluster is 'OTHER', and not 'TEST'", name="OTHER")


async def test_wrong_credentials_are_refused() -> None:
    guarded = replace(CLUSTER, user="links", password="secret")
    await refused(guarded, hello.BAD_CREDENTIALS, password="guessed")
    await refused(guarded, hello.BAD_CREDENTIALS, user=None, password=None)


async def test_credentials_are_those_of_the_url_or_of_the_cluster_and_never_logged() -> None:
    guarded = replace(CLUSTER, user="links", password="secret")
    async with node(1, cluster=guarded) as first:
        url = f"nats-route://links:secret@{first.address}"
        async with node(2, url) as second, node(3, first.address, cluster=guarded) as third:
            await first.linked(second, third)
            for one in (first, second, third):
                assert "secret" not in one.lines.text


async def test_a_password_may_be_kept_as_a_hash() -> None:
    import bcrypt

    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    guarded = replace(CLUSTER, user="links", password=hashed)
    async with (
        node(1, cluster=guarded) as first,
        node(2, f"nats-route://links:secret@{first.address}") as second,
    ):
        await first.linked(second)


async def test_a_node_does_not_link_with_itself() -> None:
    async with node(1) as seed:
        port = seed.links.port
    cluster = replace(CLUSTER, port=port)
    async with node(1, f"127.0.0.1:{port}", cluster=cluster) as alone:
        await until(lambda: "this node itself" in alone.lines.text, "it notices")
        assert not alone.links.peers


async def test_a_second_node_of_the_same_name_is_refused() -> None:
    async with node(1) as first, node(2, first.address) as second:
        await first.linked(second)
        second.server.name = "n1"
        control = second.links.peers[1].control
        assert control is not None
        control.close("cut by the test")
        await until(lambda: "another node has its name 'n1'" in second.lines.text, "it is refused")


async def test_a_copy_of_a_node_that_is_there_is_refused() -> None:
    async with node(1) as first, node(2, first.address) as second:
        await first.linked(second)
        async with node(2, first.address, name="copy") as copy:
            await until(lambda: "'n2' has its number 2" in copy.lines.text, "it is refused")
            assert first.links.peers[2].name == "n2" and first.links.peers[2].is_up


async def test_nodes_whose_journals_differ_do_not_link(monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(1) as first:
        first.links._frames_version = 2
        async with node(2, first.address) as second:
            await until(lambda: "its journal has version" in second.lines.text, "it is refused")


# --- hostile bytes ---


async def knock(target: Node, data: bytes) -> bytes:
    """Send bytes to the cluster port; what comes back until the connection is closed."""
    stream = await trio.open_tcp_stream("127.0.0.1", target.links.port)
    found = b""
    with trio.fail_after(10):
        async with stream:
            try:
                await stream.send_all(data)
                async for chunk in stream:
                    found += chunk
            except trio.BrokenResourceError:
                pass  # Closed with bytes of ours unread.
    return found


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n",
        b'CONNECT {"verbose":false}\r\nPING\r\n',
        b"\x00" * 20_000,
        b"\xff" * 200_000,
        b"".join(frame(Kind.HELLO, [b"\x81\xa1"])),
        b"".join(frame(Kind.HELLO, [b"\xdd\xff\xff\xff\xff"])),
        b"".join(frame(Kind.RAFT, [b""])),
        b"".join(frame(Kind.READY, [])),
        b"".join(frame(Kind.HELLO, [bytes(limits.HELLO_BYTES_MAX + 1)])),
    ],
)
async def test_strangers_are_closed_and_told_nothing(data: bytes) -> None:
    async with node(1) as alone:
        assert await knock(alone, data) == b""
        await until(lambda: "did not come about" in alone.lines.text, "it is logged")
        assert alone.links._welcomes == 0


async def test_a_stranger_without_credentials_learns_nothing_but_that() -> None:
    guarded = replace(CLUSTER, user="links", password="secret")
    stranger = Hello(hello.CONTROL, "TEST", Introduction(9, "N9", "n9", "127.0.0.1:9"), 1)
    async with node(1, cluster=guarded) as alone:
        answer = await knock(alone, stranger.frame())
        assert hello.BAD_CREDENTIALS.encode() in answer
        assert b"TEST" not in answer and b"n1" not in answer


async def test_a_stranger_that_says_nothing_is_closed() -> None:
    async with node(1, cluster=replace(CLUSTER, auth_timeout_s=0.05)) as alone:
        assert await knock(alone, b"") == b""
        await until(lambda: "did not say who it is" in alone.lines.text, "it is logged")


async def test_too_many_strangers_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "WELCOMES_MAX", 2)
    async with node(1) as alone:
        silent = [await trio.open_tcp_stream("127.0.0.1", alone.links.port) for _ in range(2)]
        await until(lambda: alone.links._welcomes == 2, "they are welcomed")
        assert await knock(alone, b"") == b""
        for stream in silent:
            await trio.aclose_forcefully(stream)


async def test_a_peer_that_sends_what_cannot_be_read_is_cut_off() -> None:
    async with node(1) as first, node(2, first.address) as second:
        await first.linked(second)
        control = second.links.peers[1].control
        assert control is not None
        control._queue(b"".join(frame(Kind.RAFT, [b"\x63" + bytes(16)])))
        control.flush()
        await until(lambda: "unknown kind of message 99" in first.lines.text, "it is cut off")
        await first.linked(second)


async def test_only_a_linked_node_may_open_a_route() -> None:
    stranger = Hello(hello.ROUTE, "TEST", Introduction(9, "N9", "n9", "127.0.0.1:9"), 1)
    async with node(1) as alone:
        assert hello.NOT_LINKED.encode() in await knock(alone, stranger.frame())


# --- TLS and compression ---


@pytest.fixture
def tls(tmp_path: Path) -> TlsOptions:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    cert_file, key_file, ca_file = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))
    issued.cert_chain_pems[0].write_to_path(cert_file)
    issued.private_key_pem.write_to_path(key_file)
    authority.cert_pem.write_to_path(ca_file)
    return TlsOptions(str(cert_file), str(key_file), str(ca_file))


async def test_nodes_link_with_tls_and_check_each_other(tls: TlsOptions, tmp_path: Path) -> None:
    cluster = replace(CLUSTER, tls=tls)
    async with three_nodes(cluster=cluster) as (first, second, _):
        mailbox = Mailbox(second)
        first.links.send(2, 7, append_of(700_000))
        first.links.flush()
        await until(lambda: len(mailbox.messages) == 1, "it has arrived")
        assert first.router.routes()[0].tls_version == "1.3"
        # In clear there is nothing to be had, and a certificate of somebody else is not taken.
        assert (
            await knock(first, Hello(hello.CONTROL, "TEST", Introduction(9, "N9", "n9", ""), 1).frame())
            == b""
        )
        other = trustme.CA().issue_cert("127.0.0.1")
        cert_file, key_file = tmp_path / "other.pem", tmp_path / "other.key"
        other.cert_chain_pems[0].write_to_path(cert_file)
        other.private_key_pem.write_to_path(key_file)
        foreign = replace(tls, cert_file=str(cert_file), key_file=str(key_file))
        async with node(9, first.address, cluster=replace(CLUSTER, tls=foreign)) as stranger:
            await until(lambda: "no link" in stranger.lines.text, "it is refused")
            assert not stranger.links.peers


async def test_a_certificate_may_have_to_name_a_configured_route(tls: TlsOptions) -> None:
    picky = replace(CLUSTER, tls=replace(tls, verify_cert_and_check_known_urls=True))
    plain = replace(CLUSTER, tls=tls)
    async with (
        node(1, "nats-route://elsewhere.example:1", cluster=picky) as first,
        node(2, first.address, cluster=plain) as second,
    ):
        await until(lambda: "names no node that is known" in second.lines.text, "it is refused")
    async with (
        node(1, "nats-route://localhost:1", cluster=picky) as first,
        node(2, first.address, cluster=plain) as second,
    ):
        await first.linked(second)


@pytest.mark.parametrize("other", ["accept", "s2_fast"])
async def test_links_are_compressed_when_one_end_wants_it(other: str) -> None:
    wants = replace(CLUSTER, compression=CompressionOptions("s2_auto"))
    accepts = replace(CLUSTER, compression=CompressionOptions(other))
    async with node(1, cluster=wants) as first, node(2, first.address, cluster=accepts) as second:
        await first.linked(second)
        await second.linked(first)
        mailbox = Mailbox(second)
        for index in range(1, 6):
            first.links.send(2, 7, append_of(900_000, index))
        first.links.flush()
        await until(lambda: len(mailbox.messages) == 5, "they have arrived")
        assert [message for _, _, message in mailbox.messages] == [
            append_of(900_000, index) for index in range(1, 6)
        ]
        assert second.router.routes()[0].is_compressed


async def test_links_are_not_compressed_by_default_or_when_one_end_refuses() -> None:
    wants = replace(CLUSTER, compression=CompressionOptions("s2_auto"))
    refuses = replace(CLUSTER, compression=CompressionOptions("off"))
    async with node(1, cluster=wants) as first, node(2, first.address, cluster=refuses) as second:
        await second.linked(first)
        assert not second.router.routes()[0].is_compressed
    async with node(1) as first, node(2, first.address) as second:
        await second.linked(first)
        assert not second.router.routes()[0].is_compressed


async def test_a_node_that_was_forgotten_is_not_dialled_again() -> None:
    async with three_nodes() as (_, second, third):
        third.scope.cancel()
        await until(lambda: not second.links.peers[3].is_up, "it is gone")
        assert third.address in second.links._dialler._dialled
        second.links.forget(3)
        assert 3 not in second.links.peers
        assert third.address not in second.links._dialler._dialled
