"""Variables of scripts and configurations: `${name}`.

`${public.U.alice}` a public key, `${sig.U.alice}` the signature of the connection's nonce, `${jwt.alice}` a
token of `identities`, `${server.id}`, `${cid.A}` the client id of connection A, `${reply.A}` the reply
subject of the last message that connection A recorded, `${tls}` the folder of the certificates. Unknown names
are errors, so that a misspelt one is not sent to a server as text. `${directory}` and `${port.name}` are left
alone: `start_server` resolves them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.differential import identities
from tests.differential.credentials import public, sign

VARIABLE = re.compile(r"\$\{([\w.-]+)\}")

Lookup = Callable[[str], str | None]


def resolve(text: str, *lookups: Lookup) -> str:
    """Replace every variable by what the first lookup that knows it says."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name == "directory" or name.startswith("port."):
            return match.group(0)
        for lookup in (*lookups, of_identities):
            found = lookup(name)
            if found is not None:
                return found
        raise KeyError(f"unknown variable ${{{name}}}")

    return VARIABLE.sub(value, text)


def of_identities(name: str) -> str | None:
    """Variables that mean the same everywhere: public keys and tokens."""
    kind, _, rest = name.partition(".")
    if kind == "public":
        key_kind, _, key_name = rest.partition(".")
        return public(key_kind, key_name)
    if kind == "jwt":
        return identities.TOKENS[rest]()
    if kind == "tls":
        return str(identities.certificates_directory())
    return None


def of_nonce(nonce: str) -> Lookup:
    """Signatures over the nonce of one connection."""

    def lookup(name: str) -> str | None:
        kind, _, rest = name.partition(".")
        key_kind, _, key_name = rest.partition(".")
        return sign(key_kind, key_name, nonce) if kind == "sig" else None

    return lookup
