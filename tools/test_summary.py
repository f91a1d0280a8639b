"""Print what test runs came to: `python3 tools/test_summary.py DIRECTORY RUN...`.

Reads DIRECTORY/RUN.xml as written by `pytest --junitxml`. Rules: the exit status is 0 only when every run has
left a result, ran at least one test, and no test failed or was skipped. Standard library only, because the
machine may have nothing else when a run could not even start.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one test run."""

    name: str
    tests: int
    seconds: float
    failed: tuple[str, ...]
    skipped: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether every test ran and passed."""
        return self.tests > 0 and not self.failed and not self.skipped

    def line(self) -> str:
        """One line for people."""
        passed = self.tests - len(self.failed) - len(self.skipped)
        verdict = "ok" if self.is_good else "FAILED"
        return (
            f"{self.name}: {verdict}: {passed} passed, {len(self.failed)} failed, "
            f"{len(self.skipped)} skipped in {self.seconds:.0f} s"
        )


def read_run(path: Path) -> Run:
    """The figures in a result file. ValueError when it is not one."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise ValueError(f"{path.stem}: FAILED: no result ({error})") from error
    cases = list(root.iter("testcase"))

    def names(*kinds: str) -> tuple[str, ...]:
        # A test that is expected to fail, and did, is written down as skipped; it ran all the same.
        return tuple(
            f"{case.get('classname')}::{case.get('name')}"
            for case in cases
            if any(found.get("type") != "pytest.xfail" for kind in kinds for found in case.findall(kind))
        )

    seconds = sum(float(suite.get("time", "0")) for suite in root.iter("testsuite"))
    return Run(path.stem, len(cases), seconds, names("failure", "error"), names("skipped"))


def main(arguments: list[str]) -> int:
    """Print the summary of the runs; returns the exit status."""
    directory, *wanted = arguments
    status = 0
    lines: list[str] = []
    for name in wanted:
        try:
            run = read_run(Path(directory) / f"{name}.xml")
        except ValueError as error:
            lines.append(str(error))
            status = 1
            continue
        lines.append(run.line())
        for test in run.failed:
            print(f"failed in {name}: {test}")
        for test in run.skipped:
            print(f"skipped in {name}: {test}")
        if not run.is_good:
            status = 1
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
