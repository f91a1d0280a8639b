"""What a configuration amounts to, in a few lines for people; used by `edged check-config`.

Rules: no secrets, no files are touched, one fact per line.
"""

from collections.abc import Iterator

from edged.config.jetstream_options import JetStreamOptions
from edged.config.options import Options


def describe(options: Options) -> Iterator[str]:
    """Lines that say who may connect, where, and what is kept."""
    yield f"clients: {_address(options.host, options.port)}{'' if options.tls is None else ', TLS'}"
    if options.http_port or options.https_port:
        scheme = "https" if options.https_port else "http"
        host = options.http_host or options.host
        port = options.https_port or options.http_port
        yield f"monitoring: {scheme}://{_address(host, port)}{options.http_base_path}"
    if options.websocket is not None and options.websocket.port:
        tls = ", no TLS" if options.websocket.tls is None else ", TLS"
        yield f"websocket: {_address(options.websocket.host, options.websocket.port)}{tls}"
    yield f"login: {_login(options)}"
    if options.accounts:
        yield f"accounts: {', '.join(account.name for account in options.accounts)}"
    yield f"jetstream: {'off' if options.jetstream is None else _jetstream(options.jetstream)}"
    if options.leafnodes is not None:
        if options.leafnodes.port:
            yield f"leaf nodes: {_address(options.leafnodes.host, options.leafnodes.port)}"
        if options.leafnodes.remotes:
            yield f"leaf remotes: {len(options.leafnodes.remotes)}"
    if options.cluster is not None and options.cluster.port:
        name = options.cluster.name or "unnamed"
        yield f"cluster: {name} at {_address(options.cluster.host, options.cluster.port)}"
    yield f"digest: {options.config_digest}"


def _address(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{'any free port' if port == -1 else port}"


def _login(options: Options) -> str:
    if options.operators or options.trusted_keys:
        return "JWTs signed by a trusted operator"
    if options.authorization.token is not None:
        return "a token"
    if options.authorization.user is not None:
        return "one user"
    count = len(options.authorization.users or ()) + sum(len(account.users) for account in options.accounts)
    if count == 0:
        return "none: everybody may connect"
    guest = "" if options.no_auth_user is None else "; without credentials as no_auth_user says"
    return f"{count} user{'' if count == 1 else 's'}{guest}"


def _jetstream(jetstream: JetStreamOptions) -> str:
    where = jetstream.store_dir or "a temporary directory"
    every = f" {jetstream.sync_interval_s:g}s" if jetstream.sync == "interval" else ""
    domain = "" if jetstream.domain is None else f", domain {jetstream.domain}"
    encrypted = "" if jetstream.key is None else f", encrypted ({jetstream.cipher})"
    return f"in {where}, sync {jetstream.sync}{every}{domain}{encrypted}"
