"""The source obeys its rules: who may import what, sizes, docstrings, names, words.

All offences are listed at once. The rules themselves are in tidy_rules.py; the second half of this file shows
that each of them can fail.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests import tidy_rules
from tests.tidy_rules import Source

ROOT = Path(__file__).parent.parent
CODE = ("edged", "hub", "spark_ingest", "tests", "benchmarks", "tools")
OURS = ("edged", "hub", "spark_ingest", "tests", "benchmarks")
TEXT_SUFFIXES = (
    *(".py", ".pyx", ".pyi", ".md", ".toml", ".txt", ".conf", ".mjs", ".js", ".json", ".sh", ".yml", ".yaml"),
    *(".service", ".example", ".install", ""),
)
# What make builds and what others brought.
NOT_OURS = frozenset(
    (
        *(".git", ".venv", "build", "data", "dist", "node_modules", "__pycache__", "results"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"),
    )
)


def files(*suffixes: str, below: str = ".") -> Iterator[Source]:
    """The files of the repository with one of these suffixes."""
    for path in sorted((ROOT / below).rglob("*")):
        parts = path.relative_to(ROOT).parts
        if NOT_OURS & set(parts) or any(part.endswith(".egg-info") for part in parts):
            continue
        if path.is_file() and path.suffix in suffixes:
            yield Source.read(ROOT, path)


def code(*suffixes: str) -> Iterator[Source]:
    """The Python files of the project and its tests."""
    for directory in CODE:
        yield from files(*suffixes, below=directory)


def check(offences: Iterable[str]) -> None:
    """Fail with all offences, if there are any."""
    found = list(dict.fromkeys(offences))
    if found:
        pytest.fail(f"{len(found)} offences:\n" + "\n".join(found), pytrace=False)


def offences(rule: Callable[[Source], Iterator[str]], sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        yield from rule(source)


def test_files_and_functions_are_short() -> None:
    check(offences(tidy_rules.sizes, code(".py", ".pyx")))


def test_modules_and_public_classes_say_what_they_are_for() -> None:
    check(offences(tidy_rules.docstrings, code(".py")))


def test_names_say_what_is_inside() -> None:
    check(offences(tidy_rules.names, code(".py")))


def test_no_exception_is_swallowed() -> None:
    check(offences(tidy_rules.swallowed, code(".py")))


def test_nothing_is_unfinished_and_nothing_names_machines_registries_or_its_making() -> None:
    check(offences(tidy_rules.words, files(*TEXT_SUFFIXES)))


def test_edged_never_imports_hub_or_tests() -> None:
    wrong = ("hub", "spark_ingest", "tests", "benchmarks")
    check(
        line
        for source in files(".py", ".pyx", below="edged")
        for line in tidy_rules.forbidden_imports(source, wrong)
    )


def test_hub_never_imports_spark_ingest_or_tests() -> None:
    wrong = ("spark_ingest", "tests", "benchmarks")
    check(
        line for source in files(".py", below="hub") for line in tidy_rules.forbidden_imports(source, wrong)
    )


@pytest.mark.parametrize("directory", ["edged/core", "edged/store", "edged/config"])
def test_core_store_and_config_never_import_trio_or_the_server(directory: str) -> None:
    wrong = ("trio", "edged.server", "edged.daemon", "edged.sync")
    check(
        line
        for source in files(".py", ".pyx", below=directory)
        for line in tidy_rules.forbidden_imports(source, wrong)
    )


@pytest.mark.parametrize("directory", ["edged/core", "hub/raft"])
def test_pure_code_does_no_io_reads_no_clock_and_draws_no_numbers(directory: str) -> None:
    check(offences(tidy_rules.impurities, files(".py", ".pyx", below=directory)))


def test_core_knows_only_core_and_the_types_of_options() -> None:
    of_options = ("options", "jetstream_options")
    allowed = ("edged.core", *(f"edged.config.{name}" for name in of_options))
    sources = files(".py", ".pyx", below="edged/core")
    check(line for source in sources for line in tidy_rules.imports_outside(source, OURS, allowed))
    # The types of options are part of core's world, so they are held to its rules.
    for name in of_options:
        options = Source.read(ROOT, ROOT / f"edged/config/{name}.py")
        check([*tidy_rules.impurities(options), *tidy_rules.imports_outside(options, OURS, allowed)])


def test_spark_ingest_knows_only_core() -> None:
    allowed = ("spark_ingest", "edged.core")
    sources = files(".py", below="spark_ingest")
    check(line for source in sources for line in tidy_rules.imports_outside(source, OURS, allowed))


def test_raft_needs_the_standard_library_only() -> None:
    def foreign(source: Source) -> Iterator[str]:
        for line, module in tidy_rules.imports(source):
            if module.split(".")[0] not in sys.stdlib_module_names and not tidy_rules.is_within(
                module, ("hub.raft",)
            ):
                yield f"{source.path}:{line}: imports {module}"

    check(offences(foreign, files(".py", below="hub/raft")))


# --- each rule can fail ---


def found(
    rule: Callable[[Source], Iterator[str]], text: str, path: str = "edged/core/planted.py"
) -> list[str]:
    return list(rule(Source(path, text)))


def test_long_file_and_long_function_are_found() -> None:
    assert len(found(tidy_rules.sizes, "x = 1\n" * 501)) == 1
    assert found(tidy_rules.sizes, "x = 1\n" * 500) == []
    body = "    x = 1\n" * 70
    assert len(found(tidy_rules.sizes, f"def f():\n{body}")) == 1
    assert found(tidy_rules.sizes, f"async def f():\n{body[10:]}") == []


def test_missing_docstrings_are_found() -> None:
    assert len(found(tidy_rules.docstrings, "x = 1\nclass A:\n    pass\nclass _B:\n    pass\n")) == 2
    assert found(tidy_rules.docstrings, "") == []


@pytest.mark.parametrize(
    "path", ["edged/utils.py", "edged/common/x.py", "edged/core/base.py", "hub/_helpers.py"]
)
def test_empty_names_are_found(path: str) -> None:
    assert found(tidy_rules.names, "", path)


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    f()\nexcept Exception:\n    pass\n",
        "try:\n    f()\nexcept (OSError, BaseException):\n    ...\n",
        "try:\n    f()\nexcept:\n    raise\n",
        "with contextlib.suppress(Exception):\n    f()\n",
        "for x in y:\n    try:\n        f()\n    except Exception as e:\n        continue\n",
    ],
)
def test_swallowed_exceptions_are_found(text: str) -> None:
    assert len(found(tidy_rules.swallowed, text)) == 1


def test_named_exception_may_be_ignored() -> None:
    assert found(tidy_rules.swallowed, "try:\n    f()\nexcept OSError:\n    pass\n") == []


@pytest.mark.parametrize(
    "halves",
    [
        ("TO", "DO: later"),
        ("FIX", "ME"),
        ("see /wo", "rk/main"),
        ("pip install -i https://py", "pi.org/simple"),
        ("made by an LL", "M"),
    ],
)
def test_words_that_do_not_belong_are_found(halves: tuple[str, str]) -> None:
    assert len(found(tidy_rules.words, f"# {''.join(halves)}\n")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import trio",
        "from time import monotonic",
        "def f():\n    import random",
        "import urllib.request",
        "from urllib import request",
        "from concurrent.futures import Future",
        "data = open('x').read()",
        "then = datetime.now()",
        "key = Ed25519PrivateKey.generate()",
        "import os",
    ],
)
def test_impure_code_is_found(text: str) -> None:
    assert found(tidy_rules.impurities, text)


def test_pure_code_may_parse_urls_and_handle_times() -> None:
    text = "from urllib.parse import urlsplit\nfrom datetime import datetime\nfrom http import HTTPStatus\n"
    assert found(tidy_rules.impurities, text) == []
    assert found(tidy_rules.impurities, "import os", "edged/core/twins.py") == []
    assert found(tidy_rules.impurities, "from libc.string cimport memcpy\n", "edged/core/x.pyx") == []
    assert found(tidy_rules.impurities, "from libc.string cimport memcpy\nimport time\n", "edged/core/x.pyx")


@pytest.mark.parametrize(
    "text", ["import hub", "from hub.raft import core", "def f():\n    from hub import raft"]
)
def test_forbidden_import_is_found(text: str) -> None:
    assert list(tidy_rules.forbidden_imports(Source("edged/x.py", text), ("hub",)))


@pytest.mark.parametrize(
    "text", ["from edged.server import log", "from edged import server", "import edged.daemon"]
)
def test_import_from_outside_is_found(text: str) -> None:
    assert list(tidy_rules.imports_outside(Source("spark_ingest/x.py", text), OURS, ("edged.core",)))


@pytest.mark.parametrize(
    "text",
    ["from edged.core import wire", "from edged import core", "import edged.core.wire", "import hubble"],
)
def test_import_from_inside_is_no_offence(text: str) -> None:
    assert list(tidy_rules.imports_outside(Source("spark_ingest/x.py", text), OURS, ("edged.core",))) == []
