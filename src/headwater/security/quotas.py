"""The kinds of quotas, whom they apply to, and which of them applies to a client."""

import math
from collections.abc import Mapping
from enum import Enum
from ipaddress import ip_address
from typing import NamedTuple

from headwater.errors import E, KafkaError

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

DEFAULT = ""
"""The name of a default: it stands for every name without a quota of its own. No real name is empty."""
USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""The parts of an entity, as the protocol names them."""

_OF_CLIENTS = (
    PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE,
)  # fmt: skip
_OF_ADDRESSES = (CONNECTION_CREATION_RATE,)
QUOTA_KEYS = frozenset({*_OF_CLIENTS, *_OF_ADDRESSES})
_WHOLE = {PRODUCER_BYTE_RATE: 2**63, CONSUMER_BYTE_RATE: 2**63, CONNECTION_CREATION_RATE: 2**31}
"""The quotas that are whole numbers, each with the first number that is too large."""
_CLOSE = 1e-6
MAX_NAME = 4096
"""Characters of a name: it is part of a path in the metadata store."""


class QuotaKind(Enum):
    """The quota that a request counts against."""

    PRODUCE = "bytes produced"
    FETCH = "bytes fetched"
    REQUEST = "request time"
    CONTROLLER_MUTATION = "topics and partitions created or deleted"
    EXEMPT = "nothing"


class QuotaEntity(NamedTuple):
    """Whom a quota is for: a user, a client id, both, or an address; None for a part it lacks."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> "QuotaEntity":
        """Check the parts of an entity, of which None is the default; KafkaError says what is wrong."""
        if not parts:
            raise KafkaError(E.INVALID_REQUEST, "a quota is for a user, a client-id or an ip")
        for kind, name in parts.items():
            if kind not in (USER, CLIENT_ID, IP):
                raise KafkaError(
                    E.INVALID_REQUEST,
                    f"a quota is for a user, a client-id or an ip, not a {kind!r}",
                )
            if name == "":
                raise KafkaError(E.INVALID_REQUEST, f"the name of the {kind} is empty")
            if name is not None and len(name) > MAX_NAME:
                raise KafkaError(
                    E.INVALID_REQUEST,
                    f"the name of the {kind} has {len(name)} characters; at most {MAX_NAME} fit",
                )
            if name == "<default>":
                raise KafkaError(
                    E.INVALID_REQUEST, f"'<default>' is not a {kind}: leave the name out"
                )
        if IP in parts and len(parts) > 1:
            raise KafkaError(
                E.INVALID_REQUEST, "a quota of an ip cannot be combined with a user or a client-id"
            )
        named = {kind: DEFAULT if name is None else name for kind, name in parts.items()}
        return cls(named.get(USER), named.get(CLIENT_ID), _address(named.get(IP)))

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The type and the name of each part."""
        named = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return tuple((kind, name) for kind, name in named if name is not None)

    def __str__(self) -> str:
        return ", ".join(
            f"the default {kind}" if name == DEFAULT else f"{kind} {name!r}"
            for kind, name in self.parts
        )

    def check(self, key: str, value: float) -> None:
        """Raise KafkaError unless the entity may have this quota."""
        self.check_key(key)
        if not math.isfinite(value) or value <= 0:
            raise KafkaError(E.INVALID_REQUEST, f"{key}={value} must be greater than 0")
        limit = _WHOLE.get(key)
        if limit is not None and (abs(value - round(value)) > _CLOSE or value >= limit):
            raise KafkaError(
                E.INVALID_REQUEST, f"{key}={value} must be a whole number below {limit}"
            )

    def check_key(self, key: str) -> None:
        """Raise KafkaError for a quota that no entity of this kind has."""
        allowed = _OF_ADDRESSES if self.ip is not None else _OF_CLIENTS
        if key not in allowed:
            raise KafkaError(
                E.INVALID_REQUEST,
                f"{key!r} is not a quota of {self}; there are {', '.join(allowed)}",
            )


def _address(name: str | None) -> str | None:
    if not name:
        return name
    try:
        return str(ip_address(name))
    except ValueError:
        raise KafkaError(
            E.INVALID_REQUEST, f"{name!r} is not an IP address: write the address of the host"
        ) from None


def quota_text(key: str, value: float) -> str:
    """The form in which a quota is stored."""
    return str(round(value)) if key in _WHOLE else repr(float(value))


def stored_quotas(entity: QuotaEntity, config: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the stored configs of an entity; those that no broker can apply are left out."""
    found = {}
    for key in QUOTA_KEYS & config.keys():
        try:
            value = float(config[key])
            entity.check(key, value)
        except (ValueError, KafkaError):
            continue
        found[key] = value
    return found


class Limit(NamedTuple):
    """A quota that applies to a client, and who shares it with the client."""

    rate: float
    user: str | None
    client_id: str | None


class QuotaTable:
    """The quotas of the cluster."""

    def __init__(self) -> None:
        self.entities: dict[QuotaEntity, dict[str, float]] = {}
        self._of_clients = 0

    @property
    def limits_clients(self) -> bool:
        """Whether a user or a client id has a quota."""
        return self._of_clients > 0

    def set(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> bool:
        """Replace the quotas of an entity; return whether they changed."""
        before = self.entities.get(entity, {})
        if before == quotas:
            return False
        if quotas:
            self.entities[entity] = dict(quotas)
        else:
            del self.entities[entity]
        if entity.ip is None:
            self._of_clients += bool(quotas) - bool(before)
        return True

    def limit(self, key: str, user: str, client_id: str) -> Limit | None:
        """The quota of a client: the most specific one, with Kafka's precedence.

        A quota of user and client id, default or not, is for each pair of them alone. A quota of a
        user is shared by all client ids of that user, a quota of a client id by all its users.
        """
        get = self.entities.get
        for entity, of_user, of_client in (
            (QuotaEntity(user, client_id), True, True),
            (QuotaEntity(user, DEFAULT), True, True),
            (QuotaEntity(user), True, False),
            (QuotaEntity(DEFAULT, client_id), True, True),
            (QuotaEntity(DEFAULT, DEFAULT), True, True),
            (QuotaEntity(DEFAULT), True, False),
            (QuotaEntity(None, client_id), False, True),
            (QuotaEntity(None, DEFAULT), False, True),
        ):
            quotas = get(entity)
            if quotas is not None and key in quotas:
                return Limit(
                    quotas[key], user if of_user else None, client_id if of_client else None
                )
        return None

    def connection_rate(self, ip: str) -> float | None:
        """How many connections an address may open in a second; None if it has no quota."""
        for name in (ip, DEFAULT):
            quotas = self.entities.get(QuotaEntity(ip=name))
            if quotas is not None and CONNECTION_CREATION_RATE in quotas:
                return quotas[CONNECTION_CREATION_RATE]
        return None
