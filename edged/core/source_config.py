"""Where else a stream gets messages from (mirrors, sources), and how subjects change on the way.

Fields are named as in JSON. The documents have nats-server's order, and leave out what it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edged.core.gojson_shapes import FLAG, TEXT, TIME, UINT64, ListOf, Structure
from edged.core.gojson_time import Instant, format_instant


@dataclass(frozen=True, slots=True)
class SubjectTransformConfig:
    """Subjects that match `src` become `dest`. No `src` means every subject; no `dest` leaves them as is."""

    src: str = ""
    dest: str = ""

    def document(self) -> dict[str, Any]:
        return {"src": self.src, "dest": self.dest}


@dataclass(frozen=True, slots=True)
class ExternalStream:
    """A stream of another account or domain: where its API is, and the prefix for deliveries from it."""

    api: str = ""
    deliver: str = ""

    def document(self) -> dict[str, Any]:
        return {"api": self.api, "deliver": self.deliver}


@dataclass(frozen=True, slots=True)
class SourceConsumer:
    """A durable consumer that is there already and is used in place of one of our own making."""

    name: str = ""
    deliver_subject: str = ""

    def document(self) -> dict[str, Any]:
        return _without_empty({"name": self.name, "deliver_subject": self.deliver_subject})


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A mirror's origin, or one of the sources of a stream."""

    name: str = ""
    opt_start_seq: int = 0
    opt_start_time: int | None = None
    filter_subject: str = ""
    subject_transforms: tuple[SubjectTransformConfig, ...] = ()
    external: ExternalStream | None = None
    consumer: SourceConsumer | None = None
    # The zone in which `opt_start_time` was written, in minutes ahead of UTC; it is shown in it again.
    opt_start_zone_minutes: int = 0

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> StreamSource:
        """From fields as SOURCE reads them."""
        start: Instant | None = fields.get("opt_start_time")
        return cls(
            name=fields.get("name", ""),
            opt_start_seq=fields.get("opt_start_seq", 0),
            opt_start_time=None if start is None else start.ns,
            filter_subject=fields.get("filter_subject", ""),
            subject_transforms=tuple(
                SubjectTransformConfig(**t) for t in fields.get("subject_transforms", ())
            ),
            external=ExternalStream(**fields["external"]) if "external" in fields else None,
            consumer=SourceConsumer(**fields["consumer"]) if "consumer" in fields else None,
            opt_start_zone_minutes=0 if start is None else start.zone_minutes,
        )

    def document(self) -> dict[str, Any]:
        """As it stands in a configuration."""
        start = self.opt_start_time
        shown = None if start is None else format_instant(Instant(start, self.opt_start_zone_minutes))
        optional = {
            "opt_start_seq": self.opt_start_seq,
            "opt_start_time": shown,
            "filter_subject": self.filter_subject,
            "subject_transforms": [transform.document() for transform in self.subject_transforms],
        }
        document = {"name": self.name, **_without_empty(optional)}
        if self.external is not None:
            document["external"] = self.external.document()
        if self.consumer is not None:
            document["consumer"] = self.consumer.document()
        return document

    @property
    def identity(self) -> tuple[str, ...]:
        """What tells one source of a stream from another: two of them may have the same name."""
        parts = [self.name]
        if self.external is not None:
            parts.append("api " + self.external.api)
        if self.consumer is not None:
            parts.append("consumer " + self.consumer.name)
        if self.subject_transforms:
            parts.extend(f"from {transform.src or '>'}" for transform in self.subject_transforms)
            parts.extend(f"to {transform.dest or '>'}" for transform in self.subject_transforms)
        else:
            parts.extend([f"from {self.filter_subject or '>'}", "to >"])
        return tuple(parts)


@dataclass(frozen=True, slots=True)
class Republish:
    """What is stored is published again, on another subject."""

    src: str = ""
    dest: str = ""
    headers_only: bool = False

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"src": self.src} if self.src else {}
        document["dest"] = self.dest
        if self.headers_only:
            document["headers_only"] = True
        return document


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


SUBJECT_TRANSFORM = Structure("server.SubjectTransformConfig", {"src": TEXT, "dest": TEXT})
REPUBLISH = Structure("server.RePublish", {"src": TEXT, "dest": TEXT, "headers_only": FLAG})
SOURCE = Structure(
    "server.StreamSource",
    {
        "name": TEXT,
        "opt_start_seq": UINT64,
        "opt_start_time": TIME,
        "filter_subject": TEXT,
        "subject_transforms": ListOf(SUBJECT_TRANSFORM),
        "external": Structure("server.ExternalStream", {"api": TEXT, "deliver": TEXT}),
        "consumer": Structure("server.StreamConsumerSource", {"name": TEXT, "deliver_subject": TEXT}),
    },
)
