"""How a client's connections authenticate, and do so again before their sessions end."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from headwater.client.errors import AuthenticationError
from headwater.config.client_sasl import SaslCredentials
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

Ask = Callable[[Struct, type[Any]], Any]
"""Sends a request and returns its answer."""
_REMEMBERED = 8
"""How many derived keys are kept: brokers have one salt for a user."""
_REFUSALS = (E.SASL_AUTHENTICATION_FAILED, E.UNSUPPORTED_SASL_MECHANISM, E.ILLEGAL_SASL_STATE)


class Login:
    """Authenticates connections as one user."""

    def __init__(self, credentials: SaslCredentials, randomness: Randomness) -> None:
        self.credentials = credentials
        self._randomness = randomness
        self._derived: dict[tuple[bytes, int], bytes] = {}
        self._renewals: set[asyncio.Task[None]] = set()

    def begin(self) -> ClientExchange:
        """Return a new exchange of the mechanism."""
        mechanism, user, password, by_token = self.credentials
        if mechanism == PLAIN:
            return PlainClient(user, password)
        nonce = self._randomness.below(1 << 8 * NONCE_BYTES).to_bytes(NONCE_BYTES)
        scram = SCRAM[mechanism]
        extensions = {EXTENSION: "true"} if by_token else None
        return ScramClient(scram, user, partial(self._salted_password, scram), nonce, extensions)

    async def prepare(self, connection: ClientConnection) -> None:
        """Authenticate a new connection, and again before each session ends."""
        lifetime_ms = await self._log_in(connection)
        if lifetime_ms > 0:
            delay_s = self.renewal_ms(lifetime_ms) / 1000
            connection.call_later(delay_s, partial(self._start_renewal, connection))

    def renewal_ms(self, lifetime_ms: int) -> int:
        """Return when to authenticate again: after 85 to 95 % of the session, as Java clients do."""
        return lifetime_ms * (850 + self._randomness.below(101)) // 1000

    def refusal(self, address: str, problem: KafkaError | AuthenticationRefused) -> KafkaError:
        """Return the error for a failed login: with what to do, if the broker has refused it."""
        mechanism, user, _, by_token = self.credentials
        code, why = E.SASL_AUTHENTICATION_FAILED, str(problem)
        if isinstance(problem, KafkaError):
            if problem.code not in _REFUSALS:
                return problem
            code, why = problem.code, problem.message
        if code is E.SASL_AUTHENTICATION_FAILED and by_token:
            advice = "check the delegation token (headwater tokens list), it may have expired"
        elif code is E.SASL_AUTHENTICATION_FAILED:
            advice = "check the user, the password and sasl.mechanism (headwater users list)"
        else:
            advice = "set sasl.mechanism to one of them, or security.protocol to what it serves"
        who = f"delegation token {user!r}" if by_token else f"user {user!r}"
        said = f"{address} refused {who} with {mechanism}: {why}; {advice}"
        return AuthenticationError(said, code)

    def log_in(self, address: str, ask: Ask) -> int:
        """Authenticate a connection that waits for each answer; return the session's time in ms."""
        steps = login_steps(self.credentials.mechanism, self.begin())
        try:
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
        await connection.pause()
        if not connection.is_open:
            return
        try:
            await self.prepare(connection)
        except (KafkaError, OSError) as refused:
            if not isinstance(refused, KafkaError):
                refused = KafkaError(E.NETWORK_EXCEPTION, str(refused))
            connection.abort(refused)
        else:
            connection.resume()

    async def _log_in(self, connection: ClientConnection) -> int:
        try:
            return await log_in(connection, self.credentials.mechanism, self.begin())
        except (KafkaError, AuthenticationRefused) as problem:
            raise self.refusal(connection.address, problem) from None

    def _salted_password(self, mechanism: ScramMechanism, salt: bytes, iterations: int) -> bytes:
        derived = self._derived.get((salt, iterations))
        if derived is None:
            if len(self._derived) >= _REMEMBERED:
                self._derived.clear()
            derived = mechanism.salted_password(self.credentials.password, salt, iterations)
            self._derived[salt, iterations] = derived
        return derived
