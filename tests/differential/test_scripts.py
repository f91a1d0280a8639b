"""Every script against nats-server and edged: the two must answer alike."""

from __future__ import annotations

import pytest

from tests.differential.allowed import kept_reason
from tests.differential.compare import difference
from tests.differential.library import cases
from tests.differential.pairs import Pairs, play
from tests.differential.steps import Case
from tests.servers import is_replaced

pytestmark = pytest.mark.real


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.slow] if case.header.slow else []
    reason = kept_reason(case.id)
    if reason is not None and not is_replaced("edged"):
        marks.append(pytest.mark.xfail(reason=reason, strict=True))
    return marks


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id, marks=_marks(case)) for case in cases()])
def test_edged_answers_as_nats_server_does(case: Case, pairs: Pairs) -> None:
    with pairs.of(case) as pair:
        reference, subject = play(case, pair)
        found = difference(reference, subject)
        if found is not None:
            pytest.fail(
                f"{case.id}\n{found}\n\nlog of {subject.server}:\n{pair.subject.log_tail()}", pytrace=False
            )
