"""Account mappings: the subject that a message published by a client or leaf goes to instead.

A mapping has a source pattern and destinations, each with a weight in percent and perhaps the name of the
cluster it is meant for. Which destination a message takes is drawn by weight. A mapping is applied once, not
again to its own result.

Rules: weights sum up to at most 100 for each cluster. What is missing stays with the original subject, unless
the operator listed the source itself among the destinations: then what is missing is dropped, and `route`
answers with the empty subject, to which nothing can subscribe. A server takes the destinations of its own
cluster if there are any, else those without a cluster.
When several sources match, the most specific one decides (by token, a literal before `*` before `>`), and
among equals the first in the given order. nats-server keeps its configuration in an unordered table and takes
whichever comes first, so this is one of its answers, and always the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edged.core import subjects
from edged.core.transform import Draw, SubjectTransform, TransformError

WEIGHT_PERCENT_MAX = 100


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a share of the messages goes; in every cluster, or in the named one only."""

    subject: bytes
    weight_percent: int
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Mapping:
    """A source subject and where its messages go instead."""

    source: bytes
    destinations: tuple[Destination, ...]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What happens when the number drawn is below `weight_below`, and not below that of the one before."""

    weight_below: int
    transform: SubjectTransform | None  # None keeps the subject as it is.


@dataclass(frozen=True, slots=True)
class _Choice:
    """What one mapping does on this server; a number beyond the last outcome drops the message."""

    source_tokens: Sequence[bytes]
    outcomes: tuple[_Outcome, ...]

    def is_certain(self) -> bool:
        return not self.outcomes or self.outcomes[0].weight_below == WEIGHT_PERCENT_MAX


class SubjectMappings:
    """All mappings of an account, as one server of the named cluster applies them."""

    __slots__ = ("_literals", "_wildcards")

    def __init__(self, mappings: Iterable[Mapping], cluster: str = "") -> None:
        """TransformError for a source, destination or weight that cannot be used; a later source replaces."""
        by_source = {mapping.source: mapping for mapping in mappings}
        choices = {source: _compile(mapping, cluster) for source, mapping in by_source.items()}
        self._literals = {source: choice for source, choice in choices.items() if subjects.is_literal(source)}
        self._wildcards = sorted(
            (choice for source, choice in choices.items() if source not in self._literals),
            key=lambda choice: [_generality(token) for token in choice.source_tokens],
        )

    def __bool__(self) -> bool:
        return bool(self._literals or self._wildcards)

    def route(self, subject: bytes, draw: Draw) -> bytes:
        """Where the message goes: the same subject when nothing maps it, the empty one when it is dropped."""
        tokens = subject.split(b".")
        choice = self._find(subject, tokens)
        if choice is None:
            return subject
        if not choice.outcomes:
            return b""
        chosen: _Outcome | None = choice.outcomes[0]
        if not choice.is_certain():
            drawn = draw(WEIGHT_PERCENT_MAX)
            chosen = next((outcome for outcome in choice.outcomes if drawn < outcome.weight_below), None)
        if chosen is None:
            return b""
        return subject if chosen.transform is None else chosen.transform.build(tokens, draw)

    def is_constant(self, subject: bytes) -> bool:
        """Whether `route` always gives the same answer for this subject."""
        choice = self._find(subject, subject.split(b"."))
        if choice is None or not choice.outcomes:
            return True
        transform = choice.outcomes[0].transform
        return choice.is_certain() and (transform is None or not transform.needs_chance)

    def _find(self, subject: bytes, tokens: list[bytes]) -> _Choice | None:
        literal = self._literals.get(subject)
        if literal is not None:
            return literal
        for choice in self._wildcards:
            # A published wildcard is covered only by an equal or wider one: `a.>` is not taken for one token.
            if subjects.is_subset_tokens(tokens, choice.source_tokens):
                return choice
        return None


def _generality(token: bytes) -> int:
    return 1 if token == b"*" else 2 if token == b">" else 0


def _compile(mapping: Mapping, cluster: str) -> _Choice:
    """Check all of a mapping, and keep what concerns this cluster."""
    source = mapping.source
    shown = source.decode("utf-8", "backslashreplace")
    if not subjects.valid_subscription(source):
        raise TransformError(f'mapping "{shown}": the source is not a valid subject')
    total_percent: dict[str, int] = {}
    compiled: dict[bytes, SubjectTransform] = {}
    for destination in mapping.destinations:
        text = destination.subject.decode("utf-8", "backslashreplace")
        if not destination.subject:
            raise TransformError(f'mapping "{shown}": a destination is empty')
        if destination.subject in compiled:
            raise TransformError(f'mapping "{shown}": destination "{text}" is listed twice')
        if not 0 <= destination.weight_percent <= WEIGHT_PERCENT_MAX:
            raise TransformError(
                f'mapping "{shown}": the weight of "{text}" is not between 0 and 100 percent'
            )
        total = total_percent.get(destination.cluster, 0) + destination.weight_percent
        if total > WEIGHT_PERCENT_MAX:
            raise TransformError(f'mapping "{shown}": the weights sum up to more than 100 percent')
        total_percent[destination.cluster] = total
        compiled[destination.subject] = SubjectTransform.parse(source, destination.subject)
    ours = cluster if cluster in total_percent else ""
    weighted: list[tuple[int, SubjectTransform | None]] = [
        (destination.weight_percent, compiled[destination.subject])
        for destination in mapping.destinations
        if destination.cluster == ours
    ]
    # Without any destination for this server the mapping is not meant for it, whatever it lists for others.
    if source not in compiled or not weighted:
        weighted.append((WEIGHT_PERCENT_MAX - total_percent.get(ours, 0), None))
    return _Choice(source.split(b"."), _cumulated(weighted))


def _cumulated(weighted: list[tuple[int, SubjectTransform | None]]) -> tuple[_Outcome, ...]:
    outcomes: list[_Outcome] = []
    below = 0
    for weight, transform in weighted:
        if weight:
            below += weight
            outcomes.append(_Outcome(below, transform))
    return tuple(outcomes)
