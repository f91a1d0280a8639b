"""Where nodes and clients connect to: addresses as they are configured, told to others and given to clients.

An address is a text `host:port`; an IPv6 host stands in brackets.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

from edged.config.options import ClusterOptions

PORT_DEFAULT: Final = 6222
_ANY: Final = frozenset(("", "0.0.0.0", "::"))
# The request of Linux for the address of an interface, and where it stands in the answer.
_SIOCGIFADDR: Final = 0x8915
_ADDRESS_AT: Final = slice(20, 24)


@dataclass(frozen=True, slots=True)
class Target:
    """A node to dial."""

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    # It stands in the configuration, and is dialled whatever happens.
    is_configured: bool = False

    @property
    def address(self) -> str:
        return joined(self.host, self.port)


def configured_targets(options: ClusterOptions) -> list[Target]:
    """The routes of the configuration; credentials that an URL does not have are those of the cluster."""
    return [_target(url, options) for url in options.routes]


def learnt_target(address: str, options: ClusterOptions) -> Target:
    """A node that another node told of."""
    host, port = parted(address)
    return Target(host, port, options.user, options.password)


def _target(url: str, options: ClusterOptions) -> Target:
    parts = urlsplit(url if "://" in url else f"nats-route://{url}")
    user, password = options.user, options.password
    if parts.username is not None:
        user, password = unquote(parts.username), unquote(parts.password or "")
    return Target(parts.hostname or "127.0.0.1", parts.port or PORT_DEFAULT, user, password, True)


def joined(host: str, port: int) -> str:
    """An address from its parts."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parted(address: str) -> tuple[str, int]:
    """Host and port of an address, which has been checked."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def own_address(options: ClusterOptions, port: int) -> str:
    """Where other nodes reach this one. With any interface, the host is left for them to see."""
    if options.advertise:
        return _with_port(options.advertise, port)
    return f":{port}" if options.host in _ANY else joined(options.host, port)


def seen_from(address: str, remote_ip: str) -> str:
    """The address that a node told of itself, with the host that its connection comes from if it has none."""
    if not address.startswith(":"):
        return address
    return joined(remote_ip, int(address[1:]))


def client_urls(advertise: str | None, host: str, port: int) -> tuple[str, ...]:
    """Where clients reach this node: as advertised, or at every address that is listened on."""
    if port <= 0:
        return ()
    if advertise:
        return (_with_port(advertise, port),)
    if host not in _ANY:
        return (joined(host, port),)
    return tuple(joined(found, port) for found in _interface_addresses())


def _with_port(advertise: str, port: int) -> str:
    """What is to be advertised; without a port it is the one that is listened on."""
    parts = urlsplit(f"//{advertise}")
    return joined(parts.hostname or "", parts.port or port)


def _interface_addresses() -> list[str]:
    """The IPv4 addresses of this machine by which others may reach it."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # An interface without an address.
            address = ip_address(answer[_ADDRESS_AT])
            if not address.is_loopback and not address.is_link_local:
                found.append(str(address))
    return found
