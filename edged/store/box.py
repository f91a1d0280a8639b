"""Encryption at rest: keys from the configuration, and boxes that seal what goes into one file.

From key to box: the text of `key` becomes a 32-byte master key (HKDF-SHA256); master key, purpose and the
file's random salt become the key of one file (HKDF again); a box seals with that key, by AES-256-GCM or
ChaCha20-Poly1305. Everything sealed is authenticated, with the associated data (`aad`) that says what it is
and where it belongs: bytes that were changed, moved or swapped do not open.

Beside what is encrypted stands a label of LABEL_BYTES: the cipher, and the id of the key (first 8 hex digits
of an HMAC of it). It finds the right key of the ring, so that a key can be changed: what is there is read
with `prev_key`, what is written takes `key`. Without `key`, what is written is plain, labelled LABEL_PLAIN.

Rules: a nonce is never used twice with one key. seal_at() takes it from the position, which must grow with
every call on a box, and a file with boxes sealed at positions is never written on after it was opened again.
seal() draws it at random. The two kinds differ in their first bit. Two kinds of files have two purposes.
Neither keys nor their text are ever shown.

Limits, per file, since each has its own key: SEALS_MAX calls of seal(), so that the chance of two equal
nonces stays below 2**-32 (birthday bound, 95 random bits); 2**64 positions; 2**31 - 1 bytes in one box. With
AES, up to 2**48 bytes in one file keep an eavesdropper's advantage below 2**-32. Files are far smaller.
HKDF does not make a guessable key hard to guess: the key must be drawn at random.
A plain file in an encrypted store is read as what it is, so that encryption can be switched on for a store in
use; who can write to the disk can therefore add plain files, but not change or read encrypted ones.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from edged.store.errors import Damaged, StoreError

LABEL_BYTES: Final = 8  # cipher, three zero bytes, four bytes of key id
LABEL_PLAIN: Final = bytes(LABEL_BYTES)
SALT_BYTES: Final = 16  # of a new file; shorter salts are refused
SEAL_BYTES: Final = 28  # what seal() adds: nonce and tag
SEAL_AT_BYTES: Final = 16  # what seal_at() adds: the tag
SEALS_MAX: Final = 2**31
KEY_CHARACTERS_MIN: Final = 16

_KEY_BYTES: Final = 32
_KEY_FILE_BYTES_MAX: Final = 4096
_NONCE_BYTES: Final = 12
_RANDOM_NONCE_BIT: Final = 0x80
_MASTER_INFO: Final = b"edged store: master key"
_ID_INFO: Final = b"edged store: key id"
_FILE_INFO: Final = b"edged store: file key"
_CIPHER_CODES: Final = {"aes": 1, "chachapoly": 2}
_CIPHER_NAMES: Final = {code: name for name, code in _CIPHER_CODES.items()}
_HOW_TO_MAKE_A_KEY: Final = "make one with: openssl rand -base64 32"


class KeyUnusable(StoreError):  # noqa: N818 - says what happened
    """The configuration's key cannot be had or used; the text says which and what to do, never the key."""


class WrongKey(StoreError):  # noqa: N818 - says what happened
    """Something is encrypted with a key that is not in the configuration. It may be whole."""


class Box:
    """Seals and opens parts of one file; made by a Keyring. Not for several threads at one time."""

    __slots__ = ("_cipher", "_position_next", "_seals", "label")

    def __init__(self, label: bytes, key: bytes) -> None:
        self.label = label
        self._cipher = AESGCM(key) if label[0] == _CIPHER_CODES["aes"] else ChaCha20Poly1305(key)
        self._position_next = 0
        self._seals = 0

    def __repr__(self) -> str:
        return f"Box({_CIPHER_NAMES[self.label[0]]}, key {_id_of(self.label).hex()})"

    def seal(self, plain: bytes, aad: bytes) -> bytes:
        """A random nonce, the ciphertext and its tag: SEAL_BYTES more than `plain`."""
        assert self._seals < SEALS_MAX, self._seals
        self._seals += 1
        drawn = os.urandom(_NONCE_BYTES)
        nonce = bytes((drawn[0] | _RANDOM_NONCE_BIT,)) + drawn[1:]
        return nonce + self._cipher.encrypt(nonce, plain, aad)

    def open(self, sealed: bytes, aad: bytes) -> bytes:
        """What seal() was given; Damaged when anything about it is not as it was."""
        # A nonce without the bit is one of seal_at(), which never stands in front.
        if len(sealed) < SEAL_BYTES or not sealed[0] & _RANDOM_NONCE_BIT:
            raise Damaged("cannot be decrypted: too short or not a sealed box")
        return self._open(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], aad)

    def seal_at(self, position: int, plain: bytes, aad: bytes) -> bytes:
        """The ciphertext and its tag: SEAL_AT_BYTES more than `plain`. Positions only grow."""
        assert position >= self._position_next, (position, self._position_next)
        nonce = _nonce_at(position)
        self._position_next = position + 1
        return self._cipher.encrypt(nonce, plain, aad)

    def open_at(self, position: int, sealed: bytes, aad: bytes) -> bytes:
        """What seal_at() was given at this position; Damaged when anything about it is not as it was."""
        if len(sealed) < SEAL_AT_BYTES:
            raise Damaged("cannot be decrypted: too short")
        return self._open(_nonce_at(position), sealed, aad)

    def _open(self, nonce: bytes, sealed: bytes, aad: bytes) -> bytes:
        try:
            return self._cipher.decrypt(nonce, sealed, aad)
        except InvalidTag:
            raise Damaged("cannot be decrypted: changed, or not where it belongs") from None


