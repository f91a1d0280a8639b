"""The versions that clients and operators see."""

from typing import Final

from edged import __version__

EDGED_VERSION: Final = __version__
# Clients unlock features by the version of nats-server, so the one whose protocol and API we speak is said
# wherever nats-server would say its own. Ours stands beside it.
NATS_VERSION: Final = "2.15.1"
API_LEVEL: Final = 5
PROTOCOL: Final = 1
