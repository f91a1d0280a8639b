"""What `edged fsck` and `edged inspect` have in common on the command line: which store, and its keys."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edged.store.box import Keyring, KeyUnusable

HELP_FLAGS: Final = frozenset(("h", "help"))


class StoreCommandError(Exception):
    """The command cannot do what was asked; the text says what to do."""


@dataclass(frozen=True, slots=True)
class StoreArguments:
    """The words that are no flags, and the flags by name; a switch has an empty value."""

    words: tuple[str, ...]
    flags: dict[str, str] = field(default_factory=dict)


def parse_words(
    arguments: Sequence[str], switches: frozenset[str], values: frozenset[str], usage: str
) -> StoreArguments:
    """Words and flags in any order; flags take one dash or two, as everywhere."""
    words: list[str] = []
    flags: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            words.append(word)
        elif name in switches and not equals:
            flags[name] = ""
        elif name in values:
            if not equals and not rest:
                raise StoreCommandError(f"{word} needs a value: {usage}")
            flags[name] = value if equals else rest.pop(0)
        else:
            raise StoreCommandError(f"unknown flag {word}: {usage}")
    return StoreArguments(tuple(words), flags)


def find_store(directory: str | None, config: str | None, usage: str) -> tuple[str, Keyring]:
    """The directory of the store, and the keys that the configuration has for it."""
    keys = Keyring()
    if config is not None:
        from edged.config.load import load_file

        jetstream = load_file(config, os.environ).options.jetstream
        if jetstream is None:
            raise StoreCommandError(f"{config} has no jetstream block, so there is no store")
        try:
            keys = Keyring.read(jetstream.key, jetstream.prev_key, jetstream.cipher)
        except KeyUnusable as error:
            raise StoreCommandError(str(error)) from error
        directory = directory or jetstream.store_dir
    if directory is None:
        raise StoreCommandError(f"which store? {usage}")
    if not Path(directory).is_dir():
        raise StoreCommandError(f"{directory} is no directory: name the one that the store is in")
    return directory, keys
