"""Bounds on queues, caches and buffers that no configuration key sets, and what happens when one is hit."""

from typing import Final

# Routes cached per account and set of rights. When full the cache is emptied and fills again with what is
# in use; a route costs a lookup in the subscription list to compute.
ROUTES_CACHED_MAX: Final = 16_384

# A connection that has this much waiting to be written makes its publishers wait, up to STALL_S per batch,
# so that a fast publisher does not fill memory on behalf of a subscriber that is only a little slower.
STALL_BYTES: Final = 2 * 1024 * 1024
STALL_S: Final = 0.010

# Open requests to services of other accounts, per exporting account. When full the oldest is forgotten and
# its requester sees a timeout.
SERVICE_REQUESTS_MAX: Final = 65_536

# How deep one message may pass from account to account through service imports. Deeper is a cycle: dropped.
SERVICE_IMPORT_DEPTH_MAX: Final = 8

# Internal messages (events, statistics) beyond this many in one turn are dropped: they are advice.
INTERNAL_EVENTS_MAX: Final = 1024

# Commands that wait for the journal. When it is full, the connections that publish to streams are not read
# until the batch on its way is durable: their clients wait, and memory stays bounded.
COMMIT_QUEUE_BYTES_MAX: Final = 16 * 1024 * 1024

# Increments of all counters that wait until the batch before them is durable, with what they take in memory.
# When it is full, the connections that publish to streams are not read until some of them were submitted.
COUNTER_QUEUE_BYTES_MAX: Final = 4 * 1024 * 1024

# Requests to the JetStream API that a node of a cluster deals with at a time, by asking others or by itself.
# With so many the next ones wait in the queue of requests, which has a bound of its own.
API_CALLS_MAX: Final = 1024

# How often a request is passed on from a node that does not lead to one that should. One that would be passed
# on once more is refused for now: whoever leads has changed meanwhile.
API_HOPS_MAX: Final = 3

# Who waits, for one stream, until a node of a cluster knows that it still leads. What is asked beyond that
# has no answer, as if the node were cut off; consumers, which count here too, ask again with their next turn.
UNCERTAIN_WAITING_MAX: Final = 16_384

# Journal files that are complete and not sealed yet. With more than this, sealing cannot keep up with what is
# published, and the connections that publish to streams are not read until it has.
UNSEALED_FILES_MAX: Final = 8
# Every start begins a journal file. When so many wait to be sealed, as after starts that follow each other
# closely, those are sealed soon after a start, however little is in them.
UNSEALED_FILES_AT_START_MAX: Final = 3
