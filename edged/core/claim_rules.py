"""Whether claims make sense and hold now: validity, revocation, source networks, hours, activations.

Rules: check_* raises ClaimsError with the reason and returns nothing; the others answer a question. Time is
an argument. Claims that cannot be understood never widen what somebody may do: a network or an hour that does
not parse admits nobody, an account with a broken claim is refused as a whole.
"""

import datetime
import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from edged.core import nkeys
from edged.core.claims import (
    EVERY_USER,
    NO_LIMIT,
    AccountClaims,
    ExportClaims,
    ImportClaims,
    OperatorClaims,
    PermissionClaims,
    UserClaims,
    UserLimits,
    decode_activation,
)
from edged.core.jwt import ClaimsError
from edged.core.nkeys import KeyKind
from edged.core.subjects import is_literal, is_subset, valid_literal, valid_subscription

_CLOCK: Final = re.compile(r"([0-9]{1,2}):([0-9]{2}):([0-9]{2})")
_WEIGHT_MAX: Final = 100
_CLUSTER_TRAFFIC: Final = ("", "system", "owner")


def check_operator(claims: OperatorClaims, now_s: float) -> None:
    _require(claims.token.in_force(now_s), "the operator's token is expired or not yet valid")
    for key in claims.signing_keys:
        _require(
            nkeys.is_public(key, KeyKind.OPERATOR), "a signing key of an operator must be an operator key"
        )
    if claims.system_account:
        _require(nkeys.is_public(claims.system_account, KeyKind.ACCOUNT), "the system account must be a key")


def check_user(claims: UserClaims, now_s: float) -> None:
    token, limits = claims.token, claims.limits
    _require(token.in_force(now_s), "the user's token is expired or not yet valid")
    _check_permissions(limits.permissions)
    for network in limits.source_networks:
        _require(_network(network) is not None, "a source network is not of the form address/bits")
    for start, end in limits.times:
        _require(_clock(start) is not None and _clock(end) is not None, "a time range is not HH:MM:SS")
    if token.issuer_account:
        _require(nkeys.is_public(token.issuer_account, KeyKind.ACCOUNT), "issuer_account must be a key")


def check_account(claims: AccountClaims, now_s: float) -> None:
    _require(claims.token.in_force(now_s), "the account's token is expired or not yet valid")
    limits = claims.limits
    _require(
        limits.imports == NO_LIMIT or len(claims.imports) <= limits.imports,
        "more imports than the operator allows",
    )
    _require(
        limits.exports == NO_LIMIT or len(claims.exports) <= limits.exports,
        "more exports than the operator allows",
    )
    if limits.exports != NO_LIMIT and not limits.wildcard_exports:
        literal = all(is_literal(export.subject.encode()) for export in claims.exports)
        _require(literal, "the operator does not allow exports with wildcards")
    for export in claims.exports:
        _check_export(export)
    for kind in ("stream", "service"):
        _check_no_overlap([export.subject.encode() for export in claims.exports if export.kind == kind])
    for imported in claims.imports:
        _check_import(imported)
    for key, scope in claims.signing_keys.items():
        account_key = nkeys.is_public(key, KeyKind.ACCOUNT) and (scope is None or scope.key == key)
        _require(account_key, "a signing key of an account must be an account key")
    _check_permissions(claims.default_permissions)
    _check_mappings(claims)
    _check_authorization(claims)
    _require("" not in claims.jetstream_tiers, "a tier of JetStream limits needs a name")
    _require(claims.cluster_traffic in _CLUSTER_TRAFFIC, "cluster_traffic must be system or owner")
    if claims.trace_subject:
        _require(
            valid_literal(claims.trace_subject.encode()), "the trace destination must be a plain subject"
        )


def is_revoked(revocations: Mapping[str, int], key: str, issued_at_s: int) -> bool:
    """Whether tokens of this key issued at this time or before are withdrawn."""
    return any(
        revoked in revocations and issued_at_s <= revocations[revoked] for revoked in (key, EVERY_USER)
    )


def allows_address(limits: UserLimits, address: str) -> bool:
    """Whether a user may connect from this address."""
    if not limits.source_networks:
        return True
    try:
        peer: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
        peer = peer.ipv4_mapped
    networks = [_network(text) for text in limits.source_networks]
    return None not in networks and any(network is not None and peer in network for network in networks)


def seconds_left_today(times: Iterable[tuple[str, str]], local_now: datetime.datetime) -> float | None:
    """How long the widest range that holds now still lasts; None outside of all of them.

    local_now is the time of day in the zone that the claims name. A range may cross midnight.
    """
    left: list[float] = []
    for start_text, end_text in times:
        start_clock, end_clock = _clock(start_text), _clock(end_text)
        if start_clock is None or end_clock is None:
            return None
        start = datetime.datetime.combine(local_now.date(), start_clock, local_now.tzinfo)
        end = datetime.datetime.combine(local_now.date(), end_clock, local_now.tzinfo)
        if start > end and local_now >= end:
            end += datetime.timedelta(days=1)
        elif start > end:
            start -= datetime.timedelta(days=1)
        if start < local_now < end:
            # Real seconds, not those of the clock on the wall, which may jump in between.
            left.append(end.timestamp() - local_now.timestamp())
    return max(left, default=None)


