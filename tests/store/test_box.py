"""Encryption at rest: what was sealed opens as it was or not at all, and no key is ever shown."""

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.store.box import (
    LABEL_PLAIN,
    SALT_BYTES,
    SEAL_AT_BYTES,
    SEAL_BYTES,
    Box,
    Keyring,
    KeyUnusable,
    WrongKey,
)
from edged.store.errors import Damaged, StoreError

OLD = "an old key of many characters"
NEW = "a new key of many characters"
PURPOSE = b"segment"
SALT = bytes(range(SALT_BYTES))
CIPHERS = ("aes", "chachapoly")


def ring(key: str | None, prev_key: str | None = None, cipher: str = "chachapoly") -> Keyring:
    return Keyring.read(key, prev_key, cipher, {})


def box(key: str = NEW, cipher: str = "chachapoly", purpose: bytes = PURPOSE, salt: bytes = SALT) -> Box:
    made = ring(key, cipher=cipher).box(purpose, salt)
    assert made is not None
    return made


@pytest.mark.parametrize("cipher", CIPHERS)
@given(plain=st.binary(max_size=200), aad=st.binary(max_size=20), position=st.integers(0, 2**64 - 1))
def test_what_is_sealed_opens_again_and_grows_by_the_stated_bytes(
    cipher: str, plain: bytes, aad: bytes, position: int
) -> None:
    sealed = box(cipher=cipher).seal(plain, aad)
    assert len(sealed) == len(plain) + SEAL_BYTES
    assert box(cipher=cipher).open(sealed, aad) == plain
    placed = box(cipher=cipher).seal_at(position, plain, aad)
    assert len(placed) == len(plain) + SEAL_AT_BYTES
    assert box(cipher=cipher).open_at(position, placed, aad) == plain


@pytest.mark.parametrize("cipher", CIPHERS)
def test_every_flipped_bit_is_found(cipher: str) -> None:
    made = box(cipher=cipher)
    sealed, placed = made.seal(b"small", b"aad"), made.seal_at(7, b"small", b"aad")
    for bit in range(len(sealed) * 8):
        flipped = bytearray(sealed)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged):
            made.open(bytes(flipped), b"aad")
    for bit in range(len(placed) * 8):
        flipped = bytearray(placed)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged):
            made.open_at(7, bytes(flipped), b"aad")


@pytest.mark.parametrize("cipher", CIPHERS)
def test_every_cut_is_found(cipher: str) -> None:
    made = box(cipher=cipher)
    sealed, placed = made.seal(b"small", b""), made.seal_at(0, b"small", b"")
    for size in range(len(sealed)):
        with pytest.raises(Damaged):
            made.open(sealed[:size], b"")
    for size in range(len(placed)):
        with pytest.raises(Damaged):
            made.open_at(0, placed[:size], b"")


def test_moved_or_swapped_ciphertext_does_not_open() -> None:
    made = box()
    first, second = made.seal(b"first", b"block 1"), made.seal(b"second", b"block 2")
    with pytest.raises(Damaged, match="not where it belongs"):
        made.open(first, b"block 2")
    with pytest.raises(Damaged):
        made.open(second, b"block 1")
    placed = made.seal_at(64, b"frame", b"")
    with pytest.raises(Damaged):
        made.open_at(128, placed, b"")


def test_other_purpose_salt_key_or_cipher_does_not_open() -> None:
    sealed = box().seal(b"x", b"")
    others = (
        box(purpose=b"journal"),
        box(salt=bytes(SALT_BYTES)),
        box(key=OLD),
        box(cipher="aes"),
    )
    for other in others:
        with pytest.raises(Damaged):
            other.open(sealed, b"")


def test_sealing_at_a_position_is_not_taken_for_sealing_and_the_other_way_round() -> None:
    made = box()
    nonce = (5).to_bytes(12, "big")
    with pytest.raises(Damaged):
        made.open(nonce + made.seal_at(5, b"frame of some length", b""), b"")


def test_same_text_is_sealed_differently_every_time() -> None:
    made = box()
    sealed = {made.seal(b"same", b"") for _ in range(200)}
    assert len(sealed) == 200
    assert all(one[0] & 0x80 for one in sealed)
    assert len({made.seal_at(position, b"same", b"") for position in range(200)}) == 200


def test_position_used_twice_or_going_back_is_our_fault_and_stops() -> None:
    made = box()
    made.seal_at(10, b"a", b"")
    for position in (10, 9, 0, -1, 2**64):
        with pytest.raises(AssertionError):
            made.seal_at(position, b"b", b"")
    made.seal_at(11, b"c", b"")


def test_after_a_rotation_the_old_is_readable_and_the_new_has_the_new_key() -> None:
    before = ring(OLD)
    old_box = before.box(PURPOSE, SALT)
    assert old_box is not None
    sealed = old_box.seal(b"old text", b"")
    during = ring(NEW, OLD)
    reader, writer = during.box_of(old_box.label, PURPOSE, SALT), during.box(PURPOSE, SALT)
    assert reader is not None
    assert writer is not None
    assert reader.open(sealed, b"") == b"old text"
    assert not during.is_current(old_box.label)
    assert during.is_current(writer.label)
    after = ring(NEW).box_of(writer.label, PURPOSE, SALT)
    assert after is not None
    assert after.open(writer.seal(b"new text", b""), b"") == b"new text"


def test_changed_cipher_leaves_the_old_readable() -> None:
    old_box = ring(NEW, cipher="aes").box(PURPOSE, SALT)
    assert old_box is not None
    now = ring(NEW, cipher="chachapoly")
    reader = now.box_of(old_box.label, PURPOSE, SALT)
    assert reader is not None
    assert reader.open(old_box.seal(b"text", b""), b"") == b"text"
    assert not now.is_current(old_box.label)


