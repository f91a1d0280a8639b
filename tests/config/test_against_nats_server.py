"""The same configuration files given to `nats-server -t` and to edged: accepted and refused alike.

For accepted files the digests are compared too, which proves that both read the same values. Files that
nats-server refuses only when it starts, and differences that are meant, have tables of their own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edged.config.document import ConfigError
from edged.config.load import LoadedConfig, load_file
from edged.core.nkeys import KeyKind, encode_public

pytestmark = pytest.mark.real

NATS_SERVER = Path(sys.executable).parent / "nats-server"
USER_NKEY = encode_public(KeyKind.USER, bytes(32))
ACCOUNT_NKEY = encode_public(KeyKind.ACCOUNT, bytes(32))
OPERATOR_NKEY = encode_public(KeyKind.OPERATOR, bytes(32))

ACCEPTED = [
    "port: 4222",
    "port 4222",
    "port = 4222",
    "PORT: 4222",
    "port\n4222",
    "{port: 4222}",
    '{"port": 4222, "debug": false,}',
    "{port: 4222}{debug: true}",
    "port: 4222, debug: true; trace: no",
    "# comment\nport: 4222 // other\n",
    "listen: localhost:4222",
    'listen: "[::1]:4222"',
    "listen: 4222",
    "listen: ':-1'",
    "host: 127.0.0.1\nport: -1",
    "server_name: edge1",
    "server_name: 'a'\nserver_name: 'b'",
    "client_advertise: a/b",
    'client_advertise: "a\\x41\\t\\n\\r\\"\\\\b"',
    "client_advertise: a\\x41b",
    "client_advertise: foo'",
    "client_advertise: $2a$11$abcdefgh",
    "client_advertise: (\n several\n lines (here)\n)\n",
    "client_advertise: \u00e9<&>\u2028",
    "client_advertise: 1.2.3.4:4222",
    "client_advertise: 10s",
    "ping_interval: 1m30s",
    "ping_interval: '2m'",
    "ping_interval: 10ms",
    "max_payload: 1k",
    "max_payload: 1KB",
    "max_payload: 1Kib",
    "max_payload: 64ki",
    "max_pending: 2g",
    "max_control_line: 2k",
    "max_connections: 0",
    "max_subs: 10\nmax_sub_tokens: 8",
    "PORT_NUMBER: 4222\nport: $PORT_NUMBER",
    "x: 1\ncluster { y: $x, port: $y, name: c }",
    "port: $TEST_PORT",
    "server_tags: $TEST_TAG",
    "server_tags: [a, 'b c', \"d\"]",
    "server_tags: [\n a\n b, c\n # comment\n d // other\n]",
    "server_tags: one",
    "server_metadata { a: b, c: 'd e' }",
    "feature_flags { x: true }",
    "http: localhost:8222",
    "http_port: 8222\nhttp_base_path: nats",
    "authorization { user: a, password: b, timeout: 1 }",
    "authorization { user: a, password: b, timeout: '500ms' }",
    "authorization { token: 'x y' }",
    "authorization { users: [{user: a, password: b}, {user: c, pass: d, permissions: {pub: 'x.>', "
    "sub: [y, 'z q']}}] }",
    f"authorization {{ users: [{{nkey: {USER_NKEY}}}] }}",
    "authorization { default_permissions: {publish: {deny: 'a.*'}}, users: [{user: a}] }",
    "authorization { users: [{user: a, permissions: {allow_responses: true}}] }",
    "authorization { users: [{user: a, permissions: {allow_responses: {max: 5, expires: '1m'}}}] }",
    "authorization { users: [{user: a, allowed_connection_types: [standard, WEBSOCKET]}] }",
    "accounts { A { users: [{user: a, password: b}] }, B {} }",
    "accounts [A, B]",
    f"accounts {{ A {{ nkey: {ACCOUNT_NKEY} }} }}",
    "accounts { A { exports: [{stream: 'a.>'}, {service: s, accounts: [B]}] }\n"
    "B { imports: [{stream: {account: A, subject: a.b}, prefix: x}, {service: {account: A, "
    "subject: s}, to: t}] } }",
    "accounts { A { exports: [{service: s, response: stream, threshold: '1s'}] } }",
    "accounts { A { exports: [{service: s, latency: {subject: lat, sampling: '50%'}}] } }",
    "accounts { A { exports: [{stream: 'a.*', account_token_position: 2}] } \n B {imports: "
    "[{stream: {account: A, subject: a.B}}]} }",
    "accounts { A { jetstream: enabled }, B { jetstream { max_mem: 1k, max_file: 1M, max_streams: 3 } } }",
    "accounts { A { limits { max_conn: 1, max_subs: 2, max_payload: 3, max_leafnodes: 4 } } }",
    "accounts { A { mappings { foo: bar, 'a.*': 'b.$1', w: [{dest: x, weight: 20%}, {dest: y, "
    "weight: 80}] } } }",
    "accounts { A { trace_dest: t.d } }",
    "accounts { v: 1, A { users: [{user: a, password: 'x'}] }, B { limits { max_conn: $v } } }",
    "mappings { foo: bar }",
    "system_account: SYS\naccounts { SYS {} }",
    "jetstream: true",
    "jetstream: enabled",
    "jetstream { store_dir: '/tmp/x', max_mem: 1G, max_file: '10G', domain: hub, sync: always }",
    "jetstream { sync_interval: '10s', limits { max_ack_pending: 5, duplicate_window: '1m' } }",
    "jetstream { limits { batch { max_inflight_per_stream: 1, max_inflight_total: 2, max_msgs: 3, "
    "timeout: '1s' } } }",
    "jetstream { key: abc, cipher: aes }",
    "jetstream { max_concurrent_io: 4, request_queue_limit: 10, max_buffered_size: 1k }",
    "store_dir: '/tmp/x'",
    "leafnodes { port: 7422, authorization { user: a, password: b, account: '' } }",
    "leafnodes { remotes: [{url: 'nats-leaf://a:b@host:7422', deny_imports: [x, 'y.>'], hub: true}] }",
    "leafnodes { remotes: [{urls: ['tls://h:1', 'tls://i:2'], no_randomize: true, compression: s2_fast}] }",
    "leafnodes { remotes: [{url: 'ws://h:80', ws_compression: true, ws_no_masking: true}] }",
    "leafnodes { compression { mode: auto, rtt_thresholds: [10ms, 50ms] }, isolate: true }",
    "cluster { name: c, listen: 'localhost:6222', routes: ['nats-route://h:6222'], pool_size: 2, "
    "accounts: [A] }",
    "cluster { name: c, port: 6222, authorization { user: a, password: b, timeout: 0.5 }, "
    "permissions { import: a } }",
    "websocket { port: 8080, no_tls: true, same_origin: true, allowed_origins: ['http://a'], "
    "compression: true }",
    "websocket { port: 8080, no_tls: true, headers { X-A: b }, handshake_timeout: '2s' }",
    "resolver: MEMORY",
    "tls { verify: true, timeout: 3, min_version: '1.3' }",
    "tls { cipher_suites: [TLS_AES_128_GCM_SHA256], curve_preferences: [X25519] }",
    "tls { handshake_first: auto }",
    "lame_duck_duration: '1m'\nlame_duck_grace_period: '5s'",
    "write_deadline: '5s'\nwrite_timeout: retry",
    "default_js_domain { A: '' }\naccounts { A {} }",
    "logtime: false\nlog_file: x\nlogfile_size_limit: 1k\nlogfile_max_num: 3\nsyslog: true",
    f"trusted_keys: {OPERATOR_NKEY}",
    "no_auth_user: x\nauthorization { users: [{user: x, password: y}] }",
    "include 'part.conf'",
    'include "part.conf"; port: 4222',
    "cluster {\n include part.cluster\n }",
]

REFUSED = [
    "port: x",
    "port: '4222'",
    "port: 4222.5",
    "port: 4222 4223",
    "prot: 4222",
    "port: 4222\nfoo { }",
    "debug: 'true'",
    "debug: 1",
    "a\nb: 1",
    "/a: 1",
    "port: [",
    "server_tags: [a b]",
    "server_tags: [a,,b]",
    "server_tags: [\n a\n , b]",
    "server_tags: [a",
    "client_advertise: 'x",
    'client_advertise: "x',
    'client_advertise: "\\q"',
    'client_advertise: "\\x1"',
    "client_advertise: it's",
    "client_advertise: (\nx",
    "client_advertise: .5",
    "client_advertise: 1.x",
    "client_advertise: 20-01",
    "client_advertise: 2020-13-01T00:00:00Z",
    "client_advertise: 2020-01-01T00:00:00Z",
    "client_advertise: -x",
    "max_pending: 99999999999999999999",
    "port: $NOT_THERE_AT_ALL",
    "port: $TEST_CYCLE",
    "client_advertise: $TEST_BROKEN",
    "client_advertise: $2b$11$abcdefgh",
    "include 'missing.conf'",
    "include 3",
    "include [a]",
    "accounts{A{}}",
    "cluster { name: c",
    "cluster { name: c ]",
    "cluster { = c }",
    "= 3",
    "listen: localhost",
    "listen: a:b:c",
    "listen: 'localhost:x'",
    "server_name: 'a b'",
    "max_payload: 3G",
    "max_sub_tokens: 256",
    "max_sub_tokens: 0",
    "ping_interval: x",
    "ping_interval: 1.5",
    "lame_duck_duration: '1s'",
    "lame_duck_duration: 60",
    "lame_duck_grace_period: '-1s'",
    "write_timeout: never",
    "authorization { user: a, token: b }",
    "authorization { user: a, users: [{user: b}] }",
    "authorization { token: a, users: [{user: b}] }",
    "authorization { users: [{user: a}, {user: a}] }",
    "authorization { users: [{password: a}] }",
    "authorization { users: [{nkey: UABC}] }",
    f"authorization {{ users: [{{nkey: {USER_NKEY}, user: a}}] }}",
    "authorization { users: {user: a} }",
    "authorization { users: [a] }",
    "authorization { password: 123, user: a }",
    "authorization { users: [{user: a, permissions: {publish: 'a..b'}}] }",
    "authorization { users: [{user: a, permissions: {publish: 'a b'}}] }",
    "authorization { users: [{user: a, permissions: {subscribe: 'a b c'}}] }",
    "authorization { users: [{user: a, permissions: {publish: {allowed: x}}}] }",
    "authorization { users: [{user: a, permissions: {allow_responses: 1}}] }",
    "authorization { users: [{user: a, permissions: {allow_responses: {expires: 1}}}] }",
    "authorization { users: [{user: a, allowed_connection_types: [carrier_pigeon]}] }",
    "authorization { timeout: x }",
    "authorization { user: a, password: b }\naccounts { A { users: [{user: c}] } }",
    "accounts { $G {} }",
    "accounts { A: 1 }",
    "accounts [A, A]",
    "accounts { A { nkey: abc } }",
    "accounts { A { users: [{user: a}] }, B { users: [{user: a}] } }",
    "accounts { A { imports: [{stream: {account: B, subject: a}}] } }",
    "accounts { A { imports: [{stream: {account: B, subject: a}}] }, B {} }",
    "accounts { A { imports: [{service: {account: B, subject: a}}] }, B { exports: [{service: a, "
    "accounts: [C]}] }, C {} }",
    "accounts { A { exports: [{stream: a, accounts: [X]}] } }",
    "accounts { A { exports: [{stream: a, service: b}] } }",
    "accounts { A { exports: [{stream: a, response: single}] } }",
    "accounts { A { exports: [{service: a, response: many}] } }",
    "accounts { A { exports: {stream: a} } }",
    "accounts { A { exports: [{stream: 'a.b', account_token_position: 2}] } }",
    "accounts { A { exports: [{service: a, latency: {sampling: 5}}] } }",
    "accounts { A { exports: [{service: a, latency: {subject: l, sampling: 101}}] } }",
    "accounts { A { jetstream: maybe } }",
    "accounts { A { jetstream { max_mem: '1G' } } }",
    "accounts { A { jetstream { max_bytes: 1 } } }",
    "accounts { A { limits { max_things: 1 } } }",
    "accounts { A { mappings { foo: [{dest: x}] } } }",
    "accounts { A { mappings { foo: [{dest: x, weight: 60}, {dest: y, weight: 60}] } } }",
    "accounts { A { mappings { foo: [{dest: x, weight: 10}, {dest: x, weight: 10}] } } }",
    "accounts { A { mappings { 'a..b': x } } }",
    "accounts { A { mappings { 'a.*': 'b.$2' } } }",
    "accounts { A { trace_dest: 'a.*' } }",
    "jetstream: maybe",
    "jetstream: 1",
    "jetstream { max_mem: '10' }",
    "jetstream { max_mem: 1.5 }",
    "jetstream { sync: sometimes }",
    "jetstream { cipher: rot13 }",
    "jetstream { max_concurrent_io: 1 }",
    "jetstream { limits { max_acks: 1 } }",
    "jetstream { store_dir: a }\nstore_dir: b",
    "leafnodes { remotes: {url: 'nats://h:1'} }",
    "leafnodes { remotes: [{url: 5}] }",
    "leafnodes { remotes: [{url: 'nats://h:1', nkey: abc}] }",
    "leafnodes { remotes: [{url: 'nats://h:1', deny_imports: 'a..b'}] }",
    "leafnodes { remotes: [{url: 'nats://h:1'}, {url: 'nats://h:1'}] }",
    "leafnodes { remotes: [{url: 'ws://h:1', proxy {url: 'socks://p:1'}}] }",
    "leafnodes { authorization { user: a, users: [{user: b}] } }",
    "leafnodes { min_version: '2.7.0' }",
    "cluster { name: 'a b' }",
    "cluster { authorization { token: t } }",
    "cluster { authorization { users: [{user: a}] } }",
    "cluster { permissions { allow_responses: true } }",
    "cluster { tls { verify_cert_and_check_known_urls: 1 } }",
    "websocket { port: a }",
    "websocket { headers: 1 }",
    "resolver: 5",
    "resolver: SOMEWHERE",
    "resolver { type: full }",
    "resolver { type: cache, dir: '/tmp', allow_delete: true }",
    "resolver_preload { A: x }",
    "operator: '/does/not/exist.jwt'",
    "trusted_keys: abc",
    "tls { cert_file: a }",
    "tls { cert_file: '/does/not/exist.pem', key_file: '/does/not/exist.key' }",
    "tls { cipher_suites: [] }",
    "tls { cipher_suites: [NO_SUCH] }",
    "tls { cipher_suites: [TLS_RSA_WITH_RC4_128_SHA] }",
    "tls { min_version: '1.1' }",
    "tls { pinned_certs: [abc] }",
    "tls { handshake_first: perhaps }",
    "tls { verify_cert_and_check_known_urls: true }",
    "tls { nonsense: true }",
    "default_js_domain: x",
    "feature_flags { a: 1 }",
    "server_tags: 1",
    "trace: 1",
]

# nats-server checks these only when it starts; edged says so at once.
REFUSED_AT_START = [
    "max_payload: 1000\nmax_pending: 10",
    "lame_duck_duration: '30s'\nlame_duck_grace_period: '40s'",
    "no_auth_user: x",
    "no_auth_user: x\nauthorization { users: [{user: y}] }",
    "system_account: NOPE",
    "websocket { port: -1 }",
    "websocket { port: -1, no_tls: true, jwt_cookie: j }",
    "websocket { port: -1, no_tls: true, allowed_origins: ['ftp://a'] }",
    "websocket { port: -1, no_tls: true, headers { Upgrade: x } }",
    "leafnodes { port: -1, authorization { account: NOPE } }",
    "leafnodes { remotes: [{url: 'nats://h:1', account: NOPE}] }",
    "leafnodes { remotes: [{urls: ['ws://h:1', 'nats://h:2']}] }",
    "leafnodes { port: -1, compression: gzip }",
    "jetstream { domain: 'a.b' }",
    "default_js_domain { NOPE: '' }",
    "jetstream { store_dir: '/tmp/x' }\ncluster { port: -1, name: c }",
    "http_port: -1\nhttps_port: -1",
]

# nats-server lets these pass; edged refuses, because what was meant is lost or cannot be done.
REFUSED_ON_PURPOSE = [
    "client_advertise:",
    "client_advertise: ,\n",
    "max_payload: 1kbi\nport: 4222",
    "{\n port: 4222\n",
    'client_advertise: "\\xff"',
    "accounts { A { exports: [{accounts: []}] } }",
    "gateway { name: a }",
    "authorization { proxy_required: true }",
]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEST_PORT", "4333")
    monkeypatch.setenv("TEST_TAG", "'a b'")
    monkeypatch.setenv("TEST_CYCLE", "$TEST_CYCLE")
    monkeypatch.setenv("TEST_BROKEN", "a b")
    (tmp_path / "part.conf").write_text("debug: true\ntrace: no\n")
    (tmp_path / "part.cluster").write_text("name: c\nport: 6222\n")
    return tmp_path / "x.conf"


def nats_check(path: Path) -> tuple[bool, str]:
    done = subprocess.run(
        [NATS_SERVER, "-t", "-c", path], capture_output=True, text=True, timeout=20, check=False
    )
    return done.returncode == 0, done.stderr


def ours(path: Path) -> LoadedConfig:
    return load_file(path, os.environ)


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted_by_both_with_the_same_digest(config: Path, text: str) -> None:
    config.write_text(text)
    accepted, said = nats_check(config)
    assert accepted, said
    digest = re.search("sha256:[0-9a-f]{64}", said)
    assert digest is not None
    assert ours(config).digest == digest[0]


@pytest.mark.parametrize("text", REFUSED)
def test_refused_by_both(config: Path, text: str) -> None:
    config.write_text(text)
    accepted, _said = nats_check(config)
    assert not accepted
    with pytest.raises(ConfigError):
        ours(config)


@pytest.mark.parametrize("text", REFUSED_AT_START)
def test_refused_by_nats_server_at_start_and_by_us_at_once(config: Path, text: str) -> None:
    config.write_text(f"{text}\nport: -1\n")
    with pytest.raises(ConfigError):
        ours(config)
    command: list[str | Path] = [NATS_SERVER, "-c", config, "-a", "127.0.0.1"]
    # A server that starts would run until the timeout and fail this test.
    done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    assert done.returncode == 1


@pytest.mark.parametrize("text", REFUSED_ON_PURPOSE)
def test_accepted_by_nats_server_and_refused_on_purpose(config: Path, text: str) -> None:
    config.write_text(text)
    accepted, said = nats_check(config)
    assert accepted, said
    with pytest.raises(ConfigError):
        ours(config)
