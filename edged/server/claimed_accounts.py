"""Accounts that are known from JWTs: learned when a user logs in, together with what they import from."""

from __future__ import annotations

from edged.config.options import AccountOptions
from edged.core.claims import AccountClaims
from edged.server.identity import AuthFailed
from edged.server.jwt_accounts import accounts_from_claims
from edged.server.log import Log
from edged.server.operator_auth import OperatorAuth


class ClaimedAccounts:
    """The claims seen so far, and the account options that follow from all of them together."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._claims: dict[str, AccountClaims] = {}

    async def learn(
        self, operator: OperatorAuth, public_key: str, now_s: float
    ) -> tuple[AccountOptions, ...]:
        """Look an account up; returns the options of all accounts if anything changed, else nothing.

        AuthFailed when the account itself is not known; an unknown exporter only disables the import.
        """
        changed = False
        waiting = [public_key]
        seen: set[str] = set()
        while waiting:
            key = waiting.pop()
            if key in seen:
                continue
            seen.add(key)
            try:
                claims = await operator.account(key, now_s)
            except AuthFailed as failure:
                if key == public_key:
                    raise
                self._log.warn("account of an import is not known", account=key, reason=failure.reason)
                continue
            if self._claims.get(key) is not claims:
                self._claims[key] = claims
                changed = True
            waiting.extend(imported.account for imported in claims.imports)
        if not changed:
            return ()
        accounts, problems = accounts_from_claims(self._claims.values(), now_s)
        for problem in problems:
            self._log.warn(problem)
        return accounts
