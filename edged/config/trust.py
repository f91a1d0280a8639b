"""Operator mode: operator JWTs, trusted keys, and where account JWTs come from.

Rules: an operator is the name of a file or the token itself; files are read here, so that the options hold
tokens only. With exactly one operator its token fills in the system account and the account server, unless
the configuration names them.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from edged.config.document import ConfigError, Value
from edged.config.options import ResolverOptions
from edged.config.readers import boolean, choice, integer, required_text, text, text_duration, texts
from edged.config.table import Context, Table, items_of, key, pairs_of, read_block
from edged.core import claims, nkeys
from edged.core.jwt import ClaimsError
from edged.core.nkeys import KeyKind

_TOKEN_BYTES_MAX = 1024 * 1024
_DECORATED = re.compile(r"-{3,}[^\n]*-{3,}\s*\n\s*(\S+)\s*\n\s*-{3,}[^\n]*-{3,}")
_URL_RESOLVER = re.compile(r'url\(\s*"?([^\s"]+)"?\s*\)\s*', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OperatorDefaults:
    """What a single operator's token says about the rest of the configuration."""

    system_account: str | None = None
    account_server_url: str | None = None


def operators(context: Context, value: Value, name: str) -> tuple[str, ...]:
    """The tokens of the operators."""
    items = (value,) if isinstance(value.data, str) else items_of(value, name)
    return tuple(_operator(required_text(context, item, name), item, name) for item in items)


def _operator(written: str, value: Value, name: str) -> str:
    token = written
    if not written.startswith("eyJ"):
        try:
            with Path(written).open("rb") as file:
                token = file.read(_TOKEN_BYTES_MAX).decode()
        except (OSError, ValueError):
            message = f"{name}: expected an operator JWT or a readable file that holds one"
            raise ConfigError(message, value.position) from None
    decorated = _DECORATED.search(token)
    token = decorated[1] if decorated else token.strip()
    try:
        claims.decode_operator(token)
    except ClaimsError as error:
        raise ConfigError(f"{name}: not a valid operator JWT: {error}", value.position) from None
    return token


def operator_defaults(tokens: tuple[str, ...]) -> OperatorDefaults:
    if len(tokens) != 1:
        return OperatorDefaults()
    operator = claims.decode_operator(tokens[0])
    return OperatorDefaults(operator.system_account or None, operator.account_server_url or None)


def trusted_keys(context: Context, value: Value, name: str) -> tuple[str, ...]:
    found = texts(context, value, name)
    if not all(nkeys.is_public(one, KeyKind.OPERATOR) for one in found):
        raise ConfigError(f"{name}: expected public nkeys of operators, O...", value.position)
    return found


def preload(context: Context, value: Value, name: str) -> tuple[tuple[str, str], ...]:
    """Account JWTs by the public key of the account."""
    found = []
    for account, pair in pairs_of(value, name).items():
        token = required_text(context, pair.value, name)
        try:
            claims.decode_account(token)
        except ClaimsError as error:
            raise ConfigError(f"{name}: not a valid account JWT: {error}", pair.position) from None
        found.append((account, token))
    return tuple(found)


RESOLVER = Table(
    "resolver",
    (
        key("type", choice(full="", cache="", memory="mem"), "kind"),
        key("dir", text),
        key("allow_delete", boolean),
        key("hard_delete", boolean),
        key("limit", integer()),
        key("ttl", text_duration, "ttl_s"),
        key("interval", text_duration, "interval_s"),
        key("timeout", text_duration, "timeout_s", zero_is_default=True),
    ),
)


def resolver(context: Context, value: Value, name: str) -> ResolverOptions:
    """MEMORY, URL(...), or a block with a directory."""
    if isinstance(value.data, str):
        written = value.data.strip()
        if written.upper() in ("MEM", "MEMORY"):
            return ResolverOptions("memory")
        if found := _URL_RESOLVER.fullmatch(written):
            return ResolverOptions("url", url=found[1])
        raise ConfigError(f'{name}: expected MEMORY, "URL(https://...)", or a block', value.position)
    fields = read_block(context, value, RESOLVER, name)
    problem = _resolver_problem(fields)
    if problem is not None:
        raise ConfigError(f"{name}: {problem}", value.position)
    return ResolverOptions(**fields)


def _resolver_problem(fields: dict[str, object]) -> str | None:
    kind = fields.get("kind")
    if kind is None:
        return "type is missing: expected full, cache or memory"
    if kind in ("full", "cache") and not fields.get("dir"):
        return "dir is missing: name the directory that keeps the account JWTs"
    if kind == "cache" and fields.keys() & {"interval_s", "allow_delete", "hard_delete"}:
        return "a cache takes no interval, allow_delete or hard_delete"
    if kind == "full" and fields.get("ttl_s"):
        return "a full resolver takes no ttl"
    if fields.get("hard_delete") and not fields.get("allow_delete"):
        return "hard_delete has no effect without allow_delete"
    return None
