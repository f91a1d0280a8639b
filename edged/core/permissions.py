"""The one permission check: what a connection may publish to, subscribe to and be sent.

Clients, leaf links and peers are judged by the same functions, on the subject as the wire gave it.

Rules:
* An allow list, when there is one, must cover the subject; then no deny entry may match it. Deny wins.
* A subscription needs an allow entry that covers *all* of it. (nats-server takes the last `>` of a
  subscription for an ordinary token and so lets `allow: foo.*` open `foo.>`; that leaks `foo.a.b`, so it is
  refused here. In the other direction, `deny: foo.*` refuses `foo.>` here as there.)
* A deny entry refuses the subscriptions it matches. A broader subscription is accepted, and what the entry
  denies is filtered at delivery: `needs_delivery_check` says for which subscriptions, `may_deliver` decides.
* Entries of the form "subject queue" speak about queue subscriptions only. Where such allow entries cover the
  subject, the queue name must match one of them; where none does, the plain entries decide.
* `allow_responses` opens, for one connection, the reply subjects of messages sent to it: ResponseTracker.

Invariant: what passes may_deliver on a subscription that passed may_subscribe is allowed and not denied.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from edged.config.options import PermissionsOptions
from edged.core.subjects import is_literal, is_subset, matches, overlaps, valid_subscription

RESPONSES_TRACKED_MAX: Final = 4096  # per connection; when full, the oldest reply subject is forgotten
DEFAULT_RESPONSE_MESSAGES: Final = 1
DEFAULT_RESPONSE_EXPIRES_NS: Final = 120 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class ResponseRule:
    """How many answers one reply subject takes and for how long; a negative value means no bound."""

    max_messages: int = DEFAULT_RESPONSE_MESSAGES
    expires_ns: int = DEFAULT_RESPONSE_EXPIRES_NS


@dataclass(frozen=True, slots=True)
class SubscribeEntry:
    """One entry of a subscribe list; queue None means that it is about any subscription."""

    subject: bytes
    queue: bytes | None = None


@dataclass(frozen=True, slots=True)
class Permissions:
    """What one user may do. An allow list of None allows everything, an empty one nothing."""

    publish_allow: tuple[bytes, ...] | None = None
    publish_deny: tuple[bytes, ...] = ()
    subscribe_allow: tuple[SubscribeEntry, ...] | None = None
    subscribe_deny: tuple[SubscribeEntry, ...] = ()
    allow_responses: ResponseRule | None = None

    @classmethod
    def from_lists(
        cls,
        *,
        publish_allow: Iterable[str] | None = None,
        publish_deny: Iterable[str] = (),
        subscribe_allow: Iterable[str] | None = None,
        subscribe_deny: Iterable[str] = (),
        allow_responses: ResponseRule | None = None,
    ) -> "Permissions":
        """From lists of text; raises ValueError for an entry that is no subject."""
        if allow_responses is not None and publish_allow is None:
            publish_allow = ()
        return cls(
            None if publish_allow is None else tuple(map(_publish_entry, publish_allow)),
            tuple(map(_publish_entry, publish_deny)),
            None if subscribe_allow is None else tuple(map(_subscribe_entry, subscribe_allow)),
            tuple(map(_subscribe_entry, subscribe_deny)),
            allow_responses,
        )

    @classmethod
    def from_options(cls, options: PermissionsOptions | None) -> "Permissions":
        """From the configuration; no permissions there means no restriction."""
        if options is None:
            return ALL
        rule = options.allow_responses
        responses = None
        if rule is not None:
            responses = ResponseRule(rule.max_messages, round(rule.expires_s * 1_000_000_000))
        return cls.from_lists(
            publish_allow=options.publish.allow,
            publish_deny=options.publish.deny,
            subscribe_allow=options.subscribe.allow,
            subscribe_deny=options.subscribe.deny,
            allow_responses=responses,
        )

    @property
    def unrestricted(self) -> bool:
        return self == ALL

    def may_publish(self, subject: bytes) -> bool:
        """Whether the lists allow it; a reply subject may still be open in the ResponseTracker."""
        allow = self.publish_allow
        if allow is not None and not any(matches(subject, entry) for entry in allow):
            return False
        return not any(matches(subject, entry) for entry in self.publish_deny)

    def may_subscribe(self, subject: bytes, queue: bytes | None = None) -> bool:
        if self.subscribe_allow is not None:
            covering = [entry for entry in self.subscribe_allow if is_subset(subject, entry.subject)]
            if not _allowed_by(covering, queue):
                return False
        return not self._denied(subject, queue)

    def may_subscribe_partly(self, subject: bytes, queue: bytes | None = None) -> bool:
        """For leaf links: a wildcard that merely touches an allowed subject is accepted as well.

        A leaf announces its interest as it is; what it may not have is kept back when messages are sent,
        where the caller must ask about each subject.
        """
        if self.may_subscribe(subject, queue):
            return True
        if self.subscribe_allow is None or is_literal(subject) or self._denied(subject, queue):
            return False
        return any(entry.queue is None and overlaps(entry.subject, subject) for entry in self.subscribe_allow)

    def needs_delivery_check(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Whether messages for this accepted subscription have to pass may_deliver."""
        if not self.subscribe_deny or (queue is None and is_literal(subject)):
            return False
        return any(overlaps(entry.subject, subject) for entry in self.subscribe_deny)

    def may_deliver(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Whether a message on this literal subject may be sent to a subscription (of this queue)."""
        return not self._denied(subject, queue)

    def denying(self, publish: Iterable[bytes] = (), subscribe: Iterable[bytes] = ()) -> "Permissions":
        """The same permissions with more denied; leaf links keep foreign JetStream domains apart this way."""
        return replace(
            self,
            publish_deny=(*self.publish_deny, *publish),
            subscribe_deny=(*self.subscribe_deny, *map(SubscribeEntry, subscribe)),
        )

    def _denied(self, subject: bytes, queue: bytes | None) -> bool:
        return any(
            matches(subject, entry.subject)
            and (entry.queue is None or (queue is not None and _queue_matches(queue, entry.queue)))
            for entry in self.subscribe_deny
        )


ALL: Final = Permissions()


class ResponseTracker:
    """Which reply subjects one connection may answer to, how often and until when.

    Invariant: entries are in the order in which they expire, since all live equally long.
    """

    __slots__ = ("_open", "_rule")

    def __init__(self, rule: ResponseRule) -> None:
        self._rule = rule
        self._open: dict[bytes, tuple[int, int]] = {}  # reply: (remembered_at_ns, answers so far)

    def __len__(self) -> int:
        return len(self._open)

    def remember(self, reply: bytes, now_ns: int) -> None:
        """A message with this reply subject was delivered, and the lists alone do not open it."""
        self._open.pop(reply, None)
        self._forget_expired(now_ns)
        if len(self._open) >= RESPONSES_TRACKED_MAX:
            del self._open[next(iter(self._open))]
        self._open[reply] = (now_ns, 0)

    def take(self, subject: bytes, now_ns: int) -> bool:
        """Use one answer to this subject; False when none is open."""
        entry = self._open.get(subject)
        if entry is None:
            return False
        remembered_at_ns, answers = entry
        answers += 1
        if self._expired(remembered_at_ns, now_ns) or 0 <= self._rule.max_messages < answers:
            del self._open[subject]
            return False
        if answers == self._rule.max_messages:
            del self._open[subject]
        else:
            self._open[subject] = (remembered_at_ns, answers)
        return True

    def _expired(self, remembered_at_ns: int, now_ns: int) -> bool:
        return 0 <= self._rule.expires_ns < now_ns - remembered_at_ns

    def _forget_expired(self, now_ns: int) -> None:
        while self._open:
            oldest = next(iter(self._open))
            if not self._expired(self._open[oldest][0], now_ns):
                return
            del self._open[oldest]


def _allowed_by(covering: list[SubscribeEntry], queue: bytes | None) -> bool:
    """covering holds the allow entries whose subject covers the subscription."""
    queues = [entry.queue for entry in covering if entry.queue is not None]
    if queue is not None and queues:
        return any(_queue_matches(queue, wanted) for wanted in queues)
    return len(queues) < len(covering)


def _queue_matches(queue: bytes, wanted: bytes) -> bool:
    """Equal, since `v1.*` may also be a queue's name, or covered by the wildcards of the entry."""
    return queue == wanted or (not is_literal(wanted) and is_subset(queue, wanted))


def _publish_entry(text: str) -> bytes:
    subject = text.encode("utf-8")
    if not valid_subscription(subject):
        raise ValueError("a publish permission must be a subject")
    return subject


def _subscribe_entry(text: str) -> SubscribeEntry:
    words = text.encode("utf-8").split()
    if len(words) not in (1, 2) or not all(map(valid_subscription, words)):
        raise ValueError('a subscribe permission must be a subject or "subject queue"')
    return SubscribeEntry(words[0], words[1] if len(words) == 2 else None)
