"""What JWTs say: operators, accounts, users and activations as typed values.

An operator signs accounts, an account (or one of its signing keys) signs users. A signing key with a scope
carries the limits of its users in a template; those users bring none of their own: see user_scope.

Rules: decode_* returns a value only for a token whose issuer's signature is right and whose keys are of the
right kinds; everything else is a ClaimsError. Whether the issuer is trusted is for the caller, whether the
claims make sense for claim_rules. A limit of -1 means none; what a token leaves out is 0, which allows
nothing, as in nats-server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from edged.core import nkeys
from edged.core.jwt import EMPTY_FIELDS, ClaimsError, Fields, Token, as_fields, read_token
from edged.core.nkeys import KeyKind
from edged.core.permissions import (
    DEFAULT_RESPONSE_EXPIRES_NS,
    DEFAULT_RESPONSE_MESSAGES,
    Permissions,
    ResponseRule,
)

NO_LIMIT: Final = -1
EVERY_USER: Final = "*"  # the key of a revocation that is about all users


@dataclass(frozen=True, slots=True)
class PermissionClaims:
    """Lists of subjects as the token has them; an empty allow list allows everything."""

    publish_allow: tuple[str, ...] = ()
    publish_deny: tuple[str, ...] = ()
    subscribe_allow: tuple[str, ...] = ()
    subscribe_deny: tuple[str, ...] = ()
    responses: ResponseRule | None = None

    def permissions(self) -> Permissions:
        """For the one permission check; raises ValueError for an entry that is no subject."""
        return Permissions.from_lists(
            publish_allow=self.publish_allow or None,
            publish_deny=self.publish_deny,
            subscribe_allow=self.subscribe_allow or None,
            subscribe_deny=self.subscribe_deny,
            allow_responses=self.responses,
        )


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What a user may do, from where and when; of one user, or the template of a scoped signing key."""

    permissions: PermissionClaims = PermissionClaims()
    source_networks: tuple[str, ...] = ()
    times: tuple[tuple[str, str], ...] = ()  # (start, end) as HH:MM:SS
    times_location: str = ""  # a name of the time zone database; empty means the server's own zone
    max_subscriptions: int = 0
    max_data: int = 0
    max_payload: int = 0
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserScope:
    """A signing key whose users get their limits from this template."""

    key: str
    role: str
    template: UserLimits


@dataclass(frozen=True, slots=True)
class JetStreamClaims:
    """JetStream limits of an account, or of one replication tier of it."""

    memory_storage: int = 0
    disk_storage: int = 0
    streams: int = 0
    consumers: int = 0
    max_ack_pending: int = 0
    memory_max_stream_bytes: int = 0
    disk_max_stream_bytes: int = 0
    max_bytes_required: bool = False

    @property
    def enabled(self) -> bool:
        return self.memory_storage != 0 or self.disk_storage != 0


@dataclass(frozen=True, slots=True)
class AccountLimitClaims:
    """What an account may use, apart from JetStream; -1 means no limit."""

    subscriptions: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcard_exports: bool = False
    disallow_bearer: bool = False
    connections: int = 0
    leafnodes: int = 0


@dataclass(frozen=True, slots=True)
class ExportClaims:
    """One export of an account."""

    subject: str
    kind: str  # "stream" or "service"
    token_required: bool
    revocations: Mapping[str, int]
    response_type: str  # "", "Singleton", "Stream" or "Chunked"
    response_threshold_ns: int
    account_token_position: int
    allow_trace: bool
    latency_subject: str
    latency_sampling_percent: int  # 0 means "as the request's headers say"


@dataclass(frozen=True, slots=True)
class ImportClaims:
    """What comes in from another account. With local_subject, subject is the exporter's in both kinds.

    Without it, `to` is the older way to rename: of a stream a prefix, of a service the exporter's subject.
    """

    subject: str
    kind: str  # "stream" or "service"
    account: str
    token: str = field(repr=False)
    to: str
    local_subject: str
    share: bool
    allow_trace: bool


@dataclass(frozen=True, slots=True)
class MappingClaims:
    """One destination of a subject mapping."""

    subject: str
    weight_percent: int
    cluster: str


@dataclass(frozen=True, slots=True)
class OperatorClaims:
    """An operator: whom it trusts to sign accounts."""

    token: Token
    signing_keys: tuple[str, ...]
    system_account: str
    account_server_url: str
    assert_server_version: str
    strict_signing_key_usage: bool

    @property
    def trusted_keys(self) -> tuple[str, ...]:
        """The keys whose signature makes an account one of this operator's."""
        own = () if self.strict_signing_key_usage else (self.token.subject,)
        return (*own, *self.signing_keys)


