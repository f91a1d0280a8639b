"""The page that Prometheus scrapes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from edged.config.options import AccountOptions, UserOptions
from edged.server import reasons
from tests.server.monitored import MonitoredServer, Page, monitored_server

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "metrics.md"


def samples_of(page: Page) -> dict[tuple[str, ...], float]:
    """Values by name and label values."""
    assert page.status == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }


async def samples(monitored: MonitoredServer) -> dict[tuple[str, ...], float]:
    return samples_of(await monitored.get("/metrics"))


async def test_the_scrape_shows_what_clients_did() -> None:
    async with monitored_server() as monitored:
        client = await monitored.live.client()
        await client.send(b"SUB a 1\r\nPUB a 5\r\nhello\r\nPUB b 1\r\nx\r\n")
        await client.barrier()
        found = await samples(monitored)
        assert found["edged_connections",] == 1
        assert found["edged_connections_accepted_total",] == 1
        assert found["edged_received_messages_total",] == 2
        assert found["edged_received_bytes_total",] == 6
        assert found["edged_sent_messages_total",] == 1
        assert found["edged_sent_bytes_total",] == 5
        assert found["edged_subscriptions",] == 1
        assert found["edged_routes_cached",] == 2
        assert found["edged_healthy",] == 1
        assert found["edged_process_resident_memory_bytes",] > 1_000_000
        assert 0 < found["edged_process_open_fds",] < found["edged_process_max_fds",]
        assert found["edged_http_requests_total", "/metrics"] == 1


async def test_accounts_have_their_own_counters_and_odd_names_do_no_harm() -> None:
    name = 'odd "name"\\with\nlines é'
    account = AccountOptions(name, users=(UserOptions(user="u", password="p", account=name),))
    async with monitored_server(accounts=(account,)) as monitored:
        client = await monitored.live.client(b',"user":"u","pass":"p"')
        await client.send(b"PUB a 5\r\nhello\r\n")
        await client.barrier()
        found = await samples(monitored)
        assert found["edged_account_connections", name] == 1
        assert found["edged_account_received_bytes_total", name] == 5
        assert found["edged_account_received_bytes_total", "$G"] == 0


async def test_slow_consumers_are_counted_by_reason() -> None:
    async with monitored_server() as monitored:
        await monitored.live.client()
        (connection,) = monitored.server.connections.values()
        monitored.server.slow_consumer(connection, reasons.SLOW_CONSUMER_DEADLINE)
        found = await samples(monitored)
        assert found["edged_slow_consumers_total", "write_deadline"] == 1
        assert found["edged_slow_consumers_total", "pending_bytes"] == 0
        assert found["edged_account_slow_consumers_total", "$G"] == 1


async def test_health_and_lame_duck_are_visible() -> None:
    async with monitored_server() as monitored:
        monitored.server.is_lame_duck = True
        found = await samples(monitored)
        assert (found["edged_healthy",], found["edged_lame_duck",]) == (0, 1)


async def test_a_scraper_that_prefers_openmetrics_gets_it() -> None:
    async with monitored_server() as monitored:
        browser = await monitored.connect()
        async with browser.stream:
            page = await browser.request("/metrics", headers=[("Accept", "application/openmetrics-text")])
        assert page.headers["content-type"].startswith("application/openmetrics-text")
        assert page.text.endswith("# EOF\n")
        assert any(family.name == "edged_connections" for family in parse_openmetrics(page.text))
        plain = await monitored.get("/metrics")
        assert plain.headers["content-type"].startswith("text/plain; version=")


async def test_every_metric_is_documented_and_every_documented_metric_is_there() -> None:
    documented = set(re.findall(r"^\| `(edged_\w+)`", DOCUMENTATION.read_text(), re.MULTILINE))
    async with monitored_server() as monitored:
        await monitored.get("/healthz")
        names = {name for name, *_ in await samples(monitored)}
    assert names == documented
    assert all(name.startswith("edged_") for name in names)


@pytest.mark.slow
def test_prometheus_client_is_not_loaded_where_nothing_can_be_scraped() -> None:
    program = "import sys, edged.server.monitoring; sys.exit('prometheus_client' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
