"""The functions of rows.py, or their native twins."""

from edged.core import rows
from edged.core.twins import twin

messages_at = twin(rows.messages_at)
messages_between = twin(rows.messages_between)
pack_column = twin(rows.pack_column)
pack_rows = twin(rows.pack_rows)
rows_of_frames = twin(rows.rows_of_frames)
running_times = twin(rows.running_times)
