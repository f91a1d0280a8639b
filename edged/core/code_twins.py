"""The searches of codes.py, or their native twins."""

from edged.core import codes
from edged.core.twins import twin

count_wanted = twin(codes.count_wanted)
find_last_number = twin(codes.find_last_number)
find_last_wanted = twin(codes.find_last_wanted)
find_number = twin(codes.find_number)
find_wanted = twin(codes.find_wanted)
flags_by_code = twin(codes.flags_by_code)
positions_of = twin(codes.positions_of)
running_sums = twin(codes.running_sums)
