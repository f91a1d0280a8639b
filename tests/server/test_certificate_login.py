"""verify_and_map: the user is taken from the names in the client certificate."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from edged.config.options import (
    AccountOptions,
    LeafAuthorization,
    LeafnodesOptions,
    Options,
    TlsOptions,
    UserOptions,
)
from edged.server.certificate_names import CertificateNames, read_names
from tests.server.logins import login, refused

KEY = ec.generate_private_key(ec.SECP256R1())
MAPPING = TlsOptions(verify=True, verify_and_map=True)
DOMAIN = NameOID.DOMAIN_COMPONENT
Attribute = tuple[ObjectIdentifier, str]


def certificate(
    *subject: Attribute | tuple[Attribute, ...], names: tuple[x509.GeneralName, ...] = ()
) -> bytes:
    """A certificate with this subject, in the order of the encoding; a tuple of attributes is one part."""
    parts = [part if isinstance(part[0], tuple) else (part,) for part in subject]
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(*attribute) for attribute in part])
            for part in parts
        ]
    )
    start = datetime.datetime(2024, 1, 1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=3650))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def users(*names: str, **more: object) -> Options:
    accounts = tuple(
        AccountOptions(f"A{number}", users=(UserOptions(name, account=f"A{number}"),))
        for number, name in enumerate(names)
    )
    return Options(accounts=accounts, tls=MAPPING)


CN, O, OU, C = (  # noqa: E741 - the names of the standard
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COUNTRY_NAME,
)


async def test_alternative_names_are_tried_as_email_then_dns_then_uri() -> None:
    names = (
        x509.UniformResourceIdentifier("spiffe://here/app"),
        x509.DNSName("app.example.com"),
        x509.RFC822Name("app@example.com"),
    )
    peer = certificate((CN, "app"), names=names)
    wanted = ["app@example.com", "app.example.com", "spiffe://here/app", "CN=app"]
    while wanted:
        assert (await login(users(*reversed(wanted)), certificate=peer)).user == wanted[0]
        del wanted[0]
    await refused(users("somebody"), certificate=peer)


async def test_subject_is_matched_as_rfc_2253_writes_it() -> None:
    peer = certificate((C, "US"), (O, "Acme, Inc."), (CN, "app"))
    for name in ("CN=app,O=Acme\\, Inc.,C=US", "cn=app, o=Acme\\2C Inc., c=US"):
        assert (await login(users(name), certificate=peer)).user == name
    for name in ("CN=app,O=Acme\\, Inc.", "CN=app,O=Acme,C=US", "CN=APP,O=Acme\\, Inc.,C=US", "app"):
        await refused(users(name), certificate=peer)


async def test_subject_in_another_order_is_matched_only_after_the_exact_order() -> None:
    peer = certificate((C, "US"), (O, "Acme"), (CN, "app"))
    reordered, exact = "C=US,CN=app,O=Acme", "CN=app,O=Acme,C=US"
    assert (await login(users(reordered), certificate=peer)).user == reordered
    assert (await login(users(reordered, exact), certificate=peer)).user == exact


async def test_subject_in_another_order_needs_every_part_as_often() -> None:
    peer = certificate((OU, "one"), (OU, "two"), (CN, "app"))
    assert (await login(users("OU=one,OU=two,CN=app"), certificate=peer)).user == "OU=one,OU=two,CN=app"
    for name in (
        "OU=one,OU=one,CN=app",
        "OU=one,CN=app",
        "OU=one,OU=two,OU=two,CN=app",
        "OU=one,OU=two,CN=app,O=x",
    ):
        await refused(users(name), certificate=peer)


async def test_part_with_several_attributes_is_one_part() -> None:
    peer = certificate((O, "Acme"), ((CN, "app"), (OU, "dev")))
    assert (await login(users("OU=dev+CN=app,O=Acme"), certificate=peer)).account_name == "A0"
    await refused(
        users("OU=dev,CN=app,O=Acme"), certificate=certificate(((OU, "dev"), (CN, "app"), (O, "Acme")))
    )


async def test_domain_components_are_matched_in_both_spellings() -> None:
    peer = certificate((DOMAIN, "com"), (DOMAIN, "example"), (O, "Acme"), (CN, "app"))
    for name in ("CN=app,O=Acme,DC=example,DC=com", "CN=app,O=Acme,DC=com,DC=example"):
        assert (await login(users(name), certificate=peer)).user == name


async def test_subject_with_an_attribute_we_cannot_name_is_matched_in_gos_spelling_only() -> None:
    peer = certificate((O, "Acme"), (CN, "app"), (NameOID.EMAIL_ADDRESS, "a@b.c"))
    assert read_names(peer).subject is None
    assert (await login(users("CN=app,O=Acme"), certificate=peer)).user == "CN=app,O=Acme"
    await refused(users("O=Acme,CN=app"), certificate=peer)


async def test_login_without_certificate_is_refused_whatever_the_password() -> None:
    options = Options(
        accounts=(AccountOptions("A", users=(UserOptions("CN=app"), UserOptions("bob", "secret"))),),
        tls=MAPPING,
    )
    await refused(options, user="bob", password="secret")
    await refused(options, user="CN=app")
    await refused(options)


async def test_user_with_a_password_needs_it_beside_the_certificate() -> None:
    options = Options(accounts=(AccountOptions("A", users=(UserOptions("CN=app", "secret"),)),), tls=MAPPING)
    peer = certificate((CN, "app"))
    await login(options, certificate=peer, password="secret")
    await refused(options, certificate=peer)


async def test_user_in_connect_does_not_replace_the_one_of_the_certificate() -> None:
    peer = certificate((CN, "app"))
    assert (await login(users("CN=app", "CN=admin"), certificate=peer, user="CN=admin")).user == "CN=app"


async def test_user_without_password_that_a_certificate_proves_cannot_log_in_elsewhere() -> None:
    leaf_only = Options(
        accounts=(AccountOptions("A", users=(UserOptions("edge"), UserOptions("bob", "secret"))),),
        leafnodes=LeafnodesOptions(tls=MAPPING),
    )
    await refused(leaf_only, user="edge")
    await login(leaf_only, user="bob", password="secret")
    peer = certificate((CN, "x"), names=(x509.DNSName("edge"),))
    assert (await login(leaf_only, certificate=peer, connection_type="LEAFNODE")).user == "edge"


async def test_certificate_of_a_user_for_other_connection_types_is_refused() -> None:
    user = UserOptions("CN=app", allowed_connection_types=frozenset({"LEAFNODE"}))
    options = Options(accounts=(AccountOptions("A", users=(user,)),), tls=MAPPING)
    await refused(options, certificate=certificate((CN, "app")))


async def test_leaf_users_are_mapped_from_certificates_too() -> None:
    authorization = LeafAuthorization(users=(UserOptions("edge.example.com", account="A"),))
    options = Options(
        accounts=(AccountOptions("A"),),
        leafnodes=LeafnodesOptions(authorization=authorization, tls=MAPPING),
    )
    peer = certificate((CN, "x"), names=(x509.DNSName("edge.example.com"),))
    assert (await login(options, certificate=peer, connection_type="LEAFNODE")).account_name == "A"
    await refused(options, connection_type="LEAFNODE", user="edge.example.com")
    await refused(options, certificate=certificate((CN, "y")), connection_type="LEAFNODE")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_have_no_names(data: bytes) -> None:
    assert read_names(data) == CertificateNames()


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.99])
def test_truncated_certificate_has_no_names(keep: float) -> None:
    whole = certificate((CN, "app"))
    assert read_names(whole[: int(len(whole) * keep)]) == CertificateNames()
