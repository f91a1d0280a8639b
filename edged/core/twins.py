"""Chooses between the reference and its native twin.

EDGED_PURE=1 in the environment selects pure Python; so does a build without a C compiler. Everything outside
`core` imports the hot classes from here, so that one process never mixes the two.
"""

import os
from typing import TYPE_CHECKING

from edged.core import wire

PURE = os.environ.get("EDGED_PURE") == "1"

if TYPE_CHECKING:
    from edged.core.fanout import Fanout, Outbox, Route, Subscription
    from edged.core.wire import Parser, Publishes
else:
    if not PURE:
        try:
            from edged.core._native import Fanout, Outbox, Parser, Publishes, Route, Subscription
        except ImportError:
            PURE = True
    if PURE:
        from edged.core.fanout import Fanout, Outbox, Route, Subscription
        from edged.core.wire import Parser, Publishes

# The native parser leaves odd lines to the reference, so both kinds of batch may come out of it.
PUBLISHES = (Publishes, wire.Publishes)

__all__ = ["PUBLISHES", "PURE", "Fanout", "Outbox", "Parser", "Publishes", "Route", "Subscription"]
