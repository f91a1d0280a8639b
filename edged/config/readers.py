"""How single values are read: text, numbers, durations, sizes, addresses, lists of subjects.

Rules: a reader takes (context, value, name of the key) and returns the typed value, or raises ConfigError
that says what to write instead. Error texts show subjects and no other values, because any of them may be a
secret put in the wrong place. An empty string means "not set", as in nats-server.
"""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from edged.config.document import ConfigError, Value
from edged.config.table import Context, Reader, items_of, pairs_of
from edged.core.gotime import parse_duration_ns
from edged.core.subjects import valid_subscription

INT31_MAX = 2**31 - 1
INT63_MAX = 2**63 - 1
_SIZE = re.compile("([+-]?[0-9]{1,19})([KMGT])")


def wrong_type(value: Value, name: str, expected: str) -> ConfigError:
    hint = ": put it in quotes" if expected == "a string" and isinstance(value.data, int | float) else ""
    if expected == "a boolean" and isinstance(value.data, str):
        hint = ": write true or false without quotes"
    return ConfigError(f"{name}: expected {expected}, found {value.kind}{hint}", value.position)


def text(_context: Context, value: Value, name: str) -> str | None:
    if not isinstance(value.data, str):
        raise wrong_type(value, name, "a string")
    return value.data or None


def required_text(context: Context, value: Value, name: str) -> str:
    found = text(context, value, name)
    if found is None:
        raise ConfigError(f"{name}: expected a string that is not empty", value.position)
    return found


def file_name(context: Context, value: Value, name: str) -> str | None:
    """A file that must be there when the daemon starts."""
    found = text(context, value, name)
    if found is not None:
        context.files.append((found, value.position))
    return found


def name_without_spaces(context: Context, value: Value, name: str) -> str | None:
    found = text(context, value, name)
    if found is not None and " " in found:
        raise ConfigError(f"{name}: a name must not contain spaces", value.position)
    return found


def boolean(_context: Context, value: Value, name: str) -> bool:
    if not isinstance(value.data, bool):
        raise wrong_type(value, name, "a boolean")
    return value.data


def integer(minimum: int = 0, maximum: int = INT63_MAX) -> Callable[[Context, Value, str], int]:
    def read(_context: Context, value: Value, name: str) -> int:
        if isinstance(value.data, bool) or not isinstance(value.data, int):
            raise wrong_type(value, name, "an integer")
        if not minimum <= value.data <= maximum:
            raise ConfigError(f"{name}: expected {_range(minimum, maximum)}", value.position)
        return value.data

    return read


def _range(minimum: int, maximum: int) -> str:
    return f"at least {minimum}" if maximum == INT63_MAX else f"{minimum} to {maximum}"


port = integer(-1, 65_535)


def size(_context: Context, value: Value, name: str) -> int:
    """Bytes: an integer with or without suffix, or a quoted one where K, M, G, T are powers of 1024."""
    if isinstance(value.data, int) and not isinstance(value.data, bool):
        return value.data
    if value.data == "":
        return 0
    found = _SIZE.fullmatch(value.data) if isinstance(value.data, str) else None
    if found is None:
        raise ConfigError(f'{name}: expected a size such as 64MB, or "64M" in quotes', value.position)
    number = int(found[1]) << (10 * ("KMGT".index(found[2]) + 1))
    if abs(number) > INT63_MAX:
        raise ConfigError(f"{name}: this size does not fit into 64 bits", value.position)
    return number


def size_from_zero(context: Context, value: Value, name: str) -> int:
    number = size(context, value, name)
    if number < 0:
        raise ConfigError(f"{name}: expected a size of at least 0", value.position)
    return number


def size_between(minimum: int, maximum: int) -> Callable[[Context, Value, str], int]:
    """Bytes, within bounds."""

    def read(context: Context, value: Value, name: str) -> int:
        number = size(context, value, name)
        if not minimum <= number <= maximum:
            raise ConfigError(f"{name}: expected a size from {minimum} to {maximum} bytes", value.position)
        return number

    return read


def percent(_context: Context, value: Value, name: str) -> int:
    """A share: 80, "80" or "80%"."""
    data = value.data
    if isinstance(data, str) and re.fullmatch("[+-]?[0-9]{1,3}%?", data):
        data = int(data.removesuffix("%"))
    if isinstance(data, bool) or not isinstance(data, int) or not 0 <= data <= 100:
        raise ConfigError(f"{name}: expected a percentage from 0 to 100", value.position)
    return data


def go_duration(value: Value, name: str, *, negative: bool = False) -> float:
    """Seconds of a duration in text form."""
    if not isinstance(value.data, str):
        raise ConfigError(
            f'{name}: expected a duration in quotes such as "30s", found {value.kind}', value.position
        )
    try:
        ns = parse_duration_ns(value.data)
    except ValueError:
        message = f'{name}: expected a duration such as "30s", "1m30s" or "250ms"'
        raise ConfigError(message, value.position) from None
    if ns < 0 and not negative:
        raise ConfigError(f"{name}: a duration must not be negative", value.position)
    return ns / 1e9


def text_duration(_context: Context, value: Value, name: str) -> float:
    """A duration where nats-server takes no plain number."""
    return go_duration(value, name)


