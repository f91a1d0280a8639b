"""Usage by stream and account: always the sum of its parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.store.usage import AccountFull, Accounts, Usage

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("open", "close", "add", "remove")),
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
                accounts.open_stream(account, stream)
                model[account, stream] = [0, 0]
        elif what == "close":
            closed = accounts.close_stream(account, stream)
            assert [closed.messages, closed.bytes] == model.pop((account, stream))
        elif what == "add":
            accounts.change(account, stream, 1, size)
            counted[0] += 1
            counted[1] += size
        elif what == "remove" and counted[0] and counted[1] >= size:
            accounts.change(account, stream, -1, -size)
            counted[0] -= 1
            counted[1] -= size
    for account in "AB":
        streams = [counted for key, counted in model.items() if key[0] == account]
        assert accounts.account(account) == Usage(*(sum(one[part] for one in streams) for part in range(2)))
    assert accounts.total == Usage(*(sum(one[part] for one in model.values()) for part in range(2)))


def test_bytes_beyond_the_limit_of_the_account_are_refused_and_nothing_is_counted() -> None:
    accounts = Accounts()
    accounts.set_bytes_max("A", 100)
    accounts.open_stream("A", "x")
    accounts.open_stream("A", "y")
    accounts.check("A", 100)
    accounts.change("A", "x", 1, 60)
    accounts.check("A", 40)
    with pytest.raises(AccountFull, match="the account may store 100 bytes"):
        accounts.check("A", 41)
    assert accounts.account("A") == Usage(1, 60)
    accounts.change("A", "x", -1, -60)
    accounts.check("A", 100)
    assert accounts.account("A") == Usage()


def test_a_limit_below_what_is_stored_keeps_it_and_refuses_more() -> None:
    accounts = Accounts()
    accounts.open_stream("A", "x")
    accounts.change("A", "x", 1, 9)
    accounts.set_bytes_max("A", 5)
    assert accounts.account("A") == Usage(1, 9)
    with pytest.raises(AccountFull):
        accounts.check("A", 1)


@pytest.mark.parametrize("bytes_max", [None, -1])
def test_account_without_a_limit_takes_everything(bytes_max: int | None) -> None:
    accounts = Accounts()
    accounts.open_stream("A", "x")
    if bytes_max is not None:
        accounts.set_bytes_max("A", bytes_max)
    accounts.check("A", 2**60)


def test_removing_more_than_there_is_is_our_fault() -> None:
    accounts = Accounts()
    accounts.open_stream("A", "x")
    with pytest.raises(AssertionError):
        accounts.change("A", "x", -1, 0)
