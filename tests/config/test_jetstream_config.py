"""The keys of the jetstream block that nats-server does not have: files, cache, reserve and shedding."""

import pytest

from edged.config.describe import describe
from edged.config.document import ConfigError
from edged.config.jetstream_options import JetStreamOptions, SegmentOptions, ShedClass, ShedOptions
from edged.config.load import load_text

MIB = 1024 * 1024


def load(text: str) -> JetStreamOptions:
    jetstream = load_text(f"jetstream {{ {text} }}", {}, "f").options.jetstream
    assert jetstream is not None
    return jetstream


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text)
    return str(caught.value)


def test_sizes_of_journal_cache_and_reserve_are_read() -> None:
    options = load("journal_file_size: 8MB, block_cache_size: '4M', reserve: 2MB")
    assert (options.journal_file_bytes, options.block_cache_bytes) == (8 * MIB, 4 * MIB)
    assert options.reserve_bytes == 2 * MIB


def test_reserve_follows_the_store_unless_it_is_given() -> None:
    assert load("").reserve_bytes is None
    assert load("reserve: auto").reserve_bytes is None
    assert load("reserve: 0").reserve_bytes == 0


def test_segment_settings_are_read_one_by_one() -> None:
    assert load("segment {}").segment == SegmentOptions()
    found = load("segment { block_size: 128KB, compression_level: 9, size_max: 2MB, live_min: 30% }").segment
    assert found == SegmentOptions(128 * 1024, 9, 2 * MIB, 30)


@pytest.mark.parametrize(
    "text", ["meta_compact: 5", "meta_compact_size: 1M", "meta_compact_sync: true", "max_concurrent_io: 4"]
)
def test_key_for_what_edged_does_otherwise_is_checked_and_warned_about(text: str) -> None:
    loaded = load_text(f"jetstream {{ {text} }}", {}, "f")
    assert loaded.options.jetstream == JetStreamOptions()
    (warning,) = loaded.warnings
    assert f"{text.partition(':')[0]} has no effect: " in warning
    assert "expected" in refusal(f"{text.partition(':')[0]}: nonsense")


def test_classes_are_in_the_order_written_unless_they_say_otherwise() -> None:
    shed = load(
        "shed { start: 95%, stop: 70, classes: ["
        "{ name: a, streams: 'A*', accounts: [ONE] }, { name: b, metadata { class: bulk, site: x } },"
        "{ name: c, streams: [C, D], order: 7, may_shed: false },"
        "{ name: d, streams: '*', synced_only: true }] }"
    ).shed
    assert shed == ShedOptions(
        95,
        70,
        (
            ShedClass("a", ("A*",), accounts=("ONE",), order=0),
            ShedClass("b", metadata=(("class", "bulk"), ("site", "x")), order=1),
            ShedClass("c", ("C", "D"), order=7, may_shed=False),
            ShedClass("d", ("*",), order=3, synced_only=True),
        ),
    )


def test_without_classes_nothing_is_shed() -> None:
    assert load("").shed.classes == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "journal_file_size: 4096",
            "f:1:32: journal_file_size: expected a size from 1048576 to 1073741824 b",
        ),
        ("journal_file_size: 2GB", "f:1:32: journal_file_size: expected a size from 1048576 to"),
        ("block_cache_size: -1", "f:1:31: block_cache_size: expected a size of at least 0"),
        ("reserve: -1", "f:1:22: reserve: expected a size of at least 0"),
        ("reserve: some", "f:1:22: reserve: expected a size such as 64MB"),
        ("segment { block_size: 1 }", "f:1:35: block_size: expected a size from 4096 to 1048576 bytes"),
        ("segment { compression_level: 20 }", "f:1:42: compression_level: expected 1 to 19"),
        ("segment { live_min: 101 }", "f:1:33: live_min: expected a percentage from 0 to 100"),
        (
            "segment { blocksize: 1 }",
            "f:1:23: unknown key 'blocksize' in jetstream.segment: did you mean 'bl",
        ),
        ("shed { start: 80, stop: 80 }", "f:1:18: shed: stop must be less than start"),
        ("shed { stop: 95 }", "f:1:18: shed: stop must be less than start"),
        ("shed { classes: {} }", "f:1:29: classes: expected an array"),
        ("shed { classes: [{ streams: a }] }", "f:1:30: classes: a class needs a name"),
        ("shed { classes: [{ name: a }] }", "f:1:30: classes: class 'a' needs streams or metadata"),
        (
            "shed { classes: [{ name: a, streams: a }, { name: a, streams: b }] }",
            "f:1:55: classes: class 'a' is there twice",
        ),
        (
            "shed { classes: [{ name: a, streams: a, may_shed: false, synced_only: true }] }",
            "f:1:30: classes: class 'a' is synced_only, which means nothing without may_shed",
        ),
    ],
)
def test_wrong_value_is_refused_with_place_key_and_remedy(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


def test_description_says_whether_the_store_is_encrypted_and_not_by_which_key() -> None:
    options = load_text("jetstream { key: 'a key of many characters', cipher: aes }", {}).options
    assert any(line.endswith("sync always, encrypted (aes)") for line in describe(options))
    assert not any("many" in line for line in describe(options))
