"""What a monitoring request comes to: a document with a status, or a refusal.

Rules: documents are plain dicts and lists, ready for JSON, with keys in the order in which nats-server shows
them. The one exception is Rows, a long list whose entries are described only when they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A document and the HTTP status it goes out with."""

    status: int
    body: Document | list[Any]


class BadRequest(Exception):  # noqa: N818 - says what happened
    """A request that cannot be answered as asked; `text` is what the asker is told."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


class NotMeant(BadRequest):
    """A request for some servers, of which this one is none; who asked all of them is not told."""


class Rows(Generic[T]):
    """A page of things to be described one by one, so that a page of 65,000 is never in memory as text."""

    __slots__ = ("_describe", "_items")

    def __init__(self, items: Sequence[T], describe: Callable[[T], Document]) -> None:
        self._items = items
        self._describe = describe

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Document]:
        return map(self._describe, self._items)


def without_rows(document: Document) -> Document:
    """The document with every entry described, for those who want all of it at once."""
    return {key: list(value) if isinstance(value, Rows) else value for key, value in document.items()}


def shown(document: Document) -> Document:
    """The document without what nats-server leaves out because it is empty, 0 or false."""
    return {key: value for key, value in document.items() if value}
