"""Account JWTs over the wire: what `nsc push`, `nsc pull` and other servers ask a resolver for.

Rules: in operator mode and in the system account only. A token is stored only when a trusted key of an
operator signed it and its claims make sense; what was stored takes effect for connected clients at once. Only
who holds an operator's key can delete. Files are read and written in threads, one request after the other.
Answers to updates name the account and have their own kind of error, as the tools expect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from edged.core.claim_rules import check_account
from edged.core.claims import AccountClaims, decode_account
from edged.core.jwt import ClaimsError, Token, read_token
from edged.core.nkeys import KeyKind, is_public
from edged.server.identity import AuthFailed
from edged.server.monitoring import BadRequest
from edged.server.operator_auth import DirectoryResolver, MemoryResolver, OperatorAuth
from edged.server.reload import judge
from edged.server.system.envelope import FAILED, Document, Envelope
from edged.store.jwt_directory import JwtDirectory, JwtDirectoryError

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.server import Server
    from edged.server.system.desk import Desk
    from edged.server.system.request import Request

_DONE = 200
_NO_ACCOUNT = "n/a"
_PACK_QUEUE = b"responder"
# How often a cache looks for accounts that nobody used for their time to live.
_SWEEP_INTERVAL_S = 60.0


class ClaimsServices:
    """Lets operators change and read the accounts of the resolver."""

    def __init__(self, server: Server, envelope: Envelope) -> None:
        self._server = server
        self._envelope = envelope
        # Held by whoever changes the directory: making it ready removes files that another may be writing.
        self._changing = trio.Lock()

    def offer_to_operators(self, desk: Desk, account: Account) -> None:
        """Writing wherever that is possible; reading only where this server keeps all accounts."""
        desk.offer(account, "$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", self._update_named)
        desk.offer(account, "$SYS.ACCOUNT.*.CLAIMS.UPDATE", self._update_named)
        directory = self._directory()
        if directory is None:
            return
        desk.offer(account, "$SYS.REQ.CLAIMS.UPDATE", self._update)
        desk.offer(account, "$SYS.REQ.CLAIMS.LIST", self._list)
        desk.offer(account, "$SYS.REQ.CLAIMS.DELETE", self._delete)
        if not directory.is_cache:
            desk.offer(account, "$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", self._lookup)
            desk.offer(account, "$SYS.REQ.CLAIMS.PACK", self._pack, _PACK_QUEUE)

    async def run(self) -> None:
        """Make the directory ready, and keep a cache small as time goes by."""
        directory = self._directory()
        if directory is None:
            return
        try:
            async with self._changing:
                await trio.to_thread.run_sync(directory.prepare)
        except JwtDirectoryError as error:
            self._server.log.error("accounts cannot be stored", reason=error)
        while directory is not None and directory.is_cache and directory.ttl_s > 0:
            await trio.sleep(_SWEEP_INTERVAL_S)
            try:
                async with self._changing:
                    await trio.to_thread.run_sync(directory.drop_stale, self._server.now_ns() / 1e9)
            except JwtDirectoryError as error:
                self._server.log.error("stale accounts cannot be dropped", reason=error)
            directory = self._directory()

    # --- updates ---

    async def _update(self, request: Request) -> None:
        await self._update_account(request, None)

    async def _update_named(self, request: Request) -> None:
        """The account is also named in the subject, as the third token from the end."""
        await self._update_account(request, request.token(-3))

    async def _update_account(self, request: Request, named: str | None) -> None:
        key = named or _NO_ACCOUNT
        what = "jwt update"
        directory = self._directory()
        if directory is not None and directory.is_cache:
            what = "jwt update cache"
        try:
            token = request.body.decode("ascii", "replace").strip()
            claims = decode_account(token)
            key = claims.key
            self._check(claims, named)
            if (directory is None or directory.is_cache) and key not in self._server.accounts:
                self._done(request, f"{what} skipped", key)
                return
            await self._store(directory, key, token)
            await self._take_over(key)
        except (ClaimsError, JwtDirectoryError, AuthFailed) as error:
            self._failed(request, f"{what} resulted in error", str(error), key)
            return
        self._server.log.info("account updated", account=key)
        self._done(request, what.replace("update", "updated"), key)

    def _check(self, claims: AccountClaims, named: str | None) -> None:
        if named is not None and named != claims.key:
            raise ClaimsError("the subject names another account than the token")
        operator = self._operator()
        if claims.token.issuer not in operator.trusted_keys:
            raise ClaimsError("the token is not signed by a trusted operator key")
        check_account(claims, self._server.now_ns() / 1e9)

    async def _store(self, directory: JwtDirectory | None, key: str, token: str) -> None:
        resolver = self._operator().resolver
        if directory is not None:
            # A reload may have chosen a directory that is not there yet.
            async with self._changing:
                await trio.to_thread.run_sync(directory.prepare)
                await trio.to_thread.run_sync(directory.write, key, token)
        elif isinstance(resolver, MemoryResolver):
            stored = await resolver.fetch(key)
            if stored is None or _issued_at_s(stored) <= _issued_at_s(token):
                resolver.store(key, token)
        else:
            raise ClaimsError("the resolver cannot be written to")

    async def _take_over(self, key: str) -> None:
        """Let an account that is in use have its new claims, and its clients what follows from them."""
        account = self._server.accounts.get(key)
        if account is None:
            return
        await self._server.learn_account(key)
        await self._judge_all(account)

    async def _judge_all(self, account: Account) -> None:
        for connection in list(self._server.connections.values()):
            if connection.account is account:
                await judge(self._server, connection)

    # --- deletes ---

    async def _delete(self, request: Request) -> None:
        directory = self._directory()
        assert directory is not None, "offered with a directory only"
        issuer = ""
        try:
            token = read_token(request.body.decode("ascii", "replace").strip())
            issuer = token.issuer
            keys = self._keys_to_delete(token, directory)
        except ClaimsError as error:
            self._failed(request, f"delete accounts request by {issuer} failed", str(error))
            return
        await self._delete_accounts(request, directory, keys)

    def _keys_to_delete(self, token: Token, directory: JwtDirectory) -> tuple[str, ...]:
        if token.subject != token.issuer or token.issuer not in self._operator().trusted_keys:
            raise ClaimsError("the request is not signed by a trusted operator key")
        keys = token.nats.texts("accounts")
        if not keys or not all(is_public(key, KeyKind.ACCOUNT) for key in keys):
            raise ClaimsError("the request does not list accounts")
        if self._server.system_account_name in keys:
            raise ClaimsError("the system account cannot be deleted")
        if not directory.allow_delete:
            raise ClaimsError("deletes are not enabled in the configuration")
        return keys

    async def _delete_accounts(
        self, request: Request, directory: JwtDirectory, keys: tuple[str, ...]
    ) -> None:
        deleted, problems = 0, []
        for key in keys:
            try:
                async with self._changing:
                    is_deleted = await trio.to_thread.run_sync(directory.delete, key)
            except JwtDirectoryError as error:
                problems.append(str(error))
                continue
            if not is_deleted:
                problems.append(f"account {key} is not known")
                continue
            deleted += 1
            self._server.log.info("account deleted", account=key)
            account = self._server.accounts.get(key)
            if account is not None:
                await self._judge_all(account)
        if problems:
            text = f"deleted {deleted} accounts, failed for {len(problems)}"
            self._failed(request, text, "\n".join(problems))
        else:
            self._done(request, f"deleted {deleted} accounts")

    # --- reading ---

    async def _list(self, request: Request) -> None:
        directory = self._directory()
        if directory is None or request.reply is None:
            return
        keys = await self._keys(directory)
        self._envelope.reply(request, {"server": self._envelope.server_info(), "data": keys})

    async def _lookup(self, request: Request) -> None:
        """The token itself, or nothing when there is none."""
        directory = self._directory()
        key = request.token(-3)
        if directory is None or request.reply is None:
            return
        token = None
        if is_public(key, KeyKind.ACCOUNT):
            token = await self._read(directory, key)
        self._envelope.reply_bytes(request, (token or "").encode())

    async def _pack(self, request: Request) -> None:
        """Every account in a message of its own; an empty one says that this is all."""
        directory = self._directory()
        if directory is None or request.reply is None:
            return
        for key in await self._keys(directory):
            token = await self._read(directory, key)
            if token is not None:
                self._envelope.reply_bytes(request, f"{key}|{token}".encode())
                self._server.flush()
        self._envelope.reply_bytes(request, b"")

    async def _keys(self, directory: JwtDirectory) -> list[str]:
        try:
            return await trio.to_thread.run_sync(directory.keys)
        except JwtDirectoryError as error:
            raise BadRequest(str(error), FAILED) from error

    async def _read(self, directory: JwtDirectory, key: str) -> str | None:
        try:
            return await trio.to_thread.run_sync(directory.read, key)
        except JwtDirectoryError as error:
            raise BadRequest(str(error), FAILED) from error

    # --- what a reload may change ---

    def _operator(self) -> OperatorAuth:
        operator = self._server.authenticator.operator
        if operator is None:
            raise ClaimsError("there is no operator any more")
        return operator

    def _directory(self) -> JwtDirectory | None:
        operator = self._server.authenticator.operator
        resolver = operator.resolver if operator is not None else None
        return resolver.directory if isinstance(resolver, DirectoryResolver) else None

    # --- answers ---

    def _done(self, request: Request, message: str, account: str = "") -> None:
        status: Document = {"account": account} if account else {}
        status |= {"code": _DONE, "message": message}
        self._envelope.reply(request, {"server": self._envelope.server_info(), "data": status})

    def _failed(self, request: Request, message: str, reason: str, account: str = "") -> None:
        self._server.log.warn("account not changed", account=account, reason=f"{message}: {reason}")
        error: Document = {"account": account} if account else {}
        error |= {"code": FAILED, "description": f"{message} - {reason}"}
        self._envelope.reply(request, {"server": self._envelope.server_info(), "error": error})


def _issued_at_s(token: str) -> int:
    return read_token(token).issued_at_s
