"""The functions of s2.py and highway_hash.py, or their native twins."""

from edged.core import highway_hash as highway
from edged.core import s2
from edged.core.twins import twin

crc32c = twin(s2.crc32c)
decode_block = twin(s2.decode_block)
encode_block = twin(s2.encode_block)
highway_hash = twin(highway.highway_hash, "_s2")
