"""From configuration text to Options: values, aliases, defaults, warnings, and errors that help."""

from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.config.document import ConfigError
from edged.config.jetstream_options import JetStreamOptions
from edged.config.load import TOP, load_file, load_text
from edged.config.options import (
    AccountJetStream,
    CompressionOptions,
    MappingDestination,
    MappingOptions,
    Options,
    ResponseRule,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    SubjectRules,
    UserOptions,
)
from edged.config.table import Table
from edged.config.tls import CIPHER_SUITES, CURVES, INSECURE_CIPHER_SUITES
from edged.core.jwt import write_token
from edged.core.nkeys import KeyKind, create_seed, encode_public, public_from_seed
from tests.examples import examples


def load(text: str) -> Options:
    return load_text(text, {}).options


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_text(text, {}, "f")
    return str(caught.value)


def without_digest(options: Options) -> dict[str, object]:
    return {
        field.name: getattr(options, field.name) for field in fields(options) if field.name != "config_digest"
    }


def test_empty_file_gives_the_defaults_and_a_warning() -> None:
    loaded = load_text("# nothing\n", {})
    assert without_digest(loaded.options) == without_digest(Options())
    assert "empty" in loaded.warnings[0]


def test_zero_means_the_default_where_nats_server_says_so() -> None:
    zeros = "port: 0\nmax_payload: 0\nmax_pending: 0\nmax_control_line: 0\nping_max: 0\nping_interval: '0s'\n"
    assert without_digest(load(zeros)) == without_digest(Options())
    assert load("max_connections: 0").max_connections == -1


def test_listen_sets_host_and_port() -> None:
    assert (load("listen: 'h:1'").host, load("listen: 'h:1'").port) == ("h", 1)
    assert (load("listen: 5").host, load("listen: 5").port) == ("0.0.0.0", 5)
    assert load("http: '[::1]:8222'").http_host == "::1"
    assert load("http: ':-1'").http_port == -1


def test_sizes_in_quotes_are_powers_of_1024_and_others_as_written() -> None:
    jetstream = load("jetstream { max_mem: 64M, max_file: '64M' }").jetstream
    assert jetstream is not None
    assert (jetstream.max_memory, jetstream.max_store) == (64_000_000, 64 * 1024**2)


def test_bare_number_as_duration_is_seconds_with_a_warning() -> None:
    loaded = load_text("ping_interval: 2m", {}, "f")
    assert loaded.options.ping_interval_s == 2_000_000
    assert loaded.warnings == (
        'f:1:16: ping_interval is read as 2000000 seconds: write "2000000s" in quotes',
    )


@pytest.mark.parametrize(
    ("written", "sync", "interval_s"),
    [
        ("always", "always", 120.0),
        ("os", "os", 120.0),
        ("'2s'", "interval", 2.0),
        ("'interval 250ms'", "interval", 0.25),
        ("10", "interval", 10.0),
    ],
)
def test_sync_names_how_durable_an_acknowledgement_is(written: str, sync: str, interval_s: float) -> None:
    for name in ("sync", "sync_interval"):
        jetstream = load(f"jetstream {{ {name}: {written} }}").jetstream
        assert jetstream is not None
        assert (jetstream.sync, jetstream.sync_interval_s) == (sync, interval_s)


def test_jetstream_is_on_by_word_by_flag_or_by_block() -> None:
    for on in ("true", "enabled", "ENABLE", "{}", "{ enabled: true }"):
        assert load(f"jetstream: {on}").jetstream == JetStreamOptions()
    for off in ("false", "disabled", "{ enabled: false, domain: x }"):
        assert load(f"jetstream: {off}").jetstream is None


def test_store_dir_of_the_top_level_is_that_of_jetstream() -> None:
    jetstream = load("store_dir: '/data'\njetstream: enabled").jetstream
    assert jetstream is not None
    assert jetstream.store_dir == "/data"


