"""Where tokens come from: a token endpoint, a file, or the program's own provider. These calls block."""

import asyncio
import inspect
import logging
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from headwater.client.errors import AuthenticationError, NoTokenError
from headwater.config.addresses import is_loopback
from headwater.config.client_oauth import OAuthCredentials
from headwater.errors import KafkaError
from headwater.seams.web import WebError, fetch
from headwater.security.bearer_tokens import MAX_TOKEN_BYTES, decoded
from headwater.security.oauthbearer import extensions_problem, token_problem
from headwater.security.strict_json import parse_object
from headwater.transport.tls import cached_client_context

log = logging.getLogger(__name__)

_KEPT_WARNINGS = 64
_MAX_ANSWER_BYTES = 64 * 1024


class BearerToken(NamedTuple):
    """A token and its expiry by the wall clock; None if it has none."""

    text: str
    expires_ms: int | None
    extensions: tuple[tuple[str, str], ...] = ()


def obtain(
    credentials: OAuthCredentials, now_ms: int, loop: asyncio.AbstractEventLoop | None
) -> BearerToken:
    """Return another token; KafkaError if there is none, retriable if that may change."""
    try:
        if credentials.provider is not None:
            token = _provided(credentials, loop)
        elif str(credentials.url).startswith("file:"):
            text = _fetched(credentials, max_bytes=MAX_TOKEN_BYTES).decode().strip()
            token = BearerToken(text, expiry_of(text))
        else:
            token = _granted(credentials, now_ms)
    except KafkaError:
        raise
    except (OSError, WebError) as problem:
        refused = isinstance(problem, WebError) and 400 <= problem.status < 500
        failure = AuthenticationError if refused else NoTokenError
        raise failure(f"no token from {credentials.source}: it {_why(problem)}") from problem
    except Exception as problem:
        raise AuthenticationError(
            f"no token from {credentials.source}: {type(problem).__name__}: {problem}"
        ) from problem
    extensions = dict(credentials.extensions) | dict(token.extensions)
    wrong = token_problem(token.text) or extensions_problem(extensions)
    if wrong:
        raise AuthenticationError(f"what {credentials.source} gave cannot be sent: {wrong}")
    return token._replace(extensions=tuple(extensions.items()))


def expiry_of(token: str) -> int | None:
    """Return when a JWT says that it ends, in ms since 1970; None for any other token."""
    try:
        expires = parse_object(decoded(token.split(".")[1])).get("exp")
        return int(expires * 1000) if isinstance(expires, int | float) else None
    except (IndexError, ValueError, OverflowError):
        return None


def _granted(credentials: OAuthCredentials, now_ms: int) -> BearerToken:
    """Ask the token endpoint (RFC 6749, section 4.4)."""
    warn_of_open_endpoint(str(credentials.url))
    client_id, secret = credentials.client_id, credentials.client_secret
    if credentials.urlencode:
        client_id, secret = quote_plus(client_id), quote_plus(secret)
    login = b64encode(f"{client_id}:{secret}".encode()).decode()
    form = {"grant_type": "client_credentials"}
    if credentials.scope:
        form["scope"] = credentials.scope
    data = _fetched(
        credentials,
        max_bytes=_MAX_ANSWER_BYTES,
        form=urlencode(form).encode(),
        headers={
            "Authorization": f"Basic {login}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    answer = parse_object(data)
    text, lives_s = answer.get("access_token"), answer.get("expires_in")
    if not isinstance(text, str):
        raise WebError("answered without an access_token")
    expires_ms = expiry_of(text)
    if expires_ms is None and isinstance(lives_s, int | float):
        expires_ms = now_ms + int(lives_s * 1000)
    return BearerToken(text, expires_ms)


@lru_cache(_KEPT_WARNINGS)
def warn_of_open_endpoint(url: str) -> None:
    """Warn, once for each endpoint, that others in the network can read the client's secret."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        log.warning(
            "the client secret is sent to %s without TLS, where others can read it: use https in "
            "sasl.oauthbearer.token.endpoint.url",
            url,
        )


def _fetched(
    credentials: OAuthCredentials,
    *,
    max_bytes: int,
    form: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    url = str(credentials.url)
    trust = credentials.trust if urlsplit(url).scheme == "https" else None
    return fetch(
        url,
        cached_client_context(trust),
        form=form,
        headers=headers,
        connect_timeout_s=credentials.connect_timeout_ms / 1000,
        timeout_s=credentials.read_timeout_ms / 1000,
        max_bytes=max_bytes,
    )


def _provided(credentials: OAuthCredentials, loop: asyncio.AbstractEventLoop | None) -> BearerToken:
    """Ask the program's own source, in the form of any of the supported clients."""
    provider: Any = credentials.provider
    extensions: Mapping[str, str] = {}
    if callable(getattr(provider, "token", None)):
        given = _awaited(provider.token(), loop)
        if callable(getattr(provider, "extensions", None)):
            extensions = _awaited(provider.extensions(), loop) or {}
    else:
        told = () if credentials.provider_config is None else (credentials.provider_config,)
        given = _awaited(provider(*told), loop)
    if isinstance(given, str):
        return BearerToken(given, expiry_of(given), tuple(extensions.items()))
    if not isinstance(given, tuple) or len(given) < 2 or not isinstance(given[0], str):
        raise AuthenticationError(
            "the token provider returned neither a token nor a tuple of a token and the time in "
            "seconds since 1970 when it expires"
        )
    if len(given) > 3 and given[3]:
        extensions = given[3]
    return BearerToken(given[0], int(float(given[1]) * 1000), tuple(extensions.items()))


def _awaited(given: Any, loop: asyncio.AbstractEventLoop | None) -> Any:
    if not inspect.isawaitable(given):
        return given

    async def wait() -> Any:
        return await given

    if loop is None:
        return asyncio.run(wait())
    return asyncio.run_coroutine_threadsafe(wait(), loop).result()


def _why(problem: Exception) -> str:
    said = str(problem) or type(problem).__name__
    if not isinstance(problem, WebError):
        return f"failed: {said}"
    try:
        code = parse_object(problem.body).get("error")
    except ValueError:
        code = None
    shown = isinstance(code, str) and code.isprintable()
    return f"{said} ({code[:100]})" if shown and isinstance(code, str) else said
