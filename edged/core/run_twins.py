"""The functions of runs.py, or their native twins."""

from edged.core import runs
from edged.core.twins import twin

enter_counted = twin(runs.enter_counted)
enter_subjects = twin(runs.enter_subjects)
frames_of_kind = twin(runs.frames_of_kind)
numbers_of = twin(runs.numbers_of)
order_of = twin(runs.order_of)
run_of_frames = twin(runs.run_of_frames)
run_of_messages = twin(runs.run_of_messages)
stretch_of = twin(runs.stretch_of)
