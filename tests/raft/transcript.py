"""Conversations of a group, written down: what happens to its nodes, and what they do about it.

A transcript is a text file of steps. A step is a line with a command, and below it, indented, what every node
did because of it, in order: what it became, what it sends early, what it writes and applies, and what it
sends once that is durable.

    cluster 1 2 3 [learners 4] [quiet 3] [bytes 8]     nodes; idle heartbeats to fall quiet; bytes of a part
    node 4                       a node that belongs to nobody yet
    log 3 1 1 2                  a node begins anew with entries of these terms
    timeout 1, beat 1            let pass what a node waits before its election, or before its next heartbeat
    elect 1                      let a node lead, and show only that
    after 1000                   let so many ms pass, and deliver everything meanwhile
    propose 1 a b, change 1 voters 1 2 [learners 3], transfer 1 to 2, read 1 as 7, suspect 1 of 2
    deliver [from 1] [to 2] [only Append], drop ...      what is under way now; settle: until nothing is
    part 1 2 | 3, heal           who hears whom
    hold 1, sync 1               a disk is slow; and has written all the same
    crash 1, start 1, rejoin 1   the last one with a disk that may have forgotten
    compact 1, offer 1 to 3      keep the state in place of the log; send it
    logs                         show what everybody has

`python -m tests.raft.transcript --rewrite` writes what the core does now into all files, to be reviewed.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hub.raft import messages
from hub.raft.options import RaftOptions
from hub.raft.ready import Ready
from tests.jetstream.transcript import Step, parse, written
from tests.raft import wording
from tests.raft.cluster import Cluster, Node
from tests.raft.journal import Entry, Journal

FOLDER: Final = Path(__file__).parent.parent / "data" / "raft"
_NAMES: Final = frozenset(("learners", "quiet", "bytes", "voters", "to", "as", "of", "from", "only"))


def _words(rest: str) -> dict[str, list[str]]:
    """`1 2 learners 3` as {"": ["1", "2"], "learners": ["3"]}."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in rest.split():
        if word in _NAMES:
            name = word
            found[name] = []
        else:
            found[name].append(word)
    return found


