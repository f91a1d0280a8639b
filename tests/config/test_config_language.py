"""The configuration language: values and their places, variables, includes, and hostile input."""

import contextlib
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.config.document import ConfigError, Value
from edged.config.language import (
    INCLUDE_FILES_MAX,
    NESTING_MAX,
    WEIGHT_MAX,
    parse_file,
    parse_text,
)
from tests.examples import examples


def plain(value: Value) -> object:
    if isinstance(value.data, dict):
        return {key: plain(pair.value) for key, pair in value.data.items()}
    if isinstance(value.data, tuple):
        return [plain(item) for item in value.data]
    return value.data


def parse(text: str, **environment: str) -> dict[str, object]:
    root = parse_text(text, environment).root
    return {key: plain(pair.value) for key, pair in root.items()}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-12", -12),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        ("2k", 2000),
        ("2KB", 2048),
        ("2Ki", 2048),
        ("2kib", 2048),
        ("3m", 3_000_000),
        ("3mb", 3 * 1024**2),
        ("1g", 10**9),
        ("1Gi", 1024**3),
        ("1t", 10**12),
        ("1p", 10**15),
        ("7e", 7 * 10**18),
        ("-1k", -1000),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0000000000000000000000012", 12),
        ("10s", "10s"),
        ("1m30s", "1m30s"),
        ("1.2.3.4", "1.2.3.4"),
        ("1.2.3.4:80", "1.2.3.4:80"),
        ("true", True),
        ("YES", True),
        ("on", True),
        ("False", False),
        ("no", False),
        ("oFF", False),
        ('"true"', "true"),
        ("it'", "it"),
        ("truely", "truely"),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("foo.bar", "foo.bar"),
        ("#x", "#x"),
        ("/a//b", "/a//b"),
        ("nats://h:1", "nats://h:1"),
        ('"a\\tb\\"c\\\\d\\x41"', 'a\tb"c\\d\x41'),
        ("'a\\tb'", "a\\tb"),
        ('"two\nlines"', "two\nlines"),
        ("(\none\n two)\n)\n", "\none\n two)\n"),
        ("[]", []),
        ("[1, 2k, 'x']", [1, 2000, "x"]),
        ("[a, 1, 2k]", ["a", 1, "2k"]),
        ("[a\nb\n]", ["a", "b"]),
        ("{}", {}),
        ("{a: 1, b = 2; c 3\nd {e: f}}", {"a": 1, "b": 2, "c": 3, "d": {"e": "f"}}),
        ("{'a b': 1, \"c:d\": 2}", {"a b": 1, "c:d": 2}),
        ("{a:\n1}", {"a": 1}),
        ("$2a$11$x", "$2a$11$x"),
    ],
)
def test_value_is_read_as_nats_reads_it(text: str, value: object) -> None:
    assert parse(f"x: {text}") == {"x": value}


def test_json_files_are_configuration_files() -> None:
    content = {"port": 4222, "tls": {"a": [1, 2.5, "x", True]}, "s": 'a"b\\c\n'}
    assert parse(json.dumps(content)) == content
    assert parse(json.dumps(content, indent=2)) == content


def test_key_written_again_wins_and_moves_to_the_end() -> None:
    assert list(parse("a: 1\nb: 2\na: 3").items()) == [("b", 2), ("a", 3)]


def test_every_value_knows_its_place() -> None:
    root = parse_text("a: 1\n  b {\n    c: [x,\n  y]\n}", {}, "f.conf").root
    assert str(root["a"].position) == "f.conf:1:1"
    assert str(root["b"].position) == "f.conf:2:3"
    block = root["b"].value.data
    assert isinstance(block, dict)
    assert str(block["c"].position) == "f.conf:3:5"
    items = block["c"].value.data
    assert isinstance(items, tuple)
    assert [str(item.position) for item in items] == ["f.conf:3:9", "f.conf:4:3"]


