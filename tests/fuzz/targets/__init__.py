"""All targets, by name."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    archives,
    config_language,
    connect_document,
    credentials,
    fanout_twins,
    first_bytes,
    header_blocks,
    journal_frames,
    subject_models,
    trace_lines,
    transforms,
    wire_twins,
)

TARGETS: tuple[Target, ...] = (
    *wire_twins.TARGETS,
    *fanout_twins.TARGETS,
    *header_blocks.TARGETS,
    *subject_models.TARGETS,
    *transforms.TARGETS,
    *connect_document.TARGETS,
    *trace_lines.TARGETS,
    *credentials.TARGETS,
    *first_bytes.TARGETS,
    *config_language.TARGETS,
    *journal_frames.TARGETS,
    *archives.TARGETS,
)


def named(name: str) -> Target:
    """One target; LookupError lists the names there are."""
    for target in TARGETS:
        if target.name == name:
            return target
    raise LookupError(f"no target {name!r}: there are {', '.join(target.name for target in TARGETS)}")
