"""The frames of the journal from frames.py, or their native twins."""

from typing import TYPE_CHECKING

from edged.core import frames
from edged.core.twins import twin

if TYPE_CHECKING:
    from edged.core.frames import FrameBuffer, Scan
else:
    FrameBuffer, Scan = twin(frames.FrameBuffer), twin(frames.Scan)

block_frames = twin(frames.block_frames, "_runs")
decode_append = twin(frames.decode_append)
scan = twin(frames.scan)

__all__ = ["FrameBuffer", "Scan", "block_frames", "decode_append", "scan"]
