"""Chooses between the reference and its native twin.

EDGED_PURE=1 in the environment selects pure Python; so does a build without a C compiler, or one left half
done. Everything outside `core` imports the hot classes and functions from here or from the modules `*_twins`,
so that one process never mixes the two: they are all native or all pure.

A native module is loaded by the first twin() that needs it: a daemon without streams has none of theirs. One
that is there and cannot be loaded is an error and is not hidden.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar, cast

from edged.core import fanout, leaf_wire, wire

_Twin = TypeVar("_Twin")

NATIVE: Final = ("_native", "_frames", "_runs", "_rows", "_codes", "_s2", "_acks")
PURE: Final = os.environ.get("EDGED_PURE") == "1" or any(
    find_spec(f"edged.core.{name}") is None for name in NATIVE
)


def twin(reference: _Twin, native: str = "") -> _Twin:
    """A function or class of a reference, or what has its name in the native twin of its module.

    The twin of `edged.core.runs` is `edged.core._runs`, unless another module is said.
    """
    if PURE:
        return reference
    module, name = attrgetter("__module__", "__name__")(reference)
    package, _, own = module.rpartition(".")
    return cast(_Twin, getattr(import_module(f"{package}.{native or '_' + own}"), name))


if TYPE_CHECKING:
    from edged.core.fanout import Fanout, Outbox, Route, Subscription
    from edged.core.leaf_wire import LeafParser
    from edged.core.wire import Parser, Publishes
else:
    # A type checker does not take a class from a call.
    Fanout, Outbox, Route, Subscription = (
        twin(one, "_native") for one in (fanout.Fanout, fanout.Outbox, fanout.Route, fanout.Subscription)
    )
    Parser, Publishes = twin(wire.Parser, "_native"), twin(wire.Publishes, "_native")
    LeafParser = twin(leaf_wire.LeafParser, "_native")

are_plain = twin(fanout.are_plain, "_native")

# The native parser leaves odd lines to the reference, so both kinds of batch may come out of it.
PUBLISHES = (Publishes, wire.Publishes)

__all__ = [
    "NATIVE",
    "PUBLISHES",
    "PURE",
    "Fanout",
    "LeafParser",
    "Outbox",
    "Parser",
    "Publishes",
    "Route",
    "Subscription",
    "are_plain",
    "twin",
]