class Player:
    """Plays the steps of one transcript."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._roles: dict[int, str] = {}
        self._cluster = Cluster(1)

    def play(self, step: Step) -> tuple[str, ...]:
        """What follows from a step."""
        verb, _, rest = step.command.partition(" ")
        self._lines = []
        getattr(self, f"do_{verb}")(rest)
        for node in self._cluster.nodes.values():
            self._show_role(node)
        return tuple(self._lines)

    def _one(self, rest: str) -> Node:
        return self._cluster[int(rest.split()[0])]

    def _number(self, rest: str, name: str) -> int:
        return int(_words(rest)[name][0])

    def _refused_if(self, is_refused: bool) -> None:
        if is_refused:
            self._lines.append("refused")

    # --- commands ---

    def do_cluster(self, rest: str) -> None:
        words = _words(rest)
        chosen = {"quiet_beats": int(words.get("quiet", ["0"])[0])}
        if "bytes" in words:
            chosen |= {"snapshot_part_bytes": int(words["bytes"][0]), "snapshot_parts_max": 2}
        learners = map(int, words.get("learners", []))
        self._cluster = Cluster(map(int, words[""]), learners, options=RaftOptions(**chosen))
        self._cluster.on_ready = self._on_ready
        self._cluster.on_durable = self._on_durable
        self._roles = {number: wording.of_role(node) for number, node in self._cluster.nodes.items()}

    def do_node(self, rest: str) -> None:
        self._cluster.add(int(rest))

    def do_log(self, rest: str) -> None:
        number, *terms = map(int, rest.split())
        journal = Journal(self._cluster.members)
        journal.entries = [Entry(index, term, f"c{index}.{term}") for index, term in enumerate(terms, 1)]
        journal.hard_state = replace(journal.hard_state, term=max(terms))
        node = self._cluster[number]
        node.crash()
        node.durable = journal
        node.start()

    def do_timeout(self, rest: str) -> None:
        # Nobody has heard of a leader lately by then.
        self._cluster.now_ms += 2 * self._cluster.options.election_ms
        self._cluster.time_out(int(rest))

    def do_elect(self, rest: str) -> None:
        self._cluster.elect(int(rest))
        self._lines.clear()
        self._roles.clear()

    def do_beat(self, rest: str) -> None:
        self._cluster.beat(int(rest))

    def do_after(self, rest: str) -> None:
        self._cluster.advance(int(rest))

    def do_propose(self, rest: str) -> None:
        self._refused_if(self._one(rest).propose(*rest.split()[1:]) is None)

    def do_change(self, rest: str) -> None:
        words = _words(rest)
        voters, learners = map(int, words["voters"]), map(int, words.get("learners", []))
        self._refused_if(not self._one(rest).change(voters, learners))

    def do_transfer(self, rest: str) -> None:
        self._refused_if(not self._one(rest).transfer(self._number(rest, "to")))

    def do_read(self, rest: str) -> None:
        self._one(rest).read(self._number(rest, "as"))

    def do_suspect(self, rest: str) -> None:
        self._one(rest).suspect(self._number(rest, "of"))

    def _chosen(self, rest: str) -> dict[str, Any]:
        words = _words(rest)
        chosen: dict[str, Any] = {}
        if "from" in words:
            chosen["sender"] = int(words["from"][0])
        if "to" in words:
            chosen["to"] = int(words["to"][0])
        if "only" in words:
            chosen["kind"] = getattr(messages, words["only"][0])
        return chosen

    def do_deliver(self, rest: str) -> None:
        if not self._cluster.deliver(**self._chosen(rest)):
            self._lines.append("nothing")

    def do_drop(self, rest: str) -> None:
        self._lines.append(f"{self._cluster.drop(**self._chosen(rest))} lost")

    def do_settle(self, rest: str) -> None:
        self._cluster.settle()

    def do_part(self, rest: str) -> None:
        self._cluster.part(*(map(int, group.split()) for group in rest.split("|")))

    def do_heal(self, rest: str) -> None:
        self._cluster.part()

    def do_hold(self, rest: str) -> None:
        self._one(rest).is_held = True

    def do_sync(self, rest: str) -> None:
        self._one(rest).release()

    def do_crash(self, rest: str) -> None:
        self._one(rest).crash()

    def do_start(self, rest: str) -> None:
        self._one(rest).start()

    def do_rejoin(self, rest: str) -> None:
        self._one(rest).start(must_rejoin=True)

    def do_compact(self, rest: str) -> None:
        self._one(rest).compact()

    def do_offer(self, rest: str) -> None:
        self._one(rest).offer(self._number(rest, "to"))

    def do_logs(self, rest: str) -> None:
        for number, node in self._cluster.nodes.items():
            self._lines.append(f"{number} {wording.of_log(node)}")

    # --- what is shown ---

    def _on_ready(self, node: Node, ready: Ready) -> None:
        self._show_role(node)
        self._lines += [f"{node.node} {line}" for line in wording.of_ready(ready)]

    def _on_durable(self, node: Node, ready: Ready) -> None:
        self._lines += [f"{node.node} {line}" for line in wording.of_durable(ready)]

    def _show_role(self, node: Node) -> None:
        role = wording.of_role(node)
        if self._roles.get(node.node) != role:
            self._roles[node.node] = role
            self._lines.append(f"{node.node} is {role}")


def played(text: str) -> str:
    """A transcript with what the core does now."""
    player = Player()
    return written([replace(step, output=player.play(step)) for step in parse(text)])


def files() -> list[Path]:
    """All transcripts."""
    return sorted(FOLDER.glob("*.txt"))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.raft.transcript", description=__doc__)
    parser.add_argument("--rewrite", action="store_true", required=True)
    parser.parse_args()
    for path in files():
        path.write_text(played(path.read_text()))


if __name__ == "__main__":
    main()
