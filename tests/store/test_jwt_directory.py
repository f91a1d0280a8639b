"""The directory of account JWTs: names made of keys only, whole files or none, bounds and deletes."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.jwt import TOKEN_CHARACTERS_MAX
from edged.core.nkeys import KeyKind
from edged.store.jwt_directory import JwtDirectory, JwtDirectoryError
from tests import tokens
from tests.tokens import ISSUED_AT_S, public

A, B, C = (public(KeyKind.ACCOUNT, name) for name in "ABC")


def token(name: str, issued_at_s: int = ISSUED_AT_S, **nats: Any) -> str:
    return tokens.account_token(name, top={"iat": issued_at_s}, **nats)


def test_written_token_is_read_back_and_listed(tmp_path: Path) -> None:
    directory = JwtDirectory(tmp_path / "deep" / "jwt")
    directory.prepare()
    assert directory.read(A) is None
    assert directory.write(A, token("A"))
    assert directory.write(B, token("B"))
    assert directory.read(A) == token("A")
    assert directory.keys() == sorted([A, B])
    assert {path.name for path in directory.path.iterdir()} == {f"{A}.jwt", f"{B}.jwt"}


def test_newer_token_replaces_and_older_or_equal_does_not(tmp_path: Path) -> None:
    directory = JwtDirectory(tmp_path)
    assert directory.write(A, token("A", 10))
    assert not directory.write(A, token("A", 10))
    assert not directory.write(A, token("A", 9))
    assert directory.write(A, token("A", 11))
    assert directory.read(A) == token("A", 11)


def test_damaged_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f"{A}.jwt").write_text("damaged")
    directory = JwtDirectory(tmp_path)
    assert directory.read(A) == "damaged"
    assert directory.write(A, token("A"))
    assert directory.read(A) == token("A")


@pytest.mark.parametrize(
    "name", ["", "..", "../x", "/etc/passwd", "B" * 56, A.lower(), A + "\n", A + "/..", "a\0b"]
)
def test_text_that_is_no_account_key_never_becomes_a_path(tmp_path: Path, name: str) -> None:
    directory = JwtDirectory(tmp_path / "jwt", allow_delete=True)
    directory.prepare()
    for use in (directory.read, directory.delete, lambda key: directory.write(key, token("A"))):
        with pytest.raises(JwtDirectoryError):
            use(name)
    assert list(tmp_path.iterdir()) == [directory.path]
    assert list(directory.path.iterdir()) == []


@given(st.text(max_size=60))
def test_any_text_as_a_key_is_refused(name: str) -> None:
    with pytest.raises(JwtDirectoryError):
        JwtDirectory(Path("/nonexistent")).read(name)


def test_keys_of_users_and_operators_are_no_accounts(tmp_path: Path) -> None:
    for kind in (KeyKind.USER, KeyKind.OPERATOR):
        with pytest.raises(JwtDirectoryError):
            JwtDirectory(tmp_path).read(public(kind, "x"))


def test_token_of_another_account_or_kind_is_refused_and_nothing_written(tmp_path: Path) -> None:
    directory = JwtDirectory(tmp_path)
    for wrong in (token("B"), tokens.user_token("u", "A"), "", "a.b.c", "\ud800"):
        with pytest.raises(JwtDirectoryError) as caught:
            directory.write(A, wrong)
        assert not wrong or wrong not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_delete_needs_permission_and_keeps_a_renamed_copy(tmp_path: Path) -> None:
    JwtDirectory(tmp_path).write(A, token("A"))
    with pytest.raises(JwtDirectoryError, match="allow_delete"):
        JwtDirectory(tmp_path).delete(A)
    directory = JwtDirectory(tmp_path, allow_delete=True)
    assert directory.delete(A)
    assert not directory.delete(A)
    assert directory.read(A) is None
    assert directory.keys() == []
    assert [path.name for path in tmp_path.iterdir()] == [f"{A}.jwt.deleted"]


def test_hard_delete_leaves_nothing(tmp_path: Path) -> None:
    directory = JwtDirectory(tmp_path, allow_delete=True, hard_delete=True)
    directory.write(A, token("A"))
    assert directory.delete(A)
    assert list(tmp_path.iterdir()) == []


def test_full_directory_refuses_a_new_account_and_takes_an_update(tmp_path: Path) -> None:
    directory = JwtDirectory(tmp_path, limit=2)
    directory.write(A, token("A"))
    directory.write(B, token("B"))
    with pytest.raises(JwtDirectoryError, match="limit"):
        directory.write(C, token("C"))
    assert directory.write(A, token("A", ISSUED_AT_S + 1))
    assert directory.keys() == sorted([A, B])


def test_full_cache_drops_the_least_recently_used_account(tmp_path: Path) -> None:
    directory = JwtDirectory(tmp_path, is_cache=True, limit=2)
    for key, name, used_at_s in ((A, "A", 100), (B, "B", 200)):
        directory.write(key, token(name))
        os.utime(tmp_path / f"{key}.jwt", (used_at_s, used_at_s))
    directory.read(A)
    directory.write(C, token("C"))
    assert directory.keys() == sorted([A, C])


def test_cache_drops_accounts_that_nobody_used_for_the_time_to_live(tmp_path: Path) -> None:
    directory = JwtDirectory(tmp_path, is_cache=True, ttl_s=60)
    for key, name, used_at_s in ((A, "A", 100), (B, "B", 150)):
        directory.write(key, token(name))
        os.utime(tmp_path / f"{key}.jwt", (used_at_s, used_at_s))
    assert directory.drop_stale(159) == []
    assert directory.drop_stale(160) == [A]
    assert directory.keys() == [B]
    assert JwtDirectory(tmp_path).drop_stale(10**10) == []


def test_huge_binary_and_special_files_are_not_read(tmp_path: Path) -> None:
    directory = JwtDirectory(tmp_path)
    path = tmp_path / f"{A}.jwt"
    path.write_bytes(b"A" * (TOKEN_CHARACTERS_MAX + 1))
    assert directory.read(A) is None
    path.write_bytes(b"\xff\xfe")
    assert directory.read(A) is None
    path.unlink()
    os.mkfifo(path)
    assert directory.read(A) is None
    path.unlink()
    path.mkdir()
    assert directory.read(A) is None
    assert directory.keys() == []


def test_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    directory = JwtDirectory(tmp_path / "jwt")
    directory.prepare()
    (directory.path / f"{A}.jwt").symlink_to(secret)
    assert directory.read(A) is None
    assert directory.keys() == []
    assert directory.write(A, token("A"))
    assert secret.read_text() == "secret"


def test_interrupted_write_leaves_the_old_token_and_is_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = JwtDirectory(tmp_path)
    directory.write(A, token("A"))

    def full_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        with pytest.raises(JwtDirectoryError, match="No space"):
            directory.write(A, token("A", ISSUED_AT_S + 1))
    assert directory.read(A) == token("A")
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "unrelated.new").write_text("not ours")
    directory.prepare()
    assert {path.name for path in tmp_path.iterdir()} == {f"{A}.jwt", "unrelated.new"}


def test_unusable_directory_is_an_error_with_its_path(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    directory = JwtDirectory(blocked / "jwt")
    for use in (directory.prepare, directory.keys, lambda: directory.read(A)):
        with pytest.raises(JwtDirectoryError, match=str(blocked)):
            use()
