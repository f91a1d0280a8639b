"""Chooses between the reference of the journal's frames and its native twin, as `twins` does for the rest."""

from typing import TYPE_CHECKING

from edged.core.twins import PURE as _PURE

PURE = _PURE

if TYPE_CHECKING:
    from edged.core.frames import FrameBuffer, Scan, decode_append, scan
else:
    if not PURE:
        try:
            from edged.core._frames import FrameBuffer, Scan, decode_append, scan
        except ImportError:
            PURE = True
    if PURE:
        from edged.core.frames import FrameBuffer, Scan, decode_append, scan

__all__ = ["PURE", "FrameBuffer", "Scan", "decode_append", "scan"]
