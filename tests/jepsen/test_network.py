"""Partitions are real: what is cut off hears nothing, in silence, and hears again when it is healed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.disks.loop_filesystem import run_isolated
from tests.disks.needs import needs_filesystems
from tests.jepsen.cluster import Plan
from tests.jepsen.network import check_possible
from tests.jepsen.rounds import Course, course_for

ALL = ["12", "13", "21", "23", "31", "32"]


@pytest.mark.real
@needs_filesystems
def test_programs_that_make_namespaces_are_installed() -> None:
    check_possible()


@pytest.mark.real
@pytest.mark.slow
@needs_filesystems
def test_parts_hear_nothing_of_each_other_until_they_are_healed() -> None:
    before = links_of_this_machine()
    done = run_isolated((), 60, module="tests.jepsen.network_trial", has_network=True)
    assert done.returncode == 0, done.stdout
    steps = json.loads(done.stdout)
    assert steps == {
        "whole": ALL,
        "one apart": ["23", "32"],
        "another apart": ["12", "21"],
        "healed": ALL,
        # A connection needs both ways, so none of the two can make one.
        "one way": ["13", "23", "31", "32"],
        "namespaces left": [],
    }
    assert links_of_this_machine() == before


def links_of_this_machine() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


def test_scenario_says_what_it_needs_unless_told_otherwise() -> None:
    course = Course("power-cut-all", Plan("nats-server"), seed=1)
    plan = course_for(course, None, None, None).plan
    assert (plan.nodes, plan.replicas, plan.filesystem) == (3, 3, "ext4")
    plan = course_for(course, 5, None, "xfs").plan
    assert (plan.nodes, plan.replicas, plan.filesystem) == (5, 5, "xfs")
    plan = course_for(Course("membership", Plan("nats-server"), seed=1), None, None, None).plan
    assert (plan.nodes, plan.replicas, plan.filesystem) == (5, 3, None)
