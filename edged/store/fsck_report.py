"""What `edged fsck` found: one finding per problem, the streams, and what it all comes to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Final

FINDINGS_MAX: Final = 10_000
"""More than this are only counted: a person reads them, and memory is bounded."""


class Severity(IntEnum):
    """What a finding means. The highest one is the exit status of the command."""

    NOTE = 0  # nothing is wrong
    HARMLESS = 1  # damage that costs nothing
    LOSS = 2  # something that was acknowledged is not there, or would not be there after a start
    UNREADABLE = 3  # nothing can be said


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing: what it is, where, what it costs and what to do. Seqs are 0 where no messages are meant."""

    severity: Severity
    what: str
    path: str
    offset: int | None = None
    cost: str = "nothing"
    advice: str = "nothing"
    stream: str = ""
    first_seq: int = 0
    last_seq: int = 0
    messages: int = 0

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "severity": self.severity.name.lower()}


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """A stream as it would be after a start. `messages_lost` counts those that can be told."""

    account: str
    name: str
    stream_id: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    consumers: int
    messages_lost: int = 0

    @property
    def title(self) -> str:
        """How a person calls it."""
        return f"{self.account}/{self.name}"


@dataclass(slots=True)
class Report:
    """All of it."""

    directory: str
    findings: list[Finding] = field(default_factory=list)
    left_out: int = 0
    streams: list[StreamFigures] = field(default_factory=list)
    checkpoint: int = 0
    journal_files: int = 0
    segments: int = 0
    bytes_checked: int = 0
    status: Severity = Severity.NOTE

    def add(self, finding: Finding) -> None:
        """One more."""
        self.status = max(self.status, finding.severity)
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
        else:
            self.left_out += 1

    def count(self, severity: Severity) -> int:
        """How many findings of a kind are listed."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def summary(self) -> str:
        """The last line."""
        messages = sum(stream.messages for stream in self.streams)
        there = f"{len(self.streams)} streams with {messages} messages"
        if self.status == Severity.UNREADABLE:
            return "the store cannot be read"
        if self.status == Severity.LOSS:
            lost = sum(finding.messages for finding in self.findings)
            known = f"{lost} messages are" if lost else "something is"
            return f"{there}; {known} lost or would be after a start"
        if self.status == Severity.HARMLESS:
            return f"{there}; {self.count(Severity.HARMLESS)} problems, nothing is lost"
        return f"{there}; clean"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "directory": self.directory,
            "status": int(self.status),
            "summary": self.summary,
            "checkpoint": self.checkpoint,
            "journal_files": self.journal_files,
            "segments": self.segments,
            "bytes_checked": self.bytes_checked,
            "streams": [asdict(stream) for stream in self.streams],
            "findings": [finding.document() for finding in self.findings],
            "findings_left_out": self.left_out,
        }