def activation_holds(
    imported: ImportClaims, importer: str, exporter: AccountClaims, export: ExportClaims, now_s: float
) -> bool:
    """Whether the token of an import is a grant by the exporter, to this importer, for this subject."""
    try:
        grant = decode_activation(imported.token)
    except ClaimsError:
        return False
    token = grant.token
    own_keys = {exporter.key} if not token.issuer_account else set(exporter.signing_keys) | {exporter.key}
    wanted = exporter_subject(imported).encode()
    return (
        token.issuer in own_keys
        and token.issuer_account in ("", exporter.key)
        and token.subject == importer
        and grant.kind == imported.kind
        and token.in_force(now_s)
        and is_subset(wanted, grant.import_subject.encode())
        and not is_revoked(export.revocations, importer, token.issued_at_s)
    )


def exporter_subject(imported: ImportClaims) -> str:
    """The subject in the exporting account that an import is about."""
    if imported.kind == "service" and imported.to and not imported.local_subject:
        return imported.to
    return imported.subject


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise ClaimsError(reason)


def _check_permissions(claims: PermissionClaims) -> None:
    try:
        claims.permissions()
    except ValueError as error:
        raise ClaimsError(str(error)) from None


def _check_export(export: ExportClaims) -> None:
    subject = export.subject.encode()
    _require(valid_subscription(subject), "an export needs a valid subject")
    position = export.account_token_position
    tokens = subject.split(b".")
    on_wildcard = position == 0 or (0 < position <= len(tokens) and tokens[position - 1] == b"*")
    _require(on_wildcard, "account_token_position must point at a * of the subject")
    _require(export.response_threshold_ns >= 0, "a response threshold cannot be negative")
    _require(export.response_type in ("", "Singleton", "Stream", "Chunked"), "unknown response type")
    if export.kind == "stream":
        service_only = export.response_type or export.response_threshold_ns or export.latency_subject
        _require(not service_only, "only a service has responses")
    if export.latency_subject:
        _require(valid_literal(export.latency_subject.encode()), "latency results need a plain subject")
        _require(0 <= export.latency_sampling_percent <= 100, "sampling is 1 to 100 percent")


def _check_no_overlap(subjects: list[bytes]) -> None:
    seen = Counter(subjects)
    _require(max(seen.values(), default=1) == 1, "two exports of one kind are the same")
    wide = [subject for subject in seen if not is_literal(subject)]
    contained = any(one != other and is_subset(one, other) for other in wide for one in seen)
    _require(not contained, "one export contains another of the same kind")


def _check_import(imported: ImportClaims) -> None:
    _require(imported.account != "", "an import names the account it comes from")
    _require(valid_subscription(imported.subject.encode()), "an import needs a valid subject")
    _require(not (imported.local_subject and imported.to), "local_subject replaces to")
    for renamed in (imported.local_subject, imported.to):
        _require(not renamed or valid_subscription(renamed.encode()), "an import is renamed to no subject")
    if imported.local_subject:
        _check_renaming(imported.subject, imported.local_subject)
    _require(not (imported.share and imported.kind == "stream"), "only a service shares the requestor")
    _require(not (imported.allow_trace and imported.kind == "service"), "allow_trace is for streams")


def _check_renaming(subject: str, renamed: str) -> None:
    """Both end in > or neither, and every * of the subject is used: as *, or by its number as $n."""
    before, after = subject.split("."), renamed.split(".")
    _require((before[-1] == ">") == (after[-1] == ">"), "both or neither of an import's subjects end in >")
    stars = before.count("*")
    numbers = [int(token[1:]) for token in after if token[:1] == "$" and token[1:].isdecimal()]
    fits = after.count("*") + len(numbers) == stars and all(number <= stars for number in numbers)
    _require(fits, "an import's local subject must use every * of the subject")


def _check_mappings(claims: AccountClaims) -> None:
    for source, destinations in claims.mappings.items():
        _require(valid_subscription(source.encode()), "a mapping needs a valid subject")
        totals: Counter[str] = Counter()
        for destination in destinations:
            _require(
                bool(destination.subject) and " " not in destination.subject, "a mapping needs a subject"
            )
            _require(0 < destination.weight_percent <= _WEIGHT_MAX, "a weight is 1 to 100 percent")
            totals[destination.cluster] += destination.weight_percent
        _require(
            max(totals.values(), default=0) <= _WEIGHT_MAX, "the weights of a mapping exceed 100 percent"
        )


def _check_authorization(claims: AccountClaims) -> None:
    for user in claims.auth_users:
        _require(nkeys.is_public(user, KeyKind.USER), "auth_users must be user keys")
    accounts = claims.auth_allowed_accounts
    _require(not accounts or bool(claims.auth_users), "allowed_accounts needs auth_users")
    _require("*" not in accounts or len(accounts) == 1, "allowed_accounts is a list of accounts or *")
    for account in accounts:
        _require(account == "*" or nkeys.is_public(account, KeyKind.ACCOUNT), "not an account key")
    if claims.auth_xkey:
        _require(nkeys.is_public(claims.auth_xkey, KeyKind.CURVE), "xkey must be a curve key")


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    address, slash, bits = text.partition("/")
    # ipaddress would also take a bare address or a mask in dotted form.
    if not slash or not bits.isdecimal() or not bits.isascii():
        return None
    try:
        return ipaddress.ip_network((address, int(bits)), strict=False)
    except ValueError:
        return None


def _clock(text: str) -> datetime.time | None:
    parts = _CLOCK.fullmatch(text)
    if parts is None:
        return None
    try:
        return datetime.time(int(parts[1]), int(parts[2]), int(parts[3]))
    except ValueError:
        return None
