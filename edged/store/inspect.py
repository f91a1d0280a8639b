"""`edged inspect`: what is in the files of a store, item by item, also where they are damaged.

Rules: nothing is written and no lock is taken: a store in use may be looked at, and what is being written
meanwhile may be seen half. An item has a kind and fields; how it is shown is for others to say. Data of
messages is left out unless asked for, and then only its beginning is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, NamedTuple

from edged.core.batch_record import BatchRecord
from edged.core.commands import Refill, decode
from edged.core.consumer_machine import ConsumerMachine
from edged.core.frame_twins import decode_append, scan
from edged.core.frames import APPEND, BATCH, COMMAND, CUT, HARD_STATE, INSTALL, MEMBERS, REPAIR, Frame
from edged.core.message import Message
from edged.core.repair_records import Repaired, decode_repaired
from edged.core.replica_records import HardRecord, MembersRecord
from edged.store.box import Box, Keyring
from edged.store.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    checkpoint_numbers,
    checkpoint_path,
    decode_checkpoint,
)
from edged.store.errors import Damaged, StoreError
from edged.store.fsck_files import StoreFiles
from edged.store.fsck_found import chain_from
from edged.store.fsck_journal import Use, read_journal_file
from edged.store.guard import unguard
from edged.store.inspect_segment import segment_items
from edged.store.journal_file import HEADER_BYTES, JOURNAL, JournalHeader, file_numbers, file_path
from edged.store.journal_reader import box_of
from edged.store.recovery import LOST_AND_FOUND
from edged.store.sealed_frames import TAG_BYTES, open_frames
from edged.store.segment_format import STREAMS

PAYLOAD_BYTES_MAX: Final = 256
_KINDS: Final = {
    BATCH: "batch",
    APPEND: "append",
    COMMAND: "command",
    HARD_STATE: "hard state",
    CUT: "cut",
    MEMBERS: "members",
    INSTALL: "install",
    REPAIR: "repair",
}


class Item(NamedTuple):
    """One thing that was found. Damage has the kind "damage"."""

    kind: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """How much is to be shown."""

    with_payload: bool = False
    subjects_max: int = 10


def overview(files: StoreFiles, keys: Keyring, asked: Asked) -> Iterator[Item]:
    """The files of a store, and what the journal and the checkpoints say of themselves."""
    for one in files.found():
        inner = files.below(one.path) if one.is_directory else [one]
        yield Item(
            "directory" if one.is_directory else "file",
            {"path": one.path, "files": len(inner), "bytes": sum(file.size for file in inner)},
        )
    for number in file_numbers(files.list(JOURNAL)):
        found = read_journal_file(files, number)
        yield Item(
            "journal file",
            {"path": found.path, "bytes": found.size, "use": found.use.value, **_header_fields(found.header)},
        )
    for number in checkpoint_numbers(files):
        yield from checkpoint_items(files, checkpoint_path(number), is_brief=True)
    for one in files.below(STREAMS):
        yield Item("segment", {"path": one.path, "bytes": one.size})
    for one in files.below(LOST_AND_FOUND):
        yield Item("lost and found", {"path": one.path, "bytes": one.size})


def all_journal(files: StoreFiles, keys: Keyring, asked: Asked) -> Iterator[Item]:
    """Every file of the journal."""
    ends = _ends(files)
    for number in file_numbers(files.list(JOURNAL)):
        path = file_path(number)
        yield from _while_there(path, journal_items(files, path, asked, ends.get(number)))


def all_checkpoints(files: StoreFiles, keys: Keyring, asked: Asked) -> Iterator[Item]:
    """Every checkpoint."""
    for number in checkpoint_numbers(files):
        path = checkpoint_path(number)
        yield from _while_there(path, checkpoint_items(files, path))


def all_segments(files: StoreFiles, keys: Keyring, asked: Asked) -> Iterator[Item]:
    """Every segment."""
    for one in files.below(STREAMS):
        found = segment_items(files, one.path, keys, asked.subjects_max)
        yield from _while_there(one.path, _as_items(found))


def one_file(files: StoreFiles, path: str, keys: Keyring, asked: Asked) -> Iterator[Item]:
    """A file, by what it is called or by what it begins with."""
    head, _ = files.read_head(path, HEADER_BYTES)
    if ".ckpt" in path:
        yield from checkpoint_items(files, path)
    elif ".seg" in path or head.startswith(b"edged\0sg"):
        yield from _as_items(segment_items(files, path, keys, asked.subjects_max))
    elif ".log" in path or JournalHeader.decode(head, path) is not None:
        yield from journal_items(files, path, asked)
    else:
        raise Damaged("neither a journal file nor a checkpoint nor a segment", path)


def _while_there(path: str, items: Iterator[Item]) -> Iterator[Item]:
    """The items of a file that a running daemon may remove meanwhile."""
    try:
        yield from items
    except FileNotFoundError:
        yield Item("gone", {"path": path})


def _as_items(found: Iterator[tuple[str, dict[str, Any]]]) -> Iterator[Item]:
    return (Item(kind, values) for kind, values in found)


def _damage(path: str, error: StoreError | str, offset: int | None = None, **more: Any) -> Item:
    what = error.what if isinstance(error, StoreError) else error
    return Item("damage", {"path": path, "offset": offset, "what": what, **more})


# --- the journal ---


def _header_fields(header: JournalHeader | None) -> dict[str, Any]:
    if header is None:
        return {}
    return {
        "number": header.number,
        "nonce": f"{header.nonce:016x}",
        "created_ns": header.created_ns,
        "previous": header.previous_number,
        "previous_end": header.previous_end,
        "key": header.key_id.hex() if any(header.key_id) else "none",
    }


def _ends(files: StoreFiles) -> dict[int, int | None]:
    """Up to where the files of the journal count, as the headers of their successors say."""
    return {header.number: end for header, end in chain_from(files, 0).files}


def journal_items(files: StoreFiles, path: str, asked: Asked, end: int | None = None) -> Iterator[Item]:
    """A journal file: its header and its frames. What stands behind `end` does not count."""
    name = path.rpartition("/")[2]
    numbers = file_numbers([name])
    if numbers and path == file_path(numbers[0]):
        found = read_journal_file(files, numbers[0])
        header, nonce = found.header, found.nonce
        values = {"path": path, "bytes": found.size, "use": found.use.value, **_header_fields(found.header)}
        yield Item("journal file", values)
        for offset in found.bad_copies if found.header is not None else ():
            yield _damage(path, "one of two copies of the header is damaged", offset)
        if found.use is Use.HEADLESS:
            way = "its frames cannot be read" if nonce is None else "its nonce was computed from the frames"
            yield _damage(path, f"no header; {way}", 0)
    else:
        head, size = files.read_head(path, HEADER_BYTES)
        header = JournalHeader.decode(head, path)
        nonce = None
        yield Item("journal file", {"path": path, "bytes": size, **_header_fields(header)})
    nonce = header.nonce if header is not None else nonce
    if nonce is None:
        return
    box, can_read = None, True
    if header is not None:
        try:
            box = box_of(header, files.keys)
        except StoreError as error:
            yield _damage(path, error)
            can_read = False
    yield from _frame_items(files.read_all(path), nonce, path, box, asked if can_read else None, end)


def _frame_items(
    data: bytes, nonce: int, path: str, box: Box | None, asked: Asked | None, end: int | None
) -> Iterator[Item]:
    """The frames of a file, opened with its box; without their contents when these are not `asked` for."""
    found = scan(data, nonce, HEADER_BYTES)
    frames: Sequence[Frame] = found.frames
    damage = dict(found.damage)
    tag_bytes = 0
    if box is not None:
        data, frames, sealed = open_frames(data, frames, box, 0)
        damage = dict(sorted([*damage.items(), *sealed]))
        tag_bytes = TAG_BYTES
    for frame in frames:
        for start in [start for start in damage if start < frame[0]]:
            yield _damage(path, "no frame", start, bytes=damage.pop(start) - start)
        values: dict[str, Any] = {
            "offset": frame[0],
            "group": frame[2],
            "index": frame[3],
            "bytes": frame[4] + frame[5] - frame[0] + tag_bytes,
        }
        if end is not None and frame[0] >= end:
            values["void"] = True
        try:
            values |= _body_fields(data, frame, asked) if asked is not None else {}
        except ValueError as error:
            yield _damage(path, f"a frame is not understood ({error})", frame[0])
        yield Item(_KINDS.get(frame[1], f"frame of kind {frame[1]}"), values)
    for start, stop in damage.items():
        yield _damage(path, "no frame", start, bytes=stop - start)
    rest = len(data) - found.tail_start
    if rest:
        is_empty = not data[found.tail_start :].strip(b"\0")
        yield Item(
            "rest",
            {
                "offset": found.tail_start,
                "bytes": rest,
                "is": "zeros" if is_empty else "of an earlier use, torn or damaged",
            },
        )


def _body_fields(data: bytes, frame: Frame, asked: Asked) -> dict[str, Any]:
    _, kind, _, _, start, size = frame
    if kind == APPEND:
        ts_ns, subject, header_bytes, message = decode_append(data, start, size)
        sizes = {"header_bytes": header_bytes, "payload_bytes": len(message) - header_bytes}
        shown = {"data": message[:PAYLOAD_BYTES_MAX]} if asked.with_payload else {}
        return {"subject": subject, "ts_ns": ts_ns, **sizes, **shown}
    body = data[start : start + size]
    if kind == BATCH:
        record = BatchRecord.decode(body)
        applied = [
            {"group": one.group, "index": one.index, "last_seq": one.last_seq, "refused": list(one.refused)}
            for one in record.applied
        ]
        synced = {"durable_file": record.synced_file, "durable_to": record.synced_to}
        return {**synced, "time_ns": record.time_ns, "applied": applied}
    if kind == COMMAND:
        command = decode(body)
        values = {field.name: getattr(command, field.name) for field in fields(command)}
        if isinstance(command, Refill):
            data = values.pop("data")
            values["payload_bytes"] = len(data) - command.header_bytes
            if asked.with_payload:
                values["data"] = data[:PAYLOAD_BYTES_MAX]
        if "stream_id" in values:
            values["stream_id"] = values["stream_id"].hex()
        # The frame's group and the one that a command speaks of are two things.
        values = {("stream_group" if name == "group" else name): value for name, value in values.items()}
        return {"command": type(command).__name__, **values}
    if kind == HARD_STATE:
        return asdict(HardRecord.decode(body))
    if kind == REPAIR:
        return _repaired_fields(decode_repaired(body), asked)
    return asdict(MembersRecord.decode(body)) if kind == MEMBERS else {}


def _repaired_fields(record: Repaired, asked: Asked) -> dict[str, Any]:
    if not isinstance(record, Message):
        return {"repair": type(record).__name__, **asdict(record)}
    values = record._asdict()
    data = values.pop("data")
    values["payload_bytes"] = len(data) - record.header_bytes
    return {**values, "data": data[:PAYLOAD_BYTES_MAX]} if asked.with_payload else values


# --- checkpoints ---


def checkpoint_items(files: StoreFiles, path: str, is_brief: bool = False) -> Iterator[Item]:
    """A checkpoint: what it says of the store, then of its streams."""
    blob = files.read_all(path)
    try:
        found = decode_checkpoint(blob, path, files.keys)
    except StoreError as error:
        yield _damage(path, error, error.offset)
        return
    state = dict(found.state)
    groups, condemned = state.pop("groups"), state.pop("condemned", [])
    head = {"path": path, "bytes": len(blob), "next_file": found.next_file, "streams": len(groups)}
    yield Item("checkpoint", head if is_brief else {**head, **state})
    if unguard(blob, thorough=True).repaired:
        yield _damage(path, "it was repaired when it was read", 0)
    if is_brief:
        return
    for group in groups:
        yield from _stream_items(group)
    for number, condemned_path in condemned:
        yield Item("condemned", {"path": condemned_path, "until_checkpoint": number})


def _stream_items(group: list[Any]) -> Iterator[Item]:
    number, stream_id, account, name, config, applied, machine, log = group
    values = {"group": number, "id": stream_id.hex(), "account": account, "name": name, "applied": applied}
    if log is None:
        yield Item("stream", {**values, "storage": "memory", "config": config})
        return
    live = [segment[2] for segment in log["segments"]]
    figures = {"messages": sum(one[0] for one in live), "counted_bytes": sum(one[1] for one in live)}
    known = {"last_seq": log["last_seq"], **figures, "message_ids": len(machine["dedupe"])}
    yield Item("stream", {**values, **known, "config": config})
    for path, (first, last), (count, size), _ in log["segments"]:
        seqs = {"first_seq": first, "last_seq": last, "live_messages": count, "live_bytes": size}
        yield Item("stream segment", {"path": path, **seqs})
    for first, last, reason in log["lost"]:
        yield Item("lost", {"first_seq": first, "last_seq": last, "reason": reason})
    for consumer, state in machine["consumers"]:
        found = ConsumerMachine.restore(consumer, state)
        (deliveries, delivered), floor = found.delivered, found.ack_floor.stream_seq
        pending = len(found.pending)
        reach = {"floor": floor, "delivered": delivered, "deliveries": deliveries, "pending": pending}
        yield Item("consumer", {"number": consumer, "name": found.name, **reach, "config": state[1]})


# --- one stream ---


def one_stream(files: StoreFiles, name: str, keys: Keyring, asked: Asked) -> Iterator[Item]:
    """A stream by its name, by account/name or by its id: what the newest checkpoint and the journal say."""
    newest = _newest(files)
    groups = newest.state["groups"] if newest is not None else []
    wanted = {group[0] for group in groups if name in (group[3], f"{group[2]}/{group[3]}", group[1].hex())}
    for group in groups:
        if group[0] in wanted:
            yield from _stream_items(group)
            for entry in (group[7] or {"segments": ()})["segments"]:
                yield from _as_items(segment_items(files, entry[0], keys, asked.subjects_max))
    for number in file_numbers(files.list(JOURNAL)):
        counts: Counter[str] = Counter()
        for item in journal_items(files, file_path(number), asked):
            is_maker = item.fields.get("command") == "PutStream" and name in (
                item.fields["name"],
                f"{item.fields['account']}/{item.fields['name']}",
                item.fields["stream_id"],
            )
            if is_maker:
                wanted.add(item.fields["stream_group"])
                yield item
            elif item.kind in ("append", "command") and item.fields["group"] in wanted:
                counts[item.fields.get("command", "messages")] += 1
        if counts:
            yield Item("in the journal", {"path": file_path(number), **dict(sorted(counts.items()))})
    if not wanted:
        raise Damaged(f"no checkpoint and no record of the journal speaks of a stream {name}", CHECKPOINTS)


def _newest(files: StoreFiles) -> Checkpoint | None:
    for number in reversed(checkpoint_numbers(files)):
        path = checkpoint_path(number)
        try:
            return decode_checkpoint(files.read_all(path), path, files.keys)
        except Damaged:
            continue
    return None
