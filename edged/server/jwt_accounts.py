"""Accounts from JWTs in the shape of the configuration, so that the broker knows one kind of account only.

Rules: the name of such an account is its public key. An import is kept only when the exporter's claims
allow it: there is an export that covers it, and where that export is private, the import holds a valid
grant (an activation token) for this importer, or its subject holds the importer's key at the export's token
position. Imports that close a cycle are left out. What is left out is reported as a sentence; it never
stops the rest of the account from working.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from edged.config.options import (
    UNLIMITED,
    AccountJetStream,
    AccountLimits,
    AccountOptions,
    MappingDestination,
    MappingOptions,
    PermissionsOptions,
    ResponseRule,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
    SubjectRules,
)
from edged.core.claim_rules import activation_holds, exporter_subject
from edged.core.claims import AccountClaims, ExportClaims, ImportClaims, JetStreamClaims, PermissionClaims
from edged.core.import_cycles import without_cycles
from edged.core.subjects import is_subset

_NANOSECONDS: Final = 1_000_000_000
_RESPONSE_THRESHOLD_S: Final = 120.0


def accounts_from_claims(
    claims: Iterable[AccountClaims], now_s: float, *, tier: str = "R1"
) -> tuple[tuple[AccountOptions, ...], tuple[str, ...]]:
    """The accounts, and a sentence for every import that was left out.

    tier names the JetStream limits that count where an account has them by number of replicas.
    """
    by_key = {account.key: account for account in claims}
    problems: list[str] = []
    imports: dict[str, list[ImportClaims]] = {key: [] for key in by_key}
    grants: dict[tuple[str, str, str], list[str]] = {}  # (exporter, kind, subject): importers
    for account in by_key.values():
        for imported in account.imports:
            export = _export_allowing(imported, account.key, by_key, now_s)
            if export is None:
                problems.append(f"account {account.key}: the import of {imported.subject} is not allowed")
                continue
            imports[account.key].append(imported)
            grants.setdefault((imported.account, export.kind, export.subject), []).append(account.key)
    accounts = (_account(account, imports[account.key], grants, tier) for account in by_key.values())
    kept, dropped = without_cycles(accounts)
    return kept, (*problems, *dropped)


def _account(
    claims: AccountClaims,
    imports: list[ImportClaims],
    grants: Mapping[tuple[str, str, str], list[str]],
    tier: str,
) -> AccountOptions:
    tiers = _tiers(claims)
    jetstream = dict(tiers).get(tier) if tiers else _jetstream(claims.jetstream, claims.cluster_traffic)
    return AccountOptions(
        name=claims.key,
        name_tag=claims.token.name,
        nkey=claims.key,
        jetstream=jetstream,
        jetstream_tiers=tiers,
        stream_exports=tuple(
            StreamExport(
                export.subject, _importers(export, claims.key, grants), export.account_token_position
            )
            for export in claims.exports
            if export.kind == "stream"
        ),
        service_exports=tuple(
            _service_export(export, _importers(export, claims.key, grants))
            for export in claims.exports
            if export.kind == "service"
        ),
        stream_imports=tuple(_stream_import(imported) for imported in imports if imported.kind == "stream"),
        service_imports=tuple(
            _service_import(imported) for imported in imports if imported.kind == "service"
        ),
        mappings=tuple(_mapping(source, claims) for source in claims.mappings),
        limits=AccountLimits(
            max_connections=_limit(claims.limits.connections),
            max_subscriptions=_limit(claims.limits.subscriptions),
            max_payload=_limit(claims.limits.payload),
            max_leafnodes=_limit(claims.limits.leafnodes),
        ),
        default_permissions=_permissions(claims.default_permissions),
        trace_dest=claims.trace_subject or None,
        trace_sampling_percent=claims.trace_sampling_percent if claims.trace_subject else 0,
    )


def _export_allowing(
    imported: ImportClaims, importer: str, accounts: Mapping[str, AccountClaims], now_s: float
) -> ExportClaims | None:
    """The export that this import rests on; None when there is none or it does not admit the importer."""
    exporter = accounts.get(imported.account)
    if exporter is None:
        return None
    subject = exporter_subject(imported)
    for export in exporter.exports:
        if export.kind != imported.kind or not is_subset(subject.encode(), export.subject.encode()):
            continue
        if export.account_token_position:
            allowed = subject.split(".")[export.account_token_position - 1] == importer
        elif export.token_required:
            allowed = activation_holds(imported, importer, exporter, export, now_s)
        else:
            allowed = True
        if allowed:
            return export
    return None


def _importers(
    export: ExportClaims, exporter: str, grants: Mapping[tuple[str, str, str], list[str]]
) -> tuple[str, ...]:
    """Of a private export, the accounts that may import it; () means every account.

    The exporter itself is always listed, since an empty list would make the export public.
    """
    if not export.token_required:
        return ()
    return tuple(dict.fromkeys([exporter, *grants.get((exporter, export.kind, export.subject), ())]))


def _service_export(export: ExportClaims, accounts: tuple[str, ...]) -> ServiceExport:
    latency = None
    if export.latency_subject:
        latency = ServiceLatency(export.latency_subject, export.latency_sampling_percent)
    return ServiceExport(
        subject=export.subject,
        accounts=accounts,
        account_token_position=export.account_token_position,
        response=export.response_type.lower() or "singleton",
        response_threshold_s=export.response_threshold_ns / _NANOSECONDS or _RESPONSE_THRESHOLD_S,
        latency=latency,
        allow_trace=export.allow_trace,
    )


def _stream_import(imported: ImportClaims) -> StreamImport:
    return StreamImport(
        account=imported.account,
        subject=imported.subject,
        prefix=None if imported.local_subject else imported.to or None,
        to=imported.local_subject or None,
        allow_trace=imported.allow_trace,
    )


def _service_import(imported: ImportClaims) -> ServiceImport:
    return ServiceImport(
        account=imported.account,
        subject=exporter_subject(imported),
        to=imported.local_subject or imported.subject,
        share=imported.share,
    )


def _mapping(source: str, claims: AccountClaims) -> MappingOptions:
    destinations = (
        MappingDestination(destination.subject, destination.weight_percent, destination.cluster or None)
        for destination in claims.mappings[source]
    )
    return MappingOptions(source, tuple(destinations))


def _tiers(claims: AccountClaims) -> tuple[tuple[str, AccountJetStream], ...]:
    """The limits by number of replicas, in the order of their names."""
    found = (
        (name, _jetstream(limits, claims.cluster_traffic))
        for name, limits in sorted(claims.jetstream_tiers.items())
    )
    return tuple((name, limits) for name, limits in found if limits is not None)


def _jetstream(claims: JetStreamClaims, cluster_traffic: str) -> AccountJetStream | None:
    if not claims.enabled:
        return None
    return AccountJetStream(
        max_memory=_limit(claims.memory_storage),
        max_store=_limit(claims.disk_storage),
        max_streams=_limit_unless_zero(claims.streams),
        max_consumers=_limit_unless_zero(claims.consumers),
        max_ack_pending=_limit_unless_zero(claims.max_ack_pending),
        memory_max_stream_bytes=_limit_unless_zero(claims.memory_max_stream_bytes),
        store_max_stream_bytes=_limit_unless_zero(claims.disk_max_stream_bytes),
        max_bytes_required=claims.max_bytes_required,
        cluster_traffic=cluster_traffic or "system",
    )


def _permissions(claims: PermissionClaims) -> PermissionsOptions | None:
    if claims == PermissionClaims():
        return None
    responses = None
    publish_allow = claims.publish_allow or None
    if claims.responses is not None:
        responses = ResponseRule(claims.responses.max_messages, claims.responses.expires_ns / _NANOSECONDS)
        publish_allow = claims.publish_allow
    return PermissionsOptions(
        publish=SubjectRules(publish_allow, claims.publish_deny),
        subscribe=SubjectRules(claims.subscribe_allow or None, claims.subscribe_deny),
        allow_responses=responses,
    )


def _limit(value: int) -> int:
    return value if value >= 0 else UNLIMITED


def _limit_unless_zero(value: int) -> int:
    return value if value > 0 else UNLIMITED
