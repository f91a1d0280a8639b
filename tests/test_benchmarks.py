"""The benchmarks measure what they say: counts are exact, losses show, ratios point the right way."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import failover, report
from benchmarks.command import main
from benchmarks.generator.process import Limit, Worker
from benchmarks.generator.requester import (
    REPLY_SUBJECT,
    REQUEST_SUBJECT,
    STOP_SUBJECT,
    RequestPlan,
    run_pinger,
    run_responder,
)
from benchmarks.generator.subscriber import Expect, Received, SubscriberPlan, Subscription, run_subscriber
from benchmarks.latency import Latency, latency_of
from benchmarks.profiling import profile_path, profiled
from benchmarks.results import Headline, Measurement, Outcome, Summary, summarise
from benchmarks.servers import REFERENCE, find_kinds
from benchmarks.wire import (
    PING,
    PONG,
    Endpoint,
    FixedFrames,
    GeneratorError,
    barrier,
    delivered_frame,
    publish_frame,
)
from benchmarks.workloads.registry import WORKLOADS

FRAME = delivered_frame(b"bench.a", b"1", b"0123")
NATS_SERVER = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which(
    "nats-server"
)
needs_nats_server = pytest.mark.skipif(NATS_SERVER is None, reason="nats-server is not installed")


def test_frames_are_those_of_the_protocol() -> None:
    assert publish_frame(b"a.b", b"xyz") == b"PUB a.b 3\r\nxyz\r\n"
    assert publish_frame(b"a.b", b"xyz", b"r") == b"PUB a.b r 3\r\nxyz\r\n"
    assert (
        publish_frame(b"a", b"xyz", header=b"NATS/1.0\r\n\r\n") == b"HPUB a 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n"
    )
    assert delivered_frame(b"a.b", b"1", b"xyz") == b"MSG a.b 1 3\r\nxyz\r\n"
    assert delivered_frame(b"a.b", b"1", b"xyz", b"r") == b"MSG a.b 1 r 3\r\nxyz\r\n"


def test_frames_cut_at_every_byte_and_mixed_with_pings_are_counted_exactly() -> None:
    stream = PING + FRAME + FRAME + PING + FRAME
    for cut in range(len(stream) + 1):
        frames = FixedFrames(len(FRAME))
        assert frames.feed(stream[:cut]) + frames.feed(stream[cut:]) == 3, cut


def test_chunk_with_a_ping_that_is_as_long_as_whole_frames_is_not_taken_for_them() -> None:
    stream = PING + FRAME + FRAME
    frames = FixedFrames(len(FRAME))
    assert [frames.feed(stream[: 2 * len(FRAME)]), frames.feed(stream[2 * len(FRAME) :])] == [1, 1]


@pytest.mark.parametrize("answer", [PONG + PING, PING + PONG, PING + PONG + PING])
def test_barrier_ends_wherever_the_server_pings_around_its_pong(answer: bytes) -> None:
    client, server = socket.socketpair()
    with client, server:
        client.settimeout(2)
        server.sendall(FRAME + answer)
        assert barrier(client).replace(PING, b"") == FRAME


def test_latency_percentiles_are_measured_values() -> None:
    assert latency_of(range(1000, 1_001_000, 1000)) == Latency(500.0, 990.0, 999.0)
    assert latency_of([7000]) == Latency(7.0, 7.0, 7.0)


def measurements_of(workload: str, figures: dict[str, list[Outcome]]) -> list[Measurement]:
    return [
        Measurement(workload, server, number, outcome, None, 0.0)
        for server, outcomes in figures.items()
        for number, outcome in enumerate(outcomes, 1)
    ]


def outcome_of(count: int, rss_bytes: int = 1) -> Outcome:
    return Outcome(count=count, seconds=2.0, server_cpu_s=1.0, rss_bytes=rss_bytes)


def test_rates_are_compared_by_their_medians_and_more_is_better() -> None:
    figures = {
        "edged": [outcome_of(600), outcome_of(90_000), outcome_of(300)],
        REFERENCE: [outcome_of(200), outcome_of(1), outcome_of(200)],
    }
    edged, reference = summarise("pub_only", Headline.RATE, measurements_of("pub_only", figures), REFERENCE)
    assert (edged.rate, reference.rate) == (300.0, 100.0)
    assert edged.ratio == pytest.approx(3.0)
    assert edged.cpu_ratio == pytest.approx(3.0)
    assert reference.ratio is None


def test_less_memory_than_nats_server_is_a_ratio_above_one() -> None:
    figures = {"edged": [outcome_of(0, rss_bytes=10)], REFERENCE: [outcome_of(0, rss_bytes=40)]}
    edged, _ = summarise("idle_rss", Headline.RSS, measurements_of("idle_rss", figures), REFERENCE)
    assert edged.ratio == pytest.approx(4.0)
    assert edged.rate is None


def test_failed_and_lossy_and_noisy_measurements_are_named_under_the_table() -> None:
    lossy = Outcome(count=90, seconds=1.0, server_cpu_s=0.5, rss_bytes=1, lost=10)
    measurements = [
        Measurement("pub_sub_1", "edged", 1, lossy, None, foreign_cores=1.5),
        Measurement("pub_sub_1", REFERENCE, 1, None, "ServerError: gone", foreign_cores=0.0),
    ]
    summaries = summarise("pub_sub_1", Headline.RATE, measurements, REFERENCE)
    text = "\n".join(report.notes(summaries, measurements))
    assert "edged lost 10 in pub_sub_1" in text
    assert "pub_sub_1 failed with nats-server in round 1: ServerError: gone" in text
    assert "1.5 cores" in text


def test_table_has_a_line_for_every_summary() -> None:
    figures = {"edged": [outcome_of(600)], REFERENCE: [outcome_of(300)]}
    summaries: list[Summary] = summarise(
        "pub_only", Headline.RATE, measurements_of("pub_only", figures), REFERENCE
    )
    lines = report.table(summaries, {"pub_only": Headline.RATE}).splitlines()
    assert len(lines) == 4
    assert lines[2].split()[:3] == ["pub_only", "edged", "300/s"]
    assert lines[2].split()[-2:] == ["2.00", "2.00"]


def test_program_that_is_not_there_is_refused_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["--servers", "edged", "--edged", "/nowhere/edged"])
    assert ending.value.code == 2
    assert "no program /nowhere/edged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--servers", "rabbit"], ["--servers", "edged,edged"], ["--rounds", "0"], ["--workload", "nothing"]],
)
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    assert ending.value.code == 2
    assert "error" in capsys.readouterr().err


def test_variant_alone_decides_which_twin_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGED_PURE", "1")
    native, pure = find_kinds(["edged", "edged-pure"], {"edged": sys.executable})
    assert "EDGED_PURE" not in native.environ()
    assert pure.environ()["EDGED_PURE"] == "1"


def test_profile_is_named_after_workload_and_server() -> None:
    assert profile_path(Path("o/out.svg"), "pub_only", "edged") == Path("o/out-pub_only-edged.svg")


@contextmanager
def server_that_delivers(stream: bytes, answer: bytes = PONG) -> Iterator[tuple[Endpoint, threading.Event]]:
    """A server for one connection, which answers every PING, and sends the stream once the event is set."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"INFO {}\r\n")
            while chunk := connection.recv(65536):
                connection.sendall(answer * chunk.count(PING))
                if b"SUB " in chunk:
                    is_ready.wait()
                    connection.sendall(stream)

    is_ready = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Endpoint("127.0.0.1", listener.getsockname()[1]), is_ready
        finally:
            is_ready.set()
            thread.join()


