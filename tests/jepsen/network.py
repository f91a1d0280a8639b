"""A network of its own: a bridge with one network namespace per node, between which packets can be dropped.

Rules: everything is inside the network, mount and process namespaces of run_isolated(), so that addresses
collide with nothing and nothing outlives the run. Only `ip` and `nsenter` are needed: every node has a fixed
table of its neighbours' hardware addresses, and a node is cut off from another one by a wrong entry. Its
packets then go to nobody, without an error, in this direction only; connections see silence, as with a real
partition.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.disks.loop_filesystem import NotPossibleError

NODES_MAX: Final = 100
_BRIDGE: Final = "cluster"
_DEVICE: Final = "eth0"
_NOWHERE: Final = "02:00:00:00:ff:ff"
_PRIVATE: Final = "10.99.0"
_HARNESS: Final = f"{_PRIVATE}.254"


def check_possible() -> None:
    """Raise NotPossibleError unless namespaces can be made here."""
    if os.geteuid() != 0:
        raise NotPossibleError("network namespaces need root")
    missing = [program for program in ("ip", "nsenter", "unshare") if shutil.which(program) is None]
    if missing:
        raise NotPossibleError(f"not installed: {', '.join(missing)} (tools/system-packages network)")


def address_of(place: int) -> str:
    """The address of the node at a place, counted from 1."""
    assert 1 <= place <= NODES_MAX, place
    return f"{_PRIVATE}.{place}"


def hardware_address_of(place: int) -> str:
    return f"02:00:00:00:00:{place:02x}"


class Network:
    """Nodes are known by their places. A new one can reach all others, and they it."""

    def __init__(self) -> None:
        self._places: list[int] = []
        # Ordered pairs: packets from the first do not reach the second.
        self._cut: set[tuple[int, int]] = set()
        # Names of namespaces are files below /run: not those of the machine.
        _command("mount", "-t", "tmpfs", "tmpfs", "/run")
        _ip(
            "link set lo up",
            f"link add {_BRIDGE} type bridge",
            f"addr add {_HARNESS}/24 dev {_BRIDGE}",
            f"link set {_BRIDGE} up",
        )

    def add(self, place: int) -> None:
        """Make the namespace of a node."""
        assert place not in self._places, place
        name, port = _name(place), _port(place)
        _ip(
            f"netns add {name}",
            f"link add {port} type veth peer name {_DEVICE} netns {name}",
            f"link set {port} master {_BRIDGE} up",
        )
        _ip(
            "link set lo up",
            f"link set {_DEVICE} address {hardware_address_of(place)}",
            f"addr add {address_of(place)}/24 dev {_DEVICE}",
            f"link set {_DEVICE} up",
            namespace=name,
        )
        self._places.append(place)
        for other in self._places:
            if other != place:
                self._tell(place, [other])
                self._tell(other, [place])

    def command_in(self, place: int) -> tuple[str, ...]:
        """What to put before a command so that it runs in a node's namespace, and in no other new one."""
        return ("nsenter", f"--net=/run/netns/{_name(place)}")

    def cut(self, senders: Iterable[int], receivers: Iterable[int]) -> None:
        """From now on nothing that senders send reaches receivers."""
        self._set(self._cut | {(a, b) for a in senders for b in receivers if a != b})

    def divide(self, *parts: Iterable[int]) -> None:
        """From now on nothing passes between the parts; inside of them everything does."""
        groups = [set(part) for part in parts]
        self._set(
            {(a, b) for one in groups for other in groups if one is not other for a in one for b in other}
        )

    def heal(self) -> None:
        """Everybody reaches everybody."""
        self._set(set())

    def close(self) -> None:
        """Remove all of it, once no process is in it any more."""
        for place in self._places:
            # With its namespace the port would go some time later, and the next network needs its name.
            _ip(f"link del {_port(place)}", f"netns del {_name(place)}")
        _ip(f"link del {_BRIDGE}")
        _command("umount", "--lazy", "/run")

    def _set(self, cut: set[tuple[int, int]]) -> None:
        changed, self._cut = cut ^ self._cut, cut
        for sender in sorted({sender for sender, _ in changed}):
            self._tell(sender, sorted(receiver for one, receiver in changed if one == sender))

    def _tell(self, sender: int, receivers: list[int]) -> None:
        """Write entries of a node's table."""
        lines = []
        for receiver in receivers:
            is_cut = (sender, receiver) in self._cut
            hardware = _NOWHERE if is_cut else hardware_address_of(receiver)
            lines.append(
                f"neigh replace {address_of(receiver)} lladdr {hardware} dev {_DEVICE} nud permanent"
            )
        _ip(*lines, namespace=_name(sender))


def _name(place: int) -> str:
    return f"n{place}"


def _port(place: int) -> str:
    """Its end at the bridge."""
    return f"port{place}"


def _ip(*lines: str, namespace: str | None = None) -> None:
    """Several commands of `ip` at once."""
    options = ("-n", namespace) if namespace else ()
    _command("ip", *options, "-batch", "-", text="\n".join(lines) + "\n")


def _command(*arguments: str, text: str = "") -> None:
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(done.returncode, f"{' '.join(arguments)}: {done.stderr.strip()} {text.strip()}")


def namespaces() -> list[str]:
    """The names of those that there are, for tests."""
    return sorted(path.name for path in Path("/run/netns").glob("n*"))
