"""Shows what the network does, for its test: `python -m tests.jepsen.network_trial` in namespaces of its own.

Each node runs a process that listens, and some that connect to other nodes. Prints one JSON object: by step,
which pairs of nodes reach each other.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

from tests.jepsen.network import Network, address_of, namespaces

PLACES: Final = (1, 2, 3)
PORT: Final = 9000
_LISTEN: Final = (
    "import socket\n"
    f"with socket.create_server(('0.0.0.0', {PORT})) as listener:\n"
    "    print('ready', flush=True)\n"
    "    while True:\n"
    "        connection, _ = listener.accept()\n"
    "        connection.sendall(b'x')\n"
    "        connection.close()\n"
)
_CONNECT: Final = (
    "import socket, sys\n"
    "try:\n"
    f"    with socket.create_connection((sys.argv[1], {PORT}), timeout=0.5) as connection:\n"
    "        sys.exit(connection.recv(1) != b'x')\n"
    "except TimeoutError:\n"
    "    sys.exit(3)\n"
)


def reached(network: Network) -> list[str]:
    """Pairs of which the first connects to the second. Any other error than silence ends the trial."""
    attempts = {
        f"{a}{b}": subprocess.Popen([*network.command_in(a), sys.executable, "-c", _CONNECT, address_of(b)])
        for a in PLACES
        for b in PLACES
        if a != b
    }
    statuses = {pair: process.wait(20) for pair, process in attempts.items()}
    assert set(statuses.values()) <= {0, 3}, statuses
    return [pair for pair, status in statuses.items() if status == 0]


def main() -> None:
    network = Network()
    for place in PLACES:
        network.add(place)
    listeners = [
        subprocess.Popen([*network.command_in(place), sys.executable, "-c", _LISTEN], stdout=subprocess.PIPE)
        for place in PLACES
    ]
    steps = {}
    try:
        for listener in listeners:
            assert listener.stdout is not None
            listener.stdout.readline()
        steps["whole"] = reached(network)
        network.divide([1], [2, 3])
        steps["one apart"] = reached(network)
        network.divide([1, 2], [3])
        steps["another apart"] = reached(network)
        network.heal()
        steps["healed"] = reached(network)
        network.cut([1], [2])
        steps["one way"] = reached(network)
    finally:
        for listener in listeners:
            listener.kill()
            listener.wait()
    network.close()
    steps["namespaces left"] = namespaces()
    print(json.dumps(steps))


if __name__ == "__main__":
    main()
