"""/jsz: JetStream, and the same figures as /varz and STATSZ show them.

Rules: without JetStream the document says `disabled` and everything is zero. The way acknowledged messages
are synced is always visible: `sync_always`, or the interval of the weaker mode that was configured.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edged.config.jetstream_options import JetStreamOptions
from edged.config.options import GLOBAL_ACCOUNT, AccountJetStream, Options
from edged.core.gotime import format_rfc3339
from edged.server.monitoring.answers import BadRequest, Document, shown
from edged.server.monitoring.gojson import nanoseconds
from edged.server.monitoring.parameters import Kind, option
from edged.server.monitoring.totals import accounts_of
from edged.version import API_LEVEL

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.server import Server

LIMIT_DEFAULT = 1024
# Where a limit is not configured, this share of the memory or of the free disk is used.
_SHARE_PERCENT = 75
_UNSIGNED_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class JszOptions:
    """What /jsz can be asked."""

    account: str = option(Kind.TEXT, "acc", json_name="account")
    accounts: bool = option(Kind.FLAG, "accounts")
    streams: bool = option(Kind.FLAG, "streams")
    consumers: bool = option(Kind.FLAG, "consumers", json_name="consumer")
    direct_consumers: bool = option(Kind.FLAG, "direct-consumers", json_name="direct_consumer")
    config: bool = option(Kind.FLAG, "config")
    leader_only: bool = option(Kind.FLAG, "leader-only", json_name="leader_only")
    offset: int = option(Kind.INTEGER, "offset")
    limit: int = option(Kind.INTEGER, "limit")
    raft: bool = option(Kind.FLAG, "raft")
    stream_leader_only: bool = option(Kind.FLAG, "stream-leader-only", json_name="stream_leader_only")


def jsz(server: Server, options: JszOptions) -> Document:
    """The document. BadRequest when only a leader should answer and there is no JetStream to lead."""
    jetstream = server.options.jetstream
    if jetstream is None and options.leader_only:
        raise BadRequest("filtered response: not leader")
    accounts = jetstream_accounts(server)
    document: Document = {
        **_stats(accounts=len(accounts), level=API_LEVEL if jetstream is not None else 0),
        "server_id": server.id,
        "now": format_rfc3339(server.now_ns()),
    }
    if jetstream is None:
        document["disabled"] = True
        document["config"] = {"max_memory": 0, "max_storage": 0}
    else:
        document["config"] = config(server.options, jetstream)
        document["limits"] = limits(jetstream)
    document |= {"streams": 0, "consumers": 0, "messages": 0, "bytes": 0}
    if details := [_account_detail(account) for account in _page(accounts, options)]:
        document["account_details"] = details
    document["total"] = len(accounts)
    return document


def jetstream_figures(server: Server, *, with_directory: bool = True) -> Document:
    """JetStream as a part of /varz (with its directory) and of STATSZ (without); empty when it is off."""
    jetstream = server.options.jetstream
    if jetstream is None:
        return {}
    shown_config = config(server.options, jetstream)
    if not with_directory:
        del shown_config["store_dir"]
    return {
        "config": shown_config,
        "stats": _stats(accounts=len(jetstream_accounts(server)), level=API_LEVEL),
        "limits": limits(jetstream),
    }


def jetstream_accounts(server: Server) -> list[Account]:
    """The accounts that may use JetStream: those that say so, or the global one when there are no others."""
    if server.options.jetstream is None:
        return []
    return [account for account in accounts_of(server) if is_enabled(server, account)]


def is_enabled(server: Server, account: Account) -> bool:
    """Whether an account may use JetStream."""
    if server.options.jetstream is None or account.is_system:
        return False
    if account.options.jetstream is not None:
        return True
    usual = (GLOBAL_ACCOUNT, server.system_account_name)
    return account.name == GLOBAL_ACCOUNT and all(one.name in usual for one in server.options.accounts)


def config(options: Options, jetstream: JetStreamOptions) -> Document:
    """The configuration in force, with the limits that follow from the machine filled in."""
    directory = Path(jetstream.store_dir or options.store_dir or Path(tempfile.gettempdir()) / "nats")
    max_memory = jetstream.max_memory if jetstream.max_memory >= 0 else _memory_share_bytes()
    max_store = jetstream.max_store if jetstream.max_store >= 0 else _disk_share_bytes(directory)
    return {
        "max_memory": max_memory,
        "max_storage": max_store,
        "store_dir": str(directory / "jetstream"),
        **shown(
            {
                "sync_interval": nanoseconds(jetstream.sync_interval_s) if jetstream.sync != "os" else 0,
                "sync_always": jetstream.sync == "always",
                "domain": jetstream.domain,
                "compress_ok": True,
                "unique_tag": jetstream.unique_tag,
                "strict": jetstream.strict,
            }
        ),
    }


def limits(jetstream: JetStreamOptions) -> Document:
    """What clients may ask for at most; only what was configured is shown."""
    bounds = jetstream.limits
    return shown(
        {
            "max_request_batch": bounds.max_request_batch,
            "max_ack_pending": bounds.max_ack_pending,
            "max_ha_assets": bounds.max_ha_assets,
            "max_duplicate_window": nanoseconds(bounds.duplicate_window_s),
            "max_batch_inflight_per_stream": bounds.batch_max_inflight_per_stream,
            "max_batch_inflight_total": bounds.batch_max_inflight_total,
            "max_batch_size": bounds.batch_max_messages,
            "max_batch_timeout": nanoseconds(bounds.batch_timeout_s),
        }
    )


def _stats(accounts: int, level: int, reserved_memory: int = 0, reserved_store: int = 0) -> Document:
    return {
        "memory": 0,
        "storage": 0,
        "reserved_memory": reserved_memory,
        "reserved_storage": reserved_store,
        "accounts": accounts,
        "ha_assets": 0,
        "api": {"level": level, "total": 0, "errors": 0},
    }


def _page(accounts: list[Account], options: JszOptions) -> list[Account]:
    """The accounts to detail. One that is asked for by name comes before any paging."""
    named = [account for account in accounts if account.name == options.account]
    streams = options.streams or options.consumers
    if named or not (options.accounts or (streams and not options.account)):
        return named
    if options.limit < 0:
        return accounts
    offset = max(0, options.offset)
    ordered = sorted(accounts, key=lambda account: account.name)
    return ordered[offset : offset + (options.limit or LIMIT_DEFAULT)]


def _account_detail(account: Account) -> Document:
    reserved = account.options.jetstream or AccountJetStream()
    # nats-server shows "no limit", which is -1, as the largest unsigned number; tools know it as that.
    memory, store = reserved.max_memory & _UNSIGNED_MASK, reserved.max_store & _UNSIGNED_MASK
    return {"name": account.name, "id": account.name, **_stats(0, 0, memory, store)}


def _memory_share_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _SHARE_PERCENT // 100


def _disk_share_bytes(directory: Path) -> int:
    """A share of what is free on the disk that the directory is on, or will be on once it is made."""
    for place in (directory, *directory.parents):
        try:
            disk = os.statvfs(place)
        except OSError:
            continue
        return disk.f_bavail * disk.f_frsize * _SHARE_PERCENT // 100
    return 0