def test_permissions_have_all_their_forms() -> None:
    options = load(
        "authorization { users: ["
        "{user: a, permissions: {publish: x, subscribe: [y, 'z q']}}, "
        "{user: b, permissions: {pub: {allow: [x], deny: 'x.y'}, sub: {deny: z}}}, "
        "{user: c, permissions: {allow_responses: {max: 3, ttl: '5s'}}}, "
        "{user: d, permissions: {allow_responses: true, publish: x}}, "
        "{user: e}], default_permissions: {publish: p} }"
    )
    users = options.authorization.users
    assert users is not None
    found = [user.permissions for user in users]
    assert found[0] is not None
    assert found[0].publish == SubjectRules(allow=("x",))
    assert found[0].subscribe == SubjectRules(allow=("y", "z q"))
    assert found[1] is not None
    assert found[1].publish == SubjectRules(allow=("x",), deny=("x.y",))
    assert found[1].subscribe == SubjectRules(allow=None, deny=("z",))
    assert found[2] is not None
    assert found[2].allow_responses == ResponseRule(3, 5.0)
    assert found[2].publish.allow == ()
    assert found[3] is not None
    assert (found[3].allow_responses, found[3].publish.allow) == (ResponseRule(), ("x",))
    assert found[4] == options.authorization.default_permissions


def test_account_has_everything_in_its_place() -> None:
    account, other = load(
        "accounts { A { users: [{user: a, password: p}], jetstream { max_file: 5, streams: 2 },"
        " exports: [{stream: 's.>', accounts: [B]}, {service: r, response: chunked, threshold: '3s'}],"
        " mappings { m: n, w: [{dest: x, weight: 30%}, {dest: y, weight: 70, cluster: c}] },"
        " limits { max_subs: 9 } }\n"
        " B { imports: [{stream: {account: A, subject: s.t}, to: u},"
        " {service: {account: A, subject: r}, share: true}] } }"
    ).accounts
    assert account.users == (UserOptions(user="a", password="p", account="A"),)
    assert account.jetstream == AccountJetStream(max_store=5, max_streams=2)
    assert account.stream_exports == (StreamExport("s.>", ("B",)),)
    assert account.service_exports == (ServiceExport("r", response="chunked", response_threshold_s=3.0),)
    assert account.mappings == (
        MappingOptions("m", (MappingDestination("n"),)),
        MappingOptions("w", (MappingDestination("x", 30), MappingDestination("y", 70, "c"))),
    )
    assert account.limits.max_subscriptions == 9
    assert other.stream_imports == (StreamImport("A", "s.t", to="u"),)
    assert other.service_imports == (ServiceImport("A", "r", "r", share=True),)


def test_tls_options_imply_each_other() -> None:
    options = load("tls { cert_file: c, key_file: k, verify_and_map: true, handshake_first: '300ms' }")
    assert options.tls is not None
    assert options.tls.verify
    assert (options.tls.handshake_first, options.tls.handshake_first_delay_s) == (True, 0.3)
    assert options.auth_timeout_s == 3.0
    assert Options().auth_timeout_s == 2.0


def test_compression_has_one_name_per_mode() -> None:
    for written in ("on", "auto", "true", "S2_Auto"):
        leafnodes = load(f"leafnodes {{ compression: {written} }}").leafnodes
        assert leafnodes is not None
        assert leafnodes.compression == CompressionOptions("s2_auto")
    cluster = load("cluster { compression: on }").cluster
    assert cluster is not None
    assert cluster.compression.mode == "s2_fast"


