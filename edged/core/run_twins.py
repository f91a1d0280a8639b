"""Chooses between the reference of runs and its native twin, as `frame_twins` does for the frames.

Both or none are native: a run is made from what a scan found, and one process never mixes the two.
"""

from typing import TYPE_CHECKING

from edged.core.frame_twins import PURE as _PURE

PURE = _PURE

if TYPE_CHECKING:
    from edged.core.runs import enter_subjects, frames_of_kind, run_of_frames, run_of_messages
else:
    if not PURE:
        try:
            from edged.core._runs import enter_subjects, frames_of_kind, run_of_frames, run_of_messages
        except ImportError:
            PURE = True
    if PURE:
        from edged.core.runs import enter_subjects, frames_of_kind, run_of_frames, run_of_messages

__all__ = ["PURE", "enter_subjects", "frames_of_kind", "run_of_frames", "run_of_messages"]
