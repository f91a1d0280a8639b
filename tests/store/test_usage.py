"""Usage by stream and account: always the sum of its parts, and exactly back from a snapshot."""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.store.errors import StoreFull
from edged.store.usage import AccountFull, Accounts, Usage, UsageLimits

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("open", "close", "add", "remove", "reserve")),
        st.sampled_from("AB"),
        st.sampled_from("xyz"),
        st.integers(0, 100),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_counts_agree_with_a_naive_sum_after_any_steps(steps: list[tuple[str, str, str, int]]) -> None:
    accounts = Accounts()
    model: dict[tuple[str, str], list[int]] = {}
    for what, account, stream, size in steps:
        counted = model.get((account, stream))
        if counted is None:
            if what == "open":
                accounts.open_stream(account, stream, size)
                model[account, stream] = [0, 0, size]
        elif what == "close":
            closed = accounts.close_stream(account, stream)
            assert [closed.messages, closed.bytes, closed.reserved_bytes] == model.pop((account, stream))
        elif what == "reserve":
            accounts.reserve(account, stream, size)
            counted[2] = size
        elif what == "add":
            accounts.add(account, stream, 1, size)
            counted[0] += 1
            counted[1] += size
        elif what == "remove" and counted[0] and counted[1] >= size:
            accounts.remove(account, stream, 1, size)
            counted[0] -= 1
            counted[1] -= size
    for account in "AB":
        streams = [counted for key, counted in model.items() if key[0] == account]
        assert accounts.account(account) == Usage(*(sum(one[part] for one in streams) for part in range(3)))
        assert accounts.stream_count(account) == len(streams)
    assert accounts.total == Usage(*(sum(one[part] for one in model.values()) for part in range(3)))
    restored = Accounts()
    restored.restore(msgpack.unpackb(msgpack.packb(accounts.snapshot())))
    assert restored.snapshot() == accounts.snapshot()
    assert restored.total == accounts.total
    assert all(restored.account(account) == accounts.account(account) for account in "AB")


def test_restore_replaces_what_was_counted_and_keeps_limits() -> None:
    accounts = Accounts()
    accounts.set_limits("A", UsageLimits(bytes_max=5))
    accounts.open_stream("B", "y")
    snapshot: dict[str, Any] = {"A": {"x": [1, 9, 0]}}
    accounts.restore(snapshot)
    assert accounts.total == Usage(1, 9, 0)
    assert accounts.stream_count("B") == 0
    with pytest.raises(AccountFull):
        accounts.check("A", "x", 1)


def test_bytes_beyond_a_limit_of_the_account_are_refused_and_nothing_is_counted() -> None:
    accounts = Accounts()
    accounts.set_limits("A", UsageLimits(bytes_max=100, stream_bytes_max=60))
    accounts.open_stream("A", "x")
    accounts.open_stream("A", "y")
    accounts.check("A", "x", 60)
    with pytest.raises(AccountFull, match="a stream of the account may store 60 bytes"):
        accounts.check("A", "x", 61)
    accounts.add("A", "x", 1, 60)
    accounts.check("A", "y", 40)
    with pytest.raises(AccountFull, match="the account may store 100 bytes"):
        accounts.check("A", "y", 41)
    accounts.remove("A", "x", 1, 60)
    accounts.check("A", "y", 60)
    assert accounts.account("A") == Usage()


def test_account_without_limits_takes_everything() -> None:
    accounts = Accounts()
    accounts.open_stream("A", "x")
    accounts.check("A", "x", 2**60)


def test_number_of_streams_is_limited_and_a_closed_one_makes_room() -> None:
    accounts = Accounts()
    accounts.set_limits("A", UsageLimits(streams_max=1))
    accounts.open_stream("A", "x")
    with pytest.raises(AccountFull, match="may have 1 streams"):
        accounts.open_stream("A", "y")
    accounts.open_stream("B", "y")
    accounts.close_stream("A", "x")
    accounts.open_stream("A", "y")


def test_reservations_are_bounded_by_stream_account_and_store() -> None:
    accounts = Accounts(bytes_max=150)
    accounts.set_limits("A", UsageLimits(bytes_max=100, stream_bytes_max=80))
    accounts.open_stream("A", "x", 50)
    with pytest.raises(AccountFull, match="a stream of the account may store 80"):
        accounts.reserve("A", "x", 90)
    accounts.reserve("A", "x", 80)
    with pytest.raises(AccountFull, match="may reserve 100 bytes"):
        accounts.open_stream("A", "y", 21)
    assert accounts.stream_count("A") == 1
    with pytest.raises(StoreFull, match="150 bytes together") as caught:
        accounts.open_stream("B", "z", 71)
    assert not isinstance(caught.value, AccountFull)
    accounts.open_stream("B", "z", 70)
    accounts.reserve("A", "x", 10)
    assert accounts.total.reserved_bytes == 80


def test_removing_more_than_there_is_is_our_fault() -> None:
    accounts = Accounts()
    accounts.open_stream("A", "x")
    with pytest.raises(AssertionError):
        accounts.remove("A", "x", 1, 0)
