"""The functions of rows.py, or their native twins."""

from edged.core import rows
from edged.core.twins import twin

pack_column = twin(rows.pack_column)
pack_rows = twin(rows.pack_rows)
rows_of_frames = twin(rows.rows_of_frames)
