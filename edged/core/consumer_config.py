"""The configuration of a consumer: read from a request, shown in answers, kept in the store.

Fields are named as in JSON. What a request leaves out is zero here; `consumer_defaults` puts in the defaults.
Durations are nanoseconds, enumerations the words that JSON has for them, times nanoseconds since the epoch.

Rules: reading refuses what nats-server refuses to read, in its words; whether the values go together is not
asked here. `document` has nats-server's order and leaves out what it leaves out. Invariant:
ConsumerConfig.stored(config.document()) == config for every configuration that `consumer_rules` let pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from edged.core.gojson import JsonError
from edged.core.gojson_shapes import (
    DURATION,
    FLAG,
    INT,
    TEXT,
    TIME,
    UINT64,
    Enumeration,
    ListOf,
    Shape,
    Structure,
    TextMap,
    read_request,
    written,
)
from edged.core.gojson_time import Instant, format_instant


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Every field, in the order in which it is shown; the zones at the end belong to the times."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: str = "all"
    opt_start_seq: int = 0
    opt_start_time: int | None = None
    ack_policy: str = "none"
    ack_wait: int = 0
    max_deliver: int = 0
    backoff: tuple[int, ...] = ()
    filter_subject: str = ""
    filter_subjects: tuple[str, ...] = ()
    replay_policy: str = "instant"
    rate_limit_bps: int = 0
    sample_freq: str = ""
    max_waiting: int = 0
    max_ack_pending: int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    max_expires: int = 0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: int = 0
    inactive_threshold: int = 0
    num_replicas: int = 0
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    pause_until: int | None = None
    priority_groups: tuple[str, ...] = ()
    priority_policy: str = "none"
    priority_timeout: int = 0
    # By how many minutes the zone in which a time was written is ahead of UTC; it is shown in it again.
    opt_start_zone_minutes: int = 0
    pause_until_zone_minutes: int = 0

    @classmethod
    def stored(cls, document: Mapping[str, Any]) -> ConsumerConfig:
        """From what `document` gave; fields of a later version are passed over."""
        return cls.of(CONSUMER.read(dict(document), "ConsumerConfig", strict=False))

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> ConsumerConfig:
        """From fields as CONSUMER reads them."""
        values = dict(found)
        for name, zone in _ZONES.items():
            instant: Instant | None = values.get(name)
            if instant is not None:
                values[name], values[zone] = instant.ns, instant.zone_minutes
        return cls(**values)

    def document(self) -> dict[str, Any]:
        """What answers show and the store keeps."""
        document: dict[str, Any] = {}
        for name in CONSUMER.fields:
            value = getattr(self, name)
            if name not in _ALWAYS_SHOWN and value == getattr(_NOTHING, name):
                continue
            if name in _ZONES:
                value = format_instant(Instant(value, getattr(self, _ZONES[name])))
            elif name == "metadata":
                value = dict(sorted(value.items()))
            document[name] = list(value) if isinstance(value, tuple) else value
        return document

    @property
    def filters(self) -> tuple[str, ...]:
        """The subjects that it wants, from whichever field they are in; none when it wants all."""
        return (*self.filter_subjects, self.filter_subject) if self.filter_subject else self.filter_subjects

    @property
    def is_durable(self) -> bool:
        """Whether it stays when nobody uses it."""
        return bool(self.durable_name)

    @property
    def is_push(self) -> bool:
        """Whether messages are sent to a subject of its own, not on request."""
        return bool(self.deliver_subject)

    @property
    def is_internal(self) -> bool:
        """Whether it feeds another stream: then it is not counted, and shares the messages of a queue."""
        return self.direct or self.sourcing


@dataclass(frozen=True, slots=True)
class ConsumerRequest:
    """A request to create or update a consumer. The action is `create`, `update`, or empty for either.

    A pedantic one wants errors in place of adjusted values.
    """

    stream_name: str = ""
    config: ConsumerConfig = field(default_factory=ConsumerConfig)
    action: str = ""
    pedantic: bool = False

    @classmethod
    def parse(cls, payload: bytes, strict: bool) -> ConsumerRequest:
        """From the bytes of the request; ApiFailure when they cannot be read."""
        found = read_request(payload, CONSUMER_REQUEST, strict)
        return cls(**{**found, "config": ConsumerConfig.of(found.get("config", {}))})


@dataclass(frozen=True, slots=True)
class _Choice(Enumeration):
    """An enumeration that has words of its own for what it does not know, and repeats it unquoted."""

    complaint: str = ""

    def read(self, value: Any, place: str, strict: bool) -> str:
        try:
            return Enumeration.read(self, value, place, strict)
        except JsonError:
            raise JsonError(f"{self.complaint}: {self._shown(value)}") from None

    def _shown(self, value: Any) -> str:
        try:
            return written(value)
        except RecursionError:
            # What is so deep is longer than anyone reads.
            return "[" if isinstance(value, list) else "{"


_NOTHING: Final = ConsumerConfig()
_ALWAYS_SHOWN: Final = frozenset({"deliver_policy", "ack_policy", "replay_policy", "num_replicas"})
# Where the zone of a time is.
_ZONES: Final = {"opt_start_time": "opt_start_zone_minutes", "pause_until": "pause_until_zone_minutes"}


def _words(*words: str) -> dict[str, str]:
    return {word: word for word in words}


_SHAPES: Final[dict[str, Shape]] = {
    "durable_name": TEXT,
    "name": TEXT,
    "description": TEXT,
    "deliver_policy": Enumeration(
        {
            **_words("all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"),
            "undefined": "all",
        }
    ),
    "opt_start_seq": UINT64,
    "opt_start_time": TIME,
    "ack_policy": Enumeration(_words("none", "all", "explicit", "flow_control")),
    "ack_wait": DURATION,
    "max_deliver": INT,
    "backoff": ListOf(DURATION),
    "filter_subject": TEXT,
    "filter_subjects": ListOf(TEXT),
    "replay_policy": Enumeration(_words("instant", "original")),
    "rate_limit_bps": UINT64,
    "sample_freq": TEXT,
    "max_waiting": INT,
    "max_ack_pending": INT,
    "max_batch": INT,
    "max_expires": DURATION,
    "max_bytes": INT,
    "deliver_subject": TEXT,
    "deliver_group": TEXT,
    "idle_heartbeat": DURATION,
    "inactive_threshold": DURATION,
    "num_replicas": INT,
    "metadata": TextMap(),
    "pause_until": TIME,
    "priority_groups": ListOf(TEXT),
    "priority_policy": _Choice(
        _words("none", "overflow", "pinned_client", "prioritized"), complaint="unknown priority policy"
    ),
    "priority_timeout": DURATION,
}

_NAMES: Final = tuple(each.name for each in fields(ConsumerConfig) if each.name not in _ZONES.values())
CONSUMER: Final = Structure("server.ConsumerConfig", {name: _SHAPES.get(name, FLAG) for name in _NAMES})
CONSUMER_REQUEST: Final = Structure(
    "server.CreateConsumerRequest",
    {
        "stream_name": TEXT,
        "config": CONSUMER,
        "action": _Choice(_words("", "create", "update"), complaint="unknown consumer action"),
        "pedantic": FLAG,
    },
)
