"""How many clients listen to a subject: `$SYS.DEBUG.SUBSCRIBERS`, for people who wonder where messages go.

Rules: only subscriptions of clients count. Of a literal subject those that would get a message count, of one
with wildcards those within it.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from edged.core.subjects import is_literal, is_subset
from edged.core.twins import Subscription
from edged.server.monitoring import BadRequest
from edged.server.system.envelope import Envelope

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.server import Server
    from edged.server.system.desk import Desk
    from edged.server.system.request import Request


class Subscribers:
    """Counts subscriptions."""

    def __init__(self, server: Server, envelope: Envelope) -> None:
        self._server = server
        self._envelope = envelope

    def offer_to_operators(self, desk: Desk, account: Account) -> None:
        desk.offer(account, "$SYS.DEBUG.SUBSCRIBERS", self._count)
        desk.offer(account, "$SYS.REQ.ACCOUNT.NSUBS", self._count_in_account)

    def _count(self, request: Request) -> None:
        """The body is a subject, and maybe a queue name; the account is the requester's own."""
        words = request.body.split()
        account = request.requester.account if request.requester is not None else request.account
        count = 0
        if words:
            count = subscribers(account, words[0], words[1] if len(words) > 1 else None)
        self._envelope.reply(request, count)

    def _count_in_account(self, request: Request) -> None:
        """What another server of a cluster asks about one of its accounts."""
        options = request.options()
        name, subject, queue = options.get("acc", ""), options.get("subject", ""), options.get("queue", "")
        if not isinstance(name, str) or not isinstance(subject, str) or not isinstance(queue, str):
            raise BadRequest("acc, subject and queue are strings")
        account = self._server.accounts.get(name)
        if account is None or not account.connections:
            return
        try:
            queue_name = base64.b64decode(queue, validate=True) or None
        except (binascii.Error, ValueError):
            raise BadRequest("queue is not base64") from None
        self._envelope.reply(request, subscribers(account, subject.encode("utf-8", "replace"), queue_name))


def subscribers(account: Account, subject: bytes, queue: bytes | None) -> int:
    """How many clients listen to a subject in an account, in a queue group if one is named."""
    found: list[object] = []
    if is_literal(subject):
        matched = account.subscriptions.match(subject)
        found.extend(matched.plain)
        for _, members in matched.queues:
            found.extend(members)
    else:
        found.extend(account.subscriptions)
    count = 0
    for item in found:
        if not isinstance(item, Subscription) or item.outbox is None or item.outbox.is_route:
            continue
        if queue is not None and item.queue != queue:
            continue
        count += is_literal(subject) or is_subset(item.subject, subject)
    return count
