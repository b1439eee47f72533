"""What must hold of every request and answer: S1 to S4, I16 and I18. `simulator/node.py` checks S5.

The host of a client says who its user is; what a broker takes it for is not asked.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headwater.errors import E
from headwater.model import Uuid
from headwater.security.acls import AclOperation, AclPatternType, AclPermission
from headwater.security.plain import PLAIN
from headwater.wire.apis import (
    API,
    API_VERSIONS,
    CREATE_ACLS,
    DELETE_ACLS,
    FETCH,
    PRODUCE,
    key_of,
)
from headwater.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from simulator.partition_promises import Complain
from simulator.security.acl_history import LITERAL, PREFIXED, AclHistory, Entry, Question
from simulator.security.users import BROKER, OF, SECRET, STRANGER, user_of
from simulator.security.wiretap import Exchange, Stream

SASL_HANDSHAKE = key_of(SaslHandshakeRequest)
SASL_AUTHENTICATE = key_of(SaslAuthenticateRequest)
OPEN_APIS = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
"""What is answered before a login (S1)."""
EXPIRY_SLACK_US = 200_000
WAITED_US = 700_000
"""How long an answer with records may be under way inside of a broker."""
WINDOW_US = 10_000_000
EXCESS = 1.1
"""How much more than its quota a client may get accepted in a window (I18)."""


class _Accepted(NamedTuple):
    came_us: int
    answered_us: int
    size: int


class SecurityChecks:
    """Judges the exchanges of a wiretap."""

    def __init__(
        self,
        history: AclHistory,
        complain: Complain,
        topic_of: Callable[[Uuid], str],
    ) -> None:
        self._history = history
        self._complain = complain
        self._topic_of = topic_of
        self.rates: dict[str, float] = {}
        """By user: the greatest quota of bytes produced per second that it ever had."""
        self.served: dict[str, int] = defaultdict(int)
        """By question of a user, such as "alice Write of-alice": how often it was allowed."""
        self.refused = 0
        self._accepted: dict[tuple[str, str], deque[_Accepted]] = defaultdict(deque)

    # -- requests

    def came(self, exchange: Exchange) -> None:
        """A broker is about to read a request."""
        exchange.oldest = self._history.oldest(exchange.stream.broker)
        exchange.newest = self._history.newest

    # -- answers

    def answered(self, exchange: Exchange) -> None:
        """A broker has answered a request."""
        stream, api_key = exchange.stream, exchange.api_key
        user = user_of(stream.client)
        if SECRET in exchange.answer:
            self._complain(
                f"S4: the answer to {API[api_key].name} of {stream.client} has a password"
            )
        if api_key not in OPEN_APIS:
            self._check_session(exchange)
        elif api_key != API_VERSIONS:
            self._follow_login(exchange, user)
        if user == BROKER:
            self._check_follower(exchange)
        elif user in OF:
            self._check_tenant(exchange, user)
        elif api_key == CREATE_ACLS:
            self._check_created(exchange)
        elif api_key == DELETE_ACLS:
            self._check_deleted(exchange)

    def _check_session(self, exchange: Exchange) -> None:
        """S1: nothing is served before a login, or after the end of the session."""
        name, client = API[exchange.api_key].name, exchange.stream.client
        if not exchange.authenticated:
            self._complain(f"S1: {name} of {client} is answered before a login")
        elif exchange.ends_us is not None and exchange.came_us > exchange.ends_us + EXPIRY_SLACK_US:
            late_ms = (exchange.came_us - exchange.ends_us) // 1000
            self._complain(f"S1: {name} of {client} is answered, {late_ms} ms after its session")

    def _follow_login(self, exchange: Exchange, user: str) -> None:
        stream, answer = exchange.stream, exchange.response()
        if exchange.api_key == SASL_HANDSHAKE:
            request: Any = exchange.request()
            stream.mechanism, stream.tokens = request.mechanism, 0
        elif not answer.error_code:  # type: ignore[attr-defined]
            stream.tokens += 1
            if stream.tokens == (1 if stream.mechanism == PLAIN else 2):
                self._logged_in(stream, exchange, user, answer)

    def _logged_in(self, stream: Stream, exchange: Exchange, user: str, answer: Any) -> None:
        if user == STRANGER:
            self._complain(f"S1: a stranger has logged in with {stream.mechanism}")
        stream.authenticated = True
        lifetime_ms = answer.session_lifetime_ms
        stream.ends_us = exchange.answered_us + lifetime_ms * 1000 if lifetime_ms else None

    def _check_follower(self, exchange: Exchange) -> None:
        """I18: no quota holds replication back."""
        if exchange.api_key == FETCH and (throttle_ms := exchange.throttle_ms()):
            follower = exchange.stream.client
            self._complain(f"I18: the fetch of {follower} is throttled for {throttle_ms} ms")

    # -- tenants

    def _check_tenant(self, exchange: Exchange, user: str) -> None:
        self._check_contents(exchange, user)
        if exchange.api_key == PRODUCE:
            self._check_writes(exchange, user)

    def _check_contents(self, exchange: Exchange, user: str) -> None:
        """I16, S2: an answer has records only of topics that its user may read."""
        host, history = exchange.stream.broker, self._history
        for topic in OF.values():
            if marker(topic) not in exchange.answer:
                continue
            question = Question(user, "Read", topic)
            since = max(exchange.oldest, history.oldest(host, exchange.answered_us - WAITED_US))
            self.served[f"{user} Read {topic}"] += 1
            if not history.somebody(question, since):
                what = f"{API[exchange.api_key].name} of {user}"
                self._complain(
                    f"I16: the answer to {what} has records of {topic}: no ACL allows it"
                )

    def _check_writes(self, exchange: Exchange, user: str) -> None:
        """S2: what is written was allowed, and what was always allowed is not refused."""
        request: Any = exchange.request()
        response: Any = exchange.response()
        asked = [self._name(topic) for topic in request.topic_data]
        accepted = False
        for topic in response.responses:
            name = self._name(topic)
            question = Question(user, "Write", name)
            for partition in topic.partition_responses:
                if partition.error_code == E.NONE:
                    accepted = True
                    self.served[f"{user} Write {name}"] += 1
                    if not self._history.somebody(question, exchange.oldest):
                        self._complain(f"S2: {user} writes to {name}: no ACL allows it")
                elif partition.error_code == E.TOPIC_AUTHORIZATION_FAILED:
                    self.refused += 1
                    if self._history.everybody(question, exchange.oldest):
                        self._complain(f"S2: {user} may not write to {name}: the ACLs allow it")
        for topic in OF.values():
            if topic not in asked and marker(topic) in exchange.asked:
                self._complain(f"I16: a request for {asked} has records of {topic}")
        if accepted:
            self._count(exchange, user)

    def _count(self, exchange: Exchange, user: str) -> None:
        """I18: what came and was answered within ten seconds is not much more than the quota."""
        accepted = self._accepted[user, exchange.stream.broker]
        accepted.append(_Accepted(exchange.came_us, exchange.answered_us, len(exchange.asked)))
        since_us = exchange.answered_us - WINDOW_US
        while accepted and accepted[0].answered_us < since_us:
            accepted.popleft()
        total = sum(one.size for one in accepted if one.came_us >= since_us)
        most = EXCESS * self.rates[user] * WINDOW_US / 1e6
        if total > most:
            self._complain(f"I18: {user} wrote {total} bytes in 10 s, its quota allows {most:.0f}")

    def _name(self, topic: Any) -> str:
        return topic.name or self._topic_of(topic.topic_id)

    # -- administrators

    def _check_created(self, exchange: Exchange) -> None:
        """S3: an ACL was stored before its creation is acknowledged."""
        request: Any = exchange.request()
        response: Any = exchange.response()
        for creation, result in zip(request.creations, response.results, strict=True):
            entry = _entry(
                creation.resource_pattern_type, creation.resource_name, creation.principal,
                creation.host, creation.operation, creation.permission_type,
            )  # fmt: skip
            if not result.error_code and entry is not None:
                self._acknowledged(exchange, entry, present=True)

    def _check_deleted(self, exchange: Exchange) -> None:
        request: Any = exchange.request()
        response: Any = exchange.response()
        for wanted, result in zip(request.filters, response.filter_results, strict=True):
            entry = _entry(
                wanted.pattern_type_filter, wanted.resource_name_filter, wanted.principal_filter,
                wanted.host_filter, wanted.operation, wanted.permission_type,
            )  # fmt: skip
            failed = result.error_code or any(one.error_code for one in result.matching_acls)
            if not failed and entry is not None:
                self._acknowledged(exchange, entry, present=False)

    def _acknowledged(self, exchange: Exchange, entry: Entry, *, present: bool) -> None:
        first = self._history.first(exchange.newest, entry, present=present)
        if first is None:
            what = "creation" if present else "deletion"
            self._complain(f"S3: the {what} of {entry} is acknowledged, and never was stored")
        else:
            self._history.answered(exchange.stream.broker, first)


_WORDS: Mapping[int, str] = {
    AclOperation.READ: "Read",
    AclOperation.WRITE: "Write",
    AclOperation.ALL: "All",
}


def _entry(
    pattern_type: int, name: str, principal: str, host: str, operation: int, permission: int
) -> Entry | None:
    """Return the ACL as it is stored, if it is of a topic of a tenant."""
    if name not in OF.values() or operation not in _WORDS:
        return None
    root = LITERAL if pattern_type == AclPatternType.LITERAL else PREFIXED
    allows = "Allow" if permission == AclPermission.ALLOW else "Deny"
    return Entry(root + name, principal, host, _WORDS[operation], allows)


def marker(topic: str) -> bytes:
    """Return what every record of a tenant's topic begins with."""
    return f"<{topic}>".encode()