@dataclass(frozen=True, slots=True)
class AccountClaims:
    """An account: its limits, keys, imports and exports."""

    token: Token
    limits: AccountLimitClaims
    jetstream: JetStreamClaims
    jetstream_tiers: Mapping[str, JetStreamClaims]
    imports: tuple[ImportClaims, ...]
    exports: tuple[ExportClaims, ...]
    signing_keys: Mapping[str, UserScope | None]
    revocations: Mapping[str, int]
    default_permissions: PermissionClaims
    mappings: Mapping[str, tuple[MappingClaims, ...]]
    auth_users: tuple[str, ...]  # users of the auth callout; not empty means the account delegates logins
    auth_allowed_accounts: tuple[str, ...]
    auth_xkey: str
    trace_subject: str
    trace_sampling_percent: int
    cluster_traffic: str

    @property
    def key(self) -> str:
        return self.token.subject


@dataclass(frozen=True, slots=True)
class UserClaims:
    """A user: what it may do, when and from where."""

    token: Token
    limits: UserLimits

    @property
    def key(self) -> str:
        return self.token.subject

    @property
    def account_key(self) -> str:
        """The account this user says it belongs to; the account must confirm the issuer."""
        return self.token.issuer_account or self.token.issuer


@dataclass(frozen=True, slots=True)
class ActivationClaims:
    """A grant by an exporting account: the subject account may import this."""

    token: Token
    import_subject: str
    kind: str


def decode_operator(text: str) -> OperatorClaims:
    token = _read(text, "operator", KeyKind.OPERATOR, (KeyKind.OPERATOR,))
    nats = token.nats
    return OperatorClaims(
        token=token,
        signing_keys=nats.texts("signing_keys"),
        system_account=nats.text("system_account"),
        account_server_url=nats.text("account_server_url"),
        assert_server_version=nats.text("assert_server_version"),
        strict_signing_key_usage=nats.flag("strict_signing_key_usage"),
    )


def decode_account(text: str) -> AccountClaims:
    token = _read(text, "account", KeyKind.ACCOUNT, (KeyKind.ACCOUNT, KeyKind.OPERATOR))
    nats = token.nats
    limits, trace, authorization = nats.fields("limits"), nats.fields("trace"), nats.fields("authorization")
    tiers = limits.fields("tiered_limits")
    # With tiers the general limits do not count; tokens of the first generation know no JetStream.
    flat = EMPTY_FIELDS if token.version == 1 or tiers.names() else limits
    return AccountClaims(
        token=token,
        limits=_account_limits(limits),
        jetstream=_jetstream(flat),
        jetstream_tiers={name: _jetstream(tiers.fields(name)) for name in tiers.names()},
        imports=tuple(map(_import, nats.fields_list("imports"))),
        exports=tuple(map(_export, nats.fields_list("exports"))),
        signing_keys=dict(map(_signing_key, nats.items("signing_keys"))),
        revocations=_revocations(nats),
        default_permissions=_permissions(nats.fields("default_permissions")),
        mappings=_mappings(nats.fields("mappings")),
        auth_users=authorization.texts("auth_users"),
        auth_allowed_accounts=authorization.texts("allowed_accounts"),
        auth_xkey=authorization.text("xkey"),
        trace_subject=trace.text("dest"),
        trace_sampling_percent=trace.integer("sampling") or 100,
        cluster_traffic=nats.text("cluster_traffic"),
    )


def decode_user(text: str) -> UserClaims:
    token = _read(text, "user", KeyKind.USER, (KeyKind.ACCOUNT,))
    return UserClaims(token, _user_limits(token.nats, NO_LIMIT if token.version == 1 else 0))


def decode_activation(text: str) -> ActivationClaims:
    token = _read(text, "activation", KeyKind.ACCOUNT, (KeyKind.ACCOUNT, KeyKind.OPERATOR))
    # The first generation keeps the kind of import under "type".
    kind = token.nats.text("kind" if token.version > 1 else "type")
    return ActivationClaims(token, token.nats.text("subject"), kind)


def _read(text: str, kind: str, subject: KeyKind, issuers: tuple[KeyKind, ...]) -> Token:
    token = read_token(text)
    if token.kind != kind:
        raise ClaimsError(f"the token must be of the kind {kind}")
    if not any(nkeys.is_public(token.issuer, issuer) for issuer in issuers):
        raise ClaimsError("the issuer is a key of the wrong kind")
    if not nkeys.is_public(token.subject, subject):
        raise ClaimsError("the subject is a key of the wrong kind")
    return token


