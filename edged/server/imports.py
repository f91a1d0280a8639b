"""Builds the exchanges of all accounts from their options: which import meets which export."""

from __future__ import annotations

from edged.core.transform import TransformError
from edged.core.twins import Subscription
from edged.server.account import Account
from edged.server.exchange import DescribeRequester, Exchange, find_export
from edged.server.log import Log


def bind_imports(accounts: dict[str, Account], describe: DescribeRequester, log: Log) -> None:
    """Connect accounts anew. Open requests stay answerable; an import without its export stays idle."""
    for account in accounts.values():
        previous = account.exchange
        if previous is not None:
            previous.close()
        account.exchange = None
        if _takes_part(account):
            account.exchange = Exchange(account, describe)
            if account.options.service_exports:
                account.announce_answers()
            if previous is not None:
                account.exchange.take_requests(previous)
    for account in accounts.values():
        if account.exchange is not None:
            _bind_streams(account, account.exchange, accounts, log)
            _bind_services(account, account.exchange, accounts, log)
    for account in accounts.values():
        if account.exchange is not None:
            for item in list(account.subscriptions):
                if isinstance(item, Subscription):
                    account.exchange.subscribed(item)
        account.forget_routes()


def _takes_part(account: Account) -> bool:
    options = account.options
    return bool(
        options.stream_imports or options.service_imports or options.stream_exports or options.service_exports
    )


def _bind_streams(account: Account, exchange: Exchange, accounts: dict[str, Account], log: Log) -> None:
    for stream in account.options.stream_imports:
        exporter = accounts.get(stream.account)
        subject = stream.subject.encode()
        if exporter is None or find_export(exporter.options.stream_exports, subject, account.name) is None:
            log.warn("stream import has no export", account=account.name, subject=stream.subject)
            continue
        local = subject if stream.prefix is None else stream.prefix.rstrip(".").encode() + b"." + subject
        if stream.to is not None:
            local = stream.to.encode()
        try:
            exchange.add_stream(exporter, subject, local)
        except TransformError as error:
            log.error("stream import cannot be used", account=account.name, error=error)


def _bind_services(account: Account, exchange: Exchange, accounts: dict[str, Account], log: Log) -> None:
    for service in account.options.service_imports:
        exporter = accounts.get(service.account)
        subject = service.subject.encode()
        place = None
        if exporter is not None:
            place = find_export(exporter.options.service_exports, subject, account.name)
        if exporter is None or place is None:
            log.warn("service import has no export", account=account.name, subject=service.subject)
            continue
        export = exporter.options.service_exports[place]
        try:
            exchange.add_service(
                exporter, export, subject, (service.to or service.subject).encode(), service.share
            )
        except (TransformError, ValueError) as error:
            log.error("service import cannot be used", account=account.name, error=error)
