"""How a client's connections authenticate, and do so again before their sessions end."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

from headwater.client.errors import AuthenticationError
from headwater.config.client_sasl import Credentials, SaslCredentials
from headwater.errors import E, KafkaError
from headwater.seams.randomness import Randomness
from headwater.security.delegation_tokens import EXTENSION
from headwater.security.plain import PLAIN, PlainClient
from headwater.security.sasl_exchange import AuthenticationRefused, ClientExchange
from headwater.security.scram import NONCE_BYTES, ScramClient
from headwater.security.scram_credentials import SCRAM, ScramMechanism
from headwater.transport.client_connection import ClientConnection
from headwater.transport.sasl_login import answer_to, log_in, login_steps
from headwater.wire.schema import Struct

log = logging.getLogger(__name__)

Ask = Callable[[Struct, type[Any]], Any]
"""Sends a request and returns its answer."""
_REMEMBERED = 8
"""How many derived keys are kept: brokers have one salt for a user."""
SHORTEST_SESSION_MS, LONGEST_SESSION_MS = 1000, 24 * 3_600_000
"""The bounds of a session that a broker grants: a shorter one must not keep a client logging in. Kafka's
brokers refuse to authenticate a client again within a second."""
_REFUSALS = (E.SASL_AUTHENTICATION_FAILED, E.UNSUPPORTED_SASL_MECHANISM, E.ILLEGAL_SASL_STATE)


class Login(ABC):
    """Authenticates connections as one user."""

    def __init__(self, credentials: Credentials, randomness: Randomness) -> None:
        self.credentials = credentials
        self._randomness = randomness
        self._renewals: set[asyncio.Task[None]] = set()

    @abstractmethod
    def begin(self) -> ClientExchange:
        """Return a new exchange of the mechanism, after `get_ready`."""

    @abstractmethod
    async def get_ready(self) -> None:
        """Get what an exchange needs, before a connection is opened or paused for it."""

    @abstractmethod
    def get_ready_here(self) -> None:
        """Get what an exchange needs; blocks."""

    @abstractmethod
    def _who(self) -> tuple[str, str]:
        """Return how to call the user, and what to check if a broker refuses it."""

    async def prepare(self, connection: ClientConnection) -> None:
        """Authenticate a new connection, and again before each session ends."""
        lifetime_ms = await self._log_in(connection)
        if lifetime_ms > 0:
            delay_s = self.renewal_ms(lifetime_ms) / 1000
            connection.call_later(delay_s, partial(self._start_renewal, connection))

    def renewal_ms(self, lifetime_ms: int) -> int:
        """Return when to authenticate again: after 85 to 95 % of the session, as Java clients do."""
        lifetime_ms = min(max(lifetime_ms, SHORTEST_SESSION_MS), LONGEST_SESSION_MS)
        return lifetime_ms * (850 + self._randomness.below(101)) // 1000

    def refusal(self, address: str, problem: KafkaError | AuthenticationRefused) -> KafkaError:
        """Return the error for a failed login: with what to do, if the broker has refused it."""
        who, advice = self._who()
        code, why = E.SASL_AUTHENTICATION_FAILED, str(problem)
        if isinstance(problem, KafkaError):
            if problem.code not in _REFUSALS:
                return problem
            code, why = problem.code, problem.message
        if code is not E.SASL_AUTHENTICATION_FAILED:
            advice = "set sasl.mechanism to one of them, or security.protocol to what it serves"
        said = f"{address} refused {who} with {self.credentials.mechanism}: {why}; {advice}"
        return AuthenticationError(said, code)

    def log_in(self, address: str, ask: Ask) -> int:
        """Authenticate a connection that waits for each answer; return the session's time in ms."""
        self.get_ready_here()
        try:
            steps = login_steps(self.credentials.mechanism, self.begin())
            request = next(steps)
            while True:
                request = steps.send(ask(request, answer_to(request)))
        except StopIteration as complete:
            return int(complete.value)
        except (KafkaError, AuthenticationRefused) as problem:
            raise self.refusal(address, problem) from None

    def _start_renewal(self, connection: ClientConnection) -> None:
        task = asyncio.get_running_loop().create_task(self._renew(connection))
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    async def _renew(self, connection: ClientConnection) -> None:
        """Authenticate again; requests wait meanwhile, and are sent after it."""
        try:
            await self.get_ready()
            await connection.pause()
            if not connection.is_open:
                return
            await self.prepare(connection)
            connection.resume()
        except (KafkaError, OSError) as refused:
            if not isinstance(refused, KafkaError):
                refused = KafkaError(E.NETWORK_EXCEPTION, str(refused))
            connection.abort(refused)
        except Exception as fault:
            at = connection.address
            log.error("internal error while authenticating to %s again", at, exc_info=fault)
            said = f"internal error while authenticating to {at} again: {fault!r}"
            connection.abort(KafkaError(E.NETWORK_EXCEPTION, said))

    async def _log_in(self, connection: ClientConnection) -> int:
        try:
            return await log_in(connection, self.credentials.mechanism, self.begin())
        except (KafkaError, AuthenticationRefused) as problem:
            raise self.refusal(connection.address, problem) from None


class PasswordLogin(Login):
    """Authenticates connections with a user and a password."""

    def __init__(self, credentials: SaslCredentials, randomness: Randomness) -> None:
        super().__init__(credentials, randomness)
        self._user = credentials
        self._derived: dict[tuple[bytes, int], bytes] = {}

    def begin(self) -> ClientExchange:
        """Return a new exchange of the mechanism."""
        mechanism, user, password, by_token = self._user
        if mechanism == PLAIN:
            return PlainClient(user, password)
        nonce = self._randomness.below(1 << 8 * NONCE_BYTES).to_bytes(NONCE_BYTES)
        scram = SCRAM[mechanism]
        extensions = {EXTENSION: "true"} if by_token else None
        return ScramClient(scram, user, partial(self._salted_password, scram), nonce, extensions)

    async def get_ready(self) -> None:
        """Nothing: the password is there."""

    def get_ready_here(self) -> None:
        """Nothing: the password is there."""

    def _who(self) -> tuple[str, str]:
        if self._user.by_token:
            return (
                f"delegation token {self._user.user!r}",
                "check the delegation token (headwater tokens list), it may have expired",
            )
        return (
            f"user {self._user.user!r}",
            "check the user, the password and sasl.mechanism (headwater users list)",
        )

    def _salted_password(self, mechanism: ScramMechanism, salt: bytes, iterations: int) -> bytes:
        derived = self._derived.get((salt, iterations))
        if derived is None:
            if len(self._derived) >= _REMEMBERED:
                self._derived.clear()
            derived = mechanism.salted_password(self._user.password, salt, iterations)
            self._derived[salt, iterations] = derived
        return derived
