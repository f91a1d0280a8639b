"""The script format: what a line means, and that every script in the folder can be read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.differential import script, steps
from tests.differential.library import CONFIGS, SCRIPTS, cases


def parse(text: str, configs: Path = CONFIGS) -> list[steps.Case]:
    return list(script.parse(text, "example", configs))


def test_escapes_become_the_bytes_they_name() -> None:
    assert script.unescape(r"PUB a 2\r\n\x00\xff\r\n\\") == b"PUB a 2\r\n\x00\xff\r\n\\"


def test_text_outside_ascii_is_sent_as_utf8() -> None:
    assert script.unescape("é") == "é".encode()


def test_an_unknown_escape_is_an_error() -> None:
    with pytest.raises(script.ScriptError, match="unknown escape"):
        script.unescape(r"\q")


def test_repetitions_may_hold_stars_and_other_repetitions() -> None:
    assert script.unescape("<*.*3>x") == b"*.*.*.x"
    assert script.unescape(r"<a<b*2>\n*2>") == b"abb\nabb\n"


def test_a_plain_pattern_with_angle_brackets_is_no_repetition() -> None:
    assert script.unescape("SUB foo.> 1") == b"SUB foo.> 1"


def test_a_case_has_the_steps_of_its_lines() -> None:
    (case,) = parse(
        "# About.\n\n== A title\nA> connect {}\nA>> PING\\r\nA< 2 unordered\nsync A B json=X\nA< closed\n"
        "close A\nsignal USR2\nhttp GET /varz\nshows text of it\n"
    )
    assert case.title == "A title"
    assert case.steps == (
        steps.Connect("A", "{}"),
        steps.Send("A", "PING\\r", line=False),
        steps.Take("A", 2, steps.Reading(unordered=True)),
        steps.Sync(("A", "B"), steps.Reading(json="X")),
        steps.TakeUntilClosed("A"),
        steps.Close("A"),
        steps.Signal("USR2"),
        steps.Http("GET", "/varz"),
        steps.Shows("text of it"),
    )


def test_a_publish_step_keeps_its_payload_for_counting_later() -> None:
    (case,) = parse("== T\nA> publish foo inbox = {${cid.A}}\nA> publish foo =\n")
    assert case.steps == (
        steps.Publish("A", "foo inbox", "{${cid.A}}"),
        steps.Publish("A", "foo", ""),
    )


def test_a_publish_step_may_have_header_lines() -> None:
    (case,) = parse("== t\nA> publish foo reply {Key: value; Other: a=b} = hi\n")
    assert case.steps == (steps.Publish("A", "foo reply", "hi", "Key: value; Other: a=b"),)


def test_a_request_takes_one_answer_or_as_many_as_it_says() -> None:
    (case,) = parse('== t\nA> request foo = {"a":1}\nA> request 3 foo.bar {Key: value} =\n')
    assert case.steps == (
        steps.Request(steps.Publish("A", "foo", '{"a":1}')),
        steps.Request(steps.Publish("A", "foo.bar", "", "Key: value"), 3),
    )


def test_quiet_may_say_for_how_long() -> None:
    (case,) = parse("== t\nA< quiet\nA< quiet 2.5 json=X\n")
    assert case.steps == (
        steps.TakeUntilQuiet("A"),
        steps.TakeUntilQuiet("A", steps.Reading(json="X"), 2.5),
    )


def test_each_makes_one_case_per_value() -> None:
    found = parse("== T\neach X: a | b c\nA> SUB ${X} 1\n")
    assert [case.title for case in found] == ["T [a]", "T [b c]"]
    assert found[1].steps == (steps.Send("A", "SUB b c 1"),)


def test_each_with_two_names_splits_its_rows() -> None:
    found = parse("== T\neach X Y: a b | c d\nA> SUB ${X} ${Y}\n")
    assert [case.steps[0] for case in found] == [steps.Send("A", "SUB a b"), steps.Send("A", "SUB c d")]


def test_each_with_a_row_that_is_too_short_is_an_error() -> None:
    with pytest.raises(script.ScriptError, match="does not give each"):
        parse("== T\neach X Y: a\nA> SUB ${X} ${Y}\n")


def test_a_header_of_the_file_holds_for_every_case_and_a_case_may_change_it(tmp_path: Path) -> None:
    (tmp_path / "named.conf").write_text("port: 1\n")
    first, second = parse(
        "config: named\nserver: own\n== First\nsync A\n"
        "== Second\nconfig:\n    a: 1\n    b { c: 2 }\nsync A\n",
        tmp_path,
    )
    assert first.header == steps.Header(config="port: 1\n", own_server=True)
    assert second.header == steps.Header(config="a: 1\nb { c: 2 }\n", own_server=True)


def test_a_reload_holds_the_configuration_of_its_indented_lines() -> None:
    (case,) = parse("== T\nreload\n    max_payload: 5\n    x: 1\nsync A\n")
    assert case.steps[0] == steps.Reload("max_payload: 5\nx: 1\n")


@pytest.mark.parametrize(
    "line", ["nonsense", "A< many", "A< 1 sideways", "sync", "config: x", "a> PING", "AB> PING"]
)
def test_a_line_without_meaning_is_an_error(line: str) -> None:
    with pytest.raises(script.ScriptError, match="unknown"):
        parse(f"== T\nsync A\n{line}\n")


def test_a_publish_that_cannot_be_read_is_an_error_and_not_sent_as_it_is() -> None:
    with pytest.raises(script.ScriptError, match="does not say what is published"):
        parse("== T\nA> request foo text\n")


def test_the_subject_of_a_publish_may_hold_equals_signs() -> None:
    ((step,),) = [case.steps for case in parse("== T\nA> publish foo.bmFtZQ== {Key: value} = a = b\n")]
    assert isinstance(step, steps.Publish)
    assert (step.arguments, step.headers, step.payload) == ("foo.bmFtZQ==", "Key: value", "a = b")


def test_an_error_names_file_and_line() -> None:
    with pytest.raises(script.ScriptError, match=r"example\.txt:3"):
        parse("== T\nsync A\nnonsense\n")


def test_a_case_without_steps_is_an_error() -> None:
    with pytest.raises(script.ScriptError, match="without steps"):
        parse("== T\n== U\nsync A\n")


def test_every_script_is_readable_and_no_name_is_used_twice() -> None:
    names = Counter(case.id for case in cases())
    assert len(names) > 500
    assert [name for name, count in names.items() if count > 1] == []


def test_every_configuration_is_used() -> None:
    text = "\n".join(path.read_text() for path in SCRIPTS.glob("*.txt"))
    unused = [path.stem for path in CONFIGS.glob("*.conf") if f"config: {path.stem}\n" not in text]
    assert unused == []
