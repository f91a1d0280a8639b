"""Passwords: plain and hashed, off the event loop, and no faster for users that do not exist."""

from typing import cast

import bcrypt
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.config.options import AccountOptions, Options, UserOptions
from edged.server import passwords
from edged.server.auth import Authenticator
from tests.examples import examples
from tests.server.logins import NOW_S, refused

HASHED = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HASHED, True),
        ("$2a$11$abc", True),
        ("$2x$11$", True),
        ("$2y$04$x", True),
        ("$2c$11$abc", False),
        ("$2a$1$abc", False),
        ("2a$11$abc", False),
        ("plain", False),
        ("", False),
    ],
)
def test_hash_is_told_by_its_prefix(text: str, expected: bool) -> None:
    assert passwords.is_bcrypt(text) == expected


async def test_plain_and_hashed_passwords_are_compared() -> None:
    limiter = passwords.new_limiter()
    for stored in ("secret", HASHED, "$2y$" + HASHED[4:]):
        assert await passwords.check("secret", stored, limiter)
        for wrong in ("", "Secret", "secret ", "secret\0", stored + "x"):
            assert not await passwords.check(wrong, stored, limiter)
    assert not await passwords.check(HASHED, HASHED, limiter)


async def test_text_that_only_looks_like_a_hash_matches_nothing() -> None:
    limiter = passwords.new_limiter()
    for stored in ("$2a$99$" + "a" * 53, "$2a$10$", "$2a$10$short"):
        for plain in ("", "secret", stored, "x" * 1000, "\ud800"):
            assert not await passwords.check(plain, stored, limiter)


async def test_only_the_first_72_bytes_of_a_hashed_password_count_in_every_library() -> None:
    stored = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    limiter = passwords.new_limiter()
    assert await passwords.check("x" * 72, stored, limiter)
    assert await passwords.check("x" * 100, stored, limiter)
    assert not await passwords.check("x" * 71, stored, limiter)


@given(st.text(max_size=20), st.text(max_size=20))
@settings(max_examples=examples(50))
def test_plain_comparison_is_equality(plain: str, stored: str) -> None:
    async def compare() -> bool:
        return await passwords.check(plain, stored, passwords.new_limiter())

    if not passwords.is_bcrypt(stored):
        assert trio.run(compare) == (plain == stored)


def test_decoy_costs_as_much_as_the_costliest_password() -> None:
    stored = ["plain", HASHED, "$2a$12$" + HASHED[7:]]
    decoy = passwords.decoy_for(stored)
    assert decoy.startswith("$2b$12$")
    assert len(decoy) == len(HASHED)
    assert not passwords.is_bcrypt(passwords.decoy_for(["plain"]))
    bcrypt.checkpw(b"anything", passwords.decoy_for([HASHED]).encode())


class CountingLimiter:
    """A limiter that counts how often a thread was asked for, and how many at once.

    Trio takes any object with these two methods for a limiter.
    """

    def __init__(self, tokens: int) -> None:
        self._limiter = trio.CapacityLimiter(tokens)
        self.started = 0
        self.highest = 0

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._limiter.acquire_on_behalf_of(borrower)
        self.started += 1
        self.highest = max(self.highest, int(self._limiter.borrowed_tokens))

    def release_on_behalf_of(self, borrower: object) -> None:
        self._limiter.release_on_behalf_of(borrower)


def hashed_and_plain(limiter: CountingLimiter) -> Authenticator:
    users = (UserOptions("hashed", HASHED), UserOptions("plain", "secret"))
    options = Options(accounts=(AccountOptions("A", users=users),))
    return Authenticator(options, now_s=NOW_S, limiter=cast(trio.CapacityLimiter, limiter))


@pytest.mark.parametrize("user", ["hashed", "plain", "unknown"])
async def test_username_timing_every_refusal_takes_one_round_of_bcrypt(user: str) -> None:
    limiter = CountingLimiter(2)
    await refused(hashed_and_plain(limiter), user=user, password="wrong")
    assert limiter.started == 1


async def test_flood_of_failed_logins_keeps_the_loop_free_and_the_threads_few() -> None:
    limiter = CountingLimiter(passwords.BCRYPT_THREADS_MAX)
    authenticator = hashed_and_plain(limiter)
    turns = 0

    async def attempts() -> None:
        for _ in range(10):
            await refused(authenticator, user="hashed", password="wrong")

    async with trio.open_nursery() as outer:

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        outer.start_soon(count_turns)
        async with trio.open_nursery() as flood:
            for _ in range(20):
                flood.start_soon(attempts)
        outer.cancel_scope.cancel()
    assert limiter.started == 200
    assert limiter.highest <= passwords.BCRYPT_THREADS_MAX
    assert turns > 200