def duration(context: Context, value: Value, name: str) -> float:
    """A duration; a plain integer means seconds, with a warning because 2m without quotes is 2,000,000."""
    if isinstance(value.data, int) and not isinstance(value.data, bool):
        if value.data < 0:
            raise ConfigError(f"{name}: a duration must not be negative", value.position)
        context.warn(
            f'{name} is read as {value.data} seconds: write "{value.data}s" in quotes', value.position
        )
        return float(value.data)
    return go_duration(value, name)


def seconds(context: Context, value: Value, name: str) -> float:
    """A timeout: a number of seconds, or a duration."""
    if isinstance(value.data, int | float) and not isinstance(value.data, bool):
        found = float(value.data)
        if found < 0:
            raise ConfigError(f"{name}: a timeout must not be negative", value.position)
    else:
        found = go_duration(value, name)
    if found > 60:
        context.warn(
            f"{name} of {found:g} seconds is long: 1m without quotes is 1,000,000 seconds", value.position
        )
    return found


def texts(context: Context, value: Value, name: str) -> tuple[str, ...]:
    """One string or an array of them."""
    if isinstance(value.data, str):
        return (value.data,)
    return tuple(required_text(context, item, name) for item in items_of(value, name))


def text_map(context: Context, value: Value, name: str) -> tuple[tuple[str, str], ...]:
    """A block of strings, in the order of their names."""
    pairs = pairs_of(value, name)
    return tuple((key, text(context, pairs[key].value, f"{name}.{key}") or "") for key in sorted(pairs))


def flag_map(context: Context, value: Value, name: str) -> tuple[tuple[str, bool], ...]:
    pairs = pairs_of(value, name)
    return tuple((key, boolean(context, pairs[key].value, f"{name}.{key}")) for key in sorted(pairs))


def choice(**spellings: str) -> Reader:
    """One of some words, without regard to case; a word of several spellings lists them by spaces."""

    def read(context: Context, value: Value, name: str) -> str:
        written = required_text(context, value, name).lower()
        for word, others in spellings.items():
            if written in (word, *others.split()):
                return word
        raise ConfigError(f"{name}: expected one of {', '.join(spellings)}", value.position)

    return read


write_timeout = choice(default="", close="", retry="")


def listen(host_field: str, port_field: str) -> Reader:
    """host:port, or only a port; sets two fields."""

    def read(_context: Context, value: Value, name: str) -> dict[str, object]:
        data = value.data
        if isinstance(data, int) and not isinstance(data, bool):
            return {port_field: _port_number(str(data), value, name)}
        found = _split_host_port(data) if isinstance(data, str) else None
        if found is None:
            raise ConfigError(f'{name}: expected a port or "host:port"', value.position)
        host, port_text = found
        number = _port_number(port_text, value, name)
        return {host_field: host, port_field: number} if host else {port_field: number}

    return read


def _split_host_port(address: str) -> tuple[str, str] | None:
    """As Go splits it: an IPv6 host stands in brackets."""
    found = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:\[\]]*)", address)
    return None if found is None else (found[1] or found[2] or "", found[3])


def _port_number(digits: str, value: Value, name: str) -> int:
    if re.fullmatch("[+-]?[0-9]{1,9}", digits) is None or not -1 <= int(digits) <= 65_535:
        raise ConfigError(f"{name}: expected a port from 0 to 65535, or -1 for any free one", value.position)
    return int(digits)


def url(context: Context, value: Value, name: str) -> str:
    """An absolute URL with a host. It may hold credentials, so it is never shown."""
    found = required_text(context, value, name).strip()
    try:
        parts = urlsplit(found)
        usable = bool(parts.scheme and parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f'{name}: expected a URL such as "nats://host:4222"', value.position)
    return found


def urls(context: Context, value: Value, name: str) -> tuple[str, ...]:
    """URLs in the order written, each once."""
    found: dict[str, None] = {}
    for item in items_of(value, name):
        one = url(context, item, name)
        if one in found:
            context.warn(f"{name}: this URL is there twice", item.position)
        found[one] = None
    return tuple(found)


def subjects(context: Context, value: Value, name: str) -> tuple[str, ...]:
    """A subject or an array of them, wildcards allowed."""
    return subjects_or_queues(context, value, name, queues=False)


def subjects_or_queues(context: Context, value: Value, name: str, *, queues: bool) -> tuple[str, ...]:
    """The same, where with queues an entry may be "subject queue"."""
    found = texts(context, value, name)
    for subject in found:
        parts = subject.split() if queues else [subject]
        if len(parts) > 2 or not parts or not all(valid_subscription(part.encode()) for part in parts):
            kind = "subject, or a subject and a queue" if queues else "subject"
            raise ConfigError(f"{name}: {subject!r} is not a valid {kind}", value.position)
    return found


def off_only(reason: str) -> Reader:
    """A switch that edged does not have: leaving it off is fine, turning it on is refused."""

    def read(_context: Context, value: Value, name: str) -> dict[str, object]:
        if value.data is not False:
            raise ConfigError(f"{name}: {reason}", value.position)
        return {}

    return read
