"""Account mappings: the rules one by one, and the same configuration run by the real nats-server."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.mapping import Destination, Mapping, SubjectMappings
from edged.core.transform import TransformError


def mapping(source: str, *destinations: tuple[str, int] | tuple[str, int, str]) -> Mapping:
    return Mapping(
        source.encode(),
        tuple(Destination(subject.encode(), weight, *rest) for subject, weight, *rest in destinations),
    )


def never(bound: int) -> int:
    raise AssertionError("nothing is left to chance here")


def spread(mappings: SubjectMappings, subject: bytes) -> Counter[bytes]:
    """How often each answer comes when each number from 0 to 99 is drawn once."""

    def draw_of(number: int) -> bytes:
        def draw(bound: int) -> int:
            assert bound == 100
            return number

        return mappings.route(subject, draw)

    return Counter(draw_of(number) for number in range(100))


def test_a_subject_that_nothing_maps_stays_the_same() -> None:
    mappings = SubjectMappings([mapping("a", ("b", 100))])
    assert mappings.route(b"other", never) == b"other"
    assert mappings.is_constant(b"other")
    assert mappings
    assert not SubjectMappings([])
    assert SubjectMappings([]).route(b"a", never) == b"a"


def test_a_mapping_is_applied_once_and_not_to_its_own_result() -> None:
    mappings = SubjectMappings(
        [mapping("a", ("b", 100)), mapping("b", ("a", 100)), mapping(">", ("x.>", 100))]
    )
    assert mappings.route(b"a", never) == b"b"
    assert mappings.route(b"b", never) == b"a"
    assert mappings.route(b"x.c", never) == b"x.x.c"


def test_weights_share_the_messages_and_the_rest_keeps_its_subject() -> None:
    mappings = SubjectMappings([mapping("a.*", ("b.$1", 20), ("c.$1", 30))])
    assert spread(mappings, b"a.x") == {b"b.x": 20, b"c.x": 30, b"a.x": 50}
    assert not mappings.is_constant(b"a.x")


def test_the_rest_is_dropped_when_the_source_is_listed_itself() -> None:
    mappings = SubjectMappings([mapping("a", ("a", 40), ("b", 35))])
    assert spread(mappings, b"a") == {b"a": 40, b"b": 35, b"": 25}
    assert not mappings.is_constant(b"a")
    dropped = SubjectMappings([mapping("a", ("a", 0))])
    assert dropped.route(b"a", never) == b""
    assert dropped.is_constant(b"a")


def test_no_draw_is_needed_when_only_one_outcome_has_any_weight() -> None:
    for destinations in ([("b", 100)], [("b", 100), ("c", 0)], [("c", 0), ("b", 100)]):
        mappings = SubjectMappings([mapping("a", *destinations)])
        assert mappings.route(b"a", never) == b"b"
        assert mappings.is_constant(b"a")
    assert SubjectMappings([mapping("a", ("b", 0))]).route(b"a", never) == b"a"
    assert SubjectMappings([mapping("a")]).route(b"a", never) == b"a"


def test_a_random_destination_is_never_constant() -> None:
    mappings = SubjectMappings([mapping("a", ("b.{{random(3)}}", 100)), mapping("c", ("d", 100))])
    assert mappings.route(b"a", lambda bound: bound - 1) == b"b.2"
    assert not mappings.is_constant(b"a")
    assert mappings.is_constant(b"c")


def test_the_own_cluster_comes_before_destinations_for_all() -> None:
    entries = [mapping("a", ("all", 100), ("east", 100, "EAST"), ("west", 60, "WEST"))]
    assert SubjectMappings(entries, cluster="EAST").route(b"a", never) == b"east"
    assert SubjectMappings(entries, cluster="NORTH").route(b"a", never) == b"all"
    assert SubjectMappings(entries).route(b"a", never) == b"all"
    assert spread(SubjectMappings(entries, cluster="WEST"), b"a") == {b"west": 60, b"a": 40}


def test_a_mapping_for_other_clusters_only_leaves_the_subject_alone() -> None:
    for destination in ("b", "a"):
        entries = [mapping("a", (destination, 50, "EAST"))]
        assert SubjectMappings(entries, cluster="WEST").route(b"a", never) == b"a"
        assert SubjectMappings(entries).is_constant(b"a")


def test_the_most_specific_source_decides_whatever_the_order() -> None:
    entries = [
        mapping(source, (f"{number}.>" if source.endswith(">") else str(number), 100))
        for number, source in enumerate([">", "a.>", "*.b.c", "a.*.*", "a.*.c", "a.b.*", "a.b.c"])
    ]
    for given_order in (entries, entries[::-1]):
        mappings = SubjectMappings(given_order)
        expected = {b"a.b.c": b"6", b"a.b.x": b"5", b"a.x.c": b"4", b"a.x.x": b"3", b"x.b.c": b"2"}
        for subject, answer in expected.items():
            assert mappings.route(subject, never) == answer
        assert mappings.route(b"a.b", never) == b"1.b"
        assert mappings.route(b"x", never) == b"0.x"


def test_a_later_mapping_of_the_same_source_replaces_the_earlier() -> None:
    mappings = SubjectMappings([mapping("a", ("b", 100)), mapping("a", ("c", 100))])
    assert mappings.route(b"a", never) == b"c"


def test_published_wildcards_are_mapped_only_by_sources_that_cover_them() -> None:
    mappings = SubjectMappings([mapping("a.*", ("b.$1", 100)), mapping("c.>", ("d.>", 100))])
    assert mappings.route(b"a.*", never) == b"b.*"
    assert mappings.route(b"a.>", never) == b"a.>"
    assert mappings.route(b"c.*", never) == b"d.*"
    assert mappings.route(b"c.>", never) == b"d.>"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (mapping("a..b", ("c", 100)), "not a valid subject"),
        (mapping("a", ("b", 60), ("c", 60)), "more than 100"),
        (mapping("a", ("b", 101)), "between 0 and 100"),
        (mapping("a", ("b", -1)), "between 0 and 100"),
        (mapping("a", ("b", 10), ("b", 10)), "listed twice"),
        (mapping("a", ("b", 10, "EAST"), ("b", 10, "WEST")), "listed twice"),
        (mapping("a", ("", 100)), "is empty"),
        (mapping("a.*", ("b.$2", 100)), "does not have that wildcard"),
        (mapping("a.*", ("b.$2", 100, "ELSEWHERE")), "does not have that wildcard"),
    ],
)
def test_a_mapping_that_cannot_work_is_refused(bad: Mapping, message: str) -> None:
    with pytest.raises(TransformError, match=message):
        SubjectMappings([bad])


PATTERNS = st.lists(st.sampled_from([b"a", b"b", b"*", b">", b"", b"\xff"]), max_size=4).map(b".".join)


@given(
    st.lists(
        st.builds(
            Mapping,
            PATTERNS,
            st.lists(
                st.builds(
                    Destination,
                    st.sampled_from([b"x", b"x.$1", b"a", b"x.>", b"{{random(2)}}", b"{{split(1,b)}}", b""]),
                    st.integers(-1, 101),
                    st.sampled_from(["", "EAST"]),
                ),
                max_size=3,
            ).map(tuple),
        ),
        max_size=4,
    ),
    st.binary(max_size=8) | PATTERNS,
)
def test_any_mappings_are_refused_or_answer_and_constant_answers_do_not_change(
    mappings: list[Mapping], subject: bytes
) -> None:
    try:
        compiled = SubjectMappings(mappings, cluster="EAST")
    except TransformError:
        return

    def answer(share: int) -> bytes:
        return compiled.route(subject, lambda bound: share * bound // 100)

    answers = {answer(share) for share in range(100)}
    if compiled.is_constant(subject):
        assert answers == {compiled.route(subject, never)}


# The real server.

NATS_SERVER = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which(
    "nats-server"
)

# Each source and destination gets subjects that tell its function from the others.
DETERMINISTIC = [
    ("w.*.*", "out.$2.$1", [b"w.x.y", b"w.x", b"w.x.y.z", b"w.*.y", b"w.x.>"]),
    ("wf.*.>", "out.{{wildcard(1)}}.k.>", [b"wf.x.y.z", b"wf.x", b"wf.*.>"]),
    ("w0.*", "out.$0.$-1.$+1.$1x.$", [b"w0.x"]),
    ("lit", "out.lit.{{}}.{{a.x{{wildcard(1)}}", [b"lit"]),
    ("pa.*.*", "out.{{partition(10)}}", [b"pa.%d.b" % number for number in range(30)]),
    ("pb.*.*", "out.{{ Partition ( 7 , 2 , 1 ) }}", [b"pb.%d.b" % number for number in range(30)]),
    ("pc.*", "out.{{partition(100,0)}}.{{partition(0)}}.{{partition(-5,1)}}", [b"pc.x", b"pc.\xc3\xa9\xff"]),
    ("pd.>", "out.{{partition(1000)}}.>", [b"pd.x.y", b"pd.x"]),
    ("sp.*", "out.{{split(1,-)}}", [b"sp.a-b", b"sp.-a--b-", b"sp.ab", b"sp.a-b-c"]),
    ("sq.*", "out.{{Split(1,)}}", ["sq.aé€".encode(), b"sq.\xff\xe2\x82z"]),
    ("sr.*", "out.{{split(1, --)}}.z", [b"sr.a--b-c"]),
    ("fl.*", "out.{{splitFromLeft(1,2)}}", [b"fl.a", b"fl.ab", b"fl.abc", b"fl.abcdef"]),
    ("fr.*", "out.{{SplitFromRight( 1, 2)}}", [b"fr.a", b"fr.ab", b"fr.abc", b"fr.abcdef"]),
    ("cl.*", "out.{{slicefromleft(1,3)}}.e", [b"cl.ab", b"cl.abc", b"cl.abcd", b"cl.abcdef", b"cl.abcdefg"]),
    ("cr.*", "out.{{sliceFromRight(1,3)}}.e", [b"cr.ab", b"cr.abc", b"cr.abcd", b"cr.abcdef", b"cr.abcdefg"]),
    ("le.*", "out.{{left(1,2)}}.{{Left(1,0)}}", [b"le.a", b"le.ab", b"le.abc"]),
    ("ri.*", "out.{{right(1,2)}}.{{Right(1,-1)}}", [b"ri.a", b"ri.ab", b"ri.abc"]),
    ("once.a", "once.b", [b"once.a", b"once.b"]),
    ("once.b", "once.c", []),
]

# Accepted or refused, as `nats-server -t` says.
DESTINATIONS = [
    ("a.*", "b.*"),
    ("a.*", "b.$2"),
    ("a.*", "b.$1.>"),
    ("a.>", "b.c"),
    ("a.>", "b.>.c"),
    ("a.*", "b..c"),
    ("a.*", "b c"),
    ("a.*", "b.{{nothing(1)}}"),
    ("a.*", "b.{{WILDCARD(1)}}"),
    ("a.*", "b.{{wildcard()}}"),
    ("a.*", "b.{{wildcard(1,2)}}"),
    ("a.*", "b.{{wildcard(1)}}{{wildcard(1)}}"),
    ("a.*", "b.{{ wildcard ( 1 ) }}"),
    ("a.*", "b.{{partition(2147483648)}}"),
    ("a.*", "b.{{partition(2147483647)}}"),
    ("a.*", "b.{{partition(-9223372036854775809)}}"),
    ("a.*", "b.{{partition(3, )}}"),
    ("a", "b.{{partition(3,1)}}"),
    ("a", "b.{{random(3)}}"),
    ("a", "b.{{left(0,1)}}"),
    ("a", "b.$1"),
    ("a.*", "b.{{splitfromleft(1,2147483648)}}"),
    ("a.*", "b.{{split(1, - )}}"),
    ("a.*", "b.{{split(1)}}"),
    ("a..b", "c"),
]


@contextmanager
def nats_server(directory: Path, configuration: str) -> Iterator[socket.socket]:
    """The real server on a free port, and a connection to it that has been greeted."""
    assert NATS_SERVER is not None
    path = directory / "server.conf"
    path.write_text(f"listen: 127.0.0.1:-1\n{configuration}\n", encoding="utf-8")
    with subprocess.Popen([NATS_SERVER, "-c", str(path)], stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            log = b""
            while b"Server is ready" not in log:
                line = process.stderr.readline()
                assert line, log
                log += line
            found = re.search(rb"client connections on 127\.0\.0\.1:(\d+)", log)
            assert found is not None, log
            with socket.create_connection(("127.0.0.1", int(found[1])), timeout=10) as connection:
                connection.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB > 1\r\n')
                yield connection
        finally:
            process.kill()


def delivered_subject(connection: socket.socket, subject: bytes) -> bytes:
    """The subject under which a message comes back, or the empty one when it does not."""
    connection.sendall(b"PUB %s 0\r\n\r\nPING\r\n" % subject)
    received = b""
    while not received.endswith(b"PONG\r\n"):
        chunk = connection.recv(65536)
        assert chunk, received
        received += chunk
    found = re.search(rb"MSG (\S+) 1 0\r\n", received)
    return found[1] if found else b""


@pytest.mark.real
@pytest.mark.skipif(NATS_SERVER is None, reason="nats-server is not installed")
def test_deterministic_mappings_give_the_subjects_that_nats_server_gives(tmp_path: Path) -> None:
    mappings = SubjectMappings(
        mapping(source, (destination, 100)) for source, destination, _ in DETERMINISTIC
    )
    table = {source: destination for source, destination, _ in DETERMINISTIC}
    with nats_server(tmp_path, f"mappings: {json.dumps(table)}") as connection:
        for source, _, published in DETERMINISTIC:
            for subject in published:
                assert mappings.is_constant(subject)
                expected = delivered_subject(connection, subject)
                assert mappings.route(subject, never) == expected, source


@pytest.mark.real
@pytest.mark.skipif(NATS_SERVER is None, reason="nats-server is not installed")
@pytest.mark.parametrize("cluster", ["EAST", "WEST"])
def test_certain_weights_and_clusters_are_chosen_as_nats_server_chooses(tmp_path: Path, cluster: str) -> None:
    entries = [
        mapping("only", ("only.b", 100), ("only.c", 0)),
        mapping("zero", ("zero.b", 0)),
        mapping("none"),
        mapping("drop", ("drop", 0)),
        mapping("here", ("here.all", 100), ("here.east", 100, "EAST")),
        mapping("there", ("there.east", 100, "EAST")),
        mapping("part.*", ("part.east.$1", 0, "EAST"), ("part.all.$1", 100)),
    ]
    table = {
        entry.source.decode(): [
            {
                "destination": each.subject.decode(),
                "weight": f"{each.weight_percent}%",
                "cluster": each.cluster,
            }
            for each in entry.destinations
        ]
        for entry in entries
    }
    mappings = SubjectMappings(entries, cluster)
    configuration = f"cluster {{ name: {cluster}, listen: 127.0.0.1:-1 }}\nmappings: {json.dumps(table)}"
    with nats_server(tmp_path, configuration) as connection:
        for subject in (b"only", b"zero", b"none", b"drop", b"here", b"there", b"part.x"):
            assert mappings.route(subject, never) == delivered_subject(connection, subject)


@pytest.mark.real
@pytest.mark.skipif(NATS_SERVER is None, reason="nats-server is not installed")
@pytest.mark.parametrize(("source", "destination"), DESTINATIONS)
def test_a_destination_is_refused_exactly_when_nats_server_refuses_it(
    tmp_path: Path, source: str, destination: str
) -> None:
    assert NATS_SERVER is not None
    path = tmp_path / "server.conf"
    path.write_text(f"mappings: {json.dumps({source: destination})}\n", encoding="utf-8")
    verdict = subprocess.run(
        [NATS_SERVER, "-t", "-c", str(path)], capture_output=True, timeout=20, check=False
    )
    try:
        SubjectMappings([mapping(source, (destination, 100))])
    except TransformError:
        assert verdict.returncode != 0, verdict
    else:
        assert verdict.returncode == 0, verdict
