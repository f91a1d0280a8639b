"""Distinguished names as RFC 4514 writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.distinguished_names import DistinguishedName, parse


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("CN=a", ((("CN", "a"),),)),
        ("cn=a , O = b c ", ((("CN", "a"),), (("O", "b c"),))),
        ("CN=a+OU=b,O=c", ((("CN", "a"), ("OU", "b")), (("O", "c"),))),
        ("CN=a\\,b\\+c\\=d", ((("CN", "a,b+c=d"),),)),
        ("CN=a=b", ((("CN", "a=b"),),)),
        ("CN=\\ a\\ ", ((("CN", " a "),),)),
        ("CN=\\C3\\A9", ((("CN", "é"),),)),
        ("CN=", ((("CN", ""),),)),
    ],
)
def test_name_is_read(text: str, parts: tuple[tuple[tuple[str, str], ...], ...]) -> None:
    assert parse(text) == DistinguishedName(parts)


@pytest.mark.parametrize(
    "text", ["", "alice", "=a", "CN=a,", "CN=a+", ",CN=a", "CN=#04", "CN=\\", "CN=\\zz", "CN=\\ff"]
)
def test_text_that_spells_no_name_is_none(text: str) -> None:
    assert parse(text) is None


def test_parts_are_compared_by_number_when_the_order_is_ignored() -> None:
    names = {text: parse(text) for text in ("CN=a,O=b", "O=b,CN=a", "CN=a,CN=a,O=b", "CN=a,O=b,O=b")}
    one, other, *more = names.values()
    assert one is not None
    assert other is not None
    assert one != other
    assert one.same_parts(other)
    assert not any(name is not None and one.same_parts(name) for name in more)


@given(st.text())
def test_any_text_gives_a_name_or_none(text: str) -> None:
    name = parse(text)
    assert name is None or name.parts


VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.lists(st.tuples(st.sampled_from(["CN", "O", "OU"]), VALUES), min_size=1, max_size=4))
def test_escaped_values_come_back(pairs: list[tuple[str, str]]) -> None:
    escaped = [(kind, "".join(f"\\{octet:02X}" for octet in value.encode())) for kind, value in pairs]
    name = parse(",".join(f"{kind}={value}" for kind, value in escaped))
    assert name == DistinguishedName(tuple(((kind, value),) for kind, value in pairs))
