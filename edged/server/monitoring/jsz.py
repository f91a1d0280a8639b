"""/jsz: JetStream, and the same figures as /varz and STATSZ show them.

Rules: without JetStream the document says `disabled` and everything is zero. The way acknowledged messages
are synced is always visible: `sync_always`, or the interval of the weaker mode that was configured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edged.config.jetstream_options import JetStreamOptions
from edged.config.options import AccountJetStream
from edged.core.commands import CATALOG, PEERS
from edged.core.consumer_defaults import CONSUMERS_DEFAULT_MAX
from edged.core.gotime import format_rfc3339
from edged.server.jetstream.account_limits import NOTHING
from edged.server.jetstream.figures import server_figures, stream_figures, used_bytes
from edged.server.jetstream.resources import is_enabled, store_directory, with_shares
from edged.server.monitoring.answers import Document, NotMeant, shown
from edged.server.monitoring.gojson import nanoseconds
from edged.server.monitoring.parameters import Kind, option
from edged.server.monitoring.totals import accounts_of
from edged.version import API_LEVEL

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.jetstream.consumers.consumer import Consumer
    from edged.server.jetstream.jetstream import JetStream
    from edged.server.jetstream.stream import Stream
    from edged.server.server import Server

LIMIT_DEFAULT = 1024
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
    """The document. NotMeant when only a leader should answer and this server is none."""
    jetstream = server.options.jetstream
    cluster = server.jetstream.cluster if server.jetstream is not None else None
    is_leader = jetstream is not None and (cluster is None or cluster.leads(CATALOG))
    if options.leader_only and not is_leader:
        raise NotMeant("filtered response: not leader")
    accounts = jetstream_accounts(server)
    document: Document = {
        **_stats(server, len(accounts)),
        "server_id": server.id,
        "now": format_rfc3339(server.now_ns()),
    }
    if jetstream is None:
        document["disabled"] = True
        document["config"] = {"max_memory": 0, "max_storage": 0}
    else:
        document["config"] = config(server, jetstream)
        document["limits"] = limits(jetstream)
    running = server.jetstream
    document |= stream_figures(list(running.streams()) if running is not None else [], led=options.raft)
    if cluster is not None:
        document["meta_cluster"] = cluster.meta_document()
    if details := [_account_detail(server, account, options) for account in _page(accounts, options)]:
        document["account_details"] = details
    document["total"] = len(accounts)
    return document


def jetstream_figures(server: Server, *, with_directory: bool = True) -> Document:
    """JetStream as a part of /varz (with its directory) and of STATSZ (without); empty when it is off."""
    jetstream = server.options.jetstream
    if jetstream is None:
        return {}
    cluster = server.jetstream.cluster if server.jetstream is not None else None
    shown_config = config(server, jetstream)
    if not with_directory:
        del shown_config["store_dir"]
    return {
        "config": shown_config,
        "stats": _stats(server, len(jetstream_accounts(server))),
        **({"meta": cluster.meta_document()} if cluster is not None else {}),
        "limits": limits(jetstream),
    }


def jetstream_accounts(server: Server) -> list[Account]:
    """The accounts that may use JetStream: those that say so, or the global one when there are no others."""
    if server.options.jetstream is None:
        return []
    return [account for account in accounts_of(server) if is_enabled(server, account)]


def config(server: Server, jetstream: JetStreamOptions) -> Document:
    """The configuration in force, with the limits that follow from the machine filled in."""
    directory = store_directory(server.options, jetstream)
    running = server.jetstream
    jetstream = running.options if running is not None else with_shares(jetstream, directory)
    return {
        "max_memory": jetstream.max_memory,
        "max_storage": jetstream.max_store,
        "store_dir": str(directory),
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
    """What clients may ask for at most; little more than what was configured is shown."""
    bounds = jetstream.limits
    return shown(
        {
            "max_request_batch": bounds.max_request_batch,
            "max_ack_pending": bounds.max_ack_pending,
            "max_ha_assets": bounds.max_ha_assets,
            "max_duplicate_window": nanoseconds(bounds.duplicate_window_s),
            "default_max_consumers": bounds.default_max_consumers or CONSUMERS_DEFAULT_MAX,
            "max_batch_inflight_per_stream": bounds.batch_max_inflight_per_stream,
            "max_batch_inflight_total": bounds.batch_max_inflight_total,
            "max_batch_size": bounds.batch_max_messages,
            "max_batch_timeout": nanoseconds(bounds.batch_timeout_s),
        }
    )


def _stats(server: Server, accounts: int) -> Document:
    running = server.jetstream
    used = {"memory": 0, "storage": 0, "reserved_memory": 0, "reserved_storage": 0}
    requests = errors = 0
    level = API_LEVEL if server.options.jetstream is not None else 0
    if running is not None:
        used = server_figures(running)
        requests = sum(account.requests for account in running.accounts.values())
        errors = sum(account.errors for account in running.accounts.values())
    inflight = running.door.inflight if running is not None else 0
    api = {"level": level, "total": requests, "errors": errors, **shown({"inflight": inflight})}
    return {**used, "accounts": accounts, "ha_assets": _replicated_count(running), "api": api}


def _replicated_count(running: JetStream | None) -> int:
    """How many groups this server has together with others: streams, and in a cluster the catalog."""
    if running is None or running.cluster is None:
        return 0
    return 1 + sum(len(stream.entry.config.get(PEERS, ())) > 1 for stream in running.streams())


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


def _account_detail(server: Server, account: Account, options: JszOptions) -> Document:
    limits = NOTHING if account.options.jetstream_tiers else account.options.jetstream or AccountJetStream()
    running = server.jetstream
    found = running.accounts.get(account.name) if running is not None else None
    streams = [stream for _, stream in sorted(found.streams.items())] if found is not None else []
    if options.stream_leader_only:
        streams = [stream for stream in streams if stream.is_leading]
    requests, errors = (found.requests, found.errors) if found is not None else (0, 0)
    memory_bytes, file_bytes = used_bytes(streams)
    document: Document = {
        "name": account.name_tag,
        "id": account.name,
        "memory": memory_bytes,
        "storage": file_bytes,
        # nats-server shows "no limit", which is -1, as the largest unsigned number; tools know it as that.
        "reserved_memory": limits.max_memory & _UNSIGNED_MASK,
        "reserved_storage": limits.max_store & _UNSIGNED_MASK,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": requests, "errors": errors},
    }
    if streams and (options.streams or options.consumers):
        document["stream_detail"] = [_stream_detail(stream, options) for stream in streams]
    return document


def _consumer_detail(consumer: Consumer, options: JszOptions) -> Document:
    # As below.
    from edged.server.jetstream.consumer_info import listed

    document = listed(consumer)
    if not options.config:
        del document["config"]
    return document


def _stream_detail(stream: Stream, options: JszOptions) -> Document:
    # Much code that is there when there are streams.
    from edged.server.jetstream.stream_info import described

    shown_stream = described(stream)
    document: Document = {"name": stream.name, "created": shown_stream["created"]}
    document["cluster"] = shown_stream["cluster"]
    if options.config:
        document["config"] = stream.config.document()
    document["state"] = shown_stream["state"]
    if options.consumers:
        consumers = stream.consumers
        details = {"consumer_detail": consumers.public()}
        if options.direct_consumers:
            details["direct_consumer_detail"] = consumers.direct()
        document |= {
            key: [_consumer_detail(one, options) for one in found] for key, found in details.items() if found
        }
    document |= {key: shown_stream[key] for key in ("mirror", "sources") if key in shown_stream}
    if options.raft and "raft_group" in shown_stream["cluster"]:
        document["stream_raft_group"] = shown_stream["cluster"]["raft_group"]
    return document
