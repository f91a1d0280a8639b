"""Why connections end, in the words that monitoring and the `nats` command know."""

from __future__ import annotations

from typing import Final, NewType

Reason = NewType("Reason", str)

CLIENT_CLOSED: Final = Reason("Client Closed")
AUTHENTICATION_TIMEOUT: Final = Reason("Authentication Timeout")
AUTHENTICATION_VIOLATION: Final = Reason("Authentication Failure")
AUTHENTICATION_EXPIRED: Final = Reason("Authentication Expired")
CREDENTIALS_REVOKED: Final = Reason("Credentials Revoked")
TLS_HANDSHAKE: Final = Reason("TLS Handshake Failure")
SLOW_CONSUMER_PENDING: Final = Reason("Slow Consumer (Pending Bytes)")
SLOW_CONSUMER_DEADLINE: Final = Reason("Slow Consumer (Write Deadline)")
WRITE_ERROR: Final = Reason("Write Error")
READ_ERROR: Final = Reason("Read Error")
PARSE_ERROR: Final = Reason("Parse Error")
STALE_CONNECTION: Final = Reason("Stale Connection")
PROTOCOL_VIOLATION: Final = Reason("Protocol Violation")
BAD_PROTOCOL_VERSION: Final = Reason("Bad Client Protocol Version")
CONNECTIONS_EXCEEDED: Final = Reason("Maximum Connections Exceeded")
ACCOUNT_CONNECTIONS_EXCEEDED: Final = Reason("Maximum Account Connections Exceeded")
PAYLOAD_EXCEEDED: Final = Reason("Maximum Message Payload Exceeded")
CONTROL_LINE_EXCEEDED: Final = Reason("Maximum Control Line Exceeded")
NO_RESPONDERS_NEEDS_HEADERS: Final = Reason("No Responders Requires Headers")
MISSING_ACCOUNT: Final = Reason("Missing Account")
SERVER_SHUTDOWN: Final = Reason("Server Shutdown")
INTERNAL_ERROR: Final = Reason("Internal Error")
KICKED: Final = Reason("Kicked")

OF_BROKEN_INPUT: Final = {
    "protocol": PROTOCOL_VIOLATION,
    "control_line": CONTROL_LINE_EXCEEDED,
    "payload": PAYLOAD_EXCEEDED,
    "peer_error": PARSE_ERROR,
}

_OF_AUTH_FAILURE: Final = {
    "User Authentication Expired": AUTHENTICATION_EXPIRED,
    "Account Authentication Expired": AUTHENTICATION_EXPIRED,
    "User Authentication Revoked": CREDENTIALS_REVOKED,
    "maximum account active connections exceeded": ACCOUNT_CONNECTIONS_EXCEEDED,
}


def of_auth_failure(text: str) -> Reason:
    """The reason behind an authentication error."""
    return _OF_AUTH_FAILURE.get(text, AUTHENTICATION_VIOLATION)
