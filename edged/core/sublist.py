"""The subscription list: which subscriptions does a published subject reach?

Literal patterns, nearly all of them in practice, live in one dictionary. Patterns with wildcards live in a
trie by token, where a node knows its literal children, its `*` child and what ends in `>` below it.

Rules: an item is hashable and may stand under several patterns, but once under the same pattern and queue.
Nothing is cached here (the broker caches routes per subject) and nothing recurses: a pattern of 10,000 tokens
is as good as any. Insert and remove cost O(tokens), match what it finds on top; only `reverse_match` with a
wildcard looks at every literal pattern.
Order: items of one pattern come in the order of their insertion. Between patterns: those that end in `>` from
the shortest on, then the others, the literal one last.

Invariant: no node and no leaf is kept that holds nothing, except the root.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

from edged.core import subjects

T = TypeVar("T", bound=Hashable)

# Up to here a list is smaller than a dictionary, and as fast to remove from.
_GROUP_LIST_MAX = 16


class Matched(NamedTuple, Generic[T]):
    """What a subject reaches: every plain item, and one item of each queue."""

    plain: list[T]
    queues: list[tuple[bytes, list[T]]]


class _Group(Generic[T]):
    """Items in insertion order: a list while they are few, a dictionary when removing from a list is slow."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[T] | dict[T, None] = []

    def add(self, item: T) -> bool:
        if item in self.items:
            return False
        if isinstance(self.items, dict):
            self.items[item] = None
        elif len(self.items) < _GROUP_LIST_MAX:
            self.items.append(item)
        else:
            self.items = dict.fromkeys(self.items)
            self.items[item] = None
        return True

    def discard(self, item: T) -> bool:
        if item not in self.items:
            return False
        if isinstance(self.items, dict):
            del self.items[item]
        else:
            self.items.remove(item)
        return True


class _Leaf(Generic[T]):
    """The items of one pattern."""

    __slots__ = ("plain", "queues")

    def __init__(self) -> None:
        self.plain: _Group[T] | None = None
        self.queues: dict[bytes, _Group[T]] | None = None

    def add(self, queue: bytes | None, item: T) -> bool:
        if queue is None:
            if self.plain is None:
                self.plain = _Group()
            return self.plain.add(item)
        if self.queues is None:
            self.queues = {}
        return self.queues.setdefault(queue, _Group()).add(item)

    def discard(self, queue: bytes | None, item: T) -> bool:
        group = self.plain if queue is None else (self.queues or {}).get(queue)
        if group is None or not group.discard(item):
            return False
        if not group.items:
            if queue is None:
                self.plain = None
            elif self.queues is not None:
                del self.queues[queue]
                self.queues = self.queues or None
        return True

    def is_empty(self) -> bool:
        return self.plain is None and self.queues is None

    def __iter__(self) -> Iterator[T]:
        if self.plain is not None:
            yield from self.plain.items
        for group in (self.queues or {}).values():
            yield from group.items


class _Node(Generic[T]):
    """A place in the trie of wildcard patterns, reached by the tokens on the way from the root."""

    __slots__ = ("children", "leaf", "star", "tail")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[T]] | None = None
        self.star: _Node[T] | None = None
        self.leaf: _Leaf[T] | None = None  # Patterns that end here.
        self.tail: _Leaf[T] | None = None  # Patterns that go on with `>` and end.

    def is_empty(self) -> bool:
        return not self.children and self.star is None and self.leaf is None and self.tail is None

    def child(self, token: bytes) -> _Node[T] | None:
        if token == b"*":
            return self.star
        return self.children.get(token) if self.children else None

    def grow(self, token: bytes) -> _Node[T]:
        node: _Node[T] = _Node()
        if token == b"*":
            self.star = node
        elif self.children is None:
            self.children = {token: node}
        else:
            self.children[token] = node
        return node

    def cut(self, token: bytes) -> None:
        if token == b"*":
            self.star = None
        elif self.children is not None:
            del self.children[token]
            self.children = self.children or None

    def branches(self) -> list[_Node[T]]:
        found = list(self.children.values()) if self.children else []
        if self.star is not None:
            found.append(self.star)
        return found


