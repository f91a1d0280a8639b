"""Chooses between the reference of S2 and HighwayHash and their native twin, as `twins` does for the rest."""

from typing import TYPE_CHECKING

from edged.core.twins import PURE as _PURE

PURE = _PURE

if TYPE_CHECKING:
    from edged.core.highway_hash import highway_hash
    from edged.core.s2 import crc32c, decode_block, encode_block
else:
    if not PURE:
        try:
            from edged.core._s2 import crc32c, decode_block, encode_block, highway_hash
        except ImportError:
            PURE = True
    if PURE:
        from edged.core.highway_hash import highway_hash
        from edged.core.s2 import crc32c, decode_block, encode_block

__all__ = ["PURE", "crc32c", "decode_block", "encode_block", "highway_hash"]
