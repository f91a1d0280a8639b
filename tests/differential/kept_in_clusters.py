"""Which cases are played against clusters, and which of them a hub answers otherwise on purpose.

`KEPT` names cases that edged-hub answers otherwise than nats-server does, in a cluster and alone; its reasons
are those of docs/compatibility.md. `LEFT_OUT` names cases that prove nothing there, whoever answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from tests.differential.allowed import KeptDifference, kept_reason
from tests.differential.library import CONFIGS, cases
from tests.differential.steps import Case

CONFIGURATIONS = tuple((CONFIGS / f"{name}.conf").read_text() for name in ("jetstream", "jetstream_accounts"))
# Of cases that differ in one value only (`each`) so many are played, by the number of copies of a stream: how
# a request is read does not depend on it. EDGED_EVERY_CASE=1 plays all of them.
ROWS = {1: 6, 3: 1}

_IN_MEMORY = "a stream in memory is in the journal, too, and its bytes are counted as those of a file"

KEPT = (
    KeptDifference("jetstream_consumers: What the stream is counts for the consumer (*memory*)", _IN_MEMORY),
    KeptDifference("jetstream_errors: A stream that begins with its first seq (memory)", _IN_MEMORY),
    KeptDifference("jetstream_messages: Messages are removed (memory)", _IN_MEMORY),
    KeptDifference("jetstream_publish: Roll-ups (memory)", _IN_MEMORY),
    KeptDifference("jetstream_streams: * (memory)", _IN_MEMORY),
    KeptDifference("jetstream_streams: What is in a stream in memory", _IN_MEMORY),
)

_ABSENT = "that an origin is not there is shown when it was looked for, sooner or later"

LEFT_OUT = (
    KeptDifference(
        'jetstream_errors: A change of a stream that is refused ("max_msgs":5 "num_replicas":3)',
        "it is refused by a server that stands alone",
    ),
    KeptDifference(
        'jetstream_streams: The options of a stream one by one ("num_replicas":3)',
        "copies that come and go are shown sooner or later",
    ),
    KeptDifference(
        "jetstream_accounts: What only the system account may ask for needs a cluster *",
        "another node leads the catalog afterwards, and it may be the one that is asked",
    ),
    KeptDifference("jetstream_origins: Origins that are not there *", _ABSENT),
    KeptDifference('jetstream_errors: A change of a stream that is * ("mirror":{"name":"Z"} *', _ABSENT),
)
# What is told by several nodes, or gathered from them, comes in no order and a moment later; monitoring shows
# what one node has.
GATHERED = ("$JS.EVENT", "$JS.API.INFO", "Http(")


def played() -> list[tuple[Case, int]]:
    """The cases, each with a number of copies for its streams; those with one configuration together."""
    chosen = [case for case in cases() if _is_played(case)]
    return [
        (case, replicas)
        for config in CONFIGURATIONS
        for replicas, rows in ROWS.items()
        for case in _some([case for case in chosen if case.header.config == config], rows)
    ]


def _is_played(case: Case) -> bool:
    header = case.header
    if not case.file.startswith("jetstream_") or header.config not in CONFIGURATIONS:
        return False
    if header.own_server or header.slow or any(subject in str(case.steps) for subject in GATHERED):
        return False
    return kept_reason(case.id) is None and kept_reason(case.id, LEFT_OUT) is None


def _some(chosen: list[Case], rows: int) -> Iterator[Case]:
    """Of cases with the same title so many, from the first to the last, and all others."""
    by_title: dict[str, list[Case]] = {}
    for case in chosen:
        by_title.setdefault(case.file + case.title.partition(" [")[0], []).append(case)
    for alike in by_title.values():
        count = len(alike) if "EDGED_EVERY_CASE" in os.environ else min(rows, len(alike))
        yield from (alike[place * len(alike) // count] for place in range(count))
