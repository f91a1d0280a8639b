"""What a monitoring request comes to: a document with a status, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A document, ready for JSON; keys are in the order in which they are shown."""

    status: int
    body: dict[str, Any] | list[Any]


class BadRequest(Exception):  # noqa: N818 - says what happened
    """A request that cannot be answered as asked; `text` is what the asker is told."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
