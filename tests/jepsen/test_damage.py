"""Damage hits what it should, the same with the same chance, and nothing else."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.jepsen import damage
from tests.jepsen.damage import CHUNK_BYTES, LAYOUTS

CONTENT = bytes(range(1, 256)) * 100


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("journal/1.log", "checkpoints/1.ckpt", "streams/ab/1-2.seg", "lock"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)
    (tmp_path / "journal/2.log").touch()
    return tmp_path


def changed(root: Path) -> dict[str, bytes]:
    """Files that are not as they were; a missing one is empty."""
    names = ("journal/1.log", "checkpoints/1.ckpt", "streams/ab/1-2.seg", "lock")
    contents = {name: (root / name).read_bytes() if (root / name).exists() else b"" for name in names}
    return {name: content for name, content in contents.items() if content != CONTENT}


def test_targets_are_messages_or_state_and_never_both(root: Path) -> None:
    layout = LAYOUTS["edged-hub"]
    found = {
        target: [path.relative_to(root).as_posix() for path in damage.matching(root, layout.patterns(target))]
        for target in ("messages", "state")
    }
    assert found == {"messages": ["journal/1.log", "streams/ab/1-2.seg"], "state": ["checkpoints/1.ckpt"]}


def test_files_of_nats_server_are_found(tmp_path: Path) -> None:
    messages = "jetstream/APP/streams/LOG/msgs/1.blk"
    state = (
        "jetstream/$SYS/_js_/_meta_/msgs/1.blk",
        "jetstream/$SYS/_js_/_meta_/snapshots/snap.1.2",
        "jetstream/$SYS/_js_/_meta_/tav.idx",
        "jetstream/APP/streams/LOG/meta.inf",
        "jetstream/APP/streams/LOG/meta.sum",
        "jetstream/APP/streams/LOG/msgs/index.db",
    )
    for name in (messages, *state):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    layout = LAYOUTS["nats-server"]
    assert damage.matching(tmp_path, layout.messages) == [tmp_path / messages]
    assert damage.matching(tmp_path, layout.state) == sorted(tmp_path / name for name in state)


def test_flipped_bits_are_few_and_inside_of_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for seed in range(50):
        path.write_bytes(CONTENT + b"\0" * 100_000)
        damage.flip_bits(path, Random(seed))
        data = path.read_bytes()
        assert len(data) == len(CONTENT) + 100_000
        assert data[len(CONTENT) :] == b"\0" * 100_000
        distance = sum((a ^ b).bit_count() for a, b in zip(data, CONTENT, strict=False))
        assert distance <= 4
    assert distance > 0


def test_truncation_takes_a_part_of_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for seed in range(50):
        path.write_bytes(CONTENT + b"\0" * 100_000)
        damage.truncate(path, Random(seed))
        data = path.read_bytes()
        assert len(data) < len(CONTENT)
        assert CONTENT.startswith(data)


def test_old_blocks_come_back_in_their_places(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"n" * CHUNK_BYTES * 20)
    damage.bring_back(path, b"o" * CHUNK_BYTES * 10, Random(1))
    blocks = [
        path.read_bytes()[start : start + CHUNK_BYTES] for start in range(0, CHUNK_BYTES * 20, CHUNK_BYTES)
    ]
    assert {block[:1] for block in blocks[:10]} == {b"n", b"o"}
    assert {bytes(set(block)) for block in blocks} == {b"n", b"o"}
    assert blocks[10:] == [b"n" * CHUNK_BYTES] * 10


@pytest.mark.parametrize("kind", damage.KINDS)
@pytest.mark.parametrize("target", ["messages", "state"])
def test_damage_stays_with_its_target_and_replays(tmp_path: Path, root: Path, kind: str, target: str) -> None:
    patterns = LAYOUTS["edged-hub"].patterns(target)
    before = dict.fromkeys(damage.copies_of(root, patterns), b"old" * 20_000)
    done = damage.damage(root, patterns, kind, before, Random(3))
    first = changed(root)
    assert done
    assert first
    assert {name.partition("/")[0] in ("checkpoints",) for name in first} == {target == "state"}
    for name in first:
        (root / name).write_bytes(CONTENT)
    assert damage.damage(root, patterns, kind, before, Random(3)) == done
    assert changed(root) == first
