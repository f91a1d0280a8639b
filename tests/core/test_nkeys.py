"""Nkeys: interoperation with the `nkeys` package, one spelling per key, and refusal of everything else."""

import base64
import contextlib
import subprocess
import sys

import nkeys as reference
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from edged.core import nkeys
from edged.core.nkeys import KeyKind, NkeyError

RAW = st.binary(min_size=32, max_size=32)
KINDS = st.sampled_from(list(KeyKind))
SIGNING_KINDS = st.sampled_from([kind for kind in KeyKind if kind is not KeyKind.CURVE])

REFERENCE_PREFIXES = {
    KeyKind.OPERATOR: reference.PREFIX_BYTE_OPERATOR,
    KeyKind.ACCOUNT: reference.PREFIX_BYTE_ACCOUNT,
    KeyKind.USER: reference.PREFIX_BYTE_USER,
    KeyKind.SERVER: reference.PREFIX_BYTE_SERVER,
    KeyKind.CLUSTER: reference.PREFIX_BYTE_CLUSTER,
}


@pytest.mark.parametrize("kind", REFERENCE_PREFIXES)
def test_seed_public_key_and_signature_agree_with_the_nkeys_package(kind: KeyKind) -> None:
    raw = bytes(range(32))
    seed = nkeys.create_seed(kind, raw)
    assert seed.encode() == reference.encode_seed(raw, REFERENCE_PREFIXES[kind])
    pair = reference.from_seed(bytearray(seed.encode()))
    assert nkeys.public_from_seed(seed) == pair.public_key.decode()
    assert nkeys.verify(nkeys.public_from_seed(seed), b"nonce", pair.sign(b"nonce"))
    assert pair.verify(b"nonce", nkeys.sign(seed, b"nonce"))


@pytest.mark.parametrize(
    ("kind", "letter"),
    [
        (KeyKind.OPERATOR, "O"),
        (KeyKind.ACCOUNT, "A"),
        (KeyKind.USER, "U"),
        (KeyKind.SERVER, "N"),
        (KeyKind.CLUSTER, "C"),
        (KeyKind.CURVE, "X"),
    ],
)
def test_first_letters_name_the_kind(kind: KeyKind, letter: str) -> None:
    seed = nkeys.create_seed(kind, bytes(32))
    assert seed[:2] == "S" + letter
    assert nkeys.public_from_seed(seed)[0] == letter


@given(KINDS, RAW)
def test_encoding_and_decoding_are_inverse(kind: KeyKind, raw: bytes) -> None:
    assert nkeys.decode_public(nkeys.encode_public(kind, raw)) == (kind, raw)
    assert nkeys.decode_seed(nkeys.encode_seed(kind, raw)) == (kind, raw)


@given(st.text() | st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", min_size=56, max_size=58))
def test_any_text_decodes_or_is_an_nkey_error(text: str) -> None:
    for decode in (nkeys.decode_public, nkeys.decode_seed):
        try:
            decode(text)
        except NkeyError as error:
            assert not text or text not in str(error) or len(text) < 3
    assert not nkeys.verify(text, b"message", bytes(64))


@given(KINDS, RAW, st.data())
def test_another_spelling_of_a_key_is_refused(kind: KeyKind, raw: bytes, data: st.DataObject) -> None:
    text = nkeys.encode_public(kind, raw)
    position = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
    changed = text[:position] + letter + text[position + 1 :]
    spellings = [
        text.lower(),
        text + "=",
        text + "\n",
        text[:-1],
        text + "A",
        *([changed] * (changed != text)),
    ]
    for spelling in spellings:
        with pytest.raises(NkeyError):
            nkeys.decode_public(spelling)


def test_spare_bits_at_the_end_of_a_seed_are_refused() -> None:
    seed = nkeys.create_seed(KeyKind.USER, bytes(range(32)))
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    twin = seed[:-1] + alphabet[alphabet.index(seed[-1]) ^ 1]
    assert base64.b32decode(seed + "=" * 6) == base64.b32decode(twin + "=" * 6)
    with pytest.raises(NkeyError):
        nkeys.decode_seed(twin)


@given(SIGNING_KINDS, RAW, st.binary(), st.binary())
def test_a_signature_is_good_for_its_message_only(
    kind: KeyKind, raw: bytes, one: bytes, other: bytes
) -> None:
    seed = nkeys.create_seed(kind, raw)
    assert nkeys.verify(nkeys.public_from_seed(seed), other, nkeys.sign(seed, one)) == (one == other)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 63, 65, 128])
