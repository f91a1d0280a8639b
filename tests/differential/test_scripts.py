"""Every script against nats-server and edged: the two must answer alike."""

from __future__ import annotations

import pytest

from tests.differential.compare import difference
from tests.differential.library import cases
from tests.differential.pairs import Pairs, play
from tests.differential.steps import Case

pytestmark = pytest.mark.real


def _parameters() -> list[object]:
    return [
        pytest.param(case, id=case.id, marks=[pytest.mark.slow] if case.header.slow else [])
        for case in cases()
    ]


@pytest.mark.parametrize("case", _parameters())
def test_edged_answers_as_nats_server_does(case: Case, pairs: Pairs) -> None:
    with pairs.of(case) as pair:
        reference, subject = play(case, pair)
        found = difference(reference, subject)
        if found is not None:
            pytest.fail(
                f"{case.id}\n{found}\n\nlog of {subject.server}:\n{pair.subject.log_tail()}", pytrace=False
            )
