"""/accountz and /accstatz: the accounts, what they share, and how busy they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edged.config.options import MappingOptions, ServiceExport, ServiceImport, StreamExport, StreamImport
from edged.core.gotime import format_rfc3339
from edged.server.jetstream.resources import is_enabled
from edged.server.monitoring.answers import BadRequest, Document, shown
from edged.server.monitoring.parameters import Kind, option
from edged.server.monitoring.totals import accounts_of, subscription_figures, traffic_of

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.server import Server

_RESPONSE_TYPES = {"singleton": "Singleton", "stream": "Streamed", "chunked": "Chunked"}


@dataclass(frozen=True, slots=True)
class AccountzOptions:
    """What /accountz can be asked."""

    account: str = option(Kind.TEXT, "acc", json_name="account")


@dataclass(frozen=True, slots=True)
class AccstatzOptions:
    """What /accstatz can be asked."""

    accounts: tuple[str, ...] = option(Kind.TEXTS, json_name="accounts")
    include_unused: bool = option(Kind.FLAG, "unused", json_name="include_unused")


def accountz(server: Server, options: AccountzOptions) -> Document:
    """All names, or the details of one account."""
    document: Document = {
        "server_id": server.id,
        "now": format_rfc3339(server.now_ns()),
        **shown({"system_account": server.system_account_name}),
    }
    if not options.account:
        return document | {"accounts": [account.name for account in accounts_of(server)]}
    account = server.accounts.get(options.account)
    if account is None or account.is_removed:
        raise BadRequest(f"Account {options.account} does not exist")
    return document | {"account_detail": _detail(server, account)}


def accstatz(server: Server, options: AccstatzOptions) -> Document:
    """Traffic and sizes of the accounts that are in use, or of all."""
    accounts = [
        account
        for account in accounts_of(server)
        if (options.include_unused or account.connections)
        and (not options.accounts or account.name in options.accounts)
    ]
    return {
        "server_id": server.id,
        "now": format_rfc3339(server.now_ns()),
        "account_statz": [account_figures(account) for account in accounts],
    }


def account_figures(account: Account) -> Document:
    """One account, as /accstatz and the events of the system account show it."""
    counts = traffic_of(account)
    return {
        "acc": account.name,
        "name": account.name,
        "conns": len(account.connections),
        "leafnodes": 0,
        "total_conns": len(account.connections),
        "num_subscriptions": len(account.subscriptions),
        "sent": _data(counts.out_messages, counts.out_bytes),
        "received": _data(counts.in_messages, counts.in_bytes),
        "slow_consumers": account.slow_consumers,
    }


def _data(messages: int, size_bytes: int) -> Document:
    none = {"msgs": 0, "bytes": 0}
    return {
        "msgs": messages,
        "bytes": size_bytes,
        "gateways": dict(none),
        "routes": dict(none),
        "leafs": dict(none),
    }


def _detail(server: Server, account: Account) -> Document:
    options = account.options
    return {
        "account_name": account.name,
        "update_time": format_rfc3339(server.configured_at_ns),
        **shown({"is_system": account.is_system}),
        "expired": False,
        "complete": True,
        "jetstream_enabled": is_enabled(server, account),
        "leafnode_connections": 0,
        "client_connections": len(account.connections),
        "subscriptions": len(account.subscriptions),
        **shown(
            {
                "mappings": {one.source: _destinations(one) for one in sorted(options.mappings, key=_source)},
                "exports": [
                    *map(_service_export, options.service_exports),
                    *map(_stream_export, options.stream_exports),
                ],
                "imports": [
                    *map(_stream_import, options.stream_imports),
                    *map(_service_import, options.service_imports),
                ],
                "name_tag": account.name_tag,
            }
        ),
        "sublist_stats": subscription_figures([account]),
        **shown({"responses": _open_requests(account)}),
    }


def _source(mapping: MappingOptions) -> str:
    return mapping.source


def _destinations(mapping: MappingOptions) -> list[Document]:
    return [
        {"subject": one.subject, "weight": one.weight_percent, **shown({"cluster": one.cluster})}
        for one in mapping.destinations
    ]


def _service_export(export: ServiceExport) -> Document:
    latency = export.latency
    return {
        "subject": export.subject,
        "type": "service",
        "response_type": _RESPONSE_TYPES[export.response],
        **shown(
            {
                "service_latency": latency
                and {
                    # 0 means that the headers of the request decide, which has a word of its own.
                    "sampling": latency.sampling_percent or "headers",
                    "results": latency.subject,
                },
                "approved_accounts": list(export.accounts),
            }
        ),
    }


def _stream_export(export: StreamExport) -> Document:
    return {
        "subject": export.subject,
        "type": "stream",
        **shown({"approved_accounts": list(export.accounts)}),
    }


def _stream_import(imported: StreamImport) -> Document:
    prefix = "" if imported.prefix is None else imported.prefix.rstrip(".") + "."
    return {
        "subject": imported.subject,
        "account": imported.account,
        "local_subject": imported.to or prefix + imported.subject,
        "type": "stream",
        "invalid": False,
        "share": False,
        "tracking": False,
    }


def _service_import(imported: ServiceImport) -> Document:
    local = imported.to or imported.subject
    return {
        "subject": imported.subject,
        "account": imported.account,
        "to": local,
        "local_subject": local,
        "type": "service",
        "invalid": False,
        "share": imported.share,
        "tracking": False,
    }


# Here, and only here, nats-server gives the kind of an import as a number.
_SERVICE_NUMBER = 2


def _open_requests(account: Account) -> Document:
    """Requests of other accounts that this account may still answer, by their made-up reply subject."""
    if account.exchange is None:
        return {}
    return {
        reply.decode("ascii", "replace"): {
            "subject": request.reply.decode("utf-8", "replace"),
            "account": request.importer.name,
            "to": reply.decode("ascii", "replace"),
            "local_subject": reply.decode("ascii", "replace"),
            "type": _SERVICE_NUMBER,
            "invalid": False,
            "share": request.is_shared,
            "tracking": False,
        }
        for reply, request in account.exchange.open_requests().items()
    }