def test_wrong_key_is_named_together_with_those_the_configuration_has() -> None:
    label = ring(OLD).label
    id_old, id_new = label[4:].hex(), ring(NEW).label[4:].hex()
    with pytest.raises(WrongKey) as caught:
        ring(NEW).box_of(label, PURPOSE, SALT)
    assert str(caught.value) == f"encrypted with key {id_old}, the configuration has {id_new}"
    third = ring("a third key of many characters")
    with pytest.raises(WrongKey, match=f"has {third.label[4:].hex()} and {id_new}$"):
        ring("a third key of many characters", NEW).box_of(label, PURPOSE, SALT)
    with pytest.raises(WrongKey, match="has none: set key"):
        Keyring().box_of(label, PURPOSE, SALT)


def test_without_a_key_nothing_is_encrypted_and_plain_files_are_read() -> None:
    assert Keyring().box(PURPOSE, SALT) is None
    assert Keyring().label == LABEL_PLAIN
    assert ring(NEW).box_of(LABEL_PLAIN, PURPOSE, SALT) is None
    assert not ring(NEW).is_current(LABEL_PLAIN)


def test_key_that_is_given_up_still_reads() -> None:
    without = ring(None, OLD)
    assert without.box(PURPOSE, SALT) is None
    assert without.box_of(ring(OLD).label, PURPOSE, SALT) is not None


@pytest.mark.parametrize(
    "label", [b"", b"\x01", b"\x03\0\0\0abcd", b"\0\0\0\0abcd", b"\x02\0\0\1abcd", b"\x02\0\0\0abcde"]
)
def test_label_of_no_known_kind_is_damage(label: bytes) -> None:
    with pytest.raises(Damaged, match="does not know"):
        ring(NEW).box_of(label, PURPOSE, SALT)


@pytest.mark.parametrize("text", ["", "short", "fifteen letters"])
def test_short_key_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(KeyUnusable) as caught:
        ring(text)
    assert str(caught.value) == (
        f"jetstream.key has {len(text)} characters and needs at least 16, drawn at random: "
        "make one with: openssl rand -base64 32"
    )
    with pytest.raises(KeyUnusable, match=r"jetstream\.prev_key has"):
        ring(NEW, text)


def test_short_salt_is_our_fault() -> None:
    with pytest.raises(AssertionError):
        ring(NEW).box(PURPOSE, SALT[1:])


def test_key_is_read_from_a_file_or_a_credential_without_the_line_end(tmp_path: Path) -> None:
    (tmp_path / "store-key").write_text(f"{NEW}\n")
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    by_file = Keyring.read(f"file:{tmp_path}/store-key", environment=environment)
    by_credential = Keyring.read("credential:store-key", environment=environment)
    assert by_file.label == by_credential.label == ring(NEW).label


def test_key_with_a_colon_that_names_no_source_is_the_key() -> None:
    assert ring("secret:with:some:colons").label != LABEL_PLAIN


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("file:{}/missing", "cannot be read"),
        ("file:{}", "cannot be read"),
        ("file:{}/binary", "is no text"),
        ("file:{}/long", "longer than"),
        ("file:{}/short", "has 5 characters"),
        ("credential:missing", "cannot be read"),
        ("credential:../key", "without '/'"),
        ("credential:..", "without '/'"),
        ("credential:", "without '/'"),
    ],
)
def test_key_that_cannot_be_had_is_refused_and_named(value: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(os.urandom(30) + b"\xff\xfe")
    (tmp_path / "long").write_bytes(b"x" * 5000)
    (tmp_path / "short").write_bytes(b" abcde \n")
    with pytest.raises(KeyUnusable, match=message) as caught:
        Keyring.read(value.format(tmp_path), environment={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert "jetstream.key" in str(caught.value)


def test_credential_without_a_service_manager_says_how_to_give_it() -> None:
    with pytest.raises(KeyUnusable, match="LoadCredential=store-key:"):
        Keyring.read("credential:store-key", environment={})


def test_no_key_is_in_repr_logs_or_errors(caplog: pytest.LogCaptureFixture) -> None:
    keyring = ring(NEW, OLD)
    made = keyring.box(PURPOSE, SALT)
    assert keyring.current is not None
    assert keyring.previous is not None
    shown = [repr(keyring), str(keyring), repr(made), f"{made}", repr(keyring.current)]
    logging.getLogger("box").warning("%s %r", keyring, made)
    shown.append(caplog.text)
    errors: list[StoreError] = []
    for wrong in ("short key", "fourteen chars"):
        with pytest.raises(KeyUnusable) as caught:
            ring(wrong)
        errors.append(caught.value)
        assert wrong not in str(caught.value)
    shown += [str(error) for error in errors]
    secrets = [NEW, OLD]
    for master in (keyring.current.master, keyring.previous.master):
        secrets += [master.hex(), repr(master)[2:-1]]
    for text in shown:
        assert not any(secret in text for secret in secrets), text
    assert repr(made) == f"Box(chachapoly, key {keyring.label[4:].hex()})"


@pytest.mark.parametrize(
    ("cipher", "label", "sealed"),
    [
        ("aes", "010000006e09e654", "bfaf08679fc449b2bc7488abd7cb40b1149b24e526e1"),
        ("chachapoly", "020000006e09e654", "d9286979a9c989cd83761098f37c364985080a6f9571"),
    ],
)
def test_labels_and_keys_stay_the_same_between_versions(cipher: str, label: str, sealed: str) -> None:
    # A store written today must open tomorrow: these bytes may only change with the version of the format.
    made = box("0123456789abcdef", cipher)
    assert made.label.hex() == label
    assert made.open_at(1, bytes.fromhex(sealed), b"aad") == b"golden"
