"""The harness against itself: nats-server with another option than nats-server must be told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential import script
from tests.differential.compare import difference
from tests.differential.library import CONFIGS
from tests.differential.pairs import REFERENCE, play, start_pair

pytestmark = pytest.mark.real


def compare(text: str, config: str, other_config: str, directory: Path) -> str | None:
    (case,) = script.parse(f"== Example\n{text}", "example", CONFIGS)
    pair = start_pair(config, other_config, directory, subject_binary=REFERENCE)
    try:
        return difference(*play(case, pair))
    finally:
        pair.stop()


@pytest.mark.parametrize(
    ("text", "other_config"),
    [
        ("open A\n", "max_payload: 1000"),
        ("A> connect\n", "authorization { token: x }"),
        ("A> connect\nA> SUB > 1\nA> PUB foo 1\\r\\nx\nsync A\n", "mappings: { foo: bar }"),
        ("A> connect\nA> PUB foo 9\\r\\n123456789\nsync A\n", "max_payload: 8"),
        ("A> connect\nA> SUB a.b.c 1\nsync A\n", "max_subscription_tokens: 2"),
        ("http GET /varz\n", "max_connections: 77"),
        ("http GET /varz\n", 'server_tags: ["x"]'),
        ("http GET /healthz\n", 'http_base_path: "/x"'),
        (
            "A> connect\nA> SUB i 1\nA> publish $SYS.REQ.USER.INFO i =\nA< 1 json=USER.INFO\n",
            "no_system_account: true",
        ),
    ],
)
def test_a_server_with_another_option_is_told_apart(text: str, other_config: str, tmp_path: Path) -> None:
    found = compare(text, "", other_config, tmp_path)
    assert found is not None
    assert "!" in found


def test_two_servers_with_the_same_options_are_alike(tmp_path: Path) -> None:
    text = "open A\nA> connect\nA> SUB foo 1\nA> PUB foo 1\\r\\nx\nsync A\nhttp GET /varz\nhttp GET /connz\n"
    assert compare(text, "", "", tmp_path) is None


@pytest.mark.slow
def test_a_case_that_waits_in_vain_fails(tmp_path: Path) -> None:
    found = compare("A> connect\nA< 1\n", "", "", tmp_path)
    assert found is not None
    assert "cannot be finished" in found