def test_variable_is_looked_up_from_the_inner_block_outwards_then_in_the_environment() -> None:
    text = "v: 1\na { v: 2, b { x: $v } }\ny: $v\nz: $OUTSIDE"
    assert parse(text, OUTSIDE="[7, 8]", v="9") == {
        "v": 1,
        "a": {"v": 2, "b": {"x": 2}},
        "y": 1,
        "z": [7, 8],
    }


def test_variable_of_the_environment_may_be_empty_or_refer_to_another() -> None:
    assert parse("a: $A\nb: $B", A="", B="$C", C="5") == {"a": "", "b": 5}


def test_key_that_a_variable_referred_to_is_marked_as_used() -> None:
    document = parse_text("v: 1\nw: $v", {})
    assert document.used == {document.root["v"].position}


def test_variable_must_be_defined_before_it_is_used() -> None:
    with pytest.raises(ConfigError, match="variable is defined neither above nor in the environment"):
        parse("x: $v\nv: 1")


def test_password_with_a_dollar_and_no_quotes_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("password: $ecret")
    assert "ecret" not in str(caught.value)


def test_missing_environment_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="'NATS_TOKEN'"):
        parse("token: $NATS_TOKEN")


def test_include_puts_the_pairs_of_another_file_in_place(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.conf").write_text("a: 1\ninclude 'sub/part.conf'\nb { include sub/more.conf }\n")
    (tmp_path / "sub" / "part.conf").write_text("a: 2\ninclude more.conf\n")
    (tmp_path / "sub" / "more.conf").write_text("c: 3")
    root = parse_file(tmp_path / "main.conf", {}).root
    assert {key: plain(pair.value) for key, pair in root.items()} == {"a": 2, "c": 3, "b": {"c": 3}}
    assert root["c"].position.path.endswith("sub/more.conf")


def test_include_of_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("include b.conf")
    (tmp_path / "b.conf").write_text("include ./a.conf")
    with pytest.raises(ConfigError, match="includes itself"):
        parse_file(tmp_path / "a.conf", {})


def test_includes_that_multiply_are_refused(tmp_path: Path) -> None:
    for depth in range(12):
        (tmp_path / f"{depth}.conf").write_text(f"include '{depth + 1}.conf'\n" * 3)
    (tmp_path / "12.conf").write_text("a: 1")
    started = time.monotonic()
    with pytest.raises(ConfigError, match="too many files"):
        parse_file(tmp_path / "0.conf", {})
    assert INCLUDE_FILES_MAX <= 1000
    assert time.monotonic() - started < 10


def test_missing_file_is_named_with_the_place_that_asked_for_it(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("\n include 'nope.conf'")
    with pytest.raises(ConfigError, match=r"a\.conf:2:10: .*nope\.conf.*No such file"):
        parse_file(tmp_path / "a.conf", {})


def test_variables_that_multiply_are_refused() -> None:
    lines = ["v0: [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"v{n}: [{','.join([f'$v{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match="too large once variables are expanded"):
        parse("\n".join(lines))
    environment = {f"V{n}": f"[{','.join([f'$V{n + 1}'] * 10)}]" for n in range(9)} | {"V9": "x"}
    with pytest.raises(ConfigError, match="too large once variables are expanded"):
        parse("a: $V0", **environment)
    assert WEIGHT_MAX <= 10**6


def test_environment_variable_that_refers_to_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="refers to itself"):
        parse("a: $A", A="$B", B="[$A]")


@pytest.mark.parametrize("opening", ["[", "{a:", "[{a: ["])
def test_deep_nesting_is_refused(opening: str) -> None:
    with pytest.raises(ConfigError, match="nested more than"):
        parse("x: " + opening * 100_000)
    inside = "[" * (NESTING_MAX - 1) + "]" * (NESTING_MAX - 1)
    assert "x" in parse(f"x: [{inside}]")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: 1\nb: [1, 2", "2:4"),
        ("a: 1\nb: {c: 1", "2:4"),
        ("{\na: 1\n", "1:1"),
        ("a: 'x", "1:4"),
        ('a: "x', "1:4"),
        ("a: (\nx", "1:4"),
        ('"a', "1:1"),
        ("a: b c", "1:6"),
        ("a: ", "1:4"),
        ("a:\n1", "1:3"),
        ("a: [1 2]", "1:7"),
        ("a: {b: 1 c: 2}", "1:10"),
        (", a: 1", "1:1"),
        ("a: 1 / b", "1:6"),
        ("} \n a: 1", "1:1"),
        ("a: 1kbi", "1:4"),
        ("a: 99999999999999999999", "1:4"),
        ("a: 10e\nb: 1", "1:4"),
        ("a: 1.\n", "1:4"),
        ("a: 2026-02-30T00:00:00Z", "1:4"),
        ('a: "\\xff"', "1:4"),
        ("a: x\0y", "1:5"),
    ],
)
def test_error_points_at_the_mistake(text: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_text(text, {}, "f")
    assert str(caught.value).startswith(f"f:{where}: ")


def test_stray_closing_brace_is_a_warning() -> None:
    document = parse_text("a: 1\n}\n", {})
    assert list(document.root) == ["a"]
    assert "closes nothing" in document.warnings[0]
    assert parse_text("a: 1 }\nb: 2", {}).root.keys() == {"a", "b"}


def test_file_with_a_byte_order_mark_and_foreign_bytes_in_comments_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_bytes(b"\xef\xbb\xbf# caf\xe9\r\nport: 4222\r\n")
    assert parse_file(path, {}).root["port"].value.data == 4222
    path.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        parse_file(path, {})


FRAGMENTS = st.sampled_from(
    [
        *(
            "a",
            "b: 1",
            "{",
            "}",
            "[",
            "]",
            "(",
            ")",
            "\n",
            " ",
            ",",
            ";",
            ":",
            "=",
            "'",
            '"',
            "\\",
            "$",
            "$a",
            "#",
        ),
        *("//", "/", "-", ".", "1", "1k", "2a$", "\\x41", "include ", "true", "\r", "\0", "\u2028", "\ud800"),
        *("\u00e9", "1.2.3"),
    ]
)


@given(st.lists(FRAGMENTS, max_size=40).map("".join) | st.text(max_size=60))
@settings(max_examples=examples(400), deadline=None)
def test_any_text_is_a_document_or_a_config_error(text: str) -> None:
    try:
        parse_text(text, {"a": text}).digest()
    except ConfigError as error:
        assert "\n" not in str(error)


VALUES = st.recursive(
    st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0'\""), max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def written(value: object) -> str:
    """The value in the language, with every character that needs it escaped."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return "{" + "\n".join(f"'{key}': {written(item)}" for key, item in value.items()) + "\n}"
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\x{byte:02x}" for byte in value.encode()) + '"'
    return str(value)


@given(VALUES)
@settings(deadline=None)
def test_what_is_written_is_read_back(value: object) -> None:
    assert parse(f"x = {written(value)}") == {"x": value}


LARGE = {
    "word": "a: " + "x" * 10**6,
    "comment": "#" * 10**6,
    "lines": "\n" * 10**6,
    "open quote": "a: '" + "x" * 10**6,
    "array": "a: [" + "x," * 10**5 + "]",
    "slashes": "/" * 10**6,
    "digits": "a: " + "9" * 10**6,
    "decimals": "a: 1." + "9" * 10**5,
    "quotes": "'" * 10**5,
    "keys": "a\n" * 10**5,
    "parentheses": "(" * 10**6,
    "open block": "a: (" + "\n)x" * 10**5,
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE.keys())
def test_large_input_takes_time_in_proportion(text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(ConfigError):
        parse_text(text, {})
    assert time.process_time() - started < 5
