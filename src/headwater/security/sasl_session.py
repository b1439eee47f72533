"""The authentication of one connection: who its peer is, and until when. Pure.

A connection authenticates, is served, may authenticate again on the same connection (KIP-368), and
expires if it does not do so in time. Times are of a monotonic clock: a jump of the wall clock
neither extends nor ends a session.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from headwater.errors import E
from headwater.security.principals import ANONYMOUS, Principal
from headwater.security.sasl_exchange import AuthenticationRefused, ServerExchange

MIN_REAUTHENTICATION_MS = 1000
"""How long after the last login a client may log in again, as in Kafka; or half of a shorter session."""


class SaslState(Enum):
    """What a connection may do."""

    AUTHENTICATING = "authenticating"
    SERVING = "serving"
    REAUTHENTICATING = "re-authenticating"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class SaslMechanism:
    """A mechanism that a listener offers."""

    name: str
    begin: Callable[[], ServerExchange]
    lifetime_ms: int = 0
    """How long a session lasts; 0 for as long as the connection."""
    advertised: bool = True


@dataclass(frozen=True, slots=True)
class SessionStep:
    """The answer to a token; with a principal, the connection is authenticated."""

    token: bytes
    principal: Principal | None = None
    lifetime_ms: int = 0
    refused: str = ""
    """Why the exchange will fail, for the log."""


class SaslSession:
    """The state machine. `anonymous` connections are served before they authenticate."""

    __slots__ = (
        "_began_ms",
        "_ends_ms",
        "_exchange",
        "_former",
        "_lifetime_ms",
        "_mechanism",
        "_offered",
        "by_token",
        "state",
    )

    def __init__(self, offered: Mapping[str, SaslMechanism], *, anonymous: bool = False) -> None:
        self.state = SaslState.SERVING if anonymous else SaslState.AUTHENTICATING
        self._offered = offered
        self._mechanism: SaslMechanism | None = None
        self._exchange: ServerExchange | None = None
        self._former: Principal | None = None
        self._began_ms: int | None = None
        self._ends_ms: int | None = None
        self._lifetime_ms = 0
        self.by_token = False
        """Whether the peer logged in with a delegation token."""

    @property
    def advertised(self) -> list[str]:
        """Return the mechanisms that clients may choose."""
        return [one.name for one in self._offered.values() if one.advertised]

    @property
    def mechanism(self) -> str:
        """Return the chosen mechanism."""
        return self._mechanism.name if self._mechanism is not None else "none"

    @property
    def in_exchange(self) -> bool:
        """Return whether the next message must be a token."""
        return self._exchange is not None

    def choose(self, mechanism: str, now_ms: int) -> E:
        """Begin the exchange of a mechanism, or return why not."""
        if self._exchange is not None:
            return E.ILLEGAL_SASL_STATE
        offered = self._offered.get(mechanism)
        if offered is None:
            return E.UNSUPPORTED_SASL_MECHANISM if self.advertised else E.ILLEGAL_SASL_STATE
        if self._former is not None:
            if offered is not self._mechanism:
                return E.UNSUPPORTED_SASL_MECHANISM
            if self.state is SaslState.SERVING and self._too_soon(now_ms):
                return E.ILLEGAL_SASL_STATE
            self.state = SaslState.REAUTHENTICATING
        else:
            self.state = SaslState.AUTHENTICATING
        self._mechanism = offered
        self._began_ms = now_ms
        self._exchange = offered.begin()
        return E.NONE

    def feed(self, token: bytes, now_ms: int) -> SessionStep:
        """Take the client's next token; AuthenticationRefused if the connection must end.

        WaitFirst passes through: the same token must be fed again later.
        """
        exchange, mechanism = self._exchange, self._mechanism
        if exchange is None or mechanism is None:
            raise AuthenticationRefused("a token came before the mechanism was chosen")
        step = exchange.feed(token)
        if step.principal is None:
            return SessionStep(step.token, refused=step.refused)
        if step.principal == ANONYMOUS:  # rights of clients that do not log in are not for users
            raise AuthenticationRefused(f"no user may have the name {ANONYMOUS.name}")
        if self._former not in (None, step.principal):
            raise AuthenticationRefused(f"{self._former} logged in again as {step.principal}")
        self._exchange = None
        self._former = step.principal
        self.by_token = step.by_token
        limits = [limit for limit in (mechanism.lifetime_ms, step.lifetime_ms) if limit]
        self._lifetime_ms = min(limits, default=0)
        self._ends_ms = now_ms + self._lifetime_ms if limits else None
        self.state = SaslState.SERVING
        return SessionStep(step.token, step.principal, self._lifetime_ms)

    def expires(self, now_ms: int) -> bool:
        """End the session if its time is up; return whether it has ended."""
        if self._ends_ms is not None and now_ms >= self._ends_ms:
            self.state = SaslState.EXPIRED
        return self.state is SaslState.EXPIRED

    def _too_soon(self, now_ms: int) -> bool:
        least_ms = MIN_REAUTHENTICATION_MS
        if self._lifetime_ms:
            least_ms = min(least_ms, self._lifetime_ms // 2)
        return self._began_ms is not None and now_ms - self._began_ms < least_ms
