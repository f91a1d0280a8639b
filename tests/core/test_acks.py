"""Acknowledgements: which message one is for, and what it says."""

from __future__ import annotations

import pytest

from edged.core import ack_payload as payloads
from edged.core.ack_payload import AckPayload, ack_payload
from edged.core.ack_subject import (
    NO_MESSAGE,
    AckedMessage,
    account_hash,
    ack_subject,
    acked_message,
    first_prefix,
    prefixes_of,
    second_prefix,
)

SECOND = 1_000_000_000


def test_a_subject_of_the_first_form_says_which_delivery_it_is_for() -> None:
    subject = ack_subject(first_prefix("ORDERS", "c"), 2, 17, 9, 1_700_000_000_000_000_000, 5)
    assert subject == b"$JS.ACK.ORDERS.c.2.17.9.1700000000000000000.5"
    assert acked_message(subject) == AckedMessage(2, 17, 9)
    assert first_prefix("ORDERS", "c") in prefixes_of(subject)


@pytest.mark.parametrize("more", [b"", b".more", b".more.still"])
def test_a_subject_of_the_second_form_may_have_more_tokens(more: bytes) -> None:
    prefix = second_prefix(None, "$G", "ORDERS", "c")
    subject = ack_subject(prefix, 1, 4, 3, 99, 0) + more
    assert subject.startswith(b"$JS.ACK._." + account_hash("$G").encode() + b".ORDERS.c.")
    assert acked_message(subject) == AckedMessage(1, 4, 3)
    assert prefix in prefixes_of(subject)


@pytest.mark.parametrize(
    "subject",
    [
        b"$JS.ACK.s.c.1.2.3.4",
        b"$JS.ACK.s.c.1.2.3.4.5.6",
        b"$JS.ACK.s.c.1..3.4.5",
        b"$JS.ACK.s.c.1.x.3.4.5",
        b"$JS.ACK.s.c.1.-2.3.4.5",
        b"$JS.ACK.s.c.1.%s.3.4.5" % (b"9" * 30),
        b"$JS.ACK",
    ],
)
def test_a_subject_with_other_tokens_is_for_no_message(subject: bytes) -> None:
    assert acked_message(subject) == NO_MESSAGE


@pytest.mark.parametrize("tail", [b"1.2.3.4", b"1.2.3.4.5.6", b"", b"1"])
def test_a_subject_of_neither_form_is_for_no_consumer(tail: bytes) -> None:
    assert prefixes_of(b"$JS.ACK.s.c." + tail) == ()


def test_an_account_has_eight_characters() -> None:
    assert len(account_hash("A")) == 8
    assert account_hash("A") != account_hash("B")


@pytest.mark.parametrize("payload", [b"", b"+ACK", b"+OK"])
def test_the_plain_acknowledgements(payload: bytes) -> None:
    assert ack_payload(payload).kind == payloads.ACK


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"-NAK", AckPayload(payloads.NAK)),
        (b'-NAK {"delay": 5000000000}', AckPayload(payloads.NAK, 5 * SECOND)),
        (b"-NAK 1m30s", AckPayload(payloads.NAK, 90 * SECOND)),
        (b"-NAK soon", AckPayload(payloads.NAK)),
        (b'-NAK {"delay": "5s"}', AckPayload(payloads.NAK)),
        (b"-NAK {", AckPayload(payloads.NAK)),
        (b"-NAK {}", AckPayload(payloads.NAK, 0)),
        (b"+WPI", AckPayload(payloads.PROGRESS)),
        (b"+WPI ", AckPayload(payloads.NOTHING)),
        (b"+NXT", AckPayload(payloads.NEXT)),
        (b"+NXT 5", AckPayload(payloads.NEXT, rest=b" 5")),
        (b'+NXT {"batch":2}', AckPayload(payloads.NEXT, rest=b' {"batch":2}')),
        (b"+TERM", AckPayload(payloads.TERM)),
        (b"+TERM not wanted ", AckPayload(payloads.TERM, rest=b"not wanted")),
        (b"+ack", AckPayload(payloads.NOTHING)),
        (b"hello", AckPayload(payloads.NOTHING)),
    ],
)
def test_what_else_can_be_said(payload: bytes, expected: AckPayload) -> None:
    assert ack_payload(payload) == expected
