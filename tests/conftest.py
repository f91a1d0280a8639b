"""What all tests share: fixtures of real servers, no skipping on CI, and Hypothesis without a stop-watch."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.servers import edged_server, nats_server, real_server

__all__ = ["edged_server", "nats_server", "real_server"]

# A busy machine makes single examples slow; whether something is too slow is for the benchmarks to say. A
# failing example is printed in a form that replays it.
settings.register_profile("edged", deadline=None, print_blob=True)
# What `make check` takes. Examples are drawn anew in every run, and `make test` tries all of them.
settings.register_profile("fast", settings.get_profile("edged"), max_examples=25)
settings.load_profile("edged")


def pytest_collection_finish() -> None:
    """Modules stay until the end: the garbage collector need not look through them again and again."""
    gc.collect()
    gc.freeze()


def _fail_if_skipped_on_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    """On CI all is there that a test may need; what is missing is an error and not a reason to skip."""
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"nothing may be skipped when CI=true: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of each test."""
    report = yield
    _fail_if_skipped_on_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Of each module: it may skip as a whole."""
    report = yield
    _fail_if_skipped_on_ci(report)
    return report
