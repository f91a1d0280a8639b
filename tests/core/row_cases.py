"""Both versions of rows, each with the frames of its own kind, so that one test file runs over each."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edged.core import rows
from tests.core import frame_cases

_NAMES = (
    *("messages_at", "messages_between", "pack_column", "pack_rows"),
    *("rows_of_frames", "running_times"),
)

REFERENCE = SimpleNamespace(
    name="reference", scan=frame_cases.REFERENCE.scan, **{key: getattr(rows, key) for key in _NAMES}
)


def _native() -> SimpleNamespace:
    """The native twin. Not having it is an error here: `make venv` builds it."""
    from edged.core import _rows

    scan = frame_cases.native().scan
    return SimpleNamespace(name="native", scan=scan, **{key: getattr(_rows, key) for key in _NAMES})


NATIVE = _native()

both = pytest.mark.parametrize("twin", [REFERENCE, NATIVE], ids=lambda twin: twin.name)
