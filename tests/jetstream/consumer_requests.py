"""Consumer configurations as clients may send them: good ones, and ones with a few things changed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

MS = 1_000_000
SECOND = 1000 * MS

# The streams that consumers are made on: every retention, and one with limits for its consumers.
STREAMS: tuple[dict[str, Any], ...] = (
    {"name": "L", "subjects": ["a.>", "b"]},
    {"name": "I", "subjects": ["i.>"], "retention": "interest"},
    {"name": "W", "subjects": ["w.>"], "retention": "workqueue"},
    {
        "name": "C",
        "subjects": ["c.>"],
        "storage": "memory",
        "consumer_limits": {"inactive_threshold": 60 * SECOND, "max_ack_pending": 100},
    },
    {"name": "M", "subjects": ["m.>"], "storage": "memory", "max_consumers": 2},
)
STREAM_NAMES = tuple(stream["name"] for stream in STREAMS)

SUBJECTS = (
    *("a.b", "a.*", "a.>", "*.b", "b", "w.a", "w.*", "w.>", "w.*.a", ">", "none.of.it", "a..b", "a b"),
    *("", "*", "a.>.b", "é", ".a", "foo*"),
)
DELIVER_SUBJECTS = ("to", "to.it", "to.*", ">", "to..it", "to it", "a.b", "b", "w.x", "*", "to.")
TIMES = (
    "2024-02-29T12:00:00Z",
    "2020-01-01T00:00:00.500+02:00",
    "0001-01-01T00:00:00Z",
    "2099-12-31T23:59:59.123456789-01:30",
    None,
)

flags = st.booleans()
numbers = st.sampled_from([-5, -2, -1, 0, 1, 2, 5, 99, 100, 101, 1000, 2**40])
# Nothing is so short that the server removes the consumer before the test is done with it.
thresholds = st.sampled_from([-1, 0, 59 * SECOND, 60 * SECOND, 61 * SECOND, 2**60])
durations = st.sampled_from(
    [-1, 0, 1, MS - 1, MS, 100 * MS - 1, 100 * MS, SECOND, 30 * SECOND, 120 * SECOND, 86400 * SECOND]
)
metadata = st.dictionaries(
    st.sampled_from(["a", "b", "_nats.ver", "_nats.level", "_nats.req.level", "_nats.x", ""]),
    st.sampled_from(["", "1", "é<>&"]),
    max_size=4,
)

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["", "x", "y", "a.b", "a/b", "a b"]),
    "durable_name": st.sampled_from(["", "x", "y", "a.b"]),
    "description": st.sampled_from(["", "x", "none", "d" * 4096, "d" * 4097, "é" * 2049]),
    "deliver_policy": st.sampled_from(
        ["all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject", "undefined", "x", ""]
    ),
    "opt_start_seq": st.sampled_from([0, 1, 5, 2**64 - 1]),
    "opt_start_time": st.sampled_from(TIMES),
    "ack_policy": st.sampled_from(["none", "all", "explicit", "flow_control", "explicit", "Explicit", None]),
    "ack_wait": durations,
    "max_deliver": numbers,
    "backoff": st.lists(durations, min_size=1, max_size=3),
    "filter_subject": st.sampled_from(SUBJECTS),
    "filter_subjects": st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=3),
    "replay_policy": st.sampled_from(["instant", "original", "instant", "later"]),
    "rate_limit_bps": st.sampled_from([0, 1, 10_000, 2**40]),
    "sample_freq": st.sampled_from(
        ["", "5", "5%", "100%%", "%", "-1", "-0", "+7%", "x", "1_0", "9" * 19, "9" * 20, "9" * 20 + "x", "é"]
    ),
    "max_waiting": numbers,
    "max_ack_pending": numbers,
    "flow_control": flags,
    "headers_only": flags,
    "max_batch": numbers,
    "max_expires": durations,
    "max_bytes": numbers,
    "deliver_subject": st.sampled_from(DELIVER_SUBJECTS),
    "deliver_group": st.sampled_from(["", "g", "g h"]),
    "idle_heartbeat": durations,
    "inactive_threshold": thresholds,
    "num_replicas": st.sampled_from([-1, 0, 0, 1, 1, 2, 3]),
    "mem_storage": flags,
    "direct": flags,
    "sourcing": flags,
    "metadata": metadata,
    "pause_until": st.sampled_from(TIMES),
    "priority_groups": st.lists(
        st.sampled_from(["g", "A/b_=-9", "", "n" * 16, "n" * 17, "g\n", "a.b"]), min_size=1, max_size=2
    ),
    "priority_policy": st.sampled_from(["none", "overflow", "pinned_client", "prioritized", "first", ""]),
    "priority_timeout": durations,
}
# What leads elsewhere when it is there is drawn less often, so that the rest is seen.
_RARE = ("direct", "sourcing", "num_replicas", "name", "durable_name", "description")
_ORDER = [name for name in FIELDS if name not in _RARE] * 3 + list(_RARE)

# What goes together, so that what is behind the first checks is seen, too.
_BASES: tuple[dict[str, Any], ...] = (
    {},
    {"ack_policy": "explicit"},
    {"deliver_subject": "to"},
    {"deliver_subject": "to", "ack_policy": "explicit"},
    {"deliver_subject": "to", "flow_control": True, "idle_heartbeat": SECOND},
    {"deliver_subject": "to", "ack_policy": "flow_control"},
    {"ack_policy": "explicit", "priority_policy": "pinned_client", "priority_groups": ["g"]},
    {"deliver_policy": "by_start_time", "opt_start_time": TIMES[1]},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 5, "ack_policy": "all"},
)


@st.composite
def configurations(draw: st.DrawFn, changes_max: int = 5) -> dict[str, Any]:
    """Some fields of a configuration."""
    chosen = draw(st.lists(st.sampled_from(_ORDER), max_size=changes_max, unique=True))
    config = {**draw(st.sampled_from(_BASES)), **{name: draw(FIELDS[name]) for name in chosen}}
    if config.get("direct") and config.get("sourcing"):
        # Its name would get an ending by chance.
        config.pop("name", None)
        config.pop("durable_name", None)
    return config


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    """A few fields, each with a value that it can have."""
    chosen = draw(st.lists(st.sampled_from([*_CHANGES]), max_size=2, unique=True))
    return {name: draw(st.sampled_from(_CHANGES[name])) for name in chosen}


_CHANGES: dict[str, list[Any]] = {
    "durable_name": ["x", ""],
    "description": ["new"],
    "deliver_policy": ["last", "all"],
    "opt_start_seq": [6, 5],
    "opt_start_time": ["2020-01-01T00:00:00.5+02:00", "2019-12-31T22:00:00.5Z", TIMES[0]],
    "ack_policy": ["explicit", "none", "all"],
    "ack_wait": [SECOND],
    "max_deliver": [3, 1],
    "backoff": [[SECOND, 2 * SECOND]],
    "filter_subject": ["w.a", "a.b", ""],
    "filter_subjects": [["w.b", "w.c"], ["w.a", "w.b"], ["*.b", "a.*"]],
    "replay_policy": ["original"],
    "rate_limit_bps": [1000, 0],
    "sample_freq": ["10%"],
    "max_waiting": [511],
    "max_ack_pending": [50, -1],
    "flow_control": [True, False],
    "headers_only": [True],
    "max_batch": [10],
    "max_expires": [SECOND],
    "max_bytes": [1024],
    "deliver_subject": ["to", "to.it", ""],
    "deliver_group": ["g"],
    "idle_heartbeat": [SECOND, 2 * SECOND],
    "inactive_threshold": [0, 60 * SECOND],
    "num_replicas": [0, 1],
    "mem_storage": [True],
    "direct": [True],
    "sourcing": [True],
    "metadata": [{"a": "1"}, {}],
    "pause_until": [TIMES[0], TIMES[3]],
    "priority_groups": [["g"], ["h"]],
    "priority_policy": ["overflow", "pinned_client", "none"],
    "priority_timeout": [SECOND, 0],
}

# Values of every kind that JSON has, for fields of every kind that a configuration has.
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([0, -1, 1.5, 1e100, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30]),
        st.sampled_from(["", "x", "all", "create", "2020-01-01T00:00:00Z", "2020-1-01", "é\u2028"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["name", "NAME", "opt_start_time", "0", "x"]), inner, max_size=2),
    ),
    max_leaves=4,
)
misfits = st.dictionaries(
    st.sampled_from([*FIELDS, "Max_Deliver", "unknown", "maxDeliver"]), values, max_size=3
)
misfit_requests = st.fixed_dictionaries(
    {"stream_name": st.just("L"), "config": misfits},
    optional={"action": values, "pedantic": values, "Pedantic": values, "unknown": values},
)


@st.composite
def damaged_texts(draw: st.DrawFn) -> bytes:
    """The JSON of a request with a few bytes replaced, put in or taken out."""
    request = {"stream_name": "L", "config": draw(configurations()), "action": "create"}
    text = bytearray(json.dumps(request, indent=draw(st.booleans()) or None).encode())
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(text) - 1))
        text[place : place + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b'"', b"\\", b"{", b"}", b"]", b",", b":", b"1", b"-", b"e", b"\xff", b"t"])
        )
    return bytes(text)
