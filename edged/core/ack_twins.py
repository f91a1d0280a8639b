"""The functions of acks.py, or their native twins."""

from edged.core import acks
from edged.core.twins import twin

plain_acks = twin(acks.plain_acks)
