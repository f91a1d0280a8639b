"""Nkeys: Ed25519 and X25519 keys as text with a kind, and signatures made and checked with them.

A public key is base32 (no padding) of `kind byte, 32 key bytes, CRC-16`, so its first letter names the kind:
O operator, A account, U user, N server, C cluster, X curve. A seed packs the letter S and the kind into two
bytes.

Rules: one key has exactly one text; every other spelling (case, padding, line breaks, spare bits, a wrong
length) is refused, because revocations and trust are looked up by that text. Random bytes are an argument. No
error text and no repr holds a seed. `cryptography` is imported where it is used: a daemon without nkeys never
loads it.
"""

import base64
import binascii
import enum
from typing import Final

RAW_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
PUBLIC_KEY_CHARACTERS: Final = 56
SEED_CHARACTERS: Final = 58
NONCE_RANDOM_BYTES: Final = 11

_SEED_PREFIX: Final = 18 << 3
_CHECKSUM_BYTES: Final = 2
# A signature takes 86 characters, 88 with padding; the rest is slack for line ends that some encoders add.
_SIGNATURE_CHARACTERS_MAX: Final = 128

# Points of small order, without the sign bit. As public keys they "verify" signatures that nobody made, and
# the library accepts them.
_SMALL_ORDER_POINTS: Final = frozenset(
    map(
        bytes.fromhex,
        (
            "00" * 32,
            "01" + "00" * 31,
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            "ec" + "ff" * 30 + "7f",
            "ed" + "ff" * 30 + "7f",
            "ee" + "ff" * 30 + "7f",
        ),
    )
)


class NkeyError(ValueError):
    """The text is not a valid key of the wanted kind. The message never holds the text."""


class KeyKind(enum.IntEnum):
    """What a key stands for; the value is the prefix byte of its public form."""

    ACCOUNT = 0
    CLUSTER = 2 << 3
    SERVER = 13 << 3
    OPERATOR = 14 << 3
    USER = 20 << 3
    CURVE = 23 << 3


def encode_public(kind: KeyKind, raw: bytes) -> str:
    """The text of a public key."""
    if len(raw) != RAW_KEY_BYTES:
        raise NkeyError(f"a public key has {RAW_KEY_BYTES} bytes, not {len(raw)}")
    return _encode(bytes((kind,)) + raw)


def decode_public(text: str) -> tuple[KeyKind, bytes]:
    """The kind and the 32 bytes of a public key."""
    if len(text) != PUBLIC_KEY_CHARACTERS:
        raise NkeyError(f"a public key has {PUBLIC_KEY_CHARACTERS} characters")
    body = _decode(text)
    try:
        kind = KeyKind(body[0])
    except ValueError:
        raise NkeyError("the first letter names no known kind of key") from None
    return kind, body[1:]


def is_public(text: str, kind: KeyKind) -> bool:
    """Whether the text is the valid public key of this kind."""
    try:
        return decode_public(text)[0] is kind
    except NkeyError:
        return False


def encode_seed(kind: KeyKind, raw: bytes) -> str:
    """The text of a seed: the secret half of a key."""
    if len(raw) != RAW_KEY_BYTES:
        raise NkeyError(f"a seed has {RAW_KEY_BYTES} bytes, not {len(raw)}")
    return _encode(bytes((_SEED_PREFIX | kind >> 5, (kind & 31) << 3)) + raw)


def decode_seed(text: str) -> tuple[KeyKind, bytes]:
    """The kind and the 32 secret bytes of a seed."""
    if len(text) != SEED_CHARACTERS:
        raise NkeyError(f"a seed has {SEED_CHARACTERS} characters")
    body = _decode(text)
    if body[0] & 0xF8 != _SEED_PREFIX or body[1] & 7:
        raise NkeyError("not a seed")
    try:
        kind = KeyKind((body[0] & 7) << 5 | body[1] >> 3)
    except ValueError:
        raise NkeyError("the seed names no known kind of key") from None
    return kind, body[2:]


def create_seed(kind: KeyKind, random_bytes: bytes) -> str:
    """A new key, from 32 bytes that the caller drew from a secure source."""
    return encode_seed(kind, random_bytes)


def public_from_seed(seed: str) -> str:
    """The public key that belongs to a seed."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    kind, raw = decode_seed(seed)
    private: Ed25519PrivateKey | X25519PrivateKey
    if kind is KeyKind.CURVE:
        private = X25519PrivateKey.from_private_bytes(raw)
    else:
        private = Ed25519PrivateKey.from_private_bytes(raw)
    return encode_public(kind, private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def sign(seed: str, message: bytes) -> bytes:
    """The signature of the message; a curve key cannot sign."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    kind, raw = decode_seed(seed)
    if kind is KeyKind.CURVE:
        raise NkeyError("a curve key cannot sign")
    return Ed25519PrivateKey.from_private_bytes(raw).sign(message)


def verify(public_key: str, message: bytes, signature: bytes) -> bool:
    """Whether the holder of this key signed this message. Any malformed input is simply False."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        kind, raw = decode_public(public_key)
        if kind is KeyKind.CURVE or raw[:-1] + bytes((raw[-1] & 0x7F,)) in _SMALL_ORDER_POINTS:
            return False
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, message)
    except (NkeyError, InvalidSignature, ValueError):
        # ValueError is how the library reports bytes that are no point of the curve.
        return False
    return True


def encode_signature(signature: bytes) -> str:
    """The text of a signature as CONNECT and JWTs carry it: base64url without padding."""
    return base64.urlsafe_b64encode(signature).rstrip(b"=").decode("ascii")


def decode_signature(text: str) -> bytes | None:
    """The bytes of a signature in base64url or plain base64, padded or not; None when it is neither."""
    if len(text) > _SIGNATURE_CHARACTERS_MAX:
        return None
    try:
        characters = text.encode("ascii").strip().rstrip(b"=").translate(_TO_STANDARD_BASE64)
        return base64.b64decode(characters + b"=" * (-len(characters) % 4), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        return None


def nonce_from(random_bytes: bytes) -> bytes:
    """The nonce of INFO, 15 characters from 11 random bytes."""
    if len(random_bytes) != NONCE_RANDOM_BYTES:
        raise NkeyError(f"a nonce takes {NONCE_RANDOM_BYTES} random bytes")
    return base64.urlsafe_b64encode(random_bytes).rstrip(b"=")


_TO_STANDARD_BASE64: Final = bytes.maketrans(b"-_", b"+/")


def _encode(body: bytes) -> str:
    checksum = binascii.crc_hqx(body, 0).to_bytes(_CHECKSUM_BYTES, "little")
    return base64.b32encode(body + checksum).rstrip(b"=").decode("ascii")


def _decode(text: str) -> bytes:
    """The bytes before the checksum, when the text is the one spelling of them."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise NkeyError("not base32") from None
    body, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    if binascii.crc_hqx(body, 0).to_bytes(_CHECKSUM_BYTES, "little") != checksum:
        raise NkeyError("the checksum does not match")
    if _encode(body) != text:
        raise NkeyError("not the canonical spelling")
    return body
