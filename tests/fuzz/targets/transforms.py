"""Subject transforms and mappings: refused with TransformError, or total on every subject."""

from __future__ import annotations

from edged.core import subjects
from edged.core.mapping import Destination, Mapping, SubjectMappings
from edged.core.transform import SubjectTransform, TransformError
from tests.fuzz.target import Target, chance_of

RESULT_BYTES_FACTOR = 3


def run_transform(data: bytes) -> None:
    """The input is source, destination, and subjects, cut at line ends."""
    source, destination, *samples = [*data.split(b"\n")[:8], b""]
    chance = chance_of(data)
    try:
        transform = SubjectTransform.parse(source, destination)
    except TransformError as error:
        assert len(str(error)) < 1000, "an error quotes no more than it needs"
        return
    for subject in samples:
        made = transform.apply_with_chance(subject, chance.randrange)
        if made is None:
            continue
        assert not subjects.has_empty_token(made) or subjects.has_empty_token(subject), made
        assert len(made) <= (len(subject) + 20) * (destination.count(b".") + 2) * 2 + len(destination)
    try:
        strict = SubjectTransform.parse(source, destination, strict=True)
    except TransformError:
        return
    back = strict.reverse()
    for subject in samples:
        made = strict.apply(subject)
        if made is not None:
            assert back.apply(made) == subject, (made, back.source, back.destination)


def run_mapping(data: bytes) -> None:
    """Each line is `source destination weight ...`; the subjects are those words that are literals."""
    chance = chance_of(data)
    mappings = []
    literals = []
    for line in data.split(b"\n")[:6]:
        source, *rest = line.split(b" ")
        weights = [int(word) if word.isdigit() and len(word) < 5 else -1 for word in rest[1::2]]
        destinations = zip(rest[::2], weights, strict=False)
        mappings.append(
            Mapping(source, tuple(Destination(subject, weight) for subject, weight in destinations))
        )
        literals.extend(word for word in (source, *rest) if subjects.is_literal(word))
    try:
        table = SubjectMappings(mappings)
    except TransformError:
        return
    for subject in literals:
        routed = table.route(subject, chance.randrange)
        if table.is_constant(subject):
            assert routed == table.route(subject, chance.randrange)


FUNCTIONS = (
    *(b"$1", b"$2", b"{{wildcard(1)}}", b"{{partition(10,1)}}", b"{{partition(3)}}", b"{{split(1,-)}}"),
    *(b"{{splitfromleft(1,1)}}", b"{{SplitFromRight(1,2)}}", b"{{slicefromleft(1,1)}}", b"{{random(5)}}"),
    *(
        b"{{sliceFromRight(1,2)}}",
        b"{{left(1,3)}}",
        b"{{right(1,3)}}",
        b"{{split(1,)}}",
        b"{{partition(5,1,2)}}",
    ),
)
TRANSFORM_SEEDS = (
    b"a.*\nb.$1\na.x\na.y-z",
    b"a.*.*\nb.$2.$1\na.x.y\na..y",
    b"a.>\nb.>\na.x\na.b.c",
    b">\nx.>\na",
    b"\n\na.b",
    *(b"a.*.*\nb." + function + b"\na.foo-bar.baz\na.x.y" for function in FUNCTIONS),
)
TRANSFORM_WORDS = (
    *FUNCTIONS,
    b"\n",
    b".",
    b"*",
    b">",
    b".*",
    b"{{",
    b"}}",
    b"(",
    b")",
    b",",
    b" ",
    b"-",
    b"\xff",
)
MAPPING_SEEDS = (
    b"a b 50 c 50\nd.* e.$1 100",
    b"a a 20 b 30\n> x.> 10",
    b"a.* b.{{partition(3,1)}} 100\na.x c 100",
    b"a b 100",
)
TARGETS = (
    Target("transform", run_transform, TRANSFORM_SEEDS, TRANSFORM_WORDS, share=5),
    Target("mapping", run_mapping, MAPPING_SEEDS, (*TRANSFORM_WORDS, b" 100", b" 50"), share=3),
)
