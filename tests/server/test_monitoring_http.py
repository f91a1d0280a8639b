"""The monitoring port as HTTP: methods, paths, limits, and peers that misbehave."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import h11
import pytest
import trio
import trio.testing
import trustme

from edged.config.options import Options, TlsOptions
from edged.server.client import ClientConnection
from edged.server.listener import ListenError
from edged.server.monitoring import Monitor, site
from edged.server.monitoring.conversation import HEADER_BYTES_MAX, REQUEST_TIMEOUT_S, WRITE_TIMEOUT_S
from edged.server.monitoring.http_port import CONNECTIONS_MAX
from tests.server.live import live_server
from tests.server.monitored import MonitoredServer, monitored_server


async def read_to_end(stream: trio.abc.Stream) -> bytes:
    data = b""
    while chunk := await stream.receive_some():
        data += chunk
    return data


async def raw(monitored: MonitoredServer, request: bytes) -> bytes:
    """What comes back for bytes that no proper client sends, up to the end of the connection."""
    browser = await monitored.connect()
    async with browser.stream:
        await browser.stream.send_all(request)
        with trio.fail_after(5):
            return await read_to_end(browser.stream)


async def test_a_document_is_indented_json_that_any_origin_may_read() -> None:
    async with monitored_server() as monitored:
        page = await monitored.get("/routez")
        assert page.status == 200
        assert page.headers["content-type"] == "application/json"
        assert page.headers["access-control-allow-origin"] == "*"
        assert int(page.headers["content-length"]) == len(page.body)
        lines = page.text.split("\n")
        assert lines[0] == "{"
        assert lines[1] == f'  "server_id": "{monitored.server.id}",'
        assert lines[-2:] == ['  "routes": []', "}"]


async def test_health_is_one_line() -> None:
    async with monitored_server() as monitored:
        page = await monitored.get("/healthz")
        assert (page.status, page.body) == (200, b'{"status":"ok"}')


async def test_one_connection_carries_many_requests() -> None:
    async with monitored_server() as monitored:
        browser = await monitored.connect()
        async with browser.stream:
            for _ in range(3):
                assert (await browser.request("/healthz")).status == 200
            assert (await browser.request("/nothing")).status == 404
            assert (await browser.request("/varz")).json["http_req_stats"] == {"/healthz": 3, "/varz": 1}


async def test_requests_sent_at_once_are_answered_in_order() -> None:
    async with monitored_server() as monitored:
        first = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
        second = b"GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        answers = await raw(monitored, first + second)
        assert answers.startswith(b"HTTP/1.1 200 ")
        assert b'{"status":"ok"}HTTP/1.1 404 ' in answers


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    async with monitored_server() as monitored:
        browser = await monitored.connect()
        async with browser.stream:
            head = await browser.request("/healthz", method="HEAD")
            assert (head.status, head.headers["content-length"], head.body) == (200, "15", b"")
            assert (await browser.request("/healthz")).body == b'{"status":"ok"}'


async def test_other_methods_are_refused() -> None:
    async with monitored_server() as monitored:
        browser = await monitored.connect()
        async with browser.stream:
            page = await browser.request("/varz", method="POST", body=b"x" * 100)
            assert (page.status, page.headers["allow"]) == (405, "GET, HEAD")
        assert b" 405 " in await raw(
            monitored, b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with monitored_server() as monitored:
        request = b"POST /varz HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n"
        answer = await raw(monitored, request)
        assert answer.startswith(b"HTTP/1.1 405 ")
        assert b"connection: close" in answer.lower()


async def test_an_unknown_path_is_not_found() -> None:
    async with monitored_server() as monitored:
        for path in ("/nothing", "/varz/", "//varz", "/VARZ", "/../varz", "/varz%00"):
            page = await monitored.get(path)
            assert (page.status, page.text) == (404, "404 page not found\n"), path


async def test_a_base_path_moves_everything() -> None:
    async with monitored_server(http_base_path="/edge/one") as monitored:
        assert (await monitored.get("/edge/one/varz")).json["http_base_path"] == "/edge/one"
        index = await monitored.get("/edge/one")
        assert 'href="/edge/one/connz"' in index.text
        for path in ("/varz", "/edge/one/", "/edge/onevarz", "/edge", "/"):
            assert (await monitored.get(path)).status == 404, path


async def test_the_index_links_to_every_page_it_names_and_escapes_the_server_name() -> None:
    async with monitored_server(server_name="<b>&'name'") as monitored:
        page = await monitored.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "<b>&'" not in page.text
        assert "&lt;b&gt;&amp;" in page.text
        links = [part.split('"')[0] for part in page.text.split('href="')[1:]]
        assert len(links) > 10
        for link in links:
            assert (await monitored.get(link)).status == (404 if link == "/raftz" else 200), link


async def test_a_whole_url_as_target_is_understood() -> None:
    async with monitored_server() as monitored:
        answer = await raw(monitored, b"GET http://a:1/healthz?x=1 HTTP/1.0\r\n\r\n")
        assert b" 200 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "garbage", [b"garbage\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET /varz HTTP/1.1\r\nHost : a\r\n\r\n"]
)
async def test_what_is_not_http_is_refused(garbage: bytes) -> None:
    async with monitored_server() as monitored:
        browser = await monitored.connect()
        async with browser.stream:
            await browser.stream.send_all(garbage + b"\r\n" * 2)
            with trio.fail_after(5):
                assert (await read_to_end(browser.stream)).startswith(b"HTTP/1.1 400 ")
        assert (await monitored.get("/healthz")).status == 200


async def test_headers_without_end_are_refused_at_their_limit() -> None:
    async with monitored_server() as monitored:
        request = b"GET /varz HTTP/1.1\r\n" + b"X-Filler: y\r\n" * (2 * HEADER_BYTES_MAX // 13)
        assert (await raw(monitored, request)).startswith(b"HTTP/1.1 431 ")


async def test_a_peer_that_dribbles_its_request_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    async with monitored_server() as monitored:
        browser = await monitored.connect()
        async with browser.stream, trio.open_nursery() as nursery:
            began = trio.current_time()

            async def dribble() -> None:
                for byte in b"GET /varz HTTP/1.1\r\nHost: a\r\nX-Slow: " + b"z" * 1000:
                    await browser.stream.send_all(bytes([byte]))
                    await trio.sleep(1)

            nursery.start_soon(dribble)
            assert await read_to_end(browser.stream) == b""
            assert trio.current_time() - began < REQUEST_TIMEOUT_S + 3
            nursery.cancel_scope.cancel()


async def test_an_idle_connection_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with monitored_server() as monitored:
        browser = await monitored.connect()
        async with browser.stream:
            assert (await browser.request("/healthz")).status == 200
            assert await browser.stream.receive_some() == b""


async def test_a_health_check_gets_in_when_idle_peers_hold_all_connections() -> None:
    async with monitored_server() as monitored:
        idle = [await monitored.connect() for _ in range(CONNECTIONS_MAX)]
        assert (await idle[-1].request("/healthz")).status == 200
        assert (await monitored.get("/healthz")).status == 200
        with trio.fail_after(5):
            assert await idle[0].stream.receive_some() == b""
        assert (await idle[-1].request("/healthz")).status == 200
        for browser in idle:
            await browser.stream.aclose()


async def test_a_fault_in_a_document_is_answered_and_logged_and_the_port_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(document: object) -> str:
        raise ZeroDivisionError("a fault of ours")

    async with monitored_server() as monitored:
        monkeypatch.setattr(site.gojson, "compact", fail)
        page = await monitored.get("/healthz")
        assert (page.status, page.text) == (500, "Internal Server Error\n")
        assert "a fault of ours" in monitored.live.lines.text
        assert (await monitored.get("/varz")).status == 200


class NowhereTransport:
    """A peer that is never heard of: enough for a connection that is only to be described."""

    kind = "STANDARD"
    remote_ip = "192.0.2.1"
    remote_port = 4000
    tls_version = tls_cipher = peer_certificate_der = None

    def send_nowait(self, data: bytes) -> int:
        return len(data)


async def test_a_page_of_thousands_comes_in_chunks_and_other_tasks_have_turns_meanwhile() -> None:
    async with monitored_server() as monitored, trio.open_nursery() as nursery:
        server = monitored.server
        for _ in range(3000):
            server.remember(ClientConnection(server, NowhereTransport(), server.next_cid()))  # type: ignore[arg-type]
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        browser = await monitored.connect()
        nursery.start_soon(count_turns)
        async with browser.stream:
            page = await browser.request("/connz?limit=100000")
        nursery.cancel_scope.cancel()
        assert page.headers["transfer-encoding"] == "chunked"
        assert [row["cid"] for row in page.json["connections"]] == list(range(1, 3001))
        assert turns > 50
        server.connections.clear()


async def test_a_peer_that_does_not_read_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    async with monitored_server() as monitored:
        server = monitored.server
        for _ in range(20_000):
            server.remember(ClientConnection(server, NowhereTransport(), server.next_cid()))  # type: ignore[arg-type]
        browser = await monitored.connect()
        async with browser.stream:
            await browser.stream.send_all(b"GET /connz?limit=20000 HTTP/1.1\r\nHost: a\r\n\r\n")
            await trio.sleep(2 * WRITE_TIMEOUT_S)  # on the clock of the test, which jumps
            assert "does not read" in monitored.live.lines.text
        server.connections.clear()


async def test_both_ports_serve_and_https_asks_for_no_client_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    for name, blob in (("cert", certificate.cert_chain_pems[0]), ("key", certificate.private_key_pem)):
        blob.write_to_path(str(tmp_path / f"{name}.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = TlsOptions(
        cert_file=str(tmp_path / "cert.pem"),
        key_file=str(tmp_path / "key.pem"),
        ca_file=str(tmp_path / "ca.pem"),
        verify=True,
    )
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with monitored_server(tls=tls, https_port=-1) as monitored:
        assert [url.split(":")[0] for url in monitored.monitor.addresses] == ["http", "https"]
        browser = await monitored.connect(trusting, place=1)
        async with browser.stream:
            document = (await browser.request("/varz")).json
        assert document["tls_required"] and document["tls_verify"]
        assert document["tls_cert_not_after"].endswith("Z")
        before = monitored.monitor._ports[1].tls_context
        monitored.monitor.configure(monitored.server.options)
        assert monitored.monitor._ports[1].tls_context is not before
        plain = await monitored.connect(place=1)
        async with plain.stream:
            await plain.stream.send_all(b"GET /varz HTTP/1.1\r\nHost: a\r\n\r\n")
            with pytest.raises((trio.BrokenResourceError, h11.RemoteProtocolError, AssertionError)):
                await plain.answer()
        assert (await monitored.get("/healthz")).status == 200


async def test_without_a_port_nothing_listens_and_documents_are_there_all_the_same() -> None:
    async with live_server() as live:
        await trio.testing.wait_all_tasks_blocked()
        monitor = Monitor(live.server)
        await monitor.start(live.server.nursery)
        assert monitor.addresses == []
        answer = monitor.document("healthz", {})
        assert (answer.status, answer.body) == (200, {"status": "ok"})


async def test_a_port_that_is_taken_is_reported() -> None:
    async with monitored_server() as monitored:
        taken = int(monitored.monitor.addresses[0].rpartition(":")[2])
        async with live_server(Options(), http_port=taken) as live:
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(ListenError, match=str(taken)):
                await Monitor(live.server).start(live.server.nursery)


async def test_a_closed_port_accepts_nobody_and_says_where_it_was() -> None:
    async with monitored_server() as monitored:
        assert "Starting http monitor on 127.0.0.1:" in monitored.live.lines.text
        monitored.monitor.close()
        with pytest.raises(OSError, match=r"127\.0\.0\.1"):
            await monitored.get("/healthz")


async def test_stacks_name_places_in_the_code_and_no_values() -> None:
    secret = "a value that must not show"
    async with monitored_server() as monitored:
        page = await monitored.get("/stacksz")
        assert page.status == 200
        assert "thread " in page.text and "listener.py:" in page.text and "conversation.py:" in page.text
        assert secret not in page.text


async def test_process_variables_show_no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["edged", "--pass", "hunter2"])
    async with monitored_server() as monitored:
        page = await monitored.get("/debug/vars")
        assert page.json["cmdline"] == ["edged"]
        assert page.json["memstats"]["Sys"] > 0
        assert "hunter2" not in page.text