def _user_limits(fields: Fields, limit_default: int) -> UserLimits:
    return UserLimits(
        permissions=_permissions(fields),
        source_networks=_networks(fields),
        times=tuple((time.text("start"), time.text("end")) for time in fields.fields_list("times")),
        times_location=fields.text("times_location"),
        max_subscriptions=fields.integer("subs", limit_default),
        max_data=fields.integer("data", limit_default),
        max_payload=fields.integer("payload", limit_default),
        bearer_token=fields.flag("bearer_token"),
        proxy_required=fields.flag("proxy_required"),
        allowed_connection_types=fields.texts("allowed_connection_types"),
    )


def _permissions(fields: Fields) -> PermissionClaims:
    publish, subscribe, responses = fields.fields("pub"), fields.fields("sub"), None
    if fields.has("resp"):
        rule = fields.fields("resp")
        responses = ResponseRule(
            rule.integer("max") or DEFAULT_RESPONSE_MESSAGES,
            rule.integer("ttl") or DEFAULT_RESPONSE_EXPIRES_NS,
        )
    return PermissionClaims(
        publish.texts("allow"),
        publish.texts("deny"),
        subscribe.texts("allow"),
        subscribe.texts("deny"),
        responses,
    )


def _networks(fields: Fields) -> tuple[str, ...]:
    """A list, or one string with commas as older tools wrote it."""
    try:
        return fields.texts("src")
    except ClaimsError:
        return tuple(part.strip() for part in fields.text("src").lower().split(",") if part.strip())


def _account_limits(limits: Fields) -> AccountLimitClaims:
    return AccountLimitClaims(
        subscriptions=limits.integer("subs"),
        data=limits.integer("data"),
        payload=limits.integer("payload"),
        imports=limits.integer("imports"),
        exports=limits.integer("exports"),
        wildcard_exports=limits.flag("wildcards"),
        disallow_bearer=limits.flag("disallow_bearer"),
        connections=limits.integer("conn"),
        leafnodes=limits.integer("leaf"),
    )


def _jetstream(fields: Fields) -> JetStreamClaims:
    return JetStreamClaims(
        memory_storage=fields.integer("mem_storage"),
        disk_storage=fields.integer("disk_storage"),
        streams=fields.integer("streams"),
        consumers=fields.integer("consumer"),
        max_ack_pending=fields.integer("max_ack_pending"),
        memory_max_stream_bytes=fields.integer("mem_max_stream_bytes"),
        disk_max_stream_bytes=fields.integer("disk_max_stream_bytes"),
        max_bytes_required=fields.flag("max_bytes_required"),
    )


def _import(fields: Fields) -> ImportClaims:
    return ImportClaims(
        subject=fields.text("subject"),
        kind=_share_kind(fields),
        account=fields.text("account"),
        token=fields.text("token"),
        to=fields.text("to"),
        local_subject=fields.text("local_subject"),
        share=fields.flag("share"),
        allow_trace=fields.flag("allow_trace"),
    )


def _export(fields: Fields) -> ExportClaims:
    latency = fields.fields("service_latency")
    return ExportClaims(
        subject=fields.text("subject"),
        kind=_share_kind(fields),
        token_required=fields.flag("token_req"),
        revocations=_revocations(fields),
        response_type=fields.text("response_type"),
        response_threshold_ns=fields.integer("response_threshold"),
        account_token_position=fields.integer("account_token_position"),
        allow_trace=fields.flag("allow_trace"),
        latency_subject=latency.text("results"),
        latency_sampling_percent=_sampling(latency),
    )


def _share_kind(fields: Fields) -> str:
    kind = fields.text("type")
    if kind not in ("stream", "service"):
        raise ClaimsError("an import or export is a stream or a service")
    return kind


def _sampling(latency: Fields) -> int:
    try:
        return latency.integer("sampling")
    except ClaimsError:
        if latency.text("sampling").lower() != "headers":
            raise ClaimsError('sampling is a percentage or "headers"') from None
        return 0


def _signing_key(value: object) -> tuple[str, UserScope | None]:
    if isinstance(value, str):
        return value, None
    fields = as_fields(value, "signing_keys")
    if fields.text("kind") != "user_scope":
        raise ClaimsError("the scope of a signing key is of an unknown kind")
    template = _user_limits(fields.fields("template"), NO_LIMIT)
    scope = UserScope(fields.text("key"), fields.text("role"), template)
    return scope.key, scope


def _revocations(fields: Fields) -> dict[str, int]:
    revocations = fields.fields("revocations")
    return {key: revocations.integer(key) for key in revocations.names()}


def _mappings(fields: Fields) -> dict[str, tuple[MappingClaims, ...]]:
    return {
        source: tuple(
            MappingClaims(
                subject=destination.text("subject"),
                weight_percent=destination.integer("weight") or 100,
                cluster=destination.text("cluster"),
            )
            for destination in fields.fields_list(source)
        )
        for source in fields.names()
    }
