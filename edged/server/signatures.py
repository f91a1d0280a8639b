"""The signature that proves an nkey: of the nonce of this very connection, by the holder of the key."""

from edged.core import nkeys
from edged.server.identity import AuthFailed, AuthRequest, Credentials


def check_signature(public_key: str, request: AuthRequest, credentials: Credentials) -> None:
    """Refuse unless the holder of the key signed the nonce of this very connection."""
    if not request.nonce:
        raise AuthFailed("there is no nonce to sign")
    signature = nkeys.decode_signature(credentials.signature)
    if signature is None or not nkeys.verify(public_key, request.nonce, signature):
        raise AuthFailed("the nonce is not signed by the user's key")
