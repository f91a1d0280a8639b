"""tls{} blocks.

Rules: files are only named here; the loader checks that they are there, and the transport that they fit.
Cipher suites and curves have Go's names, as in nats-server. verify_and_map and the known-URLs check imply
verify. What needs the Windows certificate store or OCSP is refused: ignoring it would weaken security.
"""

import re
from dataclasses import replace

from edged.config.document import ConfigError, Value
from edged.config.options import TlsOptions
from edged.config.readers import (
    boolean,
    file_name,
    go_duration,
    integer,
    off_only,
    required_text,
    seconds,
    texts,
    wrong_type,
)
from edged.config.table import Context, Reader, Table, items_of, key, read_block

# The pause before INFO is sent in clear when handshake_first is "auto".
HANDSHAKE_FIRST_DELAY_S = 0.05

CIPHER_SUITES = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    }
)
INSECURE_CIPHER_SUITES = frozenset(
    {
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
        "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_CBC_SHA",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_RSA_WITH_RC4_128_SHA",
    }
)
CURVES = frozenset(
    {
        "CurveP256",
        "CurveP384",
        "CurveP521",
        "SecP256r1MLKEM768",
        "SecP384r1MLKEM1024",
        "X25519",
        "X25519MLKEM768",
    }
)


def _names(known: frozenset[str]) -> Reader:
    def read(context: Context, value: Value, name: str) -> tuple[str, ...]:
        found = texts(context, value, name) if items_of(value, name) else ()
        if not found or not known.issuperset(found):
            raise ConfigError(f"{name}: expected names that `edged --help_tls` lists", value.position)
        return found

    return read


def _pinned(context: Context, value: Value, name: str) -> frozenset[str]:
    found = frozenset(required_text(context, item, name).lower() for item in items_of(value, name))
    if not all(re.fullmatch("[0-9a-f]{64}", one) for one in found):
        raise ConfigError(
            f"{name}: expected SHA-256 hashes of public keys (SubjectPublicKeyInfo, DER), 64 hex digits each",
            value.position,
        )
    return found


def _handshake_first(_context: Context, value: Value, name: str) -> dict[str, object]:
    if isinstance(value.data, bool):
        return {"handshake_first": value.data, "handshake_first_delay_s": 0.0}
    if not isinstance(value.data, str):
        raise wrong_type(value, name, "a boolean")
    word = value.data.lower()
    if word in ("true", "on", "false", "off"):
        return {"handshake_first": word in ("true", "on"), "handshake_first_delay_s": 0.0}
    delay_s = HANDSHAKE_FIRST_DELAY_S if word in ("auto", "auto_fallback") else go_duration(value, name)
    return {"handshake_first": True, "handshake_first_delay_s": delay_s}


def _min_version(context: Context, value: Value, name: str) -> str:
    found = required_text(context, value, name)
    if found not in ("1.2", "1.3"):
        raise ConfigError(f'{name}: expected "1.2" or "1.3"', value.position)
    return found


def _certs(context: Context, value: Value, name: str) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for item in items_of(value, name):
        fields = read_block(context, item, CERTIFICATE, name)
        if not fields.get("cert_file") or not fields.get("key_file"):
            raise ConfigError(f"{name}: each entry needs a cert_file and a key_file", item.position)
        found.append((fields["cert_file"], fields["key_file"]))
    return tuple(found)


_WINDOWS = "certificates come from files here: use cert_file and key_file"

CERTIFICATE = Table("tls.certs", (key("cert_file", file_name), key("key_file", file_name)))

TLS = Table(
    "tls",
    (
        key("cert_file", file_name),
        key("key_file", file_name),
        key("ca_file", file_name),
        key("certs certificates", _certs, block=CERTIFICATE),
        key("verify", boolean),
        key("verify_and_map", boolean),
        key("verify_cert_and_check_known_urls", boolean),
        key("insecure", boolean),
        key("timeout", seconds, "timeout_s", zero_is_default=True),
        key("cipher_suites", _names(CIPHER_SUITES | INSECURE_CIPHER_SUITES)),
        key("allow_insecure_cipher_suites", boolean),
        key("curve_preferences", _names(CURVES)),
        key("min_version", _min_version),
        key("pinned_certs", _pinned),
        key("handshake_first first immediate", _handshake_first, None),
        key("connection_rate_limit", integer()),
        key("ocsp_peer", off_only("edged does not ask OCSP responders: leave it off"), None),
    ),
    refused=dict.fromkeys(
        ("cert_store", "cert_match_by", "cert_match", "ca_certs_match", "cert_match_skip_invalid"), _WINDOWS
    ),
)


def read_tls(*, routes: bool = False) -> Reader:
    """A reader of a tls block; only between routes may certificates be checked against known URLs."""

    def read(context: Context, value: Value, name: str) -> TlsOptions:
        options = TlsOptions(**read_block(context, value, TLS, name))
        problem = _problem(options, routes)
        if problem is not None:
            raise ConfigError(f"{name}: {problem}", value.position)
        verify = options.verify or options.verify_and_map or options.verify_cert_and_check_known_urls
        return replace(options, verify=verify)

    return read


def _problem(options: TlsOptions, routes: bool) -> str | None:
    if options.verify_cert_and_check_known_urls and not routes:
        return "verify_cert_and_check_known_urls is for cluster routes only"
    if options.certs and options.cert_file:
        return "use either cert_file and key_file, or certs"
    if bool(options.cert_file) != bool(options.key_file):
        return "cert_file and key_file go together: one of them is missing"
    if not options.allow_insecure_cipher_suites and not INSECURE_CIPHER_SUITES.isdisjoint(
        options.cipher_suites
    ):
        return "cipher_suites has insecure ones: remove them, or set allow_insecure_cipher_suites"
    return None
