"""What nodes say, write and become, as transcripts put it. An entry is written as index@term."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hub.raft.members import Members
from hub.raft.messages import (
    Append,
    AppendReply,
    Block,
    Heartbeat,
    HeartbeatReply,
    Message,
    ReadReply,
    ReadRequest,
    RejoinReply,
    RejoinRequest,
    SnapshotPart,
    SnapshotReply,
    TransferNow,
    VoteReply,
    VoteRequest,
)
from hub.raft.ready import Ready
from tests.raft.cluster import Node
from tests.raft.journal import Entry


def of_nodes(nodes: Iterable[int]) -> str:
    return " ".join(map(str, sorted(nodes)))


def of_members(members: Members) -> str:
    """Who the members are."""
    words = [f"voters {of_nodes(members.voters)}"]
    for name in ("outgoing", "learners", "demoted"):
        if getattr(members, name):
            words.append(f"{name} {of_nodes(getattr(members, name))}")
    return ", ".join(words)


def of_entry(entry: Entry) -> str:
    content = f"({of_members(entry.members)})" if entry.members is not None else entry.command
    return f"{entry.index}@{entry.term} {content}"


def of_block(block: Block) -> str:
    """Its entries."""
    if block.members is not None:
        return f"{block.first}@{block.term} ({of_members(block.members)})"
    span = f"{block.first}" if block.count == 1 else f"{block.first}..{block.last}"
    commands = "" if block.payload is None else " " + " ".join(block.payload)
    return f"{span}@{block.term}{commands}"


def of_message(message: Message) -> str:
    """A message, but for its term."""
    match message:
        case VoteRequest(_, index, term, is_trial, is_transfer):
            kind = "would you vote" if is_trial else "vote"
            return f"{kind} for me, I have {index}@{term}{', handed over' if is_transfer else ''}"
        case VoteReply(_, is_trial, is_granted):
            return f"{'yes' if is_granted else 'no'}{', I would' if is_trial and is_granted else ''}"
        case Append(_, index, term, blocks, commit):
            new = "; ".join(map(of_block, blocks))
            return f"after {index}@{term}{f' take {new}' if new else ''}, committed {commit}"
        case AppendReply(_, index, True, hint_index, hint_term):
            return f"not {index}, I have {hint_index}@{hint_term}"
        case AppendReply(_, index):
            return f"I have {index}"
        case Heartbeat(_, commit, number, is_quiet):
            return f"heartbeat {number}, committed {commit}{', quiet from now on' if is_quiet else ''}"
        case HeartbeatReply(_, number):
            return f"heard {number}"
        case SnapshotPart(_, snapshot, offset, size):
            state = f"{snapshot.index}@{snapshot.term} ({of_members(snapshot.members)})"
            return f"state to {state}, bytes {offset}..{offset + size - 1} of {snapshot.size}"
        case SnapshotReply(_, index, _, offset):
            return f"I have {offset} bytes of the state to {index}"
        case TransferNow():
            return "lead now"
        case ReadRequest(_, token):
            return f"may I answer read {token}"
        case ReadReply(_, token, index):
            return f"answer read {token} from {index} on"
        case RejoinRequest(_, boot):
            return f"I may have forgotten something before start {boot}"
        case RejoinReply(_, boot, index):
            return f"then have {index}, start {boot}"
    raise AssertionError(message)


def of_ready(ready: Ready) -> Iterator[str]:
    """What there is to do but for what waits for the disk, one thing per line, in the order of work."""
    for to, message in ready.early:
        yield f"> {to} early, term {message.term}: {of_message(message)}"
    if ready.hard_state is not None:
        vote = f", votes for {ready.hard_state.vote}" if ready.hard_state.vote else ""
        yield f"writes term {ready.hard_state.term}{vote}"
    for part in ready.snapshot_parts:
        yield f"writes {part.size} bytes of the state to {part.snapshot.index}"
    if ready.install is not None:
        yield f"begins anew with the state to {ready.install.index}@{ready.install.term}"
    if ready.truncate_from is not None:
        yield f"cuts off from {ready.truncate_from}"
    for block in ready.append:
        yield f"writes {of_block(block)}"
    if ready.apply_to:
        yield f"applies to {ready.apply_to}"
    for token, index in ready.reads:
        yield f"read {token} is to be asked again" if index < 0 else f"answers read {token} from {index} on"
    for peer in ready.snapshots_wanted:
        yield f"wants a snapshot for {peer}"


def of_durable(ready: Ready) -> Iterator[str]:
    """What is sent once that is durable."""
    for to, message in ready.messages:
        yield f"> {to} term {message.term}: {of_message(message)}"


def of_role(node: Node) -> str:
    """What a node is."""
    if not node.is_up:
        return "down"
    raft = node.raft
    leader = f" of {raft.leader}" if raft.leader not in (0, node.node) else ""
    quiet = ", quiet" if raft.is_quiet else ""
    return f"{raft.role.name.lower()}{leader} in term {raft.term}{quiet}"


def of_log(node: Node) -> str:
    """What a node has."""
    journal = node.written
    state = [f"state to {journal.base_index}@{journal.base_term}"] if journal.base_index else []
    entries = "; ".join([*state, *map(of_entry, journal.entries)])
    return f"has {entries or 'nothing'}; committed {node.raft.log.commit}, applied {node.applied}"
