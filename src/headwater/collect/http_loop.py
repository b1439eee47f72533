"""The HTTP endpoint: accepts events, responds once the broker has them, serves the browser script.

A request body never exceeds its limit in memory, nor do all bodies together. A response says how
many events were accepted, and which were refused and why.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater.collect.event_producer_loop import BrokerUnavailable, EventProducer
from headwater.collect.events import EventReader, EventRules, Malformed, ParsedBody, Refusal
from headwater.collect.rate_limits import ByteBudget, RateLimits, account_of, client_of
from headwater.seams.clock import Clock

SHOWN_REFUSALS = 100
MAX_HEADER_BYTES = 16_384
_BY_LINE = {"application/x-ndjson", "application/ndjson", "application/jsonl"}
_SCRIPT_HEADERS = {
    "cache-control": "public, max-age=3600",
    "x-content-type-options": "nosniff",
    # Cross-origin isolated pages may still load it.
    "cross-origin-resource-policy": "cross-origin",
}


@dataclass(frozen=True)
class HttpOptions:
    """What the endpoint accepts, and from which clients."""

    rules: EventRules = field(default_factory=EventRules)
    max_body_bytes: int = 1_048_576
    max_held_bytes: int = 67_108_864
    rate: float | None = None
    total_rate: float | None = None
    origins: frozenset[str] = frozenset()
    trust_proxy: bool = False
    add_received: bool = False
    add_client: bool = False
    ack_timeout_s: float = 10.0


class HttpEndpoint:
    """The application behind the server."""

    def __init__(self, options: HttpOptions, storing: EventProducer, clock: Clock) -> None:
        self._options = options
        self._storing = storing
        self._clock = clock
        self._reader = EventReader(options.rules)
        self._limits = RateLimits(options.rate, options.total_rate)
        self._budget = ByteBudget(options.max_held_bytes)
        self._script = files("headwater.collect").joinpath("browser.js").read_bytes()

    def app(self) -> Starlette:
        """Return the application."""
        return Starlette(
            routes=[
                Route("/events", self._events, methods=["POST", "OPTIONS"]),
                Route("/headwater.js", self._browser_script),
                Route("/health", self._health),
            ],
            exception_handlers={HTTPException: _error_response},
        )

    # -- routes

    async def _health(self, _request: Request) -> Response:
        away = self._storing.breaker.away
        return JSONResponse(
            {"status": "the broker is unavailable" if away else "ok"},
            status_code=503 if away else 200,
        )

    async def _browser_script(self, _request: Request) -> Response:
        return Response(self._script, media_type="text/javascript", headers=_SCRIPT_HEADERS)

    async def _events(self, request: Request) -> Response:
        if sum(len(name) + len(value) for name, value in request.headers.raw) > MAX_HEADER_BYTES:
            raise HTTPException(431, "the headers are too large", {"connection": "close"})
        origin = request.headers.get("origin")
        if origin is not None and not self._welcome(origin, request):
            raise HTTPException(403, f"pages of {origin[:200]} may not send events here")
        if request.method == "OPTIONS":
            response = Response(status_code=204, headers=_PREFLIGHT)
        else:
            try:
                response = await self._collect(request)
            except HTTPException as refused:
                response = _error_response(request, refused)
            except ClientDisconnect:
                return Response(status_code=400)  # the client is gone
        if origin is not None:
            response.headers.update(_allowed(origin))
        return response

    # -- collecting

    async def _collect(self, request: Request) -> Response:
        client = self._client(request)
        self._check_turn(client)
        if request.headers.get("content-encoding", "identity") != "identity":
            raise HTTPException(415, "send the body uncompressed")
        held = 0
        parts: list[bytes] = []
        try:
            async for part in self._parts(request):
                if not self._budget.try_reserve(len(part)):
                    _retry_later(503, 1000, "too many events are waiting to be stored")
                held += len(part)
                parts.append(part)
            return await self._stored(request, client, b"".join(parts))
        finally:
            self._budget.release(held)

    def _check_turn(self, client: str) -> None:
        """Refuse a client that must wait before its body is read."""
        now = self._clock.monotonic_ms()
        wait = self._limits.wait_ms(account_of(client), now)
        if wait:
            _retry_later(429, wait, "too many events")
        wait = self._storing.breaker.wait_ms(now)
        if wait:
            _retry_later(503, wait, "the broker is unavailable")

    async def _parts(self, request: Request) -> AsyncIterator[bytes]:
        limit = self._options.max_body_bytes
        declared = request.headers.get("content-length", "0")
        size = int(declared) if declared.isdecimal() else 0
        if size <= limit:
            size = 0
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    break
                yield part
        if size > limit:
            raise HTTPException(
                413, f"the body is larger than {limit} bytes", {"connection": "close"}
            )

    async def _stored(self, request: Request, client: str, body: bytes) -> Response:
        reading = self._read(request, client, body)
        try:
            refused = await self._storing.store(reading.events, self._headers(client))
        except BrokerUnavailable:
            _retry_later(503, 1000, "the broker did not acknowledge the events in time")
        refusals = sorted([*reading.refusals, *refused])
        return _answer(len(reading.events) - len(refused), refusals)

    def _read(self, request: Request, client: str, body: bytes) -> ParsedBody:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        cost, wrong = 1, None
        reading = ParsedBody([], [])
        try:
            reading = self._reader.body(body, by_line=kind in _BY_LINE)
            cost = max(1, len(reading.events) + len(reading.refusals))
        except Malformed as malformed:
            wrong = malformed
        wait = self._limits.try_spend(account_of(client), cost, self._clock.monotonic_ms())
        if wait:
            _retry_later(429, wait, "too many events")
        if wrong is not None:
            raise HTTPException(wrong.status, f"the body {wrong}")
        return reading

    def _headers(self, client: str) -> list[tuple[str, bytes | None]]:
        found: list[tuple[str, bytes | None]] = []
        if self._options.add_received:
            found.append(("received-ms", str(self._clock.wall_ms()).encode()))
        if self._options.add_client:
            found.append(("client", client.encode()))
        return found

    # -- clients

    def _client(self, request: Request) -> str:
        peer = request.client.host if request.client else ""
        told = request.headers.getlist("x-forwarded-for") if self._options.trust_proxy else []
        return client_of(peer, told[-1] if told else None)

    def _welcome(self, origin: str, request: Request) -> bool:
        allowed = self._options.origins
        if "*" in allowed or origin in allowed:
            return True
        own = origin.partition("://")[2]
        return own != "" and own == request.headers.get("host")


_PREFLIGHT = {
    "access-control-allow-methods": "POST",
    "access-control-allow-headers": "content-type",
    "access-control-max-age": "86400",
}


def _allowed(origin: str) -> dict[str, str]:
    return {
        "access-control-allow-origin": origin,
        "access-control-expose-headers": "retry-after",
        "vary": "origin",
    }


def _answer(accepted: int, refusals: list[Refusal]) -> Response:
    """Respond 200 if anything was accepted or nothing was sent, else with the reasons."""
    shown = [{"index": row.number, "reason": row.reason} for row in refusals[:SHOWN_REFUSALS]]
    status = 200
    if refusals and not accepted:
        status = 413 if all(row.too_large for row in refusals) else 400
    return JSONResponse(
        {"accepted": accepted, "refused": len(refusals), "refusals": shown}, status_code=status
    )


def _retry_later(status: int, wait_ms: int, why: str) -> NoReturn:
    raise HTTPException(status, why, {"retry-after": str(-(-wait_ms // 1000))})


def _error_response(_request: Request, refused: Exception) -> Response:
    assert isinstance(refused, HTTPException)
    return JSONResponse(
        {"error": refused.detail}, status_code=refused.status_code, headers=refused.headers
    )
