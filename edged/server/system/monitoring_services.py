"""Requests for the documents of monitoring: about this server, and about one account of it.

`$SYS.REQ.SERVER.PING.<name>` asks every server, `$SYS.REQ.SERVER.<id>.<name>` one of them;
`$SYS.REQ.ACCOUNT.<account>.<name>` asks about an account. Users of other accounts may ask for the connections
and the figures of their own account only.

Rules: the account of a request is the one of its subject or, outside of the system account, the one it was
sent in; what the body says about that is ignored. A request without a reply subject is not worked on, except
STATSZ, which is then told to everybody who listens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from edged.server.jetstream.resources import is_enabled
from edged.server.monitoring import BadRequest, Monitor, NotMeant
from edged.server.system.envelope import FAILED, Document, Envelope
from edged.server.system.request import Options, Request, concerns

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.server import Server
    from edged.server.system.desk import Desk
    from edged.server.system.events import Events

# Documents that are answered in the envelope just as monitoring has them.
_SERVER_DOCUMENTS = (
    "varz",
    "connz",
    "routez",
    "subsz",
    "gatewayz",
    "leafz",
    "jsz",
    "accountz",
    "healthz",
    "expvarz",
    "ipqueuesz",
    "raftz",
)
_NO_PROFILES = "profiles in the format of Go programs are not available here"
_ALL_ACCOUNTS = "PING"
_ACCOUNT_TOKEN = 3

# What makes the data of an answer: None when there is nothing to say, not even that.
Describe = Callable[[Options], object]


class MonitoringServices:
    """Answers with what monitoring knows."""

    def __init__(self, server: Server, monitor: Monitor, envelope: Envelope, events: Events) -> None:
        self._server = server
        self._monitor = monitor
        self._envelope = envelope
        self._events = events

    def offer_to_operators(self, desk: Desk, account: Account) -> None:
        """In the system account: everything about the server and about each account."""
        desk.offer(account, "$SYS.REQ.SERVER.PING", self._statsz)
        for addressed in (_ALL_ACCOUNTS, self._server.id):
            prefix = f"$SYS.REQ.SERVER.{addressed}."
            desk.offer(account, f"{prefix}STATSZ", self._statsz)
            desk.offer(account, f"{prefix}IDZ", self._idz)
            desk.offer(account, f"{prefix}PROFILEZ", self._profilez)
            for name in _SERVER_DOCUMENTS:
                desk.offer(account, prefix + name.upper(), partial(self._server_document, name))
        prefix = "$SYS.REQ.ACCOUNT.*."
        desk.offer(account, f"{prefix}CONNZ", self._connz_of_subject)
        desk.offer(account, f"{prefix}SUBSZ", self._subsz_of_subject)
        desk.offer(account, f"{prefix}LEAFZ", self._leafz_of_subject)
        desk.offer(account, f"{prefix}JSZ", self._jsz_of_subject)
        desk.offer(account, f"{prefix}INFO", self._info_of_subject)
        desk.offer(account, f"{prefix}STATZ", self._statz_of_subject)
        desk.offer(account, f"{prefix}CONNS", self._conns_of_subject)

    def offer_to_users(self, desk: Desk, account: Account) -> None:
        """In any other account: its own connections and figures."""
        desk.offer(account, "$SYS.REQ.SERVER.PING.CONNZ", self._connz_of_account)
        desk.offer(account, "$SYS.REQ.ACCOUNT.PING.CONNZ", self._connz_of_account)
        desk.offer(account, "$SYS.REQ.ACCOUNT.PING.STATZ", self._statz_of_account)

    # --- about the server ---

    def _statsz(self, request: Request) -> None:
        if not concerns(self._server, request.options()):
            return
        if request.reply is None:
            self._events.send_statsz()
        else:
            self._envelope.reply(request, self._events.statsz())

    def _idz(self, request: Request) -> None:
        self._envelope.reply(request, self._document("idz", {}))

    def _profilez(self, request: Request) -> None:
        self._answer(request, lambda options: {"profile": None, "error": _NO_PROFILES})

    def _server_document(self, name: str, request: Request) -> None:
        self._answer(request, lambda options: self._document(name, options))

    # --- about an account ---

    def _connz_of_subject(self, request: Request) -> None:
        self._connz(request, request.token(_ACCOUNT_TOKEN))

    def _connz_of_account(self, request: Request) -> None:
        self._connz(request, request.account.name)

    def _connz(self, request: Request, name: str) -> None:
        self._answer(request, lambda options: self._document("connz", {**options, "acc": name}))

    def _subsz_of_subject(self, request: Request) -> None:
        chosen = {"account": request.token(_ACCOUNT_TOKEN), "subscriptions": True}
        self._answer(request, lambda options: self._document("subsz", {**options, **chosen}))

    def _leafz_of_subject(self, request: Request) -> None:
        chosen = {"account": request.token(_ACCOUNT_TOKEN)}
        self._answer(request, lambda options: self._document("leafz", {**options, **chosen}))

    def _jsz_of_subject(self, request: Request) -> None:
        self._answer(request, lambda options: self._jsz(request.token(_ACCOUNT_TOKEN), options))

    def _jsz(self, name: str, options: Options) -> object:
        if self._server.options.jetstream is None:
            raise BadRequest("jetstream not enabled", FAILED)
        account = self._server.accounts.get(name)
        if account is None or account.is_removed:
            raise BadRequest(f'account "{name}" not found', FAILED)
        if not is_enabled(self._server, account):
            raise BadRequest(f'account "{name}" not jetstream enabled', FAILED)
        if not options.get("streams"):
            # Here consumers are shown with their streams only.
            options = {**options, "consumer": False}
        return self._document("jsz", {**options, "account": name})["account_details"][0]

    def _info_of_subject(self, request: Request) -> None:
        chosen = {"account": request.token(_ACCOUNT_TOKEN)}
        self._answer(request, lambda options: self._document("accountz", chosen)["account_detail"])

    def _statz_of_subject(self, request: Request) -> None:
        name = request.token(_ACCOUNT_TOKEN)
        # Nobody can be asked about an account of that name: it means all of them.
        self._statz(request, [] if name == _ALL_ACCOUNTS else [name])

    def _statz_of_account(self, request: Request) -> None:
        self._statz(request, [request.account.name])

    def _statz(self, request: Request, names: list[str]) -> None:
        def describe(options: Options) -> object:
            chosen = {**options, "accounts": names} if names else options
            document = self._document("accstatz", chosen)
            return document if document["account_statz"] or options.get("include_unused") else None

        self._answer(request, describe)

    def _conns_of_subject(self, request: Request) -> None:
        """How many connections an account has; a server with none says nothing."""
        name = request.token(_ACCOUNT_TOKEN)
        account = self._server.accounts.get(name)
        if request.options().get("acc", name) == name and account is not None and account.connections:
            self._envelope.reply(request, self._events.connections(account))

    # --- answers ---

    def _answer(self, request: Request, describe: Describe) -> None:
        if request.reply is None:
            return
        options = request.options()
        if not concerns(self._server, options):
            return
        try:
            data = describe(options)
        except NotMeant:
            # Whoever is meant answers: a client that waits for one answer takes the first.
            return
        except BadRequest as refusal:
            self._envelope.refuse(request, FAILED, refusal.text, has_data=True)
            return
        if data is not None:
            self._envelope.answer(request, data)

    def _document(self, name: str, options: Options) -> Document:
        answer = self._monitor.document_from_options(name, options)
        assert isinstance(answer.body, dict), name
        document = answer.body
        if name == "healthz":
            # Over HTTP the status of the response says it; here it has to be in the document.
            document = {"status": document["status"], "status_code": answer.status, **document}
        return document
