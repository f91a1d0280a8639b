"""Accounts from JWTs in the shape of the configuration."""

from typing import Any

from edged.config.options import (
    AccountJetStream,
    AccountLimits,
    AccountOptions,
    MappingDestination,
    MappingOptions,
    ServiceImport,
    ServiceLatency,
    StreamExport,
    StreamImport,
)
from edged.core.claims import decode_account
from edged.core.nkeys import KeyKind
from edged.server.jwt_accounts import accounts_from_claims
from tests import tokens
from tests.tokens import ISSUED_AT_S, public

NOW_S = ISSUED_AT_S + 100.0
E, I = public(KeyKind.ACCOUNT, "E"), public(KeyKind.ACCOUNT, "I")  # noqa: E741 - exporter and importer


def accounts(*made: str, **more: Any) -> tuple[dict[str, AccountOptions], tuple[str, ...]]:
    kept, problems = accounts_from_claims(map(decode_account, made), NOW_S, **more)
    return {account.name: account for account in kept}, problems


def test_limits_mappings_and_jetstream_take_the_shape_of_the_configuration() -> None:
    limits = {
        **tokens.UNLIMITED_ACCOUNT,
        "conn": 5,
        "leaf": 0,
        "disk_storage": 100,
        "mem_storage": -1,
        "streams": 0,
    }
    made = tokens.account_token(
        "E",
        limits=limits,
        mappings={"a": [{"subject": "b", "weight": 40, "cluster": "x"}]},
        default_permissions={"resp": {}},
        trace={"dest": "t", "sampling": 30},
    )
    account = accounts(made)[0][E]
    assert account.limits == AccountLimits(max_connections=5, max_leafnodes=0)
    assert account.jetstream == AccountJetStream(max_memory=-1, max_store=100, max_streams=-1)
    assert account.mappings == (MappingOptions("a", (MappingDestination("b", 40, "x"),)),)
    assert account.default_permissions is not None
    assert account.default_permissions.publish.allow == ()
    assert (account.trace_dest, account.trace_sampling_percent) == ("t", 30)


def test_jetstream_is_off_without_storage_and_by_tier_with_tiers() -> None:
    assert accounts(tokens.account_token("E"))[0][E].jetstream is None
    tiers = {
        **tokens.UNLIMITED_ACCOUNT,
        "tiered_limits": {"R1": {"disk_storage": 7}, "R3": {"disk_storage": 3}},
    }
    made = tokens.account_token("E", limits=tiers)
    for tier, expected in (("R1", 7), ("R3", 3)):
        jetstream = accounts(made, tier=tier)[0][E].jetstream
        assert jetstream is not None
        assert jetstream.max_store == expected
    assert accounts(made, tier="R5")[0][E].jetstream is None
    by_replicas = accounts(made)[0][E].jetstream_tiers
    assert [(name, limits.max_store) for name, limits in by_replicas] == [("R1", 7), ("R3", 3)]


def test_imports_of_public_exports_are_kept_with_both_ways_of_renaming() -> None:
    exporter = tokens.account_token(
        "E",
        exports=[
            {"subject": "out.>", "type": "stream"},
            {
                "subject": "svc.*",
                "type": "service",
                "response_type": "Chunked",
                "response_threshold": 5_000_000_000,
                "service_latency": {"sampling": "headers", "results": "lat"},
            },
        ],
    )
    importer = tokens.account_token(
        "I",
        imports=[
            {"subject": "out.a", "type": "stream", "account": E, "to": "prefix"},
            {"subject": "out.b", "type": "stream", "account": E, "local_subject": "b"},
            {"subject": "local", "type": "service", "account": E, "to": "svc.a"},
            {"subject": "svc.*", "type": "service", "account": E, "local_subject": "l.$1", "share": True},
        ],
    )
    by_name, problems = accounts(exporter, importer)
    assert problems == ()
    assert by_name[I].stream_imports == (
        StreamImport(E, "out.a", prefix="prefix"),
        StreamImport(E, "out.b", to="b"),
    )
    assert by_name[I].service_imports == (
        ServiceImport(E, "svc.a", "local"),
        ServiceImport(E, "svc.*", "l.$1", share=True),
    )
    (service,) = by_name[E].service_exports
    assert (service.response, service.response_threshold_s, service.accounts) == ("chunked", 5.0, ())
    assert service.latency == ServiceLatency("lat", 0)


def test_imports_that_no_export_covers_are_left_out() -> None:
    exporter = tokens.account_token("E", exports=[{"subject": "out.*", "type": "stream"}])
    wanted = [
        {"subject": "out.>", "type": "stream", "account": E},
        {"subject": "other", "type": "stream", "account": E},
        {"subject": "out.a", "type": "service", "account": E},
        {"subject": "out.a", "type": "stream", "account": public(KeyKind.ACCOUNT, "unknown")},
    ]
    by_name, problems = accounts(exporter, tokens.account_token("I", imports=wanted))
    assert by_name[I].stream_imports == ()
    assert by_name[I].service_imports == ()
    assert len(problems) == 4


def private(token: str) -> tuple[AccountOptions, AccountOptions]:
    exporter = tokens.account_token("E", exports=[{"subject": "p.>", "type": "stream", "token_req": True}])
    imports = [{"subject": "p.a", "type": "stream", "account": E, "token": token}]
    by_name, _ = accounts(exporter, tokens.account_token("I", imports=imports))
    return by_name[E], by_name[I]


def test_private_export_is_open_to_accounts_with_a_grant_only() -> None:
    exporter, importer = private(tokens.activation_token("E", "I", "p.>", "stream"))
    assert exporter.stream_exports == (StreamExport("p.>", (E, I)),)
    assert len(importer.stream_imports) == 1


def test_import_token_not_bound_to_this_importer_is_no_grant() -> None:
    for token in (
        "",
        tokens.activation_token("E", "J", "p.>", "stream"),
        tokens.activation_token("I", "I", "p.>", "stream"),
    ):
        exporter, importer = private(token)
        assert exporter.stream_exports == (StreamExport("p.>", (E,)),)
        assert importer.stream_imports == ()


def test_account_token_position_admits_the_account_named_there() -> None:
    exporter = tokens.account_token(
        "E", exports=[{"subject": "for.*.>", "type": "stream", "account_token_position": 2}]
    )
    wanted = [
        {"subject": f"for.{account}.x", "type": "stream", "account": E}
        for account in (I, public(KeyKind.ACCOUNT, "J"), "*")
    ]
    by_name, problems = accounts(exporter, tokens.account_token("I", imports=wanted))
    assert [stream.subject for stream in by_name[I].stream_imports] == [f"for.{I}.x"]
    assert len(problems) == 2


def test_self_import_cycle_between_accounts_is_cut() -> None:
    def pair(name: str, other: str) -> str:
        return tokens.account_token(
            name,
            exports=[{"subject": "help", "type": "service"}],
            imports=[{"subject": "help", "type": "service", "account": public(KeyKind.ACCOUNT, other)}],
        )

    by_name, problems = accounts(pair("E", "I"), pair("I", "E"))
    assert len(problems) == 1
    assert "cycle" in problems[0]
    assert len(by_name[E].service_imports) + len(by_name[I].service_imports) == 1
