"""Where delegation tokens are in the metadata store, and how: Kafka 3.9's layout.

A node names its token; the HMAC, with which one could log in, is not in it.
"""

import json
from typing import Any

from headwater.controller.store.znodes import TOKEN_CHANGES, TOKENS, quote_entity, unquote_entity
from headwater.security.delegation_tokens import TokenInformation
from headwater.security.principals import USER, Principal

BASE_PATHS = ("/delegation_token", TOKENS, TOKEN_CHANGES)
"""The paths to create first; parents come before their children."""
CHANGE_PREFIX = f"{TOKEN_CHANGES}/token_change_"
MAX_NODE_BYTES = 64 * 1024
VERSION = 3


def token_path(token_id: str) -> str:
    """Return the path of a token's node."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: TokenInformation) -> bytes:
    """Return the content of a token's node."""
    value = {
        "version": VERSION,
        "owner": quote_entity(str(token.owner)),
        "tokenRequester": quote_entity(str(token.requester)),
        "renewers": [quote_entity(str(one)) for one in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_token(token_id: str, data: bytes) -> TokenInformation:
    """Read a token; ValueError if that is not possible.

    Only a user owns a token: nobody can become a broker with one.
    """
    path = token_path(token_id)
    try:
        value: dict[str, Any] = json.loads(data)
        owner = _principal(value["owner"])
        requester = value.get("tokenRequester")  # not before Kafka 3.3
        token = TokenInformation(
            str(value["tokenId"]),
            owner,
            owner if requester is None else _principal(requester),
            tuple(_principal(one) for one in value["renewers"]),
            int(value["issueTimestamp"]),
            int(value["expiryTimestamp"]),
            int(value["maxTimestamp"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is not a delegation token") from None
    if token.token_id != token_id or token.owner.kind != USER:
        raise ValueError(f"{path} names another token, or an owner who is not a user")
    return token


def encode_change(token_id: str) -> bytes:
    """Return the content of the notification that a token changed."""
    return token_id.encode()


def decode_change(data: bytes) -> str:
    """Return the id of the token that a notification names; ValueError if it cannot be read."""
    token_id = data.decode()
    if not token_id or "/" in token_id:
        raise ValueError("a notification of changed delegation tokens names no token")
    return token_id


def _principal(quoted: str) -> Principal:
    kind, colon, name = unquote_entity(quoted).partition(":")
    if not colon:
        raise ValueError("not a principal")
    return Principal(kind, name)
