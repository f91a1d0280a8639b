"""Logins for the tests of authentication: requests made of CONNECT fields, and their outcome."""

from typing import Any

import pytest

from edged.config.options import Options
from edged.server.auth import Authenticator
from edged.server.identity import AUTHORIZATION_VIOLATION, AuthFailed, AuthRequest, Identity
from tests.tokens import ISSUED_AT_S

NOW_S = ISSUED_AT_S + 100.0
NONCE = b"PXoWU7zWAMt75FY"


def request(
    *,
    nonce: bytes | None = NONCE,
    connection_type: str = "STANDARD",
    remote_ip: str = "127.0.0.1",
    certificate: bytes | None = None,
    now_s: float = NOW_S,
    **connect: Any,
) -> AuthRequest:
    """A login; the password is `password`, since `pass` is a word of Python."""
    if "password" in connect:
        connect["pass"] = connect.pop("password")
    return AuthRequest(connect, nonce, connection_type, remote_ip, now_s, certificate)


async def login(options: Options | Authenticator, **fields: Any) -> Identity:
    authenticator = options if isinstance(options, Authenticator) else Authenticator(options, now_s=NOW_S)
    return await authenticator.authenticate(request(**fields))


async def refused(options: Options | Authenticator, **fields: Any) -> AuthFailed:
    with pytest.raises(AuthFailed) as caught:
        await login(options, **fields)
    assert caught.value.text == AUTHORIZATION_VIOLATION
    return caught.value
