"""Who may use JetStream, where it keeps its files, and how much of the machine it takes when nobody says.

Rules: it takes three quarters of the memory, and three quarters of the disk, when it starts: of what is free,
and of what it has taken already, so that a restart does not shrink it. A directory that is not there yet
counts as its next parent that is.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edged.config.options import GLOBAL_ACCOUNT

if TYPE_CHECKING:
    from edged.config.jetstream_options import JetStreamOptions
    from edged.config.options import Options
    from edged.server.account import Account
    from edged.server.server import Server

_SHARE_PERCENT: Final = 75
_BLOCK_BYTES: Final = 512


def is_enabled(server: Server, account: Account) -> bool:
    """Whether an account may use JetStream: it says so, or is the global one and there are no others.

    Where accounts are known from tokens nobody is in the global one.
    """
    if server.options.jetstream is None or account.is_system:
        return False
    if account.options.jetstream is not None or account.options.jetstream_tiers:
        return True
    if server.options.operators:
        return False
    usual = (GLOBAL_ACCOUNT, server.system_account_name)
    return account.name == GLOBAL_ACCOUNT and all(one.name in usual for one in server.options.accounts)


def store_directory(options: Options, jetstream: JetStreamOptions) -> Path:
    """The directory of the store: below the one that is configured, as nats-server has it."""
    parent = jetstream.store_dir or options.store_dir or Path(tempfile.gettempdir()) / "nats"
    return Path(parent) / "jetstream"


def with_shares(jetstream: JetStreamOptions, directory: Path) -> JetStreamOptions:
    """The options with the limits filled in that follow from the machine."""
    max_memory = jetstream.max_memory if jetstream.max_memory >= 0 else _memory_share_bytes()
    max_store = jetstream.max_store if jetstream.max_store >= 0 else _disk_share_bytes(directory)
    return replace(jetstream, max_memory=max_memory, max_store=max_store)


def _memory_share_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _SHARE_PERCENT // 100


def _disk_share_bytes(directory: Path) -> int:
    """A share of the disk that the directory is or will be on: of what is free or the store's already."""
    for place in (directory, *directory.parents):
        try:
            disk = os.statvfs(place)
        except OSError:
            continue
        return (disk.f_bavail * disk.f_frsize + _used_bytes(directory)) * _SHARE_PERCENT // 100
    return 0


def _used_bytes(directory: Path) -> int:
    return sum(path.stat().st_blocks * _BLOCK_BYTES for path in directory.rglob("*") if path.is_file())
