"""Imports that would pass a message round in a circle between accounts.

A service import sends requests from the importer to the exporter, a stream import messages from the
exporter to the importer. Seen as one-way steps between (account, subject) they must not lead back to where
they started.

Rules: an import is accepted only when it forms no cycle with those accepted before it, so the order of the
configuration decides which one of a cycle is left out; an account never imports from itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from edged.config.options import AccountOptions, ServiceImport, StreamImport
from edged.core.subjects import overlaps


@dataclass(frozen=True, slots=True)
class _Step:
    """A message on source in one account goes on as target in another."""

    source_account: str
    source: bytes
    target_account: str
    target: bytes


def without_cycles(accounts: Iterable[AccountOptions]) -> tuple[tuple[AccountOptions, ...], tuple[str, ...]]:
    """The accounts without the imports that close a cycle, and a sentence for each of those."""
    services: list[_Step] = []
    streams: list[_Step] = []
    dropped: list[str] = []
    kept: list[AccountOptions] = []
    for account in accounts:
        kept_services = []
        for service in account.service_imports:
            step = _service_step(account.name, service)
            if _accept(step, services):
                kept_services.append(service)
            else:
                dropped.append(
                    f"account {account.name}: the import of service {service.subject} forms a cycle"
                )
        kept_streams = []
        for stream in account.stream_imports:
            step = _stream_step(account.name, stream)
            if _accept(step, streams):
                kept_streams.append(stream)
            else:
                dropped.append(f"account {account.name}: the import of stream {stream.subject} forms a cycle")
        kept.append(
            replace(account, service_imports=tuple(kept_services), stream_imports=tuple(kept_streams))
        )
    return tuple(kept), tuple(dropped)


def _accept(step: _Step, accepted: list[_Step]) -> bool:
    """Add the step unless it closes a circle."""
    if step.source_account == step.target_account:
        return False
    reached = [(step.target_account, step.target)]
    unused = list(accepted)
    while reached:
        account, subject = reached.pop()
        if account == step.source_account and overlaps(subject, step.source):
            return False
        following = [one for one in unused if one.source_account == account and overlaps(one.source, subject)]
        unused = [one for one in unused if one not in following]
        reached.extend((one.target_account, one.target) for one in following)
    accepted.append(step)
    return True


def _service_step(importer: str, service: ServiceImport) -> _Step:
    return _Step(importer, _pattern(service.to), service.account, _pattern(service.subject))


def _stream_step(importer: str, stream: StreamImport) -> _Step:
    local = stream.to or (f"{stream.prefix}.{stream.subject}" if stream.prefix else stream.subject)
    return _Step(stream.account, _pattern(stream.subject), importer, _pattern(local))


def _pattern(subject: str) -> bytes:
    """The subject with every reference to a wildcard ($1, {{wildcard(1)}}) taken for a wildcard."""
    tokens = ("*" if "{{" in token or token[:2] in _REFERENCES else token for token in subject.split("."))
    return ".".join(tokens).encode()


_REFERENCES = frozenset(f"${digit}" for digit in "123456789")
