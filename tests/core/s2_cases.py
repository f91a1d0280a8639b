"""Both versions of S2 and HighwayHash, so that one test file runs over each of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edged.core import highway_hash, s2

_NAMES = ("crc32c", "decode_block", "encode_block")

REFERENCE = SimpleNamespace(
    name="reference", highway_hash=highway_hash.highway_hash, **{key: getattr(s2, key) for key in _NAMES}
)


def _native() -> SimpleNamespace:
    """The native twin. Not having it is an error here: `make venv` builds it."""
    from edged.core import _s2

    return SimpleNamespace(name="native", **{key: getattr(_s2, key) for key in (*_NAMES, "highway_hash")})


NATIVE = _native()

both = pytest.mark.parametrize("twin", [REFERENCE, NATIVE], ids=lambda twin: twin.name)
