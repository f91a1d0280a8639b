"""The command: `python -m tests.fuzz --inputs 1000000 [--target NAME] [--seed N] [--replay FILE]`.

Prints progress to stderr and failures to stdout; the exit status is 1 when something failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.coverage import ATHERIS_TARGETS_FLAG, run_atheris

FAILURES = Path("build/fuzz")


def arguments_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs in total, over all targets")
    parser.add_argument("--target", action="append", help="only this target; may be given several times")
    parser.add_argument("--seed", type=int, help="what chance begins with; the time when not given")
    parser.add_argument("--engine", choices=("mutation", "atheris"), default="mutation")
    parser.add_argument("--replay", type=Path, help="run one input that failed before")
    parser.add_argument("--list", action="store_true", help="print the names of the targets")
    parser.add_argument("--failures", type=Path, default=FAILURES, help="where failing inputs are kept")
    parser.add_argument(ATHERIS_TARGETS_FLAG, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = arguments_from(argv)
    if arguments.within_atheris:
        return run_atheris(arguments.target[0], arguments.inputs, arguments.seed, arguments.failures)
    # The engine that counts coverage must be there before what it looks at: everything is imported late.
    from tests.fuzz.targets import TARGETS, named

    if arguments.list:
        print("\n".join(target.name for target in TARGETS))
        return 0
    if arguments.replay is not None:
        return replay(arguments.replay, arguments.target)
    try:
        targets = [named(name) for name in arguments.target] if arguments.target else list(TARGETS)
    except LookupError as error:
        sys.exit(str(error.args[0]))
    from tests.fuzz.engine import shares

    seed = time.time_ns() % 2**31 if arguments.seed is None else arguments.seed
    failed = []
    for target, inputs in shares(targets, arguments.inputs):
        if arguments.engine == "atheris":
            is_good = start_atheris(target.name, inputs, seed, arguments.failures)
        else:
            is_good = run_mutation(target.name, inputs, seed, arguments.failures)
        if not is_good:
            failed.append(target.name)
    print(f"seed {seed}: {'failed: ' + ', '.join(failed) if failed else 'no failures'}", flush=True)
    return 1 if failed else 0


def run_mutation(name: str, inputs: int, seed: int, failures: Path) -> bool:
    from tests.fuzz.engine import fuzz, memory_bytes
    from tests.fuzz.targets import named

    started = time.monotonic()

    def progress(count: int) -> None:
        per_s = count / max(0.001, time.monotonic() - started)
        memory = memory_bytes() // 2**20
        if count < inputs and not sys.stderr.isatty():
            return  # A log wants the outcome, not the way there.
        end = "\n" if count == inputs else "\r"
        sys.stderr.write(f"{name:12} {count:9,} of {inputs:,}  {per_s:8,.0f}/s  {memory:4} MiB{end}")
        sys.stderr.flush()

    failure = fuzz(named(name), inputs, seed, progress)
    if failure is None:
        return True
    sys.stderr.write("\n")
    print(f"FAILED: {failure}\nreplay: python -m tests.fuzz --replay {failure.write(failures)}\n", flush=True)
    return False


def replay(path: Path, targets: list[str] | None) -> int:
    """The target is in the name of the file, unless it is given."""
    from tests.fuzz.engine import error_of
    from tests.fuzz.targets import named

    target = named(targets[0] if targets else path.name.split("-")[0])
    error = error_of(target, path.read_bytes())
    print(f"{target.name}: {'passes' if error is None else error}")
    return 0 if error is None else 1


def start_atheris(name: str, inputs: int, seed: int, failures: Path) -> bool:
    """One process for each target: the engine ends the one it runs in."""
    command = [sys.executable, "-m", "tests.fuzz", ATHERIS_TARGETS_FLAG, "--target", name]
    command += ["--inputs", str(inputs), "--seed", str(seed), "--failures", str(failures)]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