def test_bad_ed25519_signature_length_is_false_and_no_exception(length: int) -> None:
    seed = nkeys.create_seed(KeyKind.USER, bytes(32))
    assert not nkeys.verify(nkeys.public_from_seed(seed), b"nonce", bytes(length))


@given(RAW, st.binary(min_size=64, max_size=64))
def test_bad_ed25519_point_is_false_and_no_exception(raw: bytes, signature: bytes) -> None:
    # About half of all 32-byte strings are no point of the curve.
    assert not nkeys.verify(nkeys.encode_public(KeyKind.USER, raw), b"nonce", signature)


def test_key_of_small_order_verifies_nothing_although_the_library_would() -> None:
    # The seven encodings with both signs; a signature is one such point and a zero.
    points = [
        point[:-1] + bytes((point[-1] | sign,)) for point in nkeys._SMALL_ORDER_POINTS for sign in (0, 0x80)
    ]
    forged = 0
    for key in points:
        for point in points:
            for message in (b"one", b"two", b"three"):
                assert not nkeys.verify(nkeys.encode_public(KeyKind.USER, key), message, point + bytes(32))
                with contextlib.suppress(InvalidSignature, ValueError):
                    Ed25519PublicKey.from_public_bytes(key).verify(point + bytes(32), message)
                    forged += 1
    assert forged > 0


def test_curve_key_neither_signs_nor_verifies() -> None:
    seed = nkeys.create_seed(KeyKind.CURVE, bytes(32))
    with pytest.raises(NkeyError):
        nkeys.sign(seed, b"message")
    assert not nkeys.verify(nkeys.public_from_seed(seed), b"message", bytes(64))


def test_key_of_wrong_length_is_refused_when_encoding() -> None:
    for raw in (b"", bytes(31), bytes(33)):
        with pytest.raises(NkeyError):
            nkeys.encode_public(KeyKind.USER, raw)
        with pytest.raises(NkeyError):
            nkeys.create_seed(KeyKind.USER, raw)


@given(st.binary(min_size=64, max_size=64))
def test_signature_text_may_be_of_either_alphabet_with_or_without_padding(signature: bytes) -> None:
    for encode in (base64.urlsafe_b64encode, base64.b64encode):
        padded = encode(signature).decode()
        assert nkeys.decode_signature(padded) == signature
        assert nkeys.decode_signature(padded.rstrip("=")) == signature
    assert nkeys.decode_signature(nkeys.encode_signature(signature)) == signature


@given(st.text())
def test_any_signature_text_gives_bytes_or_none(text: str) -> None:
    decoded = nkeys.decode_signature(text)
    assert decoded is None or isinstance(decoded, bytes)


def test_signature_text_beyond_reason_is_none() -> None:
    assert nkeys.decode_signature("A" * 100_000) is None
    assert nkeys.decode_signature("not base64!") is None


def test_nonce_has_15_characters_that_fit_into_json() -> None:
    nonce = nkeys.nonce_from(bytes(range(11)))
    assert len(nonce) == 15
    assert b"=" not in nonce
    with pytest.raises(NkeyError):
        nkeys.nonce_from(bytes(10))


def test_cryptography_is_not_loaded_until_a_key_is_used() -> None:
    script = "import sys, edged.core.claims, edged.server.auth; print('cryptography' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
