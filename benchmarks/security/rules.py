"""What an authorizer and quotas cost on the hot path of our broker.

The client has just the rights that it needs, among many ACLs of others, and a quota that it never
reaches, among many quotas of others.
"""

from dataclasses import dataclass

from benchmarks.load import rounds
from benchmarks.load.cases import CASES
from benchmarks.load.rounds import Scale
from benchmarks.load.targets import Figure, at_most
from benchmarks.security.servers import USER, SecureHeadwater, Stores
from headwater import Admin
from headwater.client.admin import AclBinding
from headwater.security.acls import AclOperation, AclPatternType, AclResourceType
from headwater.security.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaEntity

_CASES = ("produce-1rec-100c-new", "produce-1rec-100c-old", "fetch-4c-new")
_LOGIN = {"sasl.plain.without.tls": "true"}
_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_OPERATIONS = (AclOperation.READ, AclOperation.WRITE)
_A_REQUEST = 500
_NEVER_REACHED = dict.fromkeys((PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE), 1e12)


@dataclass(frozen=True)
class _Rules:
    """How many rules of others a broker has; without ACLs it has no authorizer."""

    name: str
    most: float
    """The most CPU for the same work, as a ratio to that without rules."""
    authorizer: bool = True
    acls: int = 0
    quotas: int = 0


_BARE = _Rules("no-authorizer", 1.0, authorizer=False)
_COMPARED = (
    _Rules("authorizer", 1.03),
    _Rules("10000-acls-1000-quotas", 1.05, acls=10_000, quotas=1_000),
)


class _Ruled(SecureHeadwater):
    """Our broker with these rules; the client that makes topics is a super user, the other is not."""

    def __init__(self, stores: Stores, rules: _Rules) -> None:
        settings = {**_LOGIN, **(_AUTHORIZER if rules.authorizer else {})}
        super().__init__(stores, "SASL_PLAINTEXT", rules.name, settings)
        self._rules = rules

    def wait_until_ready(self) -> None:
        """Returns when the rules are in force, too."""
        super().wait_until_ready()
        if not self._rules.authorizer:
            return
        own = [_binding(USER, "bench", operation) for operation in _OPERATIONS]
        others = [
            _binding(f"user-{i}", f"topic-{i}", _OPERATIONS[i % 2]) for i in range(self._rules.acls)
        ]
        with Admin(bootstrap_servers=f"127.0.0.1:{self.port}") as admin:
            for at in range(0, len(own) + len(others), _A_REQUEST):
                admin.create_acls([*own, *others][at : at + _A_REQUEST])
            if self._rules.quotas:
                users = [USER, *(f"user-{i}" for i in range(self._rules.quotas))]
                admin.alter_client_quotas({QuotaEntity(user): _NEVER_REACHED for user in users})


def _binding(user: str, prefix: str, operation: AclOperation) -> AclBinding:
    topic, prefixed = AclResourceType.TOPIC, AclPatternType.PREFIXED
    return AclBinding(f"User:{user}", operation, topic, prefix, prefixed)


def rules(scale: Scale) -> list[Figure]:
    """CPU for a byte with rules over CPU without an authorizer, in rounds of all."""
    cases = [CASES[name] for name in _CASES]
    with (
        Stores() as stores,
        _Ruled(stores, _BARE) as bare,
        _Ruled(stores, _COMPARED[0]) as first,
        _Ruled(stores, _COMPARED[1]) as second,
    ):
        found = rounds.run_rounds(cases, [bare, first, second], scale, print)
    if found.failures:
        raise RuntimeError(str(found.failures))
    figures = []
    for case in cases:
        by_server = found.samples[case.name]
        for each in _COMPARED:
            pairs = zip(by_server[each.name], by_server[_BARE.name], strict=True)
            ratios = [a.cpu_us_per_byte / b.cpu_us_per_byte for a, b in pairs]
            measure = f"{each.name}, CPU per byte ÷ without"
            figures.append(Figure(case.name, measure, ratios, at_most(each.most)))
    return figures
