"""CONNECT documents: refused, or typed fields that everything behind them can use."""

from __future__ import annotations

from edged.server.connect import ConnectError, ConnectFields, is_json_object, parse_connect
from edged.server.identity import AuthFailed, credentials_of
from tests.fuzz.target import Target

# What of a CONNECT is kept, beside the text that the client sent.
KEPT_FIELDS_MAX = 32


def run(data: bytes) -> None:
    """Two documents, one after the other, as a client may send them."""
    first, _, second = data.partition(b"\n")
    fields = ConnectFields()
    for body in (first, second):
        is_json_object(body)
        try:
            fields = parse_connect(body, fields)
        except ConnectError:
            continue
        check(fields)


def check(fields: ConnectFields) -> None:
    for flag in (fields.verbose, fields.pedantic, fields.echo, fields.headers, fields.no_responders):
        assert type(flag) is bool
    assert type(fields.protocol) is int
    fields.problem()
    texts = [fields.name, fields.lang, fields.version]
    try:
        credentials = credentials_of(fields.credentials)
    except AuthFailed:
        pass
    else:
        texts += [credentials.user, credentials.password, credentials.token, credentials.nkey]
        texts += [credentials.jwt, credentials.signature, credentials.display_name]
        assert (
            not credentials.password
            or credentials.password not in repr(credentials)
            or (credentials.password in "Credentials(user='', nkey='')" + credentials.user + credentials.nkey)
        )
    for text in texts:
        # Logs, monitoring and comparisons encode it; half of a surrogate pair would raise there.
        text.encode("utf-8")
    assert len(fields.credentials) <= KEPT_FIELDS_MAX, "unknown fields are not kept"


SEEDS = (
    b'{"verbose":false,"pedantic":false,"tls_required":false,"name":"n","lang":"go","version":"1","protocol":1,'
    b'"echo":true,"headers":true,"no_responders":true}',
    b'{"user":"a","pass":"secret","auth_token":"t","nkey":"U","jwt":"eyJ","sig":"x"}\n{"user":"b"}',
    b'{"account":"A","new_account":true}',
    b'{"user":"\\ud800","pass":"\\u0000","name":"\\udfff\\u00e9"}',
    b"null",
    b"{}",
    b"[]",
    b'{"a":{"b":[1,2,{"c":null}]},"protocol":9223372036854775807,"x":1.5e10}',
)
WORDS = (
    *(b'"user":', b'"pass":', b'"auth_token":', b'"verbose":', b'"protocol":', b'"name":', b'"account":'),
    *(b"true", b"false", b"null", b"NaN", b"Infinity", b"-0", b"1.0", b'"\\ud800"', b'"\\udc00"', b"{", b"}"),
    *(
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"\\",
        b"\\u",
        b"\xff",
        b"\x00",
        b'"USER":"x"',
        b'"k1":1,',
        b"[[[[",
        b"\n",
    ),
)
TARGETS = (Target("connect", run, SEEDS, WORDS, share=6),)
