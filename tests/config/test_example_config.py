"""edged.conf.example is complete and true: it has every key and no other, and the right defaults.

A setting is a line that starts with "#" and no blank, or with "#" and the four blanks of a block. Marked
"example" it is not a default; marked "alternative NAME" it is loaded with the others of that name, not with
the rest. Blocks come along when something in them does.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from edged.config.document import Pair
from edged.config.language import parse_text
from edged.config.load import TOP, load_text
from edged.config.options import Options
from edged.config.table import Table
from edged.core.jwt import write_token
from edged.core.nkeys import KeyKind, create_seed, public_from_seed

EXAMPLE = Path(__file__).parents[2] / "edged.conf.example"
SEED = create_seed(KeyKind.USER, bytes(32))
ENVIRONMENT = {"EDGED_STORE_KEY": "'key'", "EDGED_HUB_SEED": SEED}
# What an alternative needs from the rest of the file to be a configuration at all.
NEEDED = {"https": "tls { cert_file: a, key_file: b }", "operator": "system_account: A"}
# Keys that are understood but that load.py refuses, because the server does not do what they ask for.
REFUSED = {"auth_callout"}


@dataclass(frozen=True)
class Line:
    number: int
    text: str
    group: str  # "" for the rest, else the name of the alternative
    is_example: bool

    @property
    def opens(self) -> bool:
        return self.text.rstrip().endswith(("{", "[", "[{"))

    @property
    def closes(self) -> bool:
        return self.text.strip().startswith(("}", "]"))


def settings() -> list[Line]:
    found = []
    for number, line in enumerate(EXAMPLE.read_text().splitlines(), start=1):
        if not re.match(r"#(?:[^\s#]|    )", line):
            assert re.match(r"##? |#$|$", line), (number, line)
            continue
        text, _, remark = line[1:].partition(" # ")
        if text.strip().startswith("# ") or not text.strip():
            continue
        remark = remark.strip()
        assert remark in ("", "example") or remark.startswith("alternative "), (number, line)
        found.append(
            Line(number, text, remark.removeprefix("alternative ") if " " in remark else "", bool(remark))
        )
    return found


LINES = settings()
GROUPS = sorted({line.group for line in LINES})


def text_of(lines: list[Line]) -> str:
    """The configuration of these leaves, with the blocks around them."""
    used = {line.number for line in lines}
    open_blocks: list[int] = []
    for line in LINES:
        if line.opens:
            open_blocks.append(line.number)
        elif line.closes:
            if open_blocks.pop() in used:
                used.update([line.number, *open_blocks])
        elif line.number in used:
            used.update(open_blocks)
    assert not open_blocks
    return "\n".join(line.text for line in LINES if line.number in used)


def leaves(group: str) -> list[Line]:
    return [line for line in LINES if line.group == group and not line.opens and not line.closes]


NOT_YET = (
    "latency is checked, but no samples are sent yet",
    "trace_dest is checked, but messages are not traced yet",
)
WITHOUT_EFFECT = re.compile("(meta_compact(_size|_sync)?|max_concurrent_io) has no effect")


def load(text: str, directory: Path) -> Options:
    loaded = load_text(text.replace("/etc/edged/operator.jwt", str(directory / "operator.jwt")), ENVIRONMENT)
    # Of what the example shows, only what edged does not act on may be warned about.
    warnings = [warning.partition(": ")[2] for warning in loaded.warnings]
    assert all(one in NOT_YET or WITHOUT_EFFECT.match(one) for one in warnings), warnings
    return loaded.options


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    seed = create_seed(KeyKind.OPERATOR, bytes(32))
    claims = {"type": "operator", "version": 2}
    token = write_token(
        {"sub": public_from_seed(seed), "iat": 1, "jti": "x", "name": "O", "nats": claims}, seed
    )
    (tmp_path / "operator.jwt").write_text(token)
    return tmp_path


@pytest.mark.parametrize("group", GROUPS)
def test_example_without_its_comment_signs_is_a_valid_configuration(group: str, directory: Path) -> None:
    load(f"{text_of(leaves(group))}\n{NEEDED.get(group, '')}", directory)


def test_every_default_in_the_example_is_the_default(directory: Path) -> None:
    chosen = leaves("")
    whole = load(text_of(chosen), directory)
    for line in chosen:
        if not line.is_example:
            rest = load(text_of([other for other in chosen if other is not line]), directory)
            assert replace(rest, config_digest="") == replace(whole, config_digest=""), line


def walk(pairs: dict[str, Pair], table: Table) -> Iterator[tuple[int, str]]:
    """Every (table, key) that the pairs use; an unknown key fails."""
    for pair in pairs.values():
        key = table.find(pair.key)
        assert key is not None, (table.title, pair.key)
        assert pair.key == key.name or (table.title, pair.key) in ALIASES_SHOWN, (table.title, pair.key)
        yield id(table), key.name
        if key.block is None:
            continue
        data = pair.value.data
        inner = list(data) if isinstance(data, tuple) else [pair.value]
        if key.named and isinstance(data, dict):
            inner = [entry.value for entry in data.values()]
        for value in inner:
            values = value.data if isinstance(value.data, tuple) else (value,)
            for one in values:
                if isinstance(one.data, dict):
                    yield from walk(one.data, key.block)


# Spellings that say more in their place than the usual one.
ALIASES_SHOWN = {("permissions", "import"), ("permissions", "export")}


def every_key(table: Table, seen: dict[int, Table]) -> Iterator[tuple[int, str]]:
    seen[id(table)] = table
    for key in table.keys:
        if key.name in REFUSED:
            continue
        yield id(table), key.name
        if key.block is not None and id(key.block) not in seen:
            yield from every_key(key.block, seen)


def test_every_key_is_in_the_example_and_the_other_way_round() -> None:
    shown: set[tuple[int, str]] = set()
    for group in GROUPS:
        shown.update(walk(parse_text(text_of(leaves(group)), ENVIRONMENT).root, TOP))
    tables: dict[int, Table] = {}
    known = set(every_key(TOP, tables))
    missing = sorted(f"{tables[table].title}: {name}" for table, name in known - shown)
    assert missing == []
    assert shown <= known


def test_example_is_readable_in_a_terminal() -> None:
    assert max(len(line) for line in EXAMPLE.read_text().splitlines()) <= 120
