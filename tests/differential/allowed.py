"""The tables of allowed differences: which values of which JSON document are not compared, and why.

A rule names a document (`where`), a dotted path (`#` stands for every item of a list) and a treatment: TYPE
compares only that both have a value of that JSON type; SORT compares a list without its order; OWN is SORT
without the entries whose subject is under `$SYS` or `_R_`, which are the server's own; DROP does not compare
the key at all, not even its presence. The first rule that matches counts. Both `where` and `path` are shell
patterns; a path that opens with `**.` matches at every depth. Everything that no rule names must be equal. A
rule without a good reason does not belong here: a client or a dashboard somewhere reads each of these keys.

`KEPT` names whole cases in which edged answers otherwise on purpose, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

ANY_DEPTH = "**."


class Treatment(Enum):
    """What is left of a value before two documents are compared."""

    TYPE = "type"
    SORT = "sort"
    OWN = "own"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Rule:
    """One allowed difference."""

    where: str
    path: str
    treatment: Treatment
    reason: str


TYPE, SORT, OWN, DROP = Treatment.TYPE, Treatment.SORT, Treatment.OWN, Treatment.DROP

# In every document.
ANYWHERE = (
    Rule("*", "**.edged", DROP, "edged may say more about itself under one key of its own"),
    Rule("*", "**.git_commit", DROP, "edged is not built from a commit of nats-server"),
    Rule("*", "**.feature_flags", DROP, "switches of the Go implementation, changed with every release"),
    Rule("*", "**.config_digest", TYPE, "the configuration holds paths and ports of the process"),
    Rule("*", "**.config_load_time", TYPE, "a moment"),
    Rule("INFO", "version", TYPE, "the version of the program"),
    Rule("/varz", "version", TYPE, "the version of the program"),
    Rule("VARZ", "data.version", TYPE, "the version of the program"),
    Rule("*", "server.ver", TYPE, "the version of the program"),
    Rule("*", "server.seq", TYPE, "counts every internal message, whatever it was for"),
)

INFO = (
    Rule("INFO", "go", DROP, "edged is not written in Go"),
    Rule("INFO", "port", TYPE, "chosen by the system"),
    Rule("INFO", "client_id", TYPE, "counts every connection, internal ones too"),
    Rule("INFO", "nonce", TYPE, "random; its length is tested elsewhere by signing it"),
    Rule("INFO", "xkey", DROP, "only of use to auth callout, which names it in its own requests"),
)

# One connection, in connz and in events. Its counters are exact, because the scripts sync before they ask.
CONNECTION = (
    Rule("*", "**.cid", TYPE, "counts every connection, internal ones too"),
    Rule("*", "**.connections.#.port", TYPE, "chosen by the system"),
    Rule("*", "**.connections.#.rtt", DROP, "there once the server's own first ping was answered"),
    Rule("*", "**.connections.#.tls_*", TYPE, "chosen by the two TLS libraries"),
    Rule(
        "*", "**.connections.#.pending_bytes", TYPE, "what was written a moment ago may still be on its way"
    ),
    Rule("*", "client.id", TYPE, "counts every connection, internal ones too"),
    Rule("*", "client.rtt", DROP, "there once the server's own first ping was answered"),
    Rule("Nats-Request-Info", "id", TYPE, "counts every connection, internal ones too"),
    Rule("Nats-Request-Info", "rtt", DROP, "there once the server's own first ping was answered"),
)

# Figures of the process, in varz and statsz, over HTTP and over $SYS.
PROCESS = (
    Rule("*", "**.go", DROP, "edged is not written in Go"),
    Rule("*", "**.gomaxprocs", DROP, "edged is not written in Go"),
    Rule("*", "**.gomemlimit", DROP, "edged is not written in Go"),
    Rule("*", "**.mem", TYPE, "a measurement"),
    Rule("*", "**.cpu", TYPE, "a measurement"),
    Rule("*", "**.disk_io_wait_stats", DROP, "queues of the Go implementation's limit on blocking calls"),
    Rule("/varz", "port", TYPE, "chosen by the system"),
    Rule("/varz", "http_port", TYPE, "chosen by the system"),
    Rule("VARZ", "data.port", TYPE, "chosen by the system"),
    Rule("VARZ", "data.http_port", TYPE, "chosen by the system"),
    Rule("/varz", "subscriptions", TYPE, "counts internal subscriptions of the implementation"),
    Rule("VARZ", "data.subscriptions", TYPE, "counts internal subscriptions of the implementation"),
    Rule("STATSZ", "statsz.subscriptions", TYPE, "counts internal subscriptions of the implementation"),
    Rule("*", "**.config.store_dir", TYPE, "a path of the process"),
)

# Over $SYS the request itself is a message, which may or may not be counted when the answer is made. The same
# counters are compared exactly over HTTP.
REQUEST_ITSELF = tuple(
    Rule(where, path, TYPE, "the request itself may or may not be counted yet")
    for where, path in (
        ("VARZ", "data.in_*"),
        ("STATSZ", "statsz.received*.msgs"),
        ("STATSZ", "statsz.received*.bytes"),
        ("CONNZ", "data.connections.#.in_*"),
        ("ACCOUNT.CONNZ", "data.connections.#.in_*"),
        ("STATZ", "data.account_statz.#.received.msgs"),
        ("ACCOUNT.STATZ", "data.account_statz.#.received.msgs"),
    )
)

# The subscription list.
SUBSCRIPTIONS = (
    Rule("/subs*", "num_*", TYPE, "counts internal subscriptions of the implementation"),
    Rule("SUBSZ", "data.num_*", TYPE, "counts internal subscriptions of the implementation"),
    Rule("ACCOUNT.SUBSZ", "data.num_*", TYPE, "counts internal subscriptions of the implementation"),
    Rule("*", "**.cache_hit_rate", TYPE, "depends on how the implementation caches"),
    Rule("*", "**.avg_fanout", TYPE, "depends on how the implementation caches"),
    Rule("*", "**.max_fanout", TYPE, "depends on how the implementation caches"),
    Rule("*", "**.sublist_stats.num_*", TYPE, "counts internal subscriptions of the implementation"),
    Rule("/subs*", "total", TYPE, "counts internal subscriptions of the implementation"),
    Rule("*SUBSZ", "data.total", TYPE, "counts internal subscriptions of the implementation"),
    Rule(
        "*",
        "**.subscriptions_list",
        OWN,
        "walks a map, and lists internal subscriptions of the implementation",
    ),
    Rule("*", "**.subscriptions_list_detail", SORT, "walks a map"),
)

# Accounts.
ACCOUNTS = (
    Rule("*", "**.accounts", SORT, "walks a map"),
    Rule("*", "**.account_statz", SORT, "walks a map"),
    Rule("*", "**.exports", OWN, "walks a map, and lists how the implementation offers its own services"),
    Rule("*", "**.imports", OWN, "walks a map, and lists how the implementation offers its own services"),
    Rule("*", "**.allow", SORT, "walks a subscription list"),
    Rule("*", "**.deny", SORT, "walks a subscription list"),
    Rule("*", "**.num_subscriptions", TYPE, "counts internal subscriptions of the implementation"),
    Rule("*", "**.account_detail.subscriptions", TYPE, "counts internal subscriptions of the implementation"),
    Rule("ACCOUNT.INFO", "data.subscriptions", TYPE, "counts internal subscriptions of the implementation"),
)

# JetStream.
JETSTREAM = (
    Rule("*", "**.config.sync_always", DROP, "edged syncs before it acknowledges unless told otherwise"),
    Rule("*", "**.stream_detail", SORT, "walks a map"),
    Rule("*", "**.account_details", SORT, "walks a map when it is not cut into pages"),
    Rule("TAKER", "state", DROP, "the stream takes what servers send, which is another thing at each moment"),
    Rule("*", "**.pause_remaining", TYPE, "how long until a moment"),
    Rule("*", "**.consumer_detail", SORT, "walks a map"),
    Rule("UNNAMED", "name", TYPE, "drawn by chance"),
    Rule("METRIC", "ack_time", TYPE, "how long a client took"),
    Rule("*", "**.mirror.active", TYPE, "how long an origin was silent"),
    Rule("*", "**.sources.#.active", TYPE, "how long an origin was silent"),
    Rule("*", "sources", SORT, "walks a map"),
    Rule("*", "streams.#.sources", SORT, "walks a map"),
    Rule("*", "**.stream_detail.#.sources", SORT, "walks a map"),
    Rule("/jsz.origins", "**.api.total", TYPE, "streams of nats-server ask their origins by the API"),
    Rule("/jsz.origins", "**.api.errors", TYPE, "streams of nats-server ask their origins by the API"),
    Rule("*", "server.flags", TYPE, "what servers of one cluster may expect of each other"),
)

# Clusters. Which node does what is chance: names of nodes and groups are masked (TEXT_KINDS of normalise.py).
CLUSTERS = (
    Rule("*", "**.replicas.#.active", TYPE, "how long a node was silent"),
    Rule("*", "**.replicas.#.current", TYPE, "what was sent a moment ago may still be on its way"),
    Rule("*", "**.replicas.#.lag", DROP, "there while something is on its way"),
    Rule("*", "**.replicas.#.peer", TYPE, "the id of a node"),
    Rule("*", "**.cluster.leader_since", DROP, "not there for a moment after a leader was elected"),
    Rule("API.CONSUMER", "**.cluster", TYPE, "at a hub a consumer is in the group of its stream"),
    Rule("*", "alternates", SORT, "walks a map"),
)

# Errors.
ERRORS = (Rule("ERROR", "error.description", TYPE, "the words of the JSON parser"),)

# Documents about the inside of the Go implementation: that they are answered is all that can be asked. Over
# HTTP these are `PAGES_NOT_COMPARED` of the runner.
INSIDE = (
    Rule("EXPVARZ", "data.*", DROP, "variables of the Go runtime"),
    Rule("IPQUEUESZ", "data.*", DROP, "names of internal queues"),
)

RULES: tuple[Rule, ...] = (
    *INFO,
    *CONNECTION,
    *PROCESS,
    *REQUEST_ITSELF,
    *SUBSCRIPTIONS,
    *ACCOUNTS,
    *JETSTREAM,
    *CLUSTERS,
    *ERRORS,
    *INSIDE,
    *ANYWHERE,
)


@dataclass(frozen=True, slots=True)
class KeptDifference:
    """A case in which edged answers otherwise on purpose. `case` is a shell pattern without brackets."""

    case: str
    reason: str


_LONE_CR = "a CR inside a line would reach subscribers and end their line early, so it is refused"
_PLAIN_SIZES = "sizes are written as numbers, whatever way the publisher wrote them"
_READ_ONLY = "the monitoring port is read with GET and HEAD"
_EMPTY_LIST = "no connections is an empty list of this server, not null of an unnamed one"
_STILL_WAITING = "a message that is removed settles itself, and the floor stays below those that wait"

# Such a case is still played and must differ: when it no longer does, its row goes.
KEPT: tuple[KeptDifference, ...] = (
    KeptDifference("attacks: Line ends inside arguments (SUB foo\\r1\\r\\n)", _LONE_CR),
    KeptDifference("attacks: Line ends inside arguments (PUB f\\roo 2\\r\\nhi\\r\\n)", _LONE_CR),
    KeptDifference("attacks: Line ends inside arguments (SUB foo 1\\r\\r\\n)", _LONE_CR),
    KeptDifference("attacks: Line ends inside arguments (UNSUB 1\\r2\\r\\n)", _LONE_CR),
    KeptDifference("subjects: * (foo\\rbar)", _LONE_CR),
    KeptDifference(
        "subjects: Subscribing to a subject (foo\\x0cbar)",
        "a form feed separates entries in headers that servers make, so it is in no subject",
    ),
    KeptDifference(
        "attacks: Overlapping permissions with wildcards do not leak (foo.>)",
        "`allow: foo.*` must not open foo.>, through which foo.a.b would be heard",
    ),
    KeptDifference(
        "connecting: CONNECT deeply nested in an unknown key",
        "no client nests a thousand deep; refused before anybody is authenticated",
    ),
    KeptDifference("headers: Header and total sizes that do not fit together (012 014)", _PLAIN_SIZES),
    KeptDifference("operations: A size written in an odd way (02)", _PLAIN_SIZES),
    KeptDifference("operations: A size written in an odd way (000000002)", _PLAIN_SIZES),
    KeptDifference(
        "lifecycle: A reload that removes a user disconnects it", "edged says why it closes the connection"
    ),
    KeptDifference(
        "lifecycle: A reload that turns authentication off", "a connection that is still allowed is kept"
    ),
    KeptDifference("lifecycle: A client on the port of *", "edged has no leaf and route listeners yet"),
    KeptDifference("monitoring: Other methods than GET (P*T)", _READ_ONLY),
    KeptDifference("monitoring: Other methods than GET (DELETE)", _READ_ONLY),
    KeptDifference("monitoring: Other methods than GET (OPTIONS)", _READ_ONLY),
    KeptDifference("monitoring: Connections with options (acc=nobody)", _EMPTY_LIST),
    KeptDifference("system: Connections of a server with options (*nobody*)", _EMPTY_LIST),
    KeptDifference("system: Requests about an account that is not there (CONNZ)", _EMPTY_LIST),
    KeptDifference(
        "monitoring: The reason of a closed connection (CONNECT {*no*})",
        "a connection that fails its second login is listed with the account it had",
    ),
    KeptDifference(
        "jetstream_streams: A purge of a stream that never held a message",
        "a purge of nothing changes nothing, and the first seq stays 0",
    ),
    KeptDifference(
        "jetstream_monitoring: The health of an account without streams",
        "an account that has not stored anything yet is there, and healthy",
    ),
    KeptDifference(
        "jetstream_messages: The last of many subjects up to a seq that is not there yet (file)",
        "up to a seq that is not there yet means all there is, on disk as in memory",
    ),
    KeptDifference(
        'jetstream_consumers_info: Messages that are removed (STREAM.MSG.DELETE.S {"seq":2}) (*"all"*)',
        _STILL_WAITING,
    ),
    KeptDifference(
        'jetstream_consumers_info: Messages that are removed (STREAM.PURGE.S {"filter":"s.b"}) (*"all"*)',
        _STILL_WAITING,
    ),
    KeptDifference(
        'jetstream_consumers_info: Messages that are removed (STREAM.PURGE.S {"filter":"s.b"})'
        ' ({"ack_policy":"explicit"})',
        _STILL_WAITING,
    ),
    KeptDifference(
        "jetstream_delivery: An answer to the message 0",
        "no message has the seq 0, and nothing is confirmed for what was not delivered",
    ),
    KeptDifference(
        "jetstream_errors: A server that is full refuses messages",
        "a limit of the server is kept by the message that would pass it, and one that fits is taken",
    ),
    KeptDifference(
        "jetstream_errors: An empty stream that is changed to begin with its first seq",
        "a stream that never held a message begins where its configuration says",
    ),
    KeptDifference(
        "jetstream_errors: A stream that begins beyond the seqs that there are",
        "seqs have 63 bits, and a stream begins where enough of them follow",
    ),
    KeptDifference(
        "jetstream_tracing: *",
        "messages are not traced: the headers that ask for it are carried like others",
    ),
)


def kept_reason(case_id: str, kept: tuple[KeptDifference, ...] = KEPT) -> str | None:
    """Why edged answers otherwise in this case; None: it must answer alike."""
    plain = case_id.replace("[", "(").replace("]", ")")
    return next((row.reason for row in kept if fnmatchcase(plain, row.case)), None)


def treatment(where: str, path: str) -> Treatment | None:
    """How the value at `path` of the document `where` is treated; None: it is compared."""
    for rule in RULES:
        if fnmatchcase(where, rule.where) and _path_matches(path, rule.path):
            return rule.treatment
    return None


def _path_matches(path: str, pattern: str) -> bool:
    if pattern.startswith(ANY_DEPTH):
        inner = pattern[len(ANY_DEPTH) :]
        return fnmatchcase(path, inner) or fnmatchcase(path, "*." + inner)
    return fnmatchcase(path, pattern)
