"""HTTP monitoring: the documents that describe a running server, and the port that serves them."""

from edged.server.monitoring.answers import Answer, BadRequest, NotMeant
from edged.server.monitoring.monitor import Monitor

__all__ = ["Answer", "BadRequest", "Monitor", "NotMeant"]
