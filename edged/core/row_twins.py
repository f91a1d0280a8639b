"""Chooses between the reference of rows and its native twin, as `frame_twins` does for the frames."""

from typing import TYPE_CHECKING

from edged.core.frame_twins import PURE as _PURE

PURE = _PURE

if TYPE_CHECKING:
    from edged.core.rows import pack_column, pack_rows, rows_of_frames
else:
    if not PURE:
        try:
            from edged.core._rows import pack_column, pack_rows, rows_of_frames
        except ImportError:
            PURE = True
    if PURE:
        from edged.core.rows import pack_column, pack_rows, rows_of_frames

__all__ = ["PURE", "pack_column", "pack_rows", "rows_of_frames"]
