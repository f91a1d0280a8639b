"""The system account: requests about the server that it answers, and events that it tells of."""

from edged.server.system.services import SystemServices

__all__ = ["SystemServices"]
