"""Stream configurations as clients may send them: good ones, and ones with a few things changed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

SECOND = 1_000_000_000
NAMES = ("A", "B", "C")

SUBJECTS = (
    *(
        "a",
        "a.b",
        "a.*",
        "a.>",
        "*.b",
        "b",
        "b.*",
        "c.>",
        "c.d",
        ">",
        "$JS.x",
        "$JS.EVENT.x",
        "$JSC.>",
        "$SYS.x",
    ),
    *(
        "$SYS.ACCOUNT.x",
        "$NRG.x",
        "",
        "a..b",
        ".a",
        "a.",
        "a.>.b",
        "a b",
        "*",
        "*.*",
        "é.x",
        "foo*",
        ">.x",
        "_INBOX.x",
    ),
)
SOURCES_OF_TRANSFORMS = ("", ">", "a.*", "a.>", "a", "*.*", "a..b", "a b", "b.*", "a.b")
DESTINATIONS = (
    *("", ">", "x", "x.>", "x.$1", "x.{{wildcard(1)}}", "x.{{wildcard(3)}}", "x.{{wildcard()}}", "x.*"),
    *(
        "x.{{wildcard(1,2)}}",
        "x.{{Wildcard(a)}}",
        "x.{{partition(3,1)}}",
        "x.{{partition(3)}}",
        "x.{{nope(1)}}",
    ),
    *("x.{{left(1,2)}}", "x.{{split(1,-)}}", "x.{{split(1)}}", "x.{{SplitFromLeft(1,2)}}", "x..y", "x.>.y"),
    *(
        "x y",
        "x.{{random(5)}}",
        "x.{{slicefromright(1,2,3)}}",
        "x.{{partition(99999999999,1)}}",
        "$2.$1",
        "a.$1",
    ),
    *(
        "x.{{splitfromleft(1,99999999999)}}",
        "x.{{partition(x)}}",
        "x.{{split(1,a b)}}",
        "x.$9",
        "x.$a",
        "a.>",
    ),
)

numbers = st.sampled_from([-5, -1, 0, 1, 2, 5, 1000, 2**31 - 1, 2**40])
durations = st.sampled_from(
    [
        -1,
        0,
        1,
        99_999_999,
        100_000_000,
        999_999_999,
        SECOND,
        60 * SECOND,
        120 * SECOND,
        300 * SECOND,
        86400 * SECOND,
    ]
)
flags = st.booleans()
stream_names = st.sampled_from([*NAMES, "", "A.B", "x/y", "Z"])
transforms = st.fixed_dictionaries(
    {}, optional={"src": st.sampled_from(SOURCES_OF_TRANSFORMS), "dest": st.sampled_from(DESTINATIONS)}
)
prefixes = st.sampled_from(
    ["", "$JS.hub.API", "$JS.API", "x.*", "a", "deliver", "a b", "$JS.API.x", "x..y", ">"]
)
origins = st.fixed_dictionaries(
    {"name": stream_names},
    optional={
        "opt_start_seq": st.sampled_from([0, 1, 5, 2**64 - 1]),
        "opt_start_time": st.sampled_from(
            ["2024-02-29T12:00:00Z", "2020-01-01T00:00:00.500+02:00", "0001-01-01T00:00:00Z", None]
        ),
        "filter_subject": st.sampled_from(["", "a", "a.>", "b", "a..b"]),
        "subject_transforms": st.lists(transforms, max_size=3),
        "external": st.fixed_dictionaries({}, optional={"api": prefixes, "deliver": prefixes}),
        "consumer": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["", "c", "c.d"]),
                "deliver_subject": st.sampled_from(["", "to", "to.*"]),
            },
        ),
    },
)
metadata = st.dictionaries(
    st.sampled_from(["a", "b", "_nats.ver", "_nats.level", "_nats.req.level", "_nats.x", ""]),
    st.sampled_from(["", "1", "é<>&"]),
    max_size=4,
)

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "description": st.sampled_from(["", "x", "default", "d" * 4096, "d" * 4097, "é" * 2049]),
    "subjects": st.lists(st.sampled_from(SUBJECTS), max_size=3),
    "retention": st.sampled_from(["limits", "interest", "workqueue", "Limits", "", None]),
    "max_consumers": numbers,
    "max_msgs": numbers,
    "max_bytes": numbers,
    "max_age": durations,
    "max_msgs_per_subject": numbers,
    "max_msg_size": st.sampled_from([-5, -1, 0, 1, 100, 2**31 - 1, 2**31]),
    "discard": st.sampled_from(["old", "new", "NEW", "newest"]),
    "storage": st.sampled_from(["file", "memory", "disk"]),
    "num_replicas": st.sampled_from([-1, 0, 1, 2, 3, 5, 6]),
    "no_ack": flags,
    "duplicate_window": durations,
    "placement": st.sampled_from([None, {}, {"cluster": "x"}, {"tags": ["a", "b"]}, {"preferred": "x"}]),
    "mirror": st.one_of(st.none(), origins),
    "sources": st.lists(origins, max_size=3),
    "compression": st.sampled_from(["none", "s2", "S2"]),
    "first_seq": st.sampled_from([0, 1, 100, 2**63]),
    "subject_transform": st.one_of(st.none(), transforms),
    "republish": st.one_of(
        st.none(),
        st.fixed_dictionaries(
            {},
            optional={
                "src": st.sampled_from(SOURCES_OF_TRANSFORMS[:6]),
                "dest": st.sampled_from([text for text in DESTINATIONS if " " not in text]),
                "headers_only": flags,
            },
        ),
    ),
    "allow_direct": flags,
    "mirror_direct": flags,
    "discard_new_per_subject": flags,
    "sealed": flags,
    "deny_delete": flags,
    "deny_purge": flags,
    "allow_rollup_hdrs": flags,
    "consumer_limits": st.fixed_dictionaries(
        {}, optional={"inactive_threshold": durations, "max_ack_pending": numbers}
    ),
    "allow_msg_ttl": flags,
    "subject_delete_marker_ttl": durations,
    "allow_msg_counter": flags,
    "allow_atomic": flags,
    "allow_msg_schedules": flags,
    "persist_mode": st.sampled_from(["", "default", "async", "sync"]),
    "allow_batched": flags,
    "metadata": metadata,
    "pedantic": flags,
}
# What leads elsewhere when it is there is drawn less often, so that the rest is seen.
_RARE = ("mirror", "sources", "sealed", "num_replicas", "retention", "storage")
_ORDER = [name for name in FIELDS if name not in _RARE] * 2 + list(_RARE)


@st.composite
def configurations(draw: st.DrawFn, changes_max: int = 6) -> dict[str, Any]:
    """Some fields of a configuration."""
    chosen = draw(st.lists(st.sampled_from(_ORDER), max_size=changes_max, unique=True))
    return {name: draw(FIELDS[name]) for name in chosen}


# Streams that take from each other, and little else that could be wrong.
related = st.fixed_dictionaries(
    {},
    optional={
        "mirror": origins,
        "sources": st.lists(origins, min_size=1, max_size=3),
        "subjects": st.lists(st.sampled_from(["a", "b", "c.>"]), max_size=1),
        "max_msg_size": st.sampled_from([10, 20]),
        "allow_direct": flags,
        "mirror_direct": flags,
        "pedantic": flags,
    },
)

# Values of every kind that JSON has, for fields of every kind that a configuration has.
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([0, -1, 1.5, 1e100, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30]),
        st.sampled_from(["", "x", "limits", "new", "2020-01-01T00:00:00Z", "2020-1-01", "é\u2028"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(
                ["name", "src", "NAME", "opt_start_time", "external", "api", "cluster", "0", "x"]
            ),
            inner,
            max_size=2,
        ),
    ),
    max_leaves=4,
)
misfits = st.dictionaries(st.sampled_from([*FIELDS, "Max_Msgs", "unknown", "maxMsgs"]), values, max_size=3)


@st.composite
def damaged_texts(draw: st.DrawFn) -> bytes:
    """The JSON of a configuration with a few bytes replaced, put in or taken out."""
    text = bytearray(
        json.dumps({"name": "A", **draw(configurations())}, indent=draw(st.booleans()) or None).encode()
    )
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(text) - 1))
        text[place : place + draw(st.integers(0, 2))] = draw(
            st.sampled_from(
                [
                    b"",
                    b'"',
                    b"\\",
                    b"{",
                    b"}",
                    b"]",
                    b",",
                    b":",
                    b"1",
                    b"-",
                    b"e",
                    b".",
                    b"\x01",
                    b"\xff",
                    b"t",
                ]
            )
        )
    return bytes(text)