def _id_of(label: bytes) -> bytes:
    return label[4:]


def _nonce_at(position: int) -> bytes:
    assert 0 <= position < 2**64, position
    return position.to_bytes(_NONCE_BYTES, "big")


@dataclass(frozen=True, slots=True)
class _Key:
    id: bytes  # 4 bytes
    master: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys of a store: none, or the current one, or also the one before it."""

    cipher: str = "chachapoly"
    current: _Key | None = None
    previous: _Key | None = None

    @classmethod
    def read(
        cls,
        key: str | None,
        prev_key: str | None = None,
        cipher: str = "chachapoly",
        environment: Mapping[str, str] = os.environ,
    ) -> "Keyring":
        """The ring of a configuration. Each key is its text, or file:/path, or credential:name."""
        assert cipher in _CIPHER_CODES, cipher
        current = None if key is None else _key(_key_text(key, "key", environment), "key")
        previous = (
            None if prev_key is None else _key(_key_text(prev_key, "prev_key", environment), "prev_key")
        )
        return cls(cipher, current, previous)

    @property
    def label(self) -> bytes:
        """What stands beside what is written now."""
        if self.current is None:
            return LABEL_PLAIN
        return bytes((_CIPHER_CODES[self.cipher], 0, 0, 0)) + self.current.id

    def is_current(self, label: bytes) -> bool:
        """Whether a file with this label is as it would be written now; otherwise it is worth rewriting."""
        return label == self.label

    def box(self, purpose: bytes, salt: bytes) -> Box | None:
        """For a new file with a new salt; None when nothing is to be encrypted."""
        return self.box_of(self.label, purpose, salt)

    def box_of(self, label: bytes, purpose: bytes, salt: bytes) -> Box | None:
        """For a file that has this label; None when it is plain. WrongKey when its key is not in the ring."""
        if label == LABEL_PLAIN:
            return None
        if len(label) != LABEL_BYTES or label[0] not in _CIPHER_NAMES or any(label[1:4]):
            raise Damaged(f"encrypted in a way that this version does not know: {label.hex()}")
        key = next((one for one in (self.current, self.previous) if one and one.id == _id_of(label)), None)
        if key is None:
            raise WrongKey(f"encrypted with key {_id_of(label).hex()}, the configuration has {self._ids()}")
        assert len(salt) >= SALT_BYTES, len(salt)
        # The length in front keeps (purpose, cipher) pairs from running into each other.
        info = _FILE_INFO + bytes((label[0], len(purpose))) + purpose
        return Box(label, _derive(key.master, info, salt))

    def _ids(self) -> str:
        ids = dict.fromkeys(one.id.hex() for one in (self.current, self.previous) if one is not None)
        return " and ".join(ids) if ids else "none: set key or prev_key"


def _key(text: str, name: str) -> _Key:
    if len(text) < KEY_CHARACTERS_MIN:
        raise KeyUnusable(
            f"jetstream.{name} has {len(text)} characters and needs at least {KEY_CHARACTERS_MIN}, "
            f"drawn at random: {_HOW_TO_MAKE_A_KEY}"
        )
    master = _derive(text.encode(), _MASTER_INFO, b"")
    return _Key(hmac.new(master, _ID_INFO, hashlib.sha256).digest()[:4], master)


def _derive(secret: bytes, info: bytes, salt: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=salt or None, info=info).derive(secret)


def _key_text(value: str, name: str, environment: Mapping[str, str]) -> str:
    """The text of a key from where the configuration says it is."""
    kind, colon, rest = value.partition(":")
    if not colon or kind not in ("file", "credential"):
        return value
    if kind == "file":
        return _read_key_file(Path(rest), name)
    directory = environment.get("CREDENTIALS_DIRECTORY")
    if not directory:
        raise KeyUnusable(
            f"jetstream.{name} is the credential {rest!r}, but the service manager has set no "
            f"CREDENTIALS_DIRECTORY: add LoadCredential={rest}:/path/to/file to the unit"
        )
    if not rest or rest in (".", "..") or "/" in rest:
        raise KeyUnusable(f"jetstream.{name}: the name of a credential is a file name, without '/'")
    return _read_key_file(Path(directory) / rest, name)


def _read_key_file(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_KEY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise KeyUnusable(f"jetstream.{name} cannot be read ({error.strerror})", str(path)) from error
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        raise KeyUnusable(f"jetstream.{name} is no text: {_HOW_TO_MAKE_A_KEY}", str(path)) from None
    if len(data) > _KEY_FILE_BYTES_MAX:
        raise KeyUnusable(f"jetstream.{name} is longer than {_KEY_FILE_BYTES_MAX} bytes", str(path))
    return text
