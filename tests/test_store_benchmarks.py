"""The store's benchmarks: figures say whether they are good enough, and what is measured is what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import store_append, store_publish, store_ready, store_wear
from benchmarks.store import main
from benchmarks.store_append import CommitLoop, InlineCommitter, ThreadCommitter
from benchmarks.store_disk import BareLog, disk_facts
from benchmarks.store_figures import Figure, at_least, at_most, pair_ratios, ratio, table
from benchmarks.store_load import STREAM, messages_of, open_store, recycle
from edged.committer import LocalCommitter
from edged.store.options import StoreOptions


def silent(what: str) -> None:
    """Progress that nobody looks at."""


def test_goals_are_met_at_their_bound_and_missed_beyond_it() -> None:
    assert at_least(0.6).is_met(0.6) and not at_least(0.6).is_met(0.59)
    assert at_most(1.6).is_met(1.6) and not at_most(1.6).is_met(1.61)


def test_figure_is_judged_by_its_median_not_by_its_luckiest_value() -> None:
    figure = Figure("append", "store", "of bare", (0.9, 0.5, 0.55), goal=at_least(0.6))
    assert figure.median == 0.55
    assert figure.is_met is False
    assert Figure("append", "store", "of bare", (0.1,)).is_met is None


def test_slices_are_compared_with_their_neighbours_of_the_bare_loop() -> None:
    # The disk became three times slower half-way: neither slice is blamed for it.
    assert pair_ratios([1.0, 1.0, 3.0], [2.0, 4.0]) == (0.5, 0.5)


def test_disk_that_became_slower_is_noticed_across_cases() -> None:
    cases = [
        Figure("append", case, "bare, a batch", values, "µs")
        for case, values in (("a", (2.0,)), ("b", (9.0, 3.0)))
    ]
    assert store_append.disk_change([*cases, Figure("append", "a", "of bare", (100.0,))]) == 4.5
    assert store_append.disk_change([]) == 1.0


def test_ratio_is_of_medians_and_has_the_case_it_is_given() -> None:
    slow, fast = Figure("ready", "a", "s", (4.0, 6.0, 5.0), "s"), Figure("ready", "b", "s", (2.5,), "s")
    compared = ratio("c", "speed", slow, fast, at_least(1.0))
    assert (compared.case, compared.values, compared.is_met) == ("c", (2.0,), True)


def test_table_shows_units_needs_and_verdicts_and_parts_the_parts() -> None:
    figures = [
        Figure("append", "store", "of bare", (0.5,), goal=at_least(0.6)),
        Figure("append", "store", "messages", (1234567.0, 1234569.0), "/s"),
        Figure("ready", "1", "RSS", (99.0,), "MiB", at_most(150)),
        Figure("ready", "1", "records", (1000.0,), "#"),
    ]
    lines = table(figures).splitlines()
    assert lines[2].split()[-3:] == ["≥", "0.60", "MISSED"]
    assert lines[3].split()[3:] == ["1,234,568/s", "1,234,567/s", "1,234,569/s", "2"]
    assert lines[4] == ""
    assert lines[5].split()[-4:] == ["≤", "150.0", "MiB", "met"]
    assert lines[6].split()[3:] == ["1,000", "1,000", "1,000", "1"]


def test_figure_is_written_to_json_with_all_its_values() -> None:
    document = Figure("ready", "1", "RSS", (3.0, 1.0, 2.0), "MiB", at_most(2.5)).document()
    assert json.loads(json.dumps(document)) == {
        "part": "ready",
        "case": "1",
        "figure": "RSS",
        "unit": "MiB",
        "median": 2.0,
        "values": [3.0, 1.0, 2.0],
        "needed": {"at_most": 2.5},
        "is_met": True,
    }


def test_telemetry_is_of_the_stated_size_compressible_and_the_same_every_time() -> None:
    made = store_wear.payloads(500)
    assert made == store_wear.payloads(500)
    assert all(250 <= len(payload) <= 500 for payload in made)
    assert len(set(made)) == 500


def test_messages_take_turns_among_their_subjects_wherever_they_begin() -> None:
    assert [message[0] for message in messages_of(3, 5, subjects=2, first=3)] == [
        b"bench.1",
        b"bench.0",
        b"bench.1",
    ]
    assert messages_of(1, 5)[0][3] == b"x" * 5


def test_bare_batch_has_as_many_bytes_as_the_journals(tmp_path: Path) -> None:
    loop = CommitLoop(open_store(tmp_path / "store"), InlineCommitter)
    messages = messages_of(store_append.BATCH_MESSAGES, store_append.PAYLOAD_BYTES)
    loop.run(messages, 3)
    before = loop.store.journal.end
    loop.run(messages, 1)
    # Numbers in the batch record have more digits in a journal that has been running for a while.
    assert 0 <= store_append.batch_bytes() - (loop.store.journal.end - before) <= 16
    loop.close()


def test_bare_log_turns_to_the_oldest_of_its_files(tmp_path: Path) -> None:
    log = BareLog(tmp_path / "bare", 4096, 1500)
    for _ in range(5):
        log.write(b"y" * 1500)
    log.close()
    names = sorted(path.name for path in (tmp_path / "bare").iterdir())
    assert names == ["00000003.log", "00000004.log", "00000005.log"]
    assert (tmp_path / "bare" / "00000005.log").read_bytes() == b"y" * 1500 + bytes(2596)


@pytest.mark.parametrize("kind", [LocalCommitter, InlineCommitter, ThreadCommitter])
def test_loop_around_a_committer_ends_when_everything_is_answered(
    tmp_path: Path, kind: type[LocalCommitter]
) -> None:
    loop = CommitLoop(open_store(tmp_path / "store"), kind)
    loop.run(messages_of(10, 100), 20)
    assert loop.store.stream(STREAM).log.message_count == 200
    loop.close()


def test_recycled_store_goes_on_in_a_file_that_was_in_use_before(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", options=StoreOptions(journal_file_bytes=1 << 18))
    recycle(store)
    names = [path.name for path in (tmp_path / "store" / "journal").iterdir()]
    assert any(name.startswith("spare-") for name in names)
    store.close()


@pytest.mark.slow
def test_every_way_to_append_is_measured(tmp_path: Path) -> None:
    plan = store_append.AppendPlan(slices=2, slice_batches=2, file_bytes=1 << 18)
    figures = list(store_append.measure(tmp_path, plan, silent))
    assert {figure.case for figure in figures} == set(store_append.CASES)
    assert all(value > 0 for figure in figures for value in figure.values)


@pytest.mark.real
@pytest.mark.slow
def test_publishes_are_measured_with_both_twins(tmp_path: Path) -> None:
    plan = store_publish.PublishPlan(1, 0.001, 1 << 20)
    figures = list(store_publish.measure(tmp_path, plan, silent))
    cases = len(store_publish.WINDOWS) * len(store_publish.PAYLOADS_BYTES) + len(store_publish.PAYLOADS_BYTES)
    assert len({figure.case for figure in figures}) == 2 * cases
    assert all(value > 0 for figure in figures for value in figure.values)


@pytest.mark.real
@pytest.mark.slow
def test_store_is_killed_and_all_its_messages_are_found_again(tmp_path: Path) -> None:
    plan = store_ready.ReadyPlan((3001, 6000), (7,), 1)
    figures = list(store_ready.measure(tmp_path, plan, None, silent))
    found = {(figure.case, figure.name): figure for figure in figures}
    # And one record for the stream itself.
    assert found["3,001 messages, 7 subjects", "records replayed"].values == (3002,)
    assert found["6,000 messages, 7 subjects", "times the smallest"].goal == at_most(store_ready.GROWTH_MAX)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
@pytest.mark.slow
def test_bytes_are_counted_by_the_store_and_by_the_system(tmp_path: Path) -> None:
    kept = store_wear.run(tmp_path / "keep", "keep", 2000)
    queued = store_wear.run(tmp_path / "queue", "queue, Expire", 2000)
    assert kept["message_bytes"] == queued["message_bytes"] > 2000 * 300
    for found in (kept, queued):
        assert found["message_bytes"] < found["store_bytes"] <= found["process_bytes"]
    assert kept["store_bytes"] < queued["store_bytes"]


@pytest.mark.real
@pytest.mark.slow
def test_run_prints_the_disk_and_the_table_and_cleans_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.json"
    folder = tmp_path / "folder"
    folder.mkdir()
    arguments = ["--part", "ready", "--quick", "--rounds", "1", "--messages", "2000"]
    assert main([*arguments, "--folder", str(folder), "--json", str(results), "--strict"]) == 0
    output = capsys.readouterr().out
    assert "fdatasync of 4 KiB" in output and "2,000 messages, 10 subjects" in output
    assert json.loads(results.read_text())["figures"][0]["part"] == "ready"
    assert list(folder.iterdir()) == []


def test_disk_is_named(tmp_path: Path) -> None:
    facts = disk_facts(tmp_path)
    assert facts.kind != "?" and 0 < facts.sync_p50_us <= facts.sync_p99_us
    assert list(tmp_path.iterdir()) == []
