"""A directory of account JWTs, one file per account: the full and the cache resolver.

Layout: `<directory>/<account public key>.jwt`; a removed account is kept as `<key>.jwt.deleted` unless the
operator chose hard deletes. This is nats-server's layout, so a directory can be taken over as it is.

Rules: a file name is made of a public key that passed validation, never of other text. A file is replaced
as a whole: written aside, synced, renamed, and the directory synced, so that a power cut leaves the old or
the new one. What is read back is bounded in size and handed on as text: whether it is a trusted token is
for the caller, who verifies it every time. Links and other things that are no plain files are not followed.
Plain blocking code: callers run it in a thread.
"""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edged.core.claims import AccountClaims, decode_account
from edged.core.jwt import TOKEN_CHARACTERS_MAX, ClaimsError
from edged.core.nkeys import KeyKind, is_public

SUFFIX: Final = ".jwt"
DELETED_SUFFIX: Final = ".deleted"
_TEMPORARY_SUFFIX: Final = ".new"
_FILE_MODE: Final = 0o640
_DIRECTORY_MODE: Final = 0o750


class JwtDirectoryError(Exception):
    """The directory could not do what was asked; the text says why and names the path, never a token."""


@dataclass(frozen=True, slots=True)
class JwtDirectory:
    """limit 0 means no limit. A full cache drops the least recently used account to take a new one."""

    path: Path
    is_cache: bool = False
    allow_delete: bool = False
    hard_delete: bool = False
    limit: int = 0
    ttl_s: float = 0.0  # of a cache: an account not read or written for so long is dropped; 0 means never

    def prepare(self) -> None:
        """Create the directory and remove what an interrupted write left behind."""
        try:
            self.path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            for entry in list(self.path.iterdir()):
                if entry.name.endswith(_TEMPORARY_SUFFIX) and self._key_of(entry.name, _TEMPORARY_SUFFIX):
                    entry.unlink()
        except OSError as error:
            raise JwtDirectoryError(f"cannot use {self.path}: {error.strerror}") from error

    def read(self, public_key: str) -> str | None:
        """The token of an account; None when there is none."""
        path = self._file(public_key)
        try:
            # A cache orders its files by use; the time of access would need a mount that keeps it.
            if self.is_cache:
                os.utime(path, follow_symlinks=False)
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):
                return None
            raise JwtDirectoryError(f"cannot read {path}: {error.strerror}") from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > TOKEN_CHARACTERS_MAX:
                return None
            data = os.read(descriptor, TOKEN_CHARACTERS_MAX)
        except OSError as error:
            raise JwtDirectoryError(f"cannot read {path}: {error.strerror}") from error
        finally:
            os.close(descriptor)
        return data.decode("ascii").strip() if data.isascii() else None

    def write(self, public_key: str, token: str) -> bool:
        """Store a token when it is newer than the stored one; True when the directory changed.

        The token must be this account's. A stored file that is no token is replaced.
        """
        claims = _claims_of(public_key, token)
        stored = self.read(public_key)
        if stored is not None:
            try:
                known = _claims_of(public_key, stored)
            except JwtDirectoryError:
                known = None
            if stored == token or (known is not None and known.token.issued_at_s > claims.token.issued_at_s):
                return False
        elif self.limit and len(self.keys()) >= self.limit:
            self._make_room()
        self._replace(self._file(public_key), token.encode("ascii"))
        return True

    def delete(self, public_key: str) -> bool:
        """Remove an account, when the configuration allows it; False when it was not there."""
        if not self.allow_delete:
            raise JwtDirectoryError("deletes are not allowed: set allow_delete in the resolver")
        path = self._file(public_key)
        try:
            if self.hard_delete:
                path.unlink()
            else:
                path.rename(path.with_name(path.name + DELETED_SUFFIX))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise JwtDirectoryError(f"cannot remove {path}: {error.strerror}") from error
        _sync_directory(self.path)
        return True

    def keys(self) -> list[str]:
        """The public keys of the stored accounts, sorted."""
        try:
            with os.scandir(self.path) as entries:
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except OSError as error:
            raise JwtDirectoryError(f"cannot list {self.path}: {error.strerror}") from error
        return sorted(key for name in names if (key := self._key_of(name, "")) is not None)

    def drop_stale(self, now_s: float) -> list[str]:
        """Of a cache: remove accounts that nobody used for the time to live; returns their keys."""
        if not self.is_cache or self.ttl_s <= 0:
            return []
        stale = [key for used_at_s, key in self._by_use() if used_at_s + self.ttl_s <= now_s]
        for key in stale:
            self._file(key).unlink(missing_ok=True)
        return stale

    def _make_room(self) -> None:
        if not self.is_cache:
            raise JwtDirectoryError(f"{self.path} holds as many accounts as its limit allows")
        for _, key in self._by_use()[: len(self.keys()) - self.limit + 1]:
            self._file(key).unlink(missing_ok=True)

    def _by_use(self) -> list[tuple[float, str]]:
        """The accounts, least recently used first."""
        used: list[tuple[float, str]] = []
        for key in self.keys():
            try:
                used.append((self._file(key).lstat().st_mtime, key))
            except FileNotFoundError:
                continue
        return sorted(used)

    def _file(self, public_key: str) -> Path:
        if not is_public(public_key, KeyKind.ACCOUNT):
            raise JwtDirectoryError("not the public key of an account")
        return self.path / (public_key + SUFFIX)

    @staticmethod
    def _key_of(name: str, further_suffix: str) -> str | None:
        key = name.removesuffix(SUFFIX + further_suffix)
        return key if key != name and is_public(key, KeyKind.ACCOUNT) else None

    def _replace(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + _TEMPORARY_SUFFIX)
        try:
            temporary.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, _FILE_MODE), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise JwtDirectoryError(f"cannot write {path}: {error.strerror}") from error
        _sync_directory(self.path)


def _claims_of(public_key: str, token: str) -> AccountClaims:
    try:
        claims = decode_account(token)
    except ClaimsError as error:
        raise JwtDirectoryError(f"not the token of an account: {error}") from error
    if claims.key != public_key:
        raise JwtDirectoryError("the token is of another account")
    return claims


def _sync_directory(path: Path) -> None:
    """Make a rename or a removal in the directory durable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise JwtDirectoryError(f"cannot sync {path}: {error.strerror}") from error
