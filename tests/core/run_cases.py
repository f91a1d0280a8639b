"""Both versions of runs, each with the frames of its own kind, so that one test file runs over each."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edged.core import runs
from tests.core import frame_cases

_NAMES = (
    *("enter_counted", "enter_subjects", "frames_of_kind", "numbers_of", "order_of"),
    *("run_of_frames", "run_of_messages", "stretch_of"),
)

REFERENCE = SimpleNamespace(
    name="reference", scan=frame_cases.REFERENCE.scan, **{key: getattr(runs, key) for key in _NAMES}
)


def _native() -> SimpleNamespace:
    """The native twin. Not having it is an error here: `make venv` builds it."""
    from edged.core import _runs

    scan = frame_cases.native().scan
    return SimpleNamespace(name="native", scan=scan, **{key: getattr(_runs, key) for key in _NAMES})


NATIVE = _native()

both = pytest.mark.parametrize("twin", [REFERENCE, NATIVE], ids=lambda twin: twin.name)
