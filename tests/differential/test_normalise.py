"""Normalising: what may differ is replaced, what may not is kept."""

from __future__ import annotations

import json

import pytest

from tests.differential import allowed
from tests.differential.allowed import Treatment, treatment
from tests.differential.connection import Frame
from tests.differential.library import cases
from tests.differential.normalise import ZERO_TIME, frame_lines, json_lines, mask, mask_text, show

SERVER_ID = "N" + "A" * 55
TIMES = ("2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:01Z")


def info(**fields: object) -> Frame:
    return Frame(b"INFO " + json.dumps(fields).encode() + b" ", b"\r\n")


def test_ids_and_moments_are_replaced_by_their_kind() -> None:
    assert mask_text(SERVER_ID) == "<server-id>"
    assert mask_text(f"$SYS.REQ.SERVER.{SERVER_ID}.VARZ") == "$SYS.REQ.SERVER.<server-id>.VARZ"
    assert mask_text("2026-11-16T05:43:03.123456Z") == "<time>"
    assert mask_text("1m2.5s") == "<duration>"
    assert mask_text("_R_.h2Jk3kd8.Zx") == "<service-reply>"


def test_the_zero_time_is_kept_because_it_means_never() -> None:
    assert mask_text(ZERO_TIME) == ZERO_TIME


@pytest.mark.parametrize("text", ["foo", "_R_.x", "Authorization Violation", "10", "A1", "sms", "N1", "2026"])
def test_ordinary_text_is_kept(text: str) -> None:
    assert mask_text(text) == text


def test_a_value_of_an_allowed_difference_keeps_its_type() -> None:
    assert mask({"client_id": 7, "max_payload": 5}, "INFO") == {"client_id": "<number>", "max_payload": 5}
    assert mask({"client_id": "7"}, "INFO") != mask({"client_id": 7}, "INFO")


def test_a_dropped_key_may_be_there_or_not() -> None:
    assert mask({"go": "go1.27", "proto": 1}, "INFO") == mask({"proto": 1}, "INFO")


def test_a_key_without_a_rule_must_be_there() -> None:
    assert mask({"proto": 1, "extra": 2}, "INFO") != mask({"proto": 1}, "INFO")


def test_edged_may_add_one_key_of_its_own_at_any_depth() -> None:
    assert mask({"a": {"edged": {"x": 1}, "b": 2}, "edged": 1}, "/varz") == {"a": {"b": 2}}


def test_a_list_from_a_map_is_compared_without_its_order() -> None:
    assert mask({"accounts": ["B", "A"]}, "/accountz") == mask({"accounts": ["A", "B"]}, "/accountz")
    assert mask({"tags": ["B", "A"]}, "/varz") != mask({"tags": ["A", "B"]}, "/varz")


def test_entries_about_the_servers_own_subjects_are_left_out() -> None:
    entries = [{"subject": "foo"}, {"subject": "$SYS.REQ.USER.INFO"}]
    assert mask({"exports": entries}, "/accountz") == {"exports": [{"subject": "foo"}]}
    assert mask({"exports": entries[1:]}, "/accountz") == {}
    assert mask({"exports": []}, "/accountz") == {"exports": []}


def test_rules_match_whole_names_only() -> None:
    assert treatment("/varz", "mem") is Treatment.TYPE
    assert treatment("STATSZ", "statsz.mem") is Treatment.TYPE
    assert treatment("/varz", "max_mem") is None
    assert treatment("/varz", "cargo") is None


def test_every_rule_has_a_reason_of_its_own_words() -> None:
    assert [rule for rule in allowed.RULES if len(rule.reason.split()) < 2] == []
    places = [(rule.where, rule.path) for rule in allowed.RULES]
    assert len(places) == len(set(places))


def test_the_space_before_the_end_of_info_is_part_of_the_transcript() -> None:
    with_space = info(proto=1)
    without = Frame(with_space.line.rstrip(), b"\r\n")
    assert frame_lines(with_space) != frame_lines(without)


def test_the_order_of_keys_in_info_is_not_compared() -> None:
    assert frame_lines(info(proto=1, headers=True)) == frame_lines(info(headers=True, proto=1))


def test_a_message_is_shown_byte_for_byte() -> None:
    frame = Frame(b"MSG foo 1 3", b"\r\n", b"\x00\xffa", b"\r\n")
    assert frame_lines(frame) == [r"MSG foo 1 3\r\n\x00\xffa\r\n"]


def test_a_json_payload_is_compared_byte_for_byte_unless_asked_otherwise() -> None:
    one = Frame(b"MSG foo 1 13", b"\r\n", b'{"a":1,"b":2}', b"\r\n")
    other = Frame(b"MSG foo 1 15", b"\r\n", b'{"b": 2, "a":1}', b"\r\n")
    assert frame_lines(one) != frame_lines(other)
    assert frame_lines(one, "VARZ") == frame_lines(other, "VARZ")


def test_who_asked_is_compared_as_json_and_its_length_not_at_all() -> None:
    def request(rtt: int, account: str) -> list[str]:
        header = b'NATS/1.0\r\nNats-Request-Info: {"acc":"%b","rtt":%d}\r\n\r\n' % (account.encode(), rtt)
        return frame_lines(Frame(b"HMSG help 1 %d %d" % (len(header), len(header)), b"\r\n", header, b"\r\n"))

    assert request(5, "A") == request(500000, "A")
    assert request(5, "A") != request(5, "B")


def test_the_order_of_fields_is_compared_in_answers_of_the_jetstream_api() -> None:
    first, second = b'{"a":1,"b":2}', b'{"b":2,"a":1}'
    assert json_lines(first, "API") != json_lines(second, "API")
    assert json_lines(first, "other") == json_lines(second, "other")


def test_the_answer_inside_of_an_audit_is_compared_as_json() -> None:
    audits = [json.dumps({"response": json.dumps({"ts": time, "a": 1})}).encode() for time in TIMES]
    assert json_lines(audits[0], "ADVISORY") == json_lines(audits[1], "ADVISORY")


@pytest.mark.parametrize("document", [b"", b'{"a":1}'])
def test_a_time_in_a_header_and_the_size_it_gives_are_not_compared(document: bytes) -> None:
    blocks = [b"NATS/1.0\r\nNats-Time-Stamp: %b\r\n\r\n" % time.encode() for time in TIMES]
    frames = [
        Frame(b"HMSG a 1 %d %d" % (len(block), len(block + document)), b"\r\n", block + document, b"\r\n")
        for block in blocks
    ]
    assert frame_lines(frames[0], "a") == frame_lines(frames[1], "a")


def test_long_bytes_are_shown_by_length_and_digest() -> None:
    assert show(b"x" * 1000) != show(b"x" * 999 + b"y")
    assert len(show(b"x" * 100000)) < 100


@pytest.mark.parametrize("text", [b"", b"not json", b"5", b'"x"'])
def test_text_that_is_no_document_is_not_treated_as_one(text: bytes) -> None:
    assert json_lines(text, "/varz") is None


def test_a_case_kept_different_is_found_by_its_name_with_round_brackets() -> None:
    kept = (allowed.KeptDifference("operations: A size (0*)", "sizes are sent without leading zeros"),)
    assert allowed.kept_reason("operations: A size [02]", kept) == "sizes are sent without leading zeros"
    assert allowed.kept_reason("operations: A size [2]", kept) is None


def test_every_case_kept_different_exists() -> None:
    names = [case.id for case in cases()]
    unknown = [row for row in allowed.KEPT if not any(allowed.kept_reason(name, (row,)) for name in names)]
    assert unknown == []