def test_operator_fills_in_system_account_and_account_server(tmp_path: Path) -> None:
    seed = create_seed(KeyKind.OPERATOR, b"\x01" * 32)
    system = encode_public(KeyKind.ACCOUNT, bytes(32))
    nats = {
        "type": "operator",
        "version": 2,
        "system_account": system,
        "account_server_url": "https://h/jwt/v1",
    }
    token = write_token(
        {"sub": public_from_seed(seed), "iat": 1, "jti": "x", "name": "O", "nats": nats}, seed
    )
    decorated = f"-----BEGIN NATS OPERATOR JWT-----\n{token}\n------END NATS OPERATOR JWT------\n"
    (tmp_path / "op.jwt").write_text(decorated)
    for written in (token, tmp_path / "op.jwt"):
        options = load(f"operator: '{written}'")
        assert options.operators == (token,)
        assert options.system_account == system
        assert options.resolver is not None
        assert options.resolver.url == "https://h/jwt/v1/accounts"
        assert "users come from JWTs" in refusal(
            f"operator: '{written}'\nauthorization {{ users: [{{user: a}}] }}"
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot: 1", "f:1:1: unknown key 'prot' in the configuration: did you mean 'port'?"),
        ("\n  tls { cert_fle: x }", "f:2:9: unknown key 'cert_fle' in tls: did you mean 'cert_file'?"),
        ("jetstream { zzzzzz: x }", "f:1:13: unknown key 'zzzzzz' in jetstream"),
        ("port: '4222'", "f:1:7: port: expected an integer, found a string"),
        ("port: 70000", "f:1:7: port: expected -1 to 65535"),
        (
            "debug: 'yes'",
            "f:1:8: debug: expected a boolean, found a string: write true or false without quotes",
        ),
        (
            "authorization { token: 123 }",
            "f:1:24: token: expected a string, found an integer: put it in quotes",
        ),
        ("authorization: 5", "f:1:16: authorization: expected a block { ... }, found an integer"),
        ("authorization { users: {} }", "f:1:24: users: expected an array [ ... ], found a block"),
        ("write_timeout: x", "f:1:16: write_timeout: expected one of default, close, retry"),
        (
            "lame_duck_duration: 60",
            'f:1:21: lame_duck_duration: expected a duration in quotes such as "30s", found an',
        ),
        ("mqtt { port: 1883 }", "f:1:1: mqtt: edged speaks no MQTT"),
        ("authorization { users: [{user: a, proxy_required: yes}] }", "f:1:51: proxy_required: "),
        ("jetstream { tpm {} }", "f:1:13: tpm: "),
        ("tls { ocsp_peer: true }", "f:1:18: ocsp_peer: "),
        ("\nmax_pending: 5", "f:2:1: max_payload must not be larger than max_pending"),
        ("https_port: 1", "f:1:1: https_port needs a tls block"),
        ("websocket { port: 1 }", "f:1:1: websocket: needs a tls block, or no_tls: true"),
    ],
)
def test_error_names_place_key_and_remedy(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


def test_unknown_key_is_allowed_when_a_variable_refers_to_it() -> None:
    assert load("my_port: 5\nport: $my_port\ncluster { my_name: c, name: $my_name }").port == 5
    assert "unknown key" in refusal("my_port: 5")


def test_harmless_key_of_nats_server_is_ignored_with_a_warning() -> None:
    loaded = load_text("prof_port: 6060", {}, "f")
    assert loaded.warnings == ("f:1:1: prof_port is ignored: edged has no profiling port",)


SECRET = "s3cr3t-\u00e9"


@pytest.mark.parametrize(
    "text",
    [
        "port: '{}'",
        "listen: '{}'",
        "debug: '{}'",
        "ping_interval: '{}'",
        "authorization {{ users: [{{user: a, passwrd: '{}'}}] }}",
        "authorization {{ users: '{}' }}",
        "authorization {{ timeout: '{}' }}",
        "authorization {{ token: '{}', user: a }}",
        "jetstream: '{}'",
        "jetstream {{ max_mem: '{}' }}",
        "leafnodes {{ remotes: [{{url: 'nats://u:{}@h:x'}}] }}",
        "leafnodes {{ remotes: [{{url: 'nats://h:1', nkey: '{}'}}] }}",
        "resolver: '{}'",
        "resolver_preload {{ A: '{}' }}",
        "operator: '{}'",
        "tls {{ pinned_certs: ['{}'] }}",
        "token: ${}",
        "token: '{}' x",
        'token: "{}\\q"',
    ],
)
def test_value_in_the_wrong_place_is_not_shown(text: str) -> None:
    assert "s3cr3t" not in refusal(text.format(SECRET))


def test_secrets_are_not_in_the_repr_of_options() -> None:
    options = load(
        f"authorization {{ users: [{{user: a, password: '{SECRET}'}}] }}\n"
        f"jetstream {{ key: '{SECRET}', prev_key: '{SECRET}' }}\n"
        f"cluster {{ authorization {{ user: a, password: '{SECRET}' }},"
        f" routes: ['nats://a:{SECRET}@h:1'] }}\n"
        f"leafnodes {{ authorization {{ user: a, password: '{SECRET}' }},"
        f" remotes: [{{url: 'ws://a:{SECRET}@h',"
        f" proxy {{ url: 'http://h', username: u, password: '{SECRET}' }}}}] }}\n"
        f"websocket {{ authorization {{ token: '{SECRET}' }} }}\n"
    )
    assert "s3cr3t" not in repr(options)


def test_import_circle_is_refused_and_a_line_is_not() -> None:
    line = (
        "C { exports: [{service: c}] }\n"
        "B { exports: [{service: b}], imports: [{service: {account: C, subject: c}, to: b}] }"
    )
    assert load(
        f"accounts {{ {line}\n A {{ imports: [{{service: {{account: B, subject: b}}}}] }} }}"
    ).accounts
    circle = line.replace("C { exports", "C { imports: [{service: {account: B, subject: b}, to: c}], exports")
    assert "circle" in refusal(f"accounts {{ {circle} }}")


def test_named_file_must_be_readable(tmp_path: Path) -> None:
    config = tmp_path / "a.conf"
    config.write_text("tls { cert_file: 'nope.pem', key_file: 'nope.key' }")
    with pytest.raises(ConfigError, match=r"a\.conf:1:18: cannot read 'nope\.pem': No such file"):
        load_file(config, {})


def test_cipher_and_curve_names_are_those_the_transport_knows() -> None:
    from edged.server import tls_context

    assert tls_context.CIPHER_SUITES.keys() | tls_context.TLS13_CIPHER_SUITES == CIPHER_SUITES
    assert tls_context.INSECURE_CIPHER_SUITES.keys() == INSECURE_CIPHER_SUITES
    assert tls_context.CURVES.keys() <= CURVES


def tables(table: Table, seen: dict[int, Table]) -> dict[int, Table]:
    seen[id(table)] = table
    for key in table.keys:
        if key.block is not None and id(key.block) not in seen:
            tables(key.block, seen)
    return seen


def test_no_spelling_stands_for_two_keys() -> None:
    for table in tables(TOP, {}).values():
        names = [name for key in table.keys for name in key.names]
        names += [*table.refused, *table.ignored]
        assert len(names) == len(set(names)), table.title
        assert all(name == name.lower() for name in names)


ALL_NAMES = sorted({name for table in tables(TOP, {}).values() for key in table.keys for name in key.names})
TEXTS = st.sampled_from(["1", "-1", "true", "x", "'1s'", "a.b", "'1.2'", "1.5", "2026-01-01T00:00:00Z", "''"])
BLOCKS = st.recursive(
    TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(st.sampled_from(ALL_NAMES), inner, max_size=4).map(
            lambda pairs: "{" + ", ".join(f"{name}: {value}" for name, value in pairs.items()) + "}"
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(ALL_NAMES), BLOCKS, max_size=4))
@settings(max_examples=examples(500), deadline=None)
def test_any_configuration_is_options_or_a_config_error(pairs: dict[str, str]) -> None:
    try:
        options = load("\n".join(f"{name}: {value}" for name, value in pairs.items()))
    except ConfigError:
        return
    assert is_dataclass(options)


@given(
    st.sampled_from([key for key in TOP.keys if key.block is not None]), BLOCKS, st.sampled_from(ALL_NAMES)
)
@settings(max_examples=examples(500), deadline=None)
def test_any_value_in_any_block_is_options_or_a_config_error(key: object, value: str, name: str) -> None:
    try:
        load(f"{key.names[0]} {{ {name}: {value} }}")  # type: ignore[attr-defined]
    except ConfigError:
        return
