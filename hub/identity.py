"""Who a node is: a number on its disk. Whoever loses the disk comes back as another node.

A node that forgot everything must not be taken for the one that had confirmed things, so the number lies in
the directory of the store, is drawn once, and is durable before anybody is told.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hub.raft.members import NodeId

FILE_NAME: Final = "node"
NODE_MAX: Final = 2**63 - 1


class IdentityBroken(Exception):  # noqa: N818 - says what happened
    """The number cannot be read, and guessing another one is not safe while the store is there."""


def node_in(directory: Path, draw: Callable[[int], int]) -> NodeId:
    """The number of the node whose store is here; drawn now if it has none. Raises IdentityBroken, OSError.

    `draw` gives a random number below its argument.
    """
    path = directory / FILE_NAME
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return _write_new(path, 1 + draw(NODE_MAX))
    except UnicodeDecodeError:
        text = ""
    node = int(text) if text.strip().isdigit() and len(text) < 32 else 0
    if not 0 < node <= NODE_MAX:
        raise IdentityBroken(
            f"{path} does not hold the number of this node; write it back (other nodes list it in /raftz),"
            " or move the whole directory away and let the node join as a new one"
        )
    return node


def _write_new(path: Path, node: NodeId) -> NodeId:
    partial = path.with_suffix(".tmp")
    with partial.open("w", encoding="ascii") as file:
        file.write(f"{node}\n")
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return node


def peer_name(node: NodeId) -> str:
    """How people and tools see a node's number: eight letters or digits, as nats-server names its peers."""
    letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    found = ""
    for _ in range(8):
        node, place = divmod(node, len(letters))
        found += letters[place]
    return found
