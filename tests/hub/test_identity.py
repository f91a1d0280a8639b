"""The number of a node: drawn once, kept on its disk."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from hub.identity import NODE_MAX, IdentityBroken, node_in, peer_name


def test_number_is_drawn_once_and_found_again(tmp_path: Path) -> None:
    node = node_in(tmp_path, Random(1).randrange)
    assert 0 < node <= NODE_MAX
    assert node_in(tmp_path, Random(2).randrange) == node


def test_empty_disk_is_another_node(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    draw = Random(1).randrange
    assert node_in(tmp_path / "a", draw) != node_in(tmp_path / "b", draw)


@pytest.mark.parametrize("content", ["", "x", "0", "-1", "9" * 40, str(NODE_MAX + 1), "1 2"])
def test_number_that_cannot_be_read_is_not_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "node").write_text(content)
    with pytest.raises(IdentityBroken, match="move the whole directory away"):
        node_in(tmp_path, Random(1).randrange)
    assert (tmp_path / "node").read_text() == content


def test_bytes_that_are_no_text_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "node").write_bytes(b"\xff\xfe")
    with pytest.raises(IdentityBroken):
        node_in(tmp_path, Random(1).randrange)


def test_names_of_peers_are_eight_characters_and_differ() -> None:
    names = {peer_name(node) for node in [1, 2, 62, 63, NODE_MAX, NODE_MAX - 1]}
    assert len(names) == 6
    assert all(len(name) == 8 and name.isalnum() for name in names)
