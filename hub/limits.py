"""Bounds on queues and buffers that only a hub has, and what happens when one is hit."""

from typing import Final

# --- links between nodes ---

# A peer that has not shown its credentials may send this much; whoever sends more is cut off.
HELLO_BYTES_MAX: Final = 64 * 1024
# Connections to the cluster port that have not shown their credentials yet. One more is closed at once.
WELCOMES_MAX: Final = 64
# One frame of a control link. A frame that claims more ends the link, before any of it is kept.
FRAME_BYTES_MAX: Final = 160 * 1024 * 1024
# Messages of consensus that are packed into one frame and one write.
PACKED_BYTES_MAX: Final = 1024 * 1024
# Messages of consensus that wait for one peer. When full the oldest are dropped: they are sent anew.
RAFT_QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
# Calls, answers and gossip that wait for one peer. When full the link is closed: the peer does not read.
CONTROL_QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
# Calls of one peer that are being served. One more is refused, and its caller is told so.
CALLS_SERVED_MAX: Final = 1024
# Nodes and addresses that are remembered. More are not learnt: no cluster is that large.
PEERS_MAX: Final = 1024
# Payload of one message on a route: as much as max_payload may be set to, and its headers.
ROUTE_PAYLOAD_BYTES_MAX: Final = 65 * 1024 * 1024
# A line of a route: subjects are as long as clients may make them, and names of accounts may be longer.
ROUTE_LINE_BYTES_MAX: Final = 128 * 1024
# Subjects that one peer may announce. One more ends the link: no account has that many.
ROUTE_INTEREST_MAX: Final = 4_000_000
# Ways to address somebody that are remembered for a route. When full they are found out anew.
ROUTE_ADDRESSES_MAX: Final = 16_384
# Accounts of other nodes that are looked up at the same time. One more is not, until it is named again.
ACCOUNTS_LOOKED_UP_MAX: Final = 64

# --- replication ---

# Messages for groups that this node does not know yet, as its catalog is a moment behind, and their bytes.
# When there are more the oldest are dropped; whoever sent them does so again.
EARLY_MESSAGES_MAX: Final = 1024
EARLY_BYTES_MAX: Final = 16 * 1024 * 1024

# Entries that wait on a node until its lost messages are back. When there are more it takes no others; its
# leader sends them again.
REPAIR_HELD_BYTES_MAX: Final = 64 * 1024 * 1024

# One question for lost messages: ranges of seqs in it, messages and bytes in the answer. The rest is asked
# for next.
REPAIR_RANGES_MAX: Final = 256
REPAIR_MESSAGES_MAX: Final = 512
REPAIR_BYTES_MAX: Final = 256 * 1024
# Streams that are repaired at the same time, with one question under way for each. The next one waits.
REPAIRS_MAX: Final = 2

# Snapshots that are being sent at the same time. Whoever wants another one waits until one is done with.
SNAPSHOTS_SENT_MAX: Final = 4

# Journal files that stay, though no checkpoint needs them, for nodes that catch up. One that is further
# behind than that begins with a snapshot again.
CATCH_UP_FILES_MAX: Final = 32