def receive(stream: bytes, messages: int) -> Received:
    with server_that_delivers(stream) as (endpoint, is_ready):
        plan = SubscriberPlan(endpoint, (Subscription(b"bench.a", b"bench.a"),), b"0123", b"")
        with Worker(run_subscriber, plan) as subscriber:
            subscriber.wait_ready()
            is_ready.set()
            subscriber.say(Expect(messages, patience_s=0.2))
            return subscriber.result()


@pytest.mark.real
def test_subscriber_counts_messages_and_leaves_pings_out() -> None:
    received = receive(FRAME * 3 + PING + FRAME * 4, messages=7)
    assert (received.messages, received.connections_lost) == (7, 0)


@pytest.mark.real
@pytest.mark.parametrize("ending", [b"", PING], ids=["stop", "stop and ping"])
def test_responder_stops_when_told_even_if_the_server_pings_after_it(ending: bytes) -> None:
    request = delivered_frame(REQUEST_SUBJECT, b"1", b"0123456789", REPLY_SUBJECT)
    stop = delivered_frame(STOP_SUBJECT, b"2", b"")
    with server_that_delivers(request * 3 + stop + ending) as (endpoint, is_ready):
        plan = RequestPlan(endpoint, b"0123456789", 1, Limit(None, 1))
        with Worker(run_responder, plan) as responder:
            responder.wait_ready()
            is_ready.set()
            assert responder.result() >= 0


@pytest.mark.real
def test_pinger_takes_the_pong_although_the_server_pings_after_it() -> None:
    with (
        server_that_delivers(b"", answer=PONG + PING) as (endpoint, _),
        Worker(run_pinger, RequestPlan(endpoint, b"", 1, Limit(None, 10))) as pinger,
    ):
        pinger.say()
        pinger.wait_ready()
        pinger.say()
        assert pinger.result().count == 10


@pytest.mark.real
def test_subscriber_reports_what_did_not_come() -> None:
    assert receive(FRAME * 5, messages=7).messages == 5


@pytest.mark.real
@pytest.mark.parametrize(
    "stream",
    [FRAME * 8, FRAME * 7 + b"x", FRAME.replace(b"0123", b"9999") * 7],
    ids=["dupe", "rest", "content"],
)
def test_subscriber_refuses_what_was_not_published(stream: bytes) -> None:
    with pytest.raises(GeneratorError):
        receive(stream, messages=7)