class SubscriptionList(Generic[T]):
    """Items by subscription subject: who gets a message on some subject."""

    __slots__ = ("_count", "_root", "inserts", "literals", "matches", "removes")

    def __init__(self) -> None:
        # Subscriptions without wildcards, by subject.
        self.literals: dict[bytes, _Leaf[T]] = {}
        self._root: _Node[T] = _Node()
        self._count = 0
        self.inserts = 0
        self.removes = 0
        self.matches = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        for leaf in self.literals.values():
            yield from leaf
        for leaf in _leaves_under([self._root]):
            yield from leaf

    def insert(self, pattern: bytes, queue: bytes | None, item: T) -> None:
        """Add a subscription; ValueError for an invalid pattern or an item that is there already."""
        if not subjects.valid_subscription(pattern):
            raise ValueError(f"invalid subscription subject {pattern!r}")
        if subjects.is_literal(pattern):
            leaf = self.literals.get(pattern)
            if leaf is None:
                leaf = self.literals[pattern] = _Leaf()
        else:
            leaf = self._wildcard_leaf(pattern)
        if not leaf.add(queue, item):
            raise ValueError(f"already subscribed to {pattern!r}")
        self._count += 1
        self.inserts += 1

    def remove(self, pattern: bytes, queue: bytes | None, item: T) -> bool:
        """Take a subscription out; False when it is not there."""
        if subjects.is_literal(pattern):
            leaf = self.literals.get(pattern)
            if leaf is None or not leaf.discard(queue, item):
                return False
            if leaf.is_empty():
                del self.literals[pattern]
        elif not self._remove_wildcard(pattern, queue, item):
            return False
        self._count -= 1
        self.removes += 1
        return True

    def match(self, subject: bytes) -> Matched[T]:
        """What a message published on the subject reaches; queue members of all its patterns together."""
        self.matches += 1
        return _matched(self._matching_leaves(subject))

    def match_all_below(self, prefix: bytes, is_deep: bool = False) -> Matched[T] | None:
        """What a message on `prefix` and any one more token reaches, if no pattern names that last token.

        `prefix` ends with a dot. A literal subscription on such a subject is not looked at: the caller does.
        None when the answer depends on the last token, or when no such subject is valid. With `is_deep` there
        may be any number of tokens more.
        """
        tokens = prefix[:-1].split(b".")
        if b"" in tokens:
            return None
        level = [self._root]
        found: list[_Leaf[T]] = []
        for token in tokens:
            found.extend(node.tail for node in level if node.tail is not None)
            stars = [node.star for node in level if node.star is not None]
            level = stars + [
                child
                for node in level
                if node.children is not None and (child := node.children.get(token)) is not None
            ]
        if any(node.children is not None or (is_deep and node.star is not None) for node in level):
            return None
        found.extend(node.tail for node in level if node.tail is not None)
        found.extend(node.star.leaf for node in level if node.star is not None and node.star.leaf is not None)
        self.matches += 1
        return _matched(found)

    def has_literal(self, subject: bytes) -> bool:
        """Whether some subscription is on exactly this subject."""
        return subject in self.literals

    def is_named(self, subject: bytes, queue: bytes | None) -> bool:
        """Whether some subscription is on exactly this subject, in this queue or in none."""
        leaf = self.literals.get(subject)
        if leaf is None:
            return False
        return leaf.plain is not None if queue is None else queue in (leaf.queues or ())

    def has_interest(self, subject: bytes) -> bool:
        return subject in self.literals or bool(self._matching_leaves(subject))

    def reverse_match(self, pattern: bytes) -> list[T]:
        """The items whose pattern shares some subject with this one."""
        if not subjects.valid_subscription(pattern):
            return []
        found: list[T] = []
        for leaf in self._overlapping_leaves(pattern.split(b".")):
            found.extend(leaf)
        if subjects.is_literal(pattern):
            found.extend(self.literals.get(pattern, ()))
            return found
        # The bytes before the first wildcard sort out nearly all of the literals without cutting them up.
        prefix = pattern[: min(place for place in map(pattern.find, (b"*", b">")) if place >= 0)]
        for literal, leaf in self.literals.items():
            if literal.startswith(prefix) and subjects.matches(literal, pattern):
                found.extend(leaf)
        return found

    def _wildcard_leaf(self, pattern: bytes) -> _Leaf[T]:
        """The leaf of a pattern, made with the way to it where that is missing."""
        tokens = pattern.split(b".")
        has_tail = tokens[-1] == b">"
        node = self._root
        for token in tokens[:-1] if has_tail else tokens:
            node = node.child(token) or node.grow(token)
        if has_tail:
            node.tail = node.tail or _Leaf()
            return node.tail
        node.leaf = node.leaf or _Leaf()
        return node.leaf

    def _remove_wildcard(self, pattern: bytes, queue: bytes | None, item: T) -> bool:
        tokens = pattern.split(b".")
        has_tail = tokens[-1] == b">"
        if has_tail:
            tokens.pop()
        node = self._root
        way = [node]
        for token in tokens:
            child = node.child(token)
            if child is None:
                return False
            node = child
            way.append(node)
        leaf = node.tail if has_tail else node.leaf
        if leaf is None or not leaf.discard(queue, item):
            return False
        if leaf.is_empty():
            if has_tail:
                node.tail = None
            else:
                node.leaf = None
        while tokens and way.pop().is_empty():
            way[-1].cut(tokens.pop())
        return True

    def _matching_leaves(self, subject: bytes) -> list[_Leaf[T]]:
        found: list[_Leaf[T]] = []
        literal = self.literals.get(subject)
        if not self._root.is_empty():
            self._walk(subject.split(b"."), found)
        if literal is not None:
            found.append(literal)
        return found

    def _walk(self, tokens: list[bytes], found: list[_Leaf[T]]) -> None:
        """Go down the trie one token at a time, on all the branches that agree so far."""
        if b"" in tokens:
            return
        level = [self._root]
        for token in tokens:
            below = []
            for node in level:
                if node.tail is not None:
                    found.append(node.tail)
                if node.star is not None:
                    below.append(node.star)
                if node.children is not None and (child := node.children.get(token)) is not None:
                    below.append(child)
            if not below:
                return
            level = below
        found.extend(node.leaf for node in level if node.leaf is not None)

    def _overlapping_leaves(self, tokens: list[bytes]) -> list[_Leaf[T]]:
        found: list[_Leaf[T]] = []
        level = [self._root]
        for token in tokens:
            if token == b">":
                below = [branch for node in level for branch in node.branches()]
                found.extend(node.tail for node in level if node.tail is not None)
                return found + _leaves_under(below)
            below = []
            for node in level:
                if node.tail is not None:
                    found.append(node.tail)
                if token == b"*":
                    below.extend(node.branches())
                    continue
                if node.star is not None:
                    below.append(node.star)
                if node.children is not None and (child := node.children.get(token)) is not None:
                    below.append(child)
            level = below
        found.extend(node.leaf for node in level if node.leaf is not None)
        return found


def _matched(leaves: list[_Leaf[T]]) -> Matched[T]:
    plain: list[T] = []
    queues: dict[bytes, list[T]] | None = None
    for leaf in leaves:
        if leaf.plain is not None:
            plain.extend(leaf.plain.items)
        if leaf.queues is not None:
            queues = {} if queues is None else queues
            for queue, group in leaf.queues.items():
                queues.setdefault(queue, []).extend(group.items)
    return Matched(plain, [] if queues is None else list(queues.items()))


def _leaves_under(nodes: list[_Node[T]]) -> list[_Leaf[T]]:
    """All leaves of these nodes and of what grows below them."""
    found: list[_Leaf[T]] = []
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        found.extend(leaf for leaf in (node.leaf, node.tail) if leaf is not None)
        waiting.extend(reversed(node.branches()))
    return found
