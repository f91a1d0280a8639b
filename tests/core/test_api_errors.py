"""The table of JetStream API errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from edged.core import api_errors
from edged.core.api_errors import ApiError, ApiFailure

FIXED = {name: value for name, value in vars(api_errors).items() if isinstance(value, ApiError)}
OPEN: dict[str, Callable[..., ApiError]] = {
    name: value
    for name, value in vars(api_errors).items()
    if inspect.isfunction(value) and value.__module__ == api_errors.__name__ and not name.startswith("_")
}


def filled(make: Callable[..., ApiError]) -> ApiError:
    return make(*range(len(inspect.signature(make).parameters)))


def test_every_error_of_the_release_is_there_once() -> None:
    codes = [error.err_code for error in FIXED.values()] + [filled(make).err_code for make in OPEN.values()]

    # The first code was given up before the first release.
    assert sorted(codes) == list(range(10002, 10229))


def test_every_error_has_words_and_a_code_that_clients_know() -> None:
    for error in [*FIXED.values(), *map(filled, OPEN.values())]:
        assert error.code in (400, 404, 409, 412, 429, 500, 503), error
        assert error.description, error
        assert "{" not in error.description, error


@pytest.mark.parametrize(
    ("error", "document"),
    [
        (api_errors.STREAM_NOT_FOUND, (404, 10059, "stream not found")),
        (api_errors.stream_wrong_last_sequence(7), (400, 10071, "wrong last sequence: 7")),
        (api_errors.stream_invalid_config("no"), (500, 10052, "no")),
        (api_errors.invalid_json("{}"), (400, 10025, "invalid JSON: {}")),
        (
            api_errors.stream_external_api_overlap("{}", "b"),
            (400, 10021, "stream external api prefix {} must not overlap with b"),
        ),
        (
            api_errors.consumer_max_pending_ack_excess(5),
            (400, 10121, "consumer max ack pending exceeds system limit of 5"),
        ),
    ],
)
def test_the_words_have_in_them_what_they_are_given(error: ApiError, document: tuple[Any, ...]) -> None:
    assert tuple(error.document().values()) == document
    assert list(error.document()) == ["code", "err_code", "description"]


def test_a_failure_carries_its_error_and_reads_like_it() -> None:
    failure = ApiFailure(api_errors.STREAM_NOT_FOUND)

    assert failure.error is api_errors.STREAM_NOT_FOUND
    assert str(failure) == "stream not found"
