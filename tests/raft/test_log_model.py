"""The log against a list of entries, one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from hub.raft.log import Log, Recovered
from hub.raft.members import Members
from hub.raft.messages import Block

MARK_BYTES = 10
BASE_MEMBERS = Members(frozenset((1,)))
STEPS = ("append", "append", "members", "truncate", "commit", "forget", "reset")


def log_of(terms: list[int]) -> Log:
    """A log with entries of these terms."""
    return Log(Recovered(0, 0, BASE_MEMBERS, tuple(Block(i, 1, term, 1) for i, term in enumerate(terms, 1))))


@dataclass
class NaiveLog:
    """Everything as a list: (term, size, members) per entry."""

    base_index: int = 0
    base_term: int = 0
    members: Members = BASE_MEMBERS
    entries: list[tuple[int, int, Members | None]] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.base_index + len(self.entries)

    def term(self, index: int) -> int | None:
        if index == self.base_index:
            return self.base_term
        if not self.base_index < index <= self.last:
            return None
        return self.entries[index - self.base_index - 1][0]

    def known_term(self, index: int) -> int:
        term = self.term(index)
        assert term is not None
        return term

    def members_at(self, index: int) -> Members:
        named = [one[2] for one in self.entries[: index - self.base_index] if one[2] is not None]
        return named[-1] if named else self.members

    def last_not_above(self, index: int, term: int) -> int:
        fitting = [
            place
            for place in range(self.base_index + 1, min(index, self.last) + 1)
            if self.known_term(place) <= term
        ]
        return max(fitting, default=self.base_index)

    def agrees_to(self, first: int, last: int, term: int) -> int:
        agreed = first - 1
        while agreed < last and self.term(agreed + 1) == term:
            agreed += 1
        return agreed

    def forget(self, index: int) -> None:
        self.members = self.members_at(index)
        term = self.known_term(index)
        del self.entries[: index - self.base_index]
        self.base_index, self.base_term = index, term


def check_reading(log: Log, naive: NaiveLog) -> None:
    assert (log.base_index, log.base_term, log.last) == (naive.base_index, naive.base_term, naive.last)
    assert log.last_term == naive.known_term(naive.last)
    assert log.members == naive.members_at(naive.last)
    named = [place for place, one in enumerate(naive.entries, naive.base_index + 1) if one[2] is not None]
    assert log.change_index == (named[-1] if named else naive.base_index)
    after = [naive.members_at(place) for place in named if place > log.commit]
    assert log.possible_members == [naive.members_at(log.commit), *after]
    for index in range(naive.base_index, naive.last + 1):
        assert log.members_at(index) == naive.members_at(index)
    for index in range(max(0, naive.base_index - 2), naive.last + 3):
        assert log.term(index) == naive.term(index)
        for term in range(naive.known_term(naive.last) + 2):
            assert log.last_not_above(index, term) == naive.last_not_above(index, term)
    assert log.base_index <= log.stable <= log.last
    assert log.base_index <= log.commit <= log.last


def check_agreement(log: Log, naive: NaiveLog, data: st.DataObject) -> None:
    first = data.draw(st.integers(naive.base_index + 1, naive.last + 1))
    last = data.draw(st.integers(first, first + 6))
    term = data.draw(st.integers(1, naive.known_term(naive.last) + 1))
    # Terms never fall in a leader's log either: a block of an earlier term cannot follow on a later one.
    assert log.agrees_to(first, last, term) == naive.agrees_to(first, last, term)


def check_taking(log: Log, naive: NaiveLog, data: st.DataObject) -> None:
    if naive.last == naive.base_index:
        return
    first = data.draw(st.integers(naive.base_index + 1, naive.last))
    bytes_max = data.draw(st.integers(0, 60))
    blocks = log.take(first, bytes_max)
    assert blocks and blocks[0].first == first
    index = first
    for block in blocks:
        assert block.first == index
        for index in range(block.first, block.last + 1):
            term, _, members = naive.entries[index - naive.base_index - 1]
            assert (block.term, block.members) == (term, members)
        index += 1
    # Sizes are known up to a mark, and a mark lies at most one block behind its place.
    if len(blocks) > 1 or blocks[0].count > 1:
        places = slice(first - naive.base_index - 1, blocks[-1].last - naive.base_index)
        taken = sum(one[1] for one in naive.entries[places])
        assert taken <= bytes_max + 2 * (MARK_BYTES + 20)
    assert log.take(first, 10**9)[-1].last == naive.last


@given(st.data())
def test_the_log_says_what_a_list_of_its_entries_says(data: st.DataObject) -> None:
    naive = NaiveLog(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 1)))
    log = Log(Recovered(naive.base_index, naive.base_term, naive.members), MARK_BYTES)
    for _ in range(data.draw(st.integers(1, 20))):
        step = data.draw(st.sampled_from(STEPS))
        term = max(1, log.last_term) + data.draw(st.integers(0, 1))
        if step == "append":
            count, size = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 20))
            log.append(Block(log.last + 1, count, term, size))
            naive.entries.extend((term, size if place == 0 else 0, None) for place in range(count))
        elif step == "members":
            members = Members(frozenset((data.draw(st.integers(1, 9)),)))
            log.append(Block(log.last + 1, 1, term, 0, members))
            naive.entries.append((term, 0, members))
        elif step == "truncate" and log.last > log.commit:
            index = data.draw(st.integers(log.commit + 1, log.last))
            log.truncate(index)
            del naive.entries[index - naive.base_index - 1 :]
        elif step == "commit":
            log.stable = log.last
            log.commit = data.draw(st.integers(log.commit, log.last))
        elif step == "forget":
            index = data.draw(st.integers(log.base_index, log.commit))
            log.forget(index)
            naive.forget(index)
        elif step == "reset":
            index = log.commit + data.draw(st.integers(1, 5))
            log.reset(index, term, BASE_MEMBERS)
            naive = NaiveLog(index, term, BASE_MEMBERS)
        check_reading(log, naive)
        check_agreement(log, naive, data)
        check_taking(log, naive, data)


@given(st.lists(st.integers(1, 5), max_size=12), st.lists(st.integers(1, 5), max_size=12))
def test_two_logs_find_where_they_agree_by_hints_in_few_questions(ours: list[int], theirs: list[int]) -> None:
    """By turns each names its last place not above the other's, and that ends where they agree or lower."""
    leader, follower = log_of(sorted(ours)), log_of(sorted(theirs))
    previous, questions = leader.last, 0
    while follower.term(previous) != leader.term(previous):
        hint = follower.last_not_above(previous, leader.term(previous) or 0)
        following = leader.last_not_above(hint, follower.term(hint) or 0)
        assert following < previous
        previous = following
        questions += 1
    assert questions <= 6
    # Nothing that they have in common is passed over.
    common = 0
    while leader.term(common + 1) is not None and leader.term(common + 1) == follower.term(common + 1):
        common += 1
    assert previous >= common


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=2, max_size=2))
def test_which_of_two_logs_is_more_complete_is_a_matter_of_the_last_term_and_then_of_length(
    ends: list[tuple[int, int]],
) -> None:
    one, other = (log_of([term] * count if term else []) for term, count in ends)
    key_one, key_other = (one.last_term, one.last), (other.last_term, other.last)
    assert one.is_behind(other.last, other.last_term) == (key_other >= key_one)
    assert one.is_behind(one.last, one.last_term)


def test_a_log_is_recovered_with_what_was_applied_committed_and_everything_durable() -> None:
    log = Log(Recovered(4, 2, BASE_MEMBERS, (Block(5, 3, 2, 9), Block(8, 1, 3, 1)), applied=6))
    assert (log.base_index, log.commit, log.stable, log.last, log.last_term) == (4, 6, 8, 8, 3)


def test_memory_does_not_grow_with_the_number_of_entries() -> None:
    log = Log(Recovered(0, 0, BASE_MEMBERS))
    for _ in range(2000):
        log.append(Block(log.last + 1, 1000, 1, 10))
    lists = [value for value in vars(log).values() if isinstance(value, list)]
    assert sum(map(len, lists)) < 10
    assert log.last == 2_000_000
