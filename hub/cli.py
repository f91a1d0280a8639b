"""The command `edged-hub`: a node of a cluster. Without a cluster in its configuration it is `edged`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edged import cli
from edged.config.options import Options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; argv is what follows the program name."""
    return cli.main(argv, _start)


def _start(options: Options, config_path: Path | None, reapply: Callable[[Options], Options]) -> int:
    # Much is imported here that a wrong command line should not wait for.
    from edged.daemon import Alone, run
    from hub.daemon import ClusterNode

    def surroundings(of: Options) -> ClusterNode | Alone:
        is_clustered = of.cluster is not None and of.cluster.port != 0
        return ClusterNode() if is_clustered else Alone()

    return run(options, config_path, reapply, surroundings)