@pytest.mark.real
@needs_nats_server
@pytest.mark.parametrize("workload", ["pub_sub_1", "request_reply_64"])
def test_workload_of_exactly_so_many_messages_loses_none(workload: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    arguments = ["--quick", "--servers", REFERENCE, "--messages", "3001", "--json", str(path)]
    assert main([*arguments, "--workload", workload]) == 0
    (measurement,) = json.loads(path.read_text())["measurements"]
    assert measurement["outcome"]["count"] == 3001
    assert measurement["outcome"]["lost"] == 0


@pytest.mark.real
@pytest.mark.slow
@needs_nats_server
def test_every_workload_gives_a_result_and_the_plot_a_picture(tmp_path: Path) -> None:
    """nats-server takes both parts, so that this needs no other server and the ratios are about 1."""
    results, picture = tmp_path / "results.json", tmp_path / "ratios.png"
    assert NATS_SERVER is not None
    arguments = ["--quick", "--servers", f"edged,{REFERENCE}", "--edged", NATS_SERVER]
    arguments += ["--seconds", "0.1", "--connections", "50", "--json", str(results), "--plot", str(picture)]
    assert main(arguments) == 0
    document = json.loads(results.read_text())
    assert [summary["workload"] for summary in document["summaries"]] == [
        name for name, workload in WORKLOADS.items() if not workload.is_jetstream for _ in range(2)
    ]
    assert all(measurement["error"] is None for measurement in document["measurements"])
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.real
@pytest.mark.slow
@needs_nats_server
def test_workloads_of_streams_count_every_acknowledgement_and_answer(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    names = ["js_w1_128B_1c_1s", "js_w64_1KiB_8c_20s", "js_kv", "js_direct_get", "js_memory_1M"]
    arguments = ["--quick", "--servers", f"edged,edged-os,{REFERENCE},nats-server-always"]
    arguments += ["--messages", "400", "--json", str(path), "--workload", *names]
    assert main(arguments) == 0
    measurements = json.loads(path.read_text())["measurements"]
    assert len(measurements) == 4 * len(names)
    assert {measurement["outcome"]["count"] for measurement in measurements} == {400}


@pytest.mark.real
@pytest.mark.slow
@needs_nats_server
def test_workloads_of_clusters_count_every_acknowledgement_and_all_nodes(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    arguments = [
        "--quick",
        "--servers",
        REFERENCE,
        "--messages",
        "400",
        "--seconds",
        "0.5",
        "--json",
        str(path),
    ]
    assert main([*arguments, "--workload", "cluster_w64_128B", "cluster_consume", "cluster_idle"]) == 0
    publish, consume, idle = (one["outcome"] for one in json.loads(path.read_text())["measurements"])
    assert 0 < publish["count"] <= 400
    assert consume["count"] == 5000
    assert idle["count"] == 0
    # Three servers have more memory than one of them could.
    assert publish["rss_bytes"] > 30 << 20


@pytest.mark.real
@pytest.mark.slow
@needs_nats_server
def test_publishes_succeed_again_after_the_leader_was_killed(capsys: pytest.CaptureFixture[str]) -> None:
    assert failover.main(["--server", REFERENCE, "--rounds", "1"]) == 0
    assert "nats-server: rounds=1 min=" in capsys.readouterr().out


def test_percentiles_of_outages_are_measured_values() -> None:
    figures = [float(number) for number in range(1, 51)]
    assert [failover.percentile(figures, share) for share in (0.5, 0.95, 1.0)] == [25.0, 48.0, 50.0]
    assert failover.percentile([7.0], 0.95) == 7.0


def test_less_processor_time_of_an_idle_cluster_is_a_ratio_above_one() -> None:
    figures = {"edged-hub": [outcome_of(0)], REFERENCE: [replace(outcome_of(0), server_cpu_s=3.0)]}
    hub, _ = summarise("cluster_idle", Headline.CPU, measurements_of("cluster_idle", figures), REFERENCE)
    assert hub.ratio == pytest.approx(3.0)
    assert report.headline_text(hub.headline, Headline.CPU) == "500.0 ms/s"


def test_server_that_makes_no_cluster_is_refused_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--servers", "edged", "--workload", "cluster_idle"])
    assert "edged makes no clusters" in capsys.readouterr().err


@pytest.mark.real
def test_server_that_ends_at_once_is_a_failed_measurement_with_its_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    false = shutil.which("false")
    assert false is not None
    assert main(["--quick", "--servers", "edged", "--edged", false, "--workload", "idle_rss"]) == 1
    assert "edged ended with status 1" in capsys.readouterr().out


@pytest.mark.real
@pytest.mark.skipif(
    shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None, reason="py-spy is not installed"
)
def test_profile_of_a_busy_python_process_is_written(tmp_path: Path) -> None:
    code = "import time\nwhile time.process_time() < 0.8: pass"
    path = tmp_path / "busy.txt"
    with subprocess.Popen([sys.executable, "-c", code]) as process, profiled(process.pid, path):
        process.wait()
    assert "<module>" in path.read_text()
