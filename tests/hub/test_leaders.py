"""What a node knows of who leads."""

from __future__ import annotations

from hub.leaders import Leaders


def test_word_of_a_later_term_counts() -> None:
    told: list[int] = []
    leaders = Leaders(told.append)
    assert leaders.hear(7, 3, 1)
    assert not leaders.hear(7, 2, 2)
    assert leaders.leader(7) == 1
    assert leaders.hear(7, 4, 2)
    assert (leaders.leader(7), told) == (2, [7, 7])


def test_second_leader_of_a_term_is_not_believed() -> None:
    leaders = Leaders(lambda group: None)
    leaders.hear(7, 3, 1)
    assert not leaders.hear(7, 3, 2)
    assert leaders.leader(7) == 1


def test_leader_that_is_out_of_reach_leads_nothing_until_it_says_so_again() -> None:
    told: list[int] = []
    leaders = Leaders(told.append)
    leaders.hear(7, 3, 1)
    leaders.hear(8, 1, 2)
    leaders.lost(1)
    assert (leaders.leader(7), leaders.leader(8)) == (0, 2)
    assert leaders.hear(7, 3, 1)
    assert (leaders.leader(7), told) == (1, [7, 8, 7, 7])


def test_groups_of_a_node_are_listed_with_their_terms() -> None:
    leaders = Leaders(lambda group: None)
    leaders.hear(7, 3, 1)
    leaders.hear(8, 1, 2)
    leaders.hear(9, 5, 1)
    leaders.forget(9)
    assert leaders.led_by(1) == [(7, 3)]
    assert leaders.groups() == [7, 8]
