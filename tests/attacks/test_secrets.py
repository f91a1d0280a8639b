"""Nothing that lets anybody log in is shown: not in the log at any level, not by monitoring, not in errors.

Every secret of the configuration and of the clients holds the canary; then everything that can be read is
read, and searched for it.
"""

from __future__ import annotations

import base64

import pytest

from edged.config.document import ConfigError
from edged.config.load import load_text
from tests.attacks.victims import monitored_victim
from tests.server.live import LiveServer
from tests.server.system_client import system_server

CANARY = "CANARY7c2f"
CONFIG = f"""
accounts {{
  A {{ users [{{user: alice, password: "{CANARY}alice"}}] }}
  SYS {{ users [{{user: sys, password: "{CANARY}sys"}}] }}
}}
system_account: SYS
"""
PAGES = (
    *("/", "/varz", "/connz?auth=1", "/connz?auth=1&subs=detail&state=all", "/connz?auth=1&state=closed"),
    *(
        "/subsz?subs=1",
        "/accountz",
        "/accountz?acc=A",
        "/accstatz?unused=1",
        "/healthz",
        "/jsz?accounts=1&config=1",
    ),
    *("/debug/vars", "/stacksz", "/metrics", "/leafz", "/routez", "/gatewayz", "/ipqueuesz", "/raftz"),
)


def shows_canary(text: str) -> bool:
    """In clear, or in an encoding that anybody can undo."""
    forms = [CANARY, base64.b64encode(CANARY.encode()).decode()[:12], CANARY.encode().hex()]
    return any(form in text for form in forms)


async def logins(live: LiveServer) -> list[bytes]:
    """Logins that fail in all ways, with what each of them heard; and one that does not."""
    heard: list[bytes] = []
    attempts = (
        f'{{"user":"alice","pass":"{CANARY}wrong"}}',
        f'{{"user":"nobody","pass":"{CANARY}wrong"}}',
        f'{{"auth_token":"{CANARY}token"}}',
        f'{{"jwt":"{CANARY}.{CANARY}.{CANARY}","sig":"{CANARY}"}}',
        f'{{"nkey":"UAAA","sig":"{CANARY}"}}',
        f'{{"user":"alice","pass":"{CANARY}alice","account":"SYS"}}',
        f'{{"user":"alice","pass":"{CANARY}alice","protocol":7}}',
        f'{{"p\\u0061ss":"{CANARY}"}}',
        f'{{"PASS":"{CANARY}"}}',
        f'{{"pass":"{CANARY}',
        f'{{"pass":["{CANARY}"]}}',
        f'{{"user":"alice","pass":"{CANARY}alice","pass":5}}',
    )
    for document in attempts:
        client = await live.client(connect=False)
        await client.send(b"CONNECT " + document.encode() + b"\r\nPING\r\n")
        heard += await client.closed()
    client = await live.client(f',"user":"alice","pass":"{CANARY}alice"'.encode())
    await client.send(b"SUB a 1\r\nPUB a 1\r\nx\r\n")
    heard += await client.barrier()
    return heard


@pytest.mark.parametrize("is_trace", [False, True])
async def test_no_secret_is_in_the_log_in_errors_or_in_monitoring(is_trace: bool) -> None:
    async with monitored_victim(CONFIG) as server:
        log = server.server.log
        log.is_debug, log.is_trace = True, is_trace
        for line in await logins(server.live):
            assert not shows_canary(line.decode("utf-8", "replace")), line
        for page in PAGES:
            text = (await server.get(page)).text
            assert not shows_canary(text), (page, text)
        lines = server.live.lines.text
        assert not is_trace or "CONNECT" in lines
        shown = [line for line in lines.splitlines() if shows_canary(line)]
        assert not shown, shown


async def test_no_secret_is_in_what_the_system_account_hears() -> None:
    async with system_server(load_text(CONFIG, {}).options) as server:
        operator = await server.live.client(f',"user":"sys","pass":"{CANARY}sys"'.encode())
        await operator.send(b"SUB > 1\r\n")
        assert await operator.barrier() == []
        await logins(server.live)
        for name in (
            "SERVER.PING.CONNZ",
            "SERVER.PING.VARZ",
            "SERVER.PING.SUBSZ",
            "ACCOUNT.A.CONNZ",
            "USER.INFO",
        ):
            await operator.send(b'PUB $SYS.REQ.%s reply 14\r\n{"auth": true}\r\n' % name.encode())
        heard = b"\n".join(await operator.barrier()).decode("utf-8", "replace")
        assert "alice" in heard and '"connections"' in heard
        assert not shows_canary(heard), heard


@pytest.mark.parametrize(
    "config",
    [
        "authorization { password: %s, user: [1] }",
        "authorization { user: a, password: %s, token: b }",
        "authorization { users [ {user: a, password: '%s'}, {user: a, password: '%s'} ] }",
        "authorization { users [ {user: a, password: '%s', permissions: 5} ] }",
        "authorization { token: %s ",
        "authorization { user: a, password: $%s }",
        "authorization { user: a password: %s }",
        "accounts { A { users [ {nkey: %s} ] } }",
        "operator: eyJ%s",
        "resolver_preload { A: '%s' }",
        "leafnodes { remotes [ {url: 'nats://user:%s@host:bad'} ] }",
    ],
)
def test_no_secret_is_in_the_error_about_a_configuration(config: str) -> None:
    text = config.replace("%s", CANARY)
    try:
        loaded = load_text(text, {})
    except ConfigError as error:
        assert not shows_canary(str(error)), error
    else:
        assert not any(shows_canary(warning) for warning in loaded.warnings)
