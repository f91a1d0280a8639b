"""The names in a client certificate, in the order in which verify_and_map tries them.

First the alternative names (e-mail, DNS, URI), each to be compared as text; then the subject, part by part;
last the subject in the spelling of Go's crypto/x509, which older configurations use.

Rules: a certificate that cannot be read has no names. The certificate itself was checked by TLS before;
here it is only read. `cryptography` is imported where it is used: only verify_and_map needs it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from edged.core.distinguished_names import ATTRIBUTE_NAMES, DistinguishedName, part_of

if TYPE_CHECKING:
    from cryptography import x509

# The order in which Go writes a subject, which is not that of the certificate.
_GO_ORDER: Final = ("SERIALNUMBER", "CN", "POSTALCODE", "STREET", "ST", "L", "OU", "O", "C")
_GO_ESCAPED: Final = ',+"\\<>;'


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """alternative and subject_texts are compared with user names as text, subject part by part."""

    alternative: tuple[str, ...] = ()
    subject: DistinguishedName | None = None
    subject_texts: tuple[str, ...] = ()


def read_names(certificate_der: bytes) -> CertificateNames:
    from cryptography import x509

    try:
        certificate = x509.load_der_x509_certificate(certificate_der)
        alternative = _alternative_names(certificate)
        parts = _subject_parts(certificate.subject)
    except (
        ValueError,
        TypeError,
        x509.InvalidVersion,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ):
        return CertificateNames()
    return CertificateNames(alternative, _distinguished_name(parts), _go_texts(parts))


def _alternative_names(certificate: "x509.Certificate") -> tuple[str, ...]:
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    names = extension.value
    return (
        *names.get_values_for_type(x509.RFC822Name),
        *names.get_values_for_type(x509.DNSName),
        *names.get_values_for_type(x509.UniformResourceIdentifier),
    )


def _subject_parts(subject: "x509.Name") -> list[list[tuple[str | None, str]]]:
    """Parts in the order of the certificate; the type is None for an attribute we have no name for."""
    return [
        [
            (ATTRIBUTE_NAMES.get(attribute.oid.dotted_string), attribute.value)
            if isinstance(attribute.value, str)
            else (None, "")
            for attribute in part
        ]
        for part in subject.rdns
    ]


def _distinguished_name(parts: list[list[tuple[str | None, str]]]) -> DistinguishedName | None:
    """The subject, most specific part first; None when leaving out what we cannot name would change it."""
    named = [[(kind, value) for kind, value in part if kind is not None] for part in parts]
    if not parts or named != parts:
        return None
    return DistinguishedName(tuple(part_of(part) for part in reversed(named) if part))


def _go_texts(parts: list[list[tuple[str | None, str]]]) -> tuple[str, ...]:
    """The subject as Go spells it: with the domain components appended, when there are any, and without."""
    values: dict[str, list[str]] = {}
    for part in parts:
        for kind, value in part:
            if kind is not None:
                values.setdefault(kind, []).append(value)
    # Of these two Go keeps only the last value.
    for single in ("CN", "SERIALNUMBER"):
        values[single] = values.get(single, [])[-1:]
    pieces = [
        "+".join(f"{kind}={_go_escape(value)}" for value in values[kind])
        for kind in _GO_ORDER
        if values.get(kind)
    ]
    text = ",".join(pieces)
    components = ",".join(f"DC={value}" for value in values.get("DC", ()))
    with_components = (f"{text},{components}",) if components else ()
    return (*with_components, *((text,) if text else ()))


def _go_escape(value: str) -> str:
    escaped = []
    for position, character in enumerate(value):
        special = character in _GO_ESCAPED
        special |= position == 0 and character in " #"
        special |= position == len(value) - 1 and character == " "
        escaped.append(f"\\{character}" if special else character)
    return "".join(escaped)
