"""The command `edged inspect`: shows what is in the files of a store, for people and as JSON lines.

Rules: it writes nothing and takes no lock. The exit status is 0 if all that was looked at is whole, 1 if
damage was shown, 3 if there was nothing to show.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from edged.store.box import Keyring
from edged.store.errors import StoreError
from edged.store.fsck_files import StoreFiles, shown
from edged.store.inspect import (
    Asked,
    Item,
    all_checkpoints,
    all_journal,
    all_segments,
    one_file,
    one_stream,
    overview,
)
from edged.store_arguments import HELP_FLAGS, StoreCommandError, find_store, parse_words

USAGE: Final = (
    "edged inspect STORE_DIR [journal|checkpoint|segment|stream NAME|file PATH] "
    "[--payload] [--top N] [-c CONFIG] [--json]"
)
HELP: Final = f"""Usage: {USAGE}

Shows the files of a store: without more words all of them in brief, else the journal, the checkpoints, the
segments, one stream or one file. Nothing is locked and nothing is changed: a daemon may have the store open.

  --payload           show the beginning of the data of messages, too
  --top N             how many subjects of a segment to show (10)
  -c, --config FILE   take the directory of the store and the keys from this configuration
  --json              for programs, a line for each thing
  -h, --help          show this

Exit status:
  0  all that was looked at is whole
  1  damage was shown, or something for which the key is missing
  3  there is nothing to show, or the command is wrong
"""
EXIT_DAMAGED: Final = 1
EXIT_NOTHING: Final = 3
_INDENTED: Final = frozenset(
    (
        *("batch", "append", "command", "rest", "stream segment", "consumer", "lost"),
        *("block", "column", "subject", "more subjects"),
    )
)
_PARTS: Final[dict[str, Callable[[StoreFiles, Keyring, Asked], Iterator[Item]]]] = {
    "journal": all_journal,
    "checkpoint": all_checkpoints,
    "segment": all_segments,
}


def run(arguments: Sequence[str]) -> int:
    """Show it; StoreCommandError when that does not work."""
    switches, values = frozenset(("json", "payload", *HELP_FLAGS)), frozenset(("c", "config", "top"))
    asked = parse_words(arguments, switches, values, USAGE)
    if asked.flags.keys() & HELP_FLAGS:
        print(HELP, end="")
        return 0
    words = list(asked.words)
    config = asked.flags.get("c", asked.flags.get("config"))
    directory, keys = find_store(_directory(words, config is not None), config, USAGE)
    files = StoreFiles(directory, keys=keys)
    limits = Asked("payload" in asked.flags, _top(asked.flags.get("top", "10")))
    is_damaged = False
    try:
        for item in _items(files, words, keys, limits):
            is_damaged = is_damaged or item.kind == "damage"
            print(json_line(item) if "json" in asked.flags else text_line(item))
    except StoreError as error:
        raise StoreCommandError(str(error)) from error
    except BrokenPipeError:
        # Somebody has seen enough. What is still to be flushed at the end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DAMAGED if is_damaged else 0
    except OSError as error:
        raise StoreCommandError(f"{error.filename or directory}: {error.strerror or error}") from error
    return EXIT_DAMAGED if is_damaged else 0


def _directory(words: list[str], has_config: bool) -> str | None:
    """The store among the words; with a configuration it may be left out."""
    names = {*_PARTS, "stream", "file"}
    if not words or (has_config and words[0] in names and not Path(words[0]).is_dir()):
        return None
    return words.pop(0)


def _top(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise StoreCommandError(f"--top needs a number: {USAGE}")
    return int(text)


def _items(files: StoreFiles, words: list[str], keys: Keyring, asked: Asked) -> Iterator[Item]:
    if not words:
        return overview(files, keys, asked)
    if len(words) == 1 and words[0] in _PARTS:
        return _PARTS[words[0]](files, keys, asked)
    if len(words) == 2 and words[0] == "stream":
        return one_stream(files, words[1], keys, asked)
    if len(words) == 2 and words[0] == "file":
        return one_file(files, _inside(files, words[1]), keys, asked)
    raise StoreCommandError(f"{' '.join(words)} cannot be shown: {USAGE}")


def _inside(files: StoreFiles, path: str) -> str:
    """A path as the store knows it, from one that a person gives."""
    root = Path(files.root)
    for candidate in (root / path, Path(path).absolute()):
        if candidate.is_file() and candidate.resolve().is_relative_to(root.resolve()):
            return candidate.resolve().relative_to(root.resolve()).as_posix()
    raise StoreCommandError(f"{path} is no file of the store {files.root}")


# --- how it looks ---


def json_line(item: Item) -> str:
    """An item for programs."""
    return json.dumps({"item": item.kind, **shown(item.fields)})


def text_line(item: Item) -> str:
    """An item for people."""
    indent = "  " if item.kind in _INDENTED else ""
    words = [f"{name}={_value(value)}" for name, value in item.fields.items() if value is not None]
    return f"{indent}{item.kind}: {' '.join(words)}"


def _value(value: Any) -> str:
    value = shown(value)
    if isinstance(value, str):
        is_plain = value.isprintable() and value and not set(value) & set(" \"'=")
        return value if is_plain else json.dumps(value)
    return json.dumps(value, separators=(",", ":"))
