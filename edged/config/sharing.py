"""Whether what accounts import is exported to them, and that imports do not run in circles.

Rules: an import needs an export of the named account whose subject covers it, and which is public or names
the importing account (in its list, or at its account_token_position). A message must not come back to where
it was by way of imports: cycles are refused, for streams and for services each.
"""

from collections.abc import Iterable, Mapping

from edged.config.document import ConfigError, Position
from edged.config.options import AccountOptions, ServiceExport, ServiceImport, StreamExport, StreamImport
from edged.core.subjects import is_literal, is_subset, overlaps, valid_literal, valid_subscription
from edged.core.transform import SubjectTransform, TransformError, with_placeholders

Export = StreamExport | ServiceExport
Import = StreamImport | ServiceImport


def check_sharing(accounts: tuple[AccountOptions, ...], places: Mapping[str, Position]) -> None:
    """ConfigError for the first export or import that does not work."""
    by_name = {account.name: account for account in accounts}
    for account in accounts:
        position = places.get(f"account {account.name}")
        exports: tuple[Export, ...] = (*account.stream_exports, *account.service_exports)
        for export in exports:
            _check_export(account, export, by_name, position)
    for account in accounts:
        position = places.get(f"account {account.name}")
        for one in account.stream_imports:
            _check_import(account, one, _source(one, by_name, position).stream_exports, position)
            _check_stream_subjects(one, position)
        for service in account.service_imports:
            _check_import(account, service, _source(service, by_name, position).service_exports, position)
            _check_service_subjects(service, position)
        _check_duplicates(account, position)
    _check_cycles(accounts, by_name, places)


def _check_export(
    account: AccountOptions, export: Export, by_name: Mapping[str, AccountOptions], position: Position | None
) -> None:
    if not valid_subscription(export.subject.encode()):
        raise ConfigError(f"exports: {export.subject!r} is not a valid subject", position)
    for name in export.accounts:
        if name not in by_name:
            raise ConfigError(
                f"exports: {export.subject!r} is for account {name!r}, which does not exist", position
            )
    at = export.account_token_position
    tokens = export.subject.split(".")
    if at > 0 and (at > len(tokens) or tokens[at - 1] != "*"):
        raise ConfigError(f"exports: token {at} of {export.subject!r} is not '*'", position)
    if isinstance(export, ServiceExport) and export.latency is not None:
        subject = export.latency.subject.encode()
        if not valid_literal(subject) or any(
            is_subset(subject, service.subject.encode()) for service in account.service_exports
        ):
            raise ConfigError("latency: expected a subject without wildcards that is not exported", position)
        if export.response != "singleton":
            raise ConfigError("latency: only services with one response can be measured", position)


def _source(one: Import, by_name: Mapping[str, AccountOptions], position: Position | None) -> AccountOptions:
    if one.account not in by_name:
        raise ConfigError(
            f"imports: {one.subject!r} is from account {one.account!r}, which does not exist", position
        )
    return by_name[one.account]


def _check_import(
    account: AccountOptions, one: Import, exports: Iterable[Export], position: Position | None
) -> None:
    subject = one.subject.encode()
    if not valid_subscription(subject):
        raise ConfigError(f"imports: {one.subject!r} is not a valid subject", position)
    candidates = [export for export in exports if export.subject == one.subject]
    if not candidates:
        candidates = [export for export in exports if is_subset(subject, export.subject.encode())]
    if not any(_authorized(account.name, export, one) for export in candidates):
        raise ConfigError(
            f"imports: account {one.account!r} does not export {one.subject!r} to {account.name!r}", position
        )


def _authorized(importer: str, export: Export, one: Import) -> bool:
    at = export.account_token_position
    if at > 0:
        tokens = one.subject.split(".")
        return export.subject != one.subject and at <= len(tokens) and tokens[at - 1] == importer
    return not export.accounts or importer in export.accounts


def _check_stream_subjects(one: StreamImport, position: Position | None) -> None:
    if one.prefix is not None and not is_literal(one.prefix.encode()):
        raise ConfigError(f"imports: the prefix {one.prefix!r} must not have wildcards", position)
    if one.to is not None and one.to != one.subject and not is_literal(one.subject.encode()):
        _check_transform(one.subject, one.to, position)


def _check_service_subjects(one: ServiceImport, position: Position | None) -> None:
    if not valid_subscription(one.to.encode()):
        raise ConfigError(f"imports: {one.to!r} is not a valid subject", position)
    if one.to != one.subject and not is_literal(one.subject.encode()):
        _check_transform(one.subject, one.to, position)


def _check_transform(source: str, destination: str, position: Position | None) -> None:
    try:
        SubjectTransform.parse(source, with_placeholders(destination.encode()), strict=True)
    except TransformError as error:
        raise ConfigError(f"imports: {source!r} to {destination!r}: {error}", position) from None


def _check_duplicates(account: AccountOptions, position: Position | None) -> None:
    seen = set()
    for one in account.stream_imports:
        if (one.account, one.subject) in seen:
            raise ConfigError(f"imports: {one.subject!r} of {one.account!r} is imported twice", position)
        seen.add((one.account, one.subject))


def _check_cycles(
    accounts: tuple[AccountOptions, ...],
    by_name: Mapping[str, AccountOptions],
    places: Mapping[str, Position],
) -> None:
    for account in accounts:
        for one in account.stream_imports:
            if _returns(account.name, one, by_name, services=False):
                raise ConfigError(
                    f"imports: {one.subject!r} runs in a circle", places.get(f"account {account.name}")
                )
        for service in account.service_imports:
            if _returns(account.name, service, by_name, services=True):
                raise ConfigError(
                    f"imports: {service.subject!r} runs in a circle", places.get(f"account {account.name}")
                )


def _returns(home: str, one: Import, by_name: Mapping[str, AccountOptions], *, services: bool) -> bool:
    """Whether following imports with overlapping subjects leads back to where this one appears."""
    seen: set[tuple[str, str]] = set()
    waiting = [(one.account, one.subject)]
    while waiting:
        name, subject = waiting.pop()
        if name == home and overlaps(subject.encode(), _local_subject(one)):
            return True
        if (name, subject) in seen:
            continue
        seen.add((name, subject))
        account = by_name[name]
        following: Iterable[Import] = account.service_imports if services else account.stream_imports
        for step in following:
            if overlaps(subject.encode(), _local_subject(step)):
                waiting.append((step.account, step.subject))
    return False


def _local_subject(one: Import) -> bytes:
    """Where an import appears in the importing account, with wildcards for what a transform fills in."""
    if isinstance(one, StreamImport) and one.prefix is not None:
        return f"{one.prefix.removesuffix('.')}.{one.subject}".encode()
    tokens = (one.to or one.subject).split(".")
    return ".".join("*" if token.startswith(("$", "{{")) else token for token in tokens).encode()
