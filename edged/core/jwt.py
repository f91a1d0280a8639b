"""JWTs of NATS as text: take one apart, check who signed it, read its fields; and write one.

A token is `header.payload.signature`, each in base64url. The issuer named in the payload signed the text
before the last dot (version 2) or, in tokens of the first generation that carry their type at the top, the
payload alone (version 1). This says only that the issuer signed it; whether the issuer is trusted is for the
caller.

Rules: every malformed input is a ClaimsError, whatever the bytes, and its text quotes nothing of the token.
Fields are read by name with their type; a wrong type is an error, null and absent mean the zero value. Time
is an argument.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Final

from edged.core import nkeys

TOKEN_CHARACTERS_MAX: Final = 1024 * 1024
ALGORITHM: Final = "ed25519-nkey"
_ALGORITHMS: Final = (ALGORITHM, "ed25519")
_VERSION: Final = 2
_INTEGER_MAX: Final = 2**63 - 1


class ClaimsError(ValueError):
    """The token or a claim in it is not acceptable. The text never holds a part of a token."""


class Fields:
    """A JSON object of a token, read by name and type."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, object]) -> None:
        self._values = values

    def names(self) -> list[str]:
        return [self._sound(name, "a name") for name in self._values]

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ClaimsError(f"{name} must be a string")
        return self._sound(value, name)

    def integer(self, name: str, default: int = 0) -> int:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _INTEGER_MAX:
            raise ClaimsError(f"{name} must be a whole number of 64 bits")
        return value

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise ClaimsError(f"{name} must be true or false")
        return value

    def items(self, name: str) -> list[object]:
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise ClaimsError(f"{name} must be a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.items(name)
        if not all(isinstance(value, str) for value in values):
            raise ClaimsError(f"{name} must be a list of strings")
        return tuple(self._sound(str(value), name) for value in values)

    def fields(self, name: str) -> "Fields":
        """The object of this name; an empty one when there is none."""
        value = self._values.get(name)
        return EMPTY_FIELDS if value is None else as_fields(value, name)

    def fields_list(self, name: str) -> "list[Fields]":
        return [as_fields(value, name) for value in self.items(name)]

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    @staticmethod
    def _sound(text: str, name: str) -> str:
        # JSON can spell half of a surrogate pair, which no encoder takes afterwards.
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise ClaimsError(f"{name} is not valid text") from None
        return text


EMPTY_FIELDS: Final = Fields({})


def as_fields(value: object, name: str) -> Fields:
    if not isinstance(value, dict):
        raise ClaimsError(f"{name} must be an object")
    return Fields(value)


@dataclass(frozen=True, slots=True)
class Token:
    """The claims that every kind of token has, and the rest as fields. Times are seconds; 0 means not set."""

    kind: str
    version: int
    id: str
    issuer: str
    subject: str
    name: str
    issued_at_s: int
    expires_at_s: int
    not_before_s: int
    tags: tuple[str, ...]
    issuer_account: str
    nats: Fields

    def in_force(self, now_s: float) -> bool:
        """Neither expired nor from the future."""
        return not self.expired(now_s) and not (self.not_before_s > 0 and now_s < self.not_before_s)

    def expired(self, now_s: float) -> bool:
        return 0 < self.expires_at_s <= now_s


def read_token(text: str) -> Token:
    """Decode a token and check the signature of the issuer it names."""
    if len(text) > TOKEN_CHARACTERS_MAX:
        raise ClaimsError("the token is too large")
    parts = text.split(".")
    if len(parts) != 3:
        raise ClaimsError("a token has three parts")
    _check_header(_decode_object(parts[0], "header"))
    token = _common_claims(_decode_object(parts[1], "payload"))
    signature = _decode_part(parts[2], "signature")
    signed = parts[1] if token.version == 1 else f"{parts[0]}.{parts[1]}"
    # The parts were decoded as ASCII above, so this cannot fail.
    if not nkeys.verify(token.issuer, signed.encode("ascii"), signature):
        raise ClaimsError("the signature is not the issuer's")
    return token


def write_token(payload: dict[str, object], seed: str) -> str:
    """Sign a version 2 payload; iss is set to the key that signs."""
    header = {"typ": "JWT", "alg": ALGORITHM}
    claims = {**payload, "iss": nkeys.public_from_seed(seed)}
    signed = f"{_encode_object(header)}.{_encode_object(claims)}"
    return f"{signed}.{nkeys.encode_signature(nkeys.sign(seed, signed.encode('ascii')))}"


def _check_header(header: Fields) -> None:
    if header.text("typ").upper() != "JWT":
        raise ClaimsError("the header's typ must be JWT")
    if header.text("alg").lower() not in _ALGORITHMS:
        raise ClaimsError(f"the header's alg must be {ALGORITHM}")


def _common_claims(claims: Fields) -> Token:
    nats = claims.fields("nats")
    kind = claims.text("type")
    version, general = (1, claims) if kind else (nats.integer("version"), nats)
    if version not in (1, _VERSION) or (version == 1 and not kind):
        raise ClaimsError(f"the version must be {_VERSION}")
    return Token(
        kind=kind or nats.text("type"),
        version=version,
        id=claims.text("jti"),
        issuer=claims.text("iss"),
        subject=claims.text("sub"),
        name=claims.text("name"),
        issued_at_s=claims.integer("iat"),
        expires_at_s=claims.integer("exp"),
        not_before_s=claims.integer("nbf"),
        tags=general.texts("tags"),
        issuer_account=general.text("issuer_account"),
        nats=nats,
    )


def _decode_part(part: str, name: str) -> bytes:
    try:
        characters = part.encode("ascii").translate(_TO_STANDARD_BASE64, _NOT_IN_BASE64URL)
        if len(characters) != len(part):
            raise ClaimsError(f"the {name} is not base64url")
        return base64.b64decode(characters + b"=" * (-len(characters) % 4), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ClaimsError(f"the {name} is not base64url") from None


def _decode_object(part: str, name: str) -> Fields:
    try:
        value: object = json.loads(_decode_part(part, name).decode("utf-8"), parse_constant=_refuse_constant)
    except ClaimsError:
        raise
    except (ValueError, RecursionError):
        # ValueError covers bad UTF-8, bad JSON and absurdly long numbers, RecursionError deep nesting.
        raise ClaimsError(f"the {name} is not JSON") from None
    return as_fields(value, f"the {name}")


def _refuse_constant(_text: str) -> object:
    raise ClaimsError("NaN and Infinity are not JSON")


def _encode_object(value: dict[str, str] | dict[str, object]) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode("utf-8")).rstrip(b"=").decode("ascii")


_TO_STANDARD_BASE64: Final = bytes.maketrans(b"-_", b"+/")
_NOT_IN_BASE64URL: Final = b"+/="
