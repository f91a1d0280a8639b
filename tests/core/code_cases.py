"""Both versions of the searches in columns, so that one test file runs over each."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edged.core import codes

_NAMES = (
    *("count_wanted", "find_last_number", "find_last_wanted", "find_number", "find_wanted"),
    *("flags_by_code", "positions_of", "running_sums"),
)

REFERENCE = SimpleNamespace(name="reference", **{key: getattr(codes, key) for key in _NAMES})


def _native() -> SimpleNamespace:
    """The native twin. Not having it is an error here: `make venv` builds it."""
    from edged.core import _codes

    return SimpleNamespace(name="native", **{key: getattr(_codes, key) for key in _NAMES})


NATIVE = _native()

both = pytest.mark.parametrize("twin", [REFERENCE, NATIVE], ids=lambda twin: twin.name)
