"""The configuration of a stream: read from a request, shown in answers, kept in the store.

Fields are named as in JSON. What a request leaves out is zero here; `stream_rules` puts in the defaults.
Durations are nanoseconds, enumerations the words that JSON has for them.

Rules: reading refuses what nats-server refuses to read, in its words; whether the values go together is not
asked here. `document` has nats-server's order and leaves out what it leaves out. Invariant:
StreamConfig.stored(config.document()) == config for every configuration that `stream_rules` let pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from edged.core.gojson_shapes import (
    DURATION,
    FLAG,
    INT,
    INT32,
    INT64,
    TEXT,
    UINT64,
    Compression,
    Enumeration,
    ListOf,
    Shape,
    Structure,
    TextMap,
    read_request,
)
from edged.core.source_config import (
    REPUBLISH,
    SOURCE,
    SUBJECT_TRANSFORM,
    Republish,
    StreamSource,
    SubjectTransformConfig,
)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a cluster shall put the stream."""

    cluster: str = ""
    tags: tuple[str, ...] = ()
    preferred: str = ""

    def document(self) -> dict[str, Any]:
        shown = {"cluster": self.cluster, "tags": list(self.tags), "preferred": self.preferred}
        return {name: value for name, value in shown.items() if value}


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """What consumers of the stream get when they say nothing, and may not exceed."""

    inactive_threshold: int = 0
    max_ack_pending: int = 0

    def document(self) -> dict[str, Any]:
        shown = {"inactive_threshold": self.inactive_threshold, "max_ack_pending": self.max_ack_pending}
        return {name: value for name, value in shown.items() if value}


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """Every field, in the order in which it is shown."""

    name: str = ""
    description: str = ""
    subjects: tuple[str, ...] = ()
    retention: str = "limits"
    max_consumers: int = 0
    max_msgs: int = 0
    max_bytes: int = 0
    max_age: int = 0
    max_msgs_per_subject: int = 0
    max_msg_size: int = 0
    discard: str = "old"
    storage: str = "file"
    num_replicas: int = 0
    no_ack: bool = False
    duplicate_window: int = 0
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: tuple[StreamSource, ...] = ()
    compression: str = "none"
    first_seq: int = 0
    subject_transform: SubjectTransformConfig | None = None
    republish: Republish | None = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: ConsumerLimits = ConsumerLimits()
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: int = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: str = "default"
    allow_batched: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def stored(cls, document: Mapping[str, Any]) -> StreamConfig:
        """From what `document` gave; fields of a later version are passed over."""
        return cls.of(STREAM.read(dict(document), "StreamConfig", strict=False))

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> StreamConfig:
        """From fields as STREAM or STREAM_REQUEST reads them."""
        values = {name: value for name, value in found.items() if name in STREAM.fields}
        for name, make in _NESTED.items():
            if name in values:
                values[name] = make(values[name])
        return cls(**values)

    def document(self) -> dict[str, Any]:
        """What answers show and the store keeps."""
        document: dict[str, Any] = {}
        for name in _NAMES:
            value = getattr(self, name)
            if name in _OPTIONAL and value == getattr(_NOTHING, name):
                continue
            if name in _NESTED and name != "sources":
                value = None if value is None else value.document()
            elif name == "sources":
                value = [source.document() for source in value]
            elif name == "subjects":
                value = list(value)
            elif name == "metadata":
                value = dict(sorted(value.items()))
            document[name] = value
        return document


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A request to create or update a stream; a pedantic one wants errors in place of adjusted values."""

    config: StreamConfig
    pedantic: bool = False

    @classmethod
    def parse(cls, payload: bytes, strict: bool) -> StreamRequest:
        """From the bytes of the request; ApiFailure when they cannot be read."""
        found = read_request(payload, STREAM_REQUEST, strict)
        return cls(StreamConfig.of(found), found.get("pedantic", False))


_NAMES = tuple(each.name for each in fields(StreamConfig))
_NOTHING = StreamConfig()

# These are left out of a document while they are empty, zero or the default.
_OPTIONAL = frozenset(
    {
        "description",
        "subjects",
        "max_msg_size",
        "no_ack",
        "duplicate_window",
        "placement",
        "mirror",
        "sources",
        "first_seq",
        "subject_transform",
        "republish",
        "discard_new_per_subject",
        "subject_delete_marker_ttl",
        "allow_msg_counter",
        "allow_atomic",
        "allow_msg_schedules",
        "persist_mode",
        "allow_batched",
        "metadata",
    }
)

_NESTED: dict[str, Any] = {
    "placement": lambda found: Placement(**found),
    "mirror": StreamSource.of,
    "sources": lambda found: tuple(StreamSource.of(source) for source in found),
    "subject_transform": lambda found: SubjectTransformConfig(**found),
    "republish": lambda found: Republish(**found),
    "consumer_limits": lambda found: ConsumerLimits(**found),
}

PLACEMENT = Structure("server.Placement", {"cluster": TEXT, "tags": ListOf(TEXT), "preferred": TEXT})
_SHAPES: dict[str, Shape] = {
    "name": TEXT,
    "description": TEXT,
    "subjects": ListOf(TEXT),
    "retention": Enumeration({"limits": "limits", "interest": "interest", "workqueue": "workqueue"}),
    "max_consumers": INT,
    "max_msgs": INT64,
    "max_bytes": INT64,
    "max_age": DURATION,
    "max_msgs_per_subject": INT64,
    "max_msg_size": INT32,
    "discard": Enumeration({"old": "old", "new": "new"}, any_case=True),
    "storage": Enumeration({"file": "file", "memory": "memory"}),
    "num_replicas": INT,
    "no_ack": FLAG,
    "duplicate_window": DURATION,
    "placement": PLACEMENT,
    "mirror": SOURCE,
    "sources": ListOf(SOURCE, pointer=True),
    "compression": Compression(("none", "s2")),
    "first_seq": UINT64,
    "subject_transform": SUBJECT_TRANSFORM,
    "republish": REPUBLISH,
    "consumer_limits": Structure(
        "server.StreamConsumerLimits", {"inactive_threshold": DURATION, "max_ack_pending": INT}
    ),
    "subject_delete_marker_ttl": DURATION,
    "persist_mode": Enumeration({"": "default", "default": "default", "async": "async"}),
    "metadata": TextMap(),
}

STREAM = Structure("server.StreamConfig", {name: _SHAPES.get(name, FLAG) for name in _NAMES})
STREAM_REQUEST = Structure("server.StreamConfigRequest", {**STREAM.fields, "pedantic": FLAG})
