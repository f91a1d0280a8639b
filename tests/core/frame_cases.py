"""Both versions of the journal's frames, so that one test file runs over each of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edged.core import frames

_NAMES = ("FrameBuffer", "Scan", "block_frames", "decode_append", "scan")

REFERENCE = SimpleNamespace(name="reference", **{key: getattr(frames, key) for key in _NAMES})


def native() -> SimpleNamespace:
    """The native twin. Not having it is an error here: `make venv` builds it."""
    from edged.core import _frames, _runs

    # What checks frames of another node is where frames are gone through.
    return SimpleNamespace(
        name="native", **{key: getattr(_runs if key == "block_frames" else _frames, key) for key in _NAMES}
    )


both = pytest.mark.parametrize("twin", [REFERENCE, native()], ids=lambda twin: twin.name)
