"""TLS contexts from a tls{} block: certificates, versions, cipher suites, and which peers are pinned.

Rules: every problem is a TlsConfigError that names the file and what is wrong with it; key material appears
in no message. Contexts are made at start and at reload, never per connection. TLS 1.2 is the least;
renegotiation is off. Cipher suites have their Go (IANA) names, as in nats-server's configuration; as there,
the list concerns TLS 1.2 only, the suites of TLS 1.3 are all sound and always on.
"""

import hashlib
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from edged.config.options import TlsOptions

CIPHER_SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
"""TLS 1.2 suites that Go calls secure, and what OpenSSL calls them."""

INSECURE_CIPHER_SUITES: Final = {
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
}
"""Used only with allow_insecure_cipher_suites."""

TLS13_CIPHER_SUITES: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)

CURVES: Final = {
    "X25519": "X25519",
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
}
"""Go's names of curves, and OpenSSL's. The hybrid post-quantum ones are accepted and left to OpenSSL."""

_HYBRID_CURVES: Final = frozenset({"X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024"})
_ServerNameCallback = Callable[[ssl.SSLObject, str | None, ssl.SSLContext], None]
_MIN_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_GO_NAMES: Final = {name: go_name for go_name, name in (CIPHER_SUITES | INSECURE_CIPHER_SUITES).items()}


class TlsConfigError(ValueError):
    """The tls{} block cannot be used; the text names the option or the file, and what is wrong."""


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """The context that accepts connections. Raises TlsConfigError."""
    pairs = _certificate_pairs(options)
    if not pairs:
        raise TlsConfigError("tls: cert_file and key_file are missing")
    contexts = [_one_context(options, cert_file, key_file) for cert_file, key_file in pairs]
    if len(contexts) > 1:
        choices = [
            (_certificate_names(Path(cert_file)), context)
            for (cert_file, _key_file), context in zip(pairs, contexts, strict=True)
        ]
        contexts[0].sni_callback = _choose_by_name(choices)
    return contexts[0]


def certificate_is_pinned(certificate_der: bytes | None, pinned_certs: frozenset[str]) -> bool:
    """Whether the peer may connect: nothing is pinned, or the hash of its public key is."""
    if not pinned_certs:
        return True
    if certificate_der is None:
        return False
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public_key = x509.load_der_x509_certificate(certificate_der).public_key()
    info = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).hexdigest() in pinned_certs


def cipher_suite_name(openssl_name: str) -> str:
    """The IANA name of a suite, as nats-server reports it; unknown names stay as they are."""
    return _GO_NAMES.get(openssl_name, openssl_name)


def _certificate_pairs(options: TlsOptions) -> tuple[tuple[str, str], ...]:
    if options.cert_file is None and options.key_file is None:
        return options.certs
    if options.key_file is None:
        raise TlsConfigError(f"tls: key_file is missing for cert_file {options.cert_file}")
    if options.cert_file is None:
        raise TlsConfigError(f"tls: cert_file is missing for key_file {options.key_file}")
    return ((options.cert_file, options.key_file),)


def _one_context(options: TlsOptions, cert_file: str, key_file: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if options.min_version not in _MIN_VERSIONS:
        raise TlsConfigError(f"tls: min_version {options.min_version!r} is not 1.2 or 1.3")
    context.minimum_version = _MIN_VERSIONS[options.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _set_ciphers(context, options)
    _set_curves(context, options)
    _load_pair(context, cert_file, key_file)
    if options.verify or options.verify_and_map or options.verify_cert_and_check_known_urls:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_authorities(context, options.ca_file)
    elif options.ca_file is not None:
        # Not used for clients without verify, but a wrong file should not wait for the day it is turned on.
        _load_authorities(context, options.ca_file)
    return context


def _load_pair(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    for option, path in (("cert_file", cert_file), ("key_file", key_file)):
        _check_readable(option, path)

    def refuse_password() -> str:
        # Without this OpenSSL would ask at the terminal, and a daemon would wait for ever.
        raise TlsConfigError(
            f"tls: key_file {key_file} is encrypted; only keys without passphrase are supported"
        )

    try:
        context.load_cert_chain(cert_file, key_file, password=refuse_password)
    except ssl.SSLError as error:
        raise TlsConfigError(_pair_problem(cert_file, key_file, error)) from error


def _pair_problem(cert_file: str, key_file: str, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"tls: key_file {key_file} does not belong to cert_file {cert_file}"
    from cryptography import x509

    try:
        x509.load_pem_x509_certificate(Path(cert_file).read_bytes())
    except ValueError:
        return f"tls: cert_file {cert_file} is not a certificate in PEM form"
    reason = f" ({error.reason})" if error.reason else ""
    return f"tls: key_file {key_file} is not a usable private key in PEM form{reason}"


def _load_authorities(context: ssl.SSLContext, ca_file: str | None) -> None:
    if ca_file is None:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    _check_readable("ca_file", ca_file)
    try:
        context.load_verify_locations(cafile=ca_file)
    except ssl.SSLError as error:
        raise TlsConfigError(f"tls: ca_file {ca_file} holds no certificate in PEM form") from error


def _check_readable(option: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise TlsConfigError(f"tls: {option} {path} cannot be read: {error.strerror}") from error


def _set_ciphers(context: ssl.SSLContext, options: TlsOptions) -> None:
    if not options.cipher_suites:
        return
    names = []
    for suite in options.cipher_suites:
        if suite in TLS13_CIPHER_SUITES:
            continue
        name = CIPHER_SUITES.get(suite)
        if name is None and options.allow_insecure_cipher_suites:
            name = INSECURE_CIPHER_SUITES.get(suite)
        if name is None:
            known = "insecure" if suite in INSECURE_CIPHER_SUITES else "not known"
            raise TlsConfigError(f"tls: cipher suite {suite} is {known}")
        names.append(name)
    if not names:
        # Only suites of 1.3 are wanted, so there is none that 1.2 could use.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError as error:
        raise TlsConfigError(f"tls: this OpenSSL has none of the cipher suites {', '.join(names)}") from error


def _set_curves(context: ssl.SSLContext, options: TlsOptions) -> None:
    """One curve is enforced. Of several, Python cannot tell OpenSSL the list: its default is kept."""
    for name in options.curve_preferences:
        if name not in CURVES and name not in _HYBRID_CURVES:
            raise TlsConfigError(f"tls: curve {name} is not known")
    if len(options.curve_preferences) == 1 and options.curve_preferences[0] in CURVES:
        # Python 3.11.2 of Debian 12 cannot name X25519; there it stays OpenSSL's first choice among others.
        with suppress(ssl.SSLError):
            context.set_ecdh_curve(CURVES[options.curve_preferences[0]])


def _certificate_names(cert_file: Path) -> frozenset[str]:
    """The DNS names a certificate is for, in lower case."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(cert_file.read_bytes())
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(name.lower() for name in extension.value.get_values_for_type(x509.DNSName))


def _choose_by_name(choices: list[tuple[frozenset[str], ssl.SSLContext]]) -> _ServerNameCallback:
    """Pick the first certificate that is for the name the client asks for, else the first of all."""

    def choose(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        if name is None:
            return
        wanted = name.lower()
        wildcard = "*." + wanted.partition(".")[2]
        for names, context in choices:
            if wanted in names or wildcard in names:
                connection.context = context
                return

    return choose
