"""TLS contexts from configuration: what is accepted, and how a mistake is named."""

import contextlib
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from edged.config.options import TlsOptions
from edged.server.tls_context import (
    CIPHER_SUITES,
    INSECURE_CIPHER_SUITES,
    TlsConfigError,
    cipher_suite_name,
    server_context,
)

AUTHORITY = trustme.CA()


def write_pair(folder: Path, name: str, authority: trustme.CA = AUTHORITY) -> tuple[str, str]:
    certificate = authority.issue_cert(name)
    cert_file, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.cert_chain_pems[0].write_to_path(cert_file)
    certificate.private_key_pem.write_to_path(key_file)
    return str(cert_file), str(key_file)


@pytest.fixture
def options(tmp_path: Path) -> TlsOptions:
    cert_file, key_file = write_pair(tmp_path, "localhost")
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    return TlsOptions(cert_file=cert_file, key_file=key_file, ca_file=str(tmp_path / "ca.pem"))


def served_names(context: ssl.SSLContext, server_name: str) -> list[str]:
    """The names in the certificate that a client asking for server_name is shown."""
    client = ssl.create_default_context()
    AUTHORITY.configure_trust(client)
    client.check_hostname = False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = context.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=server_name)
    for _round in range(4):
        for side in (theirs, ours):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    certificate = theirs.getpeercert()
    assert certificate is not None
    return [str(value) for _kind, value in certificate["subjectAltName"]]


def test_the_defaults_are_tls_1_2_and_no_client_certificate(options: TlsOptions) -> None:
    context = server_context(options)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("option", ["verify", "verify_and_map", "verify_cert_and_check_known_urls"])
def test_each_form_of_verify_requires_a_client_certificate(options: TlsOptions, option: str) -> None:
    context = server_context(replace(options, **{option: True}))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


def test_min_version_is_kept_and_an_old_one_refused(options: TlsOptions) -> None:
    assert server_context(replace(options, min_version="1.3")).minimum_version is ssl.TLSVersion.TLSv1_3
    with pytest.raises(TlsConfigError, match=r"1\.1"):
        server_context(replace(options, min_version="1.1"))


def test_cipher_suites_are_taken_by_their_go_names(options: TlsOptions) -> None:
    suite = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    context = server_context(replace(options, cipher_suites=(suite,)))
    below_1_3 = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert below_1_3 == [CIPHER_SUITES[suite]]
    assert cipher_suite_name(CIPHER_SUITES[suite]) == suite
    assert cipher_suite_name("TLS_AES_128_GCM_SHA256") == "TLS_AES_128_GCM_SHA256"


def test_every_secure_suite_is_known_to_this_openssl(options: TlsOptions) -> None:
    context = server_context(replace(options, cipher_suites=tuple(CIPHER_SUITES)))
    assert {cipher["name"] for cipher in context.get_ciphers()} >= set(CIPHER_SUITES.values())


def test_only_suites_of_tls_1_3_mean_tls_1_3(options: TlsOptions) -> None:
    context = server_context(replace(options, cipher_suites=("TLS_AES_128_GCM_SHA256",)))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_an_insecure_suite_needs_to_be_allowed(options: TlsOptions) -> None:
    insecure = replace(options, cipher_suites=("TLS_RSA_WITH_AES_128_GCM_SHA256",))
    with pytest.raises(TlsConfigError, match="is insecure"):
        server_context(insecure)
    context = server_context(replace(insecure, allow_insecure_cipher_suites=True))
    name = INSECURE_CIPHER_SUITES["TLS_RSA_WITH_AES_128_GCM_SHA256"]
    assert name in {cipher["name"] for cipher in context.get_ciphers()}


def test_unknown_suites_and_curves_are_named(options: TlsOptions) -> None:
    with pytest.raises(TlsConfigError, match="TLS_NONSENSE is not known"):
        server_context(replace(options, cipher_suites=("TLS_NONSENSE",)))
    with pytest.raises(TlsConfigError, match="curve Secp1 is not known"):
        server_context(replace(options, curve_preferences=("Secp1",)))


@pytest.mark.parametrize(
    "curves", [("X25519",), ("CurveP256",), ("CurveP384", "X25519"), ("X25519MLKEM768",)]
)
def test_known_curves_are_accepted(options: TlsOptions, curves: tuple[str, ...]) -> None:
    assert served_names(server_context(replace(options, curve_preferences=curves)), "localhost") == [
        "localhost"
    ]


def test_of_several_certificates_the_one_for_the_clients_name_is_shown(tmp_path: Path) -> None:
    names = ("first.example", "second.example", "third.example")
    context = server_context(TlsOptions(certs=tuple(write_pair(tmp_path, name) for name in names)))
    for name in names:
        assert served_names(context, name) == [name]
    assert served_names(context, "other.example") == ["first.example"]


def test_missing_options_are_named(options: TlsOptions) -> None:
    with pytest.raises(TlsConfigError, match="cert_file and key_file are missing"):
        server_context(TlsOptions())
    with pytest.raises(TlsConfigError, match="key_file is missing"):
        server_context(replace(options, key_file=None))
    with pytest.raises(TlsConfigError, match="cert_file is missing"):
        server_context(replace(options, cert_file=None))


@pytest.mark.parametrize("option", ["cert_file", "key_file", "ca_file"])
def test_a_file_that_is_missing_or_wrong_is_named(options: TlsOptions, option: str, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.pem"
    with pytest.raises(TlsConfigError, match=rf"{option} .*nowhere\.pem cannot be read: No such file"):
        server_context(replace(options, **{option: str(missing)}))
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("this is no PEM")
    with pytest.raises(TlsConfigError, match=rf"{option} .*wrong\.pem"):
        server_context(replace(options, **{option: str(wrong)}))


def test_a_key_of_another_certificate_is_named(options: TlsOptions, tmp_path: Path) -> None:
    _cert_file, other_key = write_pair(tmp_path, "other.example")
    with pytest.raises(TlsConfigError, match=r"other\.example\.key does not belong to"):
        server_context(replace(options, key_file=other_key))


def test_an_encrypted_key_is_refused_without_asking_anybody(options: TlsOptions, tmp_path: Path) -> None:
    assert options.key_file is not None
    key = serialization.load_pem_private_key(Path(options.key_file).read_bytes(), None)
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret words"),
        )
    )
    with pytest.raises(TlsConfigError, match=r"encrypted\.key is encrypted") as failure:
        server_context(replace(options, key_file=str(encrypted)))
    assert "secret" not in str(failure.value)
