"""How configurations of a nats-server are compared with what our rules make of the same requests.

Rules: the server is asked first and its answer kept, whatever we say, because later requests are decided by
what the server has. Answers are compared as text: the order of the fields is part of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings

from edged.core.api_errors import ApiFailure
from edged.core.consumer_config import ConsumerConfig
from edged.core.stream_config import StreamConfig
from edged.core.stream_rules import LEVEL_KEY, VERSION_KEY
from tests.jetstream.jetstream_servers import running
from tests.jetstream.raw_client import RawClient

ASK_TIMES_MAX = 50
NAME_CHARACTERS_MAX = 255
NO_STORE = "error creating store for "

Document = dict[str, Any]
Config = TypeVar("Config", StreamConfig, ConsumerConfig)


def generated(examples: int) -> settings:
    """One server answers all examples, so that they are few and the same in every run."""
    return settings(max_examples=examples, derandomize=True, database=None)


@contextmanager
def asked_server(config: str, directory: Path) -> Iterator[tuple[RawClient, str]]:
    """A client of a nats-server, and its version, until the end of the block."""
    with running("nats-server", directory, config) as server:
        client = RawClient(server.host, server.port)
        yield client, server.info["version"]
        client.close()


def payload_of(request: Any) -> bytes:
    """Without blanks and escapes: an error may repeat a value, and how it was written we do not keep."""
    if isinstance(request, bytes):
        return request
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode()


def ask(client: RawClient, subject: str, payload: bytes) -> Document:
    """What the server answers. It removes the files of what is deleted after it has said that it is gone, and
    a new stream or consumer of the same name may come too early. For a long name there is never a store.
    """
    for _ in range(ASK_TIMES_MAX):
        answer: Document = client.ask(f"$JS.API.{subject}", b"", payload).document
        words = answer.get("error", {}).get("description", "")
        if not words.startswith(NO_STORE) or len(max(subject.split("."), key=len)) > NAME_CHARACTERS_MAX:
            break
    return answer


def said(decide: Callable[[], Config]) -> Document:
    """What we say: the configuration that the rules decide on, or their error."""
    try:
        config = decide()
    except ApiFailure as failure:
        return failure.error.document()
    document = config.document()
    assert type(config).stored(json.loads(json.dumps(document))) == config
    return document


def assert_same(ours: Document, answer: Document, subject: str, payload: bytes) -> None:
    """That we say what the server has answered."""
    theirs = answer["error"] if "error" in answer else answer["config"]
    assert json.dumps(ours) == json.dumps(theirs), (subject, payload[:2000])


def without_server(config: Config) -> Config:
    """Without what a server adds when it shows a configuration."""
    kept = {key: text for key, text in config.metadata.items() if key not in (VERSION_KEY, LEVEL_KEY)}
    return replace(config, metadata=kept)
