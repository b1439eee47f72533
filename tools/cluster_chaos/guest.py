"""A user whose rights come and go during a run: every change counts, and nothing else is allowed."""

import random
import time
from collections.abc import Callable
from typing import Any

import headwater
from headwater.client.admin.acls import AclBinding
from headwater.errors import KafkaError
from headwater.security.acls import AclFilter, AclOperation, AclPatternType, AclResourceType
from headwater.testing import Cluster
from tools.client_chaos import QUICK
from tools.cluster_chaos.access import GUEST, OPERATOR, Access, Users

PATTERNS = 4
"""How many resource patterns the guest has rights on: few, so that changes meet."""
FORBIDDEN = "orders"
OPERATIONS = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
PROPAGATION_S = 60.0
"""How long a broker of a healed cluster may take to know every change."""


class Guest:
    """Its rights, as brokers have acknowledged them."""

    def __init__(self, users: Users, cluster: Cluster, chance: random.Random) -> None:
        self._chance = chance
        self._users = users
        self._brokers = {at: cluster.address(at) for at in cluster.broker_ids}
        self._admin = _admin(users.access(OPERATOR), default_api_timeout_ms=20_000)
        self._producer = headwater.Producer(
            **users.access(GUEST).own, **QUICK, max_block_ms=20_000, delivery_timeout_ms=40_000
        )
        self._granted: set[AclBinding] = set()
        self._unknown: set[AclBinding] = set()
        """Rights of changes that failed, which may count or not."""
        self._problems: list[str] = []
        self.works: dict[str, Callable[[], object]] = {
            "right granted": self._grant,
            "right revoked": self._revoke,
            "right refused": self._intrude,
        }

    def _grant(self) -> None:
        right = AclBinding(
            f"User:{GUEST}", self._chance.choice(OPERATIONS), AclResourceType.TOPIC,
            f"guest-{self._chance.randrange(PATTERNS)}",
            self._chance.choice((AclPatternType.LITERAL, AclPatternType.PREFIXED)),
        )  # fmt: skip
        self._unknown.add(right)
        self._admin.create_acls([right])
        self._unknown.remove(right)
        self._granted.add(right)

    def _revoke(self) -> None:
        rights = sorted(self._granted)
        if not rights:
            return
        right = self._chance.choice(rights)
        self._granted.remove(right)
        self._unknown.add(right)
        self._admin.delete_acls([_only(right)])
        self._unknown.remove(right)

    def _intrude(self) -> None:
        """Write where the guest has no right."""
        try:
            self._producer.send(FORBIDDEN, b"intruded").result(45)
        except headwater.AuthorizationError:
            return
        self._problems.append(f"the guest wrote to {FORBIDDEN} without a right")

    def finish(self) -> list[str]:
        """Return what is wrong, once every broker of the healed cluster had its time."""
        deadline = time.monotonic() + PROPAGATION_S
        try:
            for at, address in self._brokers.items():
                while problem := self._difference(at, address):
                    if time.monotonic() > deadline:
                        self._problems.append(problem)
                        break
                    time.sleep(0.1)
        finally:
            self._admin.close()
            self._producer.close(1.0)
        return self._problems

    def _difference(self, at: int, address: str) -> str:
        """Return how the rights on a broker differ from those that were acknowledged."""
        try:
            with _admin(self._users.access(OPERATOR, address)) as admin:
                found = set(admin.describe_acls(AclFilter(principal=f"User:{GUEST}")))
        except KafkaError as failure:
            return f"broker {at} does not tell its ACLs: {failure}"
        lost = self._granted - self._unknown - found
        left = found - self._granted - self._unknown
        said = f"lost are {sorted(lost)}, not revoked are {sorted(left)}"
        return f"broker {at} has other ACLs: {said}" if lost or left else ""


def _admin(access: Access, **options: Any) -> headwater.Admin:
    return headwater.Admin(**access.own, **QUICK, **options)


def _only(right: AclBinding) -> AclFilter:
    return AclFilter(
        right.resource_type, right.name, right.pattern_type, right.principal, right.host,
        right.operation, right.permission,
    )  # fmt: skip
