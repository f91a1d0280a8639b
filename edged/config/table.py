"""Tables of keys: how a block of the configuration becomes the fields of a dataclass.

A Table lists the keys a block may have, each with its other spellings, the field it sets and how its value is
read. Keys are compared without regard to case; of two spellings of one key the one written last counts.
Rules: an unknown key is an error that names the nearest known one, unless a variable referred to it. A key
that nats-server knows and edged does not is either refused (ignoring it would weaken security or change what
is connected to what) or ignored with a warning (ignoring it is harmless).
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edged.config.document import ConfigError, Pair, Position, Value


@dataclass(slots=True)
class Context:
    """What reading a document gathers on the way."""

    used: frozenset[Position] = frozenset()
    warnings: list[str] = field(default_factory=list)
    # Where things were written that later checks may have to complain about, by a name the check knows.
    places: dict[str, Position] = field(default_factory=dict)
    # Files the configuration names, with the place: the loader makes sure that they can be read.
    files: list[tuple[str, Position]] = field(default_factory=list)

    def warn(self, message: str, position: Position) -> None:
        self.warnings.append(f"{position}: {message}")


Reader = Callable[[Context, Value, str], object]


@dataclass(frozen=True, slots=True)
class Key:
    """One key. Without a field, read returns a dict of fields. block is the table of what is inside."""

    names: tuple[str, ...]
    field: str | None
    read: Reader
    zero_is_default: bool = False
    block: "Table | None" = None
    named: bool = False  # the block holds entries under names of the user's choice

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True, slots=True)
class Table:
    """The keys of one kind of block; title is what error texts call it."""

    title: str
    keys: tuple[Key, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)

    def find(self, name: str) -> Key | None:
        lowered = name.lower()
        return next((key for key in self.keys if lowered in key.names), None)

    def nearest(self, name: str) -> str | None:
        written = name.lower()[:64]
        # The usual spelling of a key is the better advice, so other spellings come second.
        for known in ([key.name for key in self.keys], [one for key in self.keys for one in key.names[1:]]):
            if close := difflib.get_close_matches(written, known, n=1):
                return close[0]
        return None


def key(
    names: str,
    read: Reader,
    field: str | None = "",
    *,
    zero_is_default: bool = False,
    block: Table | None = None,
    named: bool = False,
) -> Key:
    """A Key from its spellings, separated by spaces; the field is called like the first unless said."""
    spellings = tuple(names.split())
    return Key(spellings, spellings[0] if field == "" else field, read, zero_is_default, block, named)


def pairs_of(value: Value, name: str) -> dict[str, Pair]:
    """The pairs of a block; ConfigError when the value is something else."""
    if not isinstance(value.data, dict):
        raise ConfigError(f"{name}: expected a block {{ ... }}, found {value.kind}", value.position)
    return value.data


def items_of(value: Value, name: str) -> tuple[Value, ...]:
    """The values of an array; ConfigError when the value is something else."""
    if not isinstance(value.data, tuple):
        raise ConfigError(f"{name}: expected an array [ ... ], found {value.kind}", value.position)
    return value.data


def read_block(context: Context, value: Value, table: Table, name: str) -> dict[str, Any]:
    """The fields that a block sets; fields of keys that are not there are not there."""
    return read_pairs(context, pairs_of(value, name), table)


def read_pairs(context: Context, pairs: Mapping[str, Pair], table: Table) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for pair in pairs.values():
        known = table.find(pair.key)
        if known is None:
            _unknown(context, pair, table)
            continue
        result = known.read(context, pair.value, known.name)
        if known.field is None:
            assert isinstance(result, dict), known.name
            fields.update(result)
        elif known.zero_is_default and result == 0:
            fields.pop(known.field, None)
        else:
            fields[known.field] = result
    return fields


def _unknown(context: Context, pair: Pair, table: Table) -> None:
    lowered = pair.key.lower()
    if lowered in table.refused:
        raise ConfigError(f"{lowered}: {table.refused[lowered]}", pair.position)
    if lowered in table.ignored:
        context.warn(f"{lowered} is ignored: {table.ignored[lowered]}", pair.position)
        return
    if pair.position in context.used:
        return
    nearest = table.nearest(pair.key)
    hint = f": did you mean {nearest!r}?" if nearest else ""
    shown = pair.key if len(pair.key) <= 64 else pair.key[:61] + "..."
    raise ConfigError(f"unknown key {shown!r} in {table.title}{hint}", pair.position)
