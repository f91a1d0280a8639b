"""The other engine: atheris, which is led by coverage. It is optional, and looks at Python code only.

Its corpus begins with the seeds of the target and is kept below the directory of failures, so that the next
run begins where this one ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

ATHERIS_TARGETS_FLAG = "--within-atheris"


def run_atheris(name: str, inputs: int, seed: int, failures: Path) -> int:
    """Fuzz one target. Comes back only when it could not begin: the engine ends the process."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris, or use --engine mutation")
    with atheris.instrument_imports(include=["edged"]):
        from tests.fuzz.targets import named
    target = named(name)
    corpus = failures / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(data)
    words = failures / f"{name}.dict"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    options = [
        *(f"-runs={inputs}", f"-seed={seed or 1}", "-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"),
        *(f"-artifact_prefix={failures}/{name}-", f"-dict={words}", "-verbosity=0", str(corpus)),
    ]
    atheris.Setup([sys.argv[0], *options], target.run)
    atheris.Fuzz()
    return 0


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)
