"""An identity provider for the broker and its clients, and how a client's callback gets a token from it."""

import base64
import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.compat.logins.session import Credentials
from tests.unit.seams.document_server import documents, status
from tests.unit.security.identity_provider import claims, jwk, jwks, token

KEYS, GRANT = "/jwks", "/token"
LONG_S = 600
PATIENCE_S = 60


@contextmanager
def identity_provider(password: str, lifetimes: Mapping[str, int]) -> Iterator[str]:
    """Serves its keys, and tokens to every client that knows the password; yields its address.

    The id of a client is the user whom its token names; `lifetimes` has the seconds of those that do not last long.
    """

    def grant(handler):
        kind, _, encoded = handler.headers["Authorization"].partition(" ")
        user, _, given = base64.b64decode(encoded).decode().partition(":")
        if (kind, given) != ("Basic", password):
            status(401, b'{"error":"invalid_client"}')(handler)
            return
        lifetime_s = lifetimes.get(user, LONG_S)
        access = token(claims(time.time_ns() // 1_000_000, lifetime_s, sub=user, scope="kafka"))
        said = {"access_token": access, "expires_in": lifetime_s, "token_type": "Bearer"}
        status(200, json.dumps(said).encode(), content_type="application/json")(handler)

    with documents() as served:
        served.answers |= {KEYS: jwks(jwk("one")), GRANT: grant}
        yield served.url


def fetch_token(credentials: Credentials) -> tuple[str, float]:
    """Returns a token and the time at which it ends, in seconds."""
    said = base64.b64encode(f"{credentials.user}:{credentials.password}".encode()).decode()
    request = urllib.request.Request(
        credentials.token_endpoint,
        b"grant_type=client_credentials",
        {"Authorization": f"Basic {said}"},
    )
    asked = time.time()
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        granted = json.load(answer)
    return granted["access_token"], asked + granted["expires_in"]
