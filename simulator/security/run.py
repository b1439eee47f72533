"""The part of a run in which clients log in: tenants, administrators, strangers, and what must hold."""

from collections.abc import Callable
from functools import partial

from headwater.client.admin.acls import AclBinding
from headwater.controller.store.tree import Edit, Made, Wrote
from headwater.model import Uuid
from headwater.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclResourceType,
)
from headwater.security.quotas import (
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
)
from simulator.cluster import Cluster
from simulator.invariants import Promises
from simulator.security.acl_history import LAG_US, AclHistory, Question
from simulator.security.checks import SecurityChecks
from simulator.security.stranger import Stranger
from simulator.security.tenants import Lingerer, TenantReader, TenantWriter
from simulator.security.users import APP, OF, SECRET, Users
from simulator.security.warden import DENIALS, RATES, READ_RATE, RIGHTS, Warden
from simulator.security.wiretap import Wiretap
from simulator.store_checks import StoreView
from simulator.workload.real_clients import RealClient

WARDENS = 2
ENDLESS = 1e9
OF_OTHERS = 1000.0
"""The quota of users without one of their own: brokers must not be held to it."""
SHORT_SESSION_MS = 5000


class SecurityRun:
    """All of it; without security nothing."""

    def __init__(self, cluster: Cluster, promises: Promises, users: Users) -> None:
        assert cluster.zookeeper is not None
        self._cluster = cluster
        self._promises = promises
        self._users = users
        self._tree = cluster.zookeeper.tree
        self._view = StoreView(self._tree)
        self._names: dict[Uuid, str] = {}
        self.history = AclHistory(cluster.scheduler)
        self.checks = SecurityChecks(self.history, promises.complain, self._topic_of)
        self.checks.rates = dict.fromkeys(OF, max(RATES))
        self._over = False
        self._wardens_over = False
        self.wardens: list[Warden] = []
        self.clients: list[RealClient] = []
        """Tenants and strangers."""
        cluster.network.tap = Wiretap(cluster.scheduler, self.checks.came, self.checks.answered)
        cluster.login = users.login
        cluster.log.search(SECRET.decode())

    def edited(self, edit: Edit) -> None:
        """Follow a change of the store (S4: it has no password)."""
        self.history.edited(edit)
        if isinstance(edit, Made | Wrote) and SECRET in edit.data:
            self._promises.complain(f"S4: {edit.path} has a password")

    def _topic_of(self, topic_id: Uuid) -> str:
        if topic_id not in self._names:
            self._names |= {row.topic_id: name for name, row in self._view.topics().items()}
        return self._names.get(topic_id, "")

    # -- the beginning

    def founder(self) -> Warden:
        """Return an administrator who gives everybody what they need."""
        founder = self._warden(WARDENS, lambda: True)
        founder._work = lambda _: self._found(founder)
        return founder

    async def _found(self, founder: Warden) -> None:
        await founder.try_until(lambda: founder.core.acls.create_acls(_rights()))
        await founder.try_until(lambda: founder.core.quotas.alter_client_quotas(_quotas()))
        for password in self._users.passwords.values():
            await founder.try_until(partial(founder.set_password, password))
        await founder.try_until(lambda: founder.grant(RIGHTS))

    def begin(self) -> None:
        """Start all clients."""
        cluster, promises = self._cluster, self._promises
        for user in OF:
            writers = [TenantWriter(cluster, promises, user, "writer", self._is_over)]
            if user == "bob":
                writers.append(TenantWriter(cluster, promises, user, "transactions", self._is_over))
            self.clients += writers
            self.clients.append(TenantReader(cluster, promises, user, "reader", self._is_over))
        if self._users.session_ms <= SHORT_SESSION_MS:
            self.clients.append(Lingerer(cluster, promises, "alice", self._users, self._is_over))
        self.clients.append(Stranger(cluster, promises, self._users, self._is_known, self._is_over))
        self.wardens = [
            self._warden(number, lambda: self._wardens_over) for number in range(WARDENS)
        ]
        for client in (*self.clients, *self.wardens):
            client.begin()

    def _warden(self, number: int, over: Callable[[], bool]) -> Warden:
        return Warden(self._cluster, self._promises, number, self._users, self.history, over)

    def _is_over(self) -> bool:
        return self._over

    def _is_known(self, changed_us: int) -> bool:
        """Whether every broker knows of a change that was acknowledged then."""
        calm_us, now_us = self.history.calm_since_us, self._cluster.scheduler.now_us
        return calm_us is not None and now_us - max(calm_us, changed_us) > LAG_US

    # -- the end

    def calm(self) -> None:
        """All troubles are over: brokers hear of changes in time from now on."""
        if self.history.calm_since_us is None:
            self.history.calm_since_us = self._cluster.scheduler.now_us

    def stop_wardens(self) -> None:
        """No more changes."""
        self._wardens_over = True

    def still_ruling(self) -> list[str]:
        """Return administrators that have not stopped yet."""
        return [warden.name for warden in self.wardens if not warden.done]

    def restorer(self) -> Warden:
        """Return an administrator who gives the tenants all rights again."""
        restorer = self._warden(WARDENS + 1, lambda: True)
        restorer._work = lambda _: self._restore(restorer)
        self.checks.served.clear()
        return restorer

    async def _restore(self, restorer: Warden) -> None:
        for password in self._users.passwords.values():
            await restorer.try_until(partial(restorer.set_password, password))
        for denial in DENIALS:
            if self.history.has(denial):
                await restorer.try_until(partial(restorer.revoke, denial))
        await restorer.try_until(lambda: restorer.grant(RIGHTS))

    def unserved(self) -> list[str]:
        """Return the rights that tenants have and have not used since they were given back."""
        questions = [
            Question(user, operation, topic)
            for user in OF
            for topic in OF.values()
            for operation in ("Read", "Write")
        ]
        return [" ".join(one) for one in questions if not self.checks.served[" ".join(one)]]

    def differences(self) -> list[str]:
        """Return brokers whose ACLs are not those of the store."""
        return [
            node.host
            for node in self._cluster.nodes
            if node.broker.context.acls is not None
            and self.history.differs(node.broker.context.acls.index)
        ]

    def stop(self) -> None:
        """Tenants and strangers stop; no acknowledged change of ACLs is lost (S3)."""
        self._over = True
        for warden in self.wardens:
            for entry in warden.kept:
                if not self.history.has(entry):
                    self._promises.complain(f"S3: {entry} of {warden.name} is lost")
            for entry in warden.removed:
                if self.history.has(entry):
                    self._promises.complain(f"S3: {entry} of {warden.name} is back")

    def unfinished(self) -> list[str]:
        """Return clients that have not stopped yet."""
        return [client.name for client in self.clients if not client.done]


def _rights() -> list[AclBinding]:
    """Return the rights of the application, and those of tenants that nobody takes from them."""
    kinds = (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID)
    found = [AclBinding(f"User:{APP}", AclOperation.ALL, kind, WILDCARD) for kind in kinds]
    found.append(AclBinding(f"User:{APP}", AclOperation.ALL, AclResourceType.CLUSTER, CLUSTER_NAME))
    transactional_id, cluster = AclResourceType.TRANSACTIONAL_ID, AclResourceType.CLUSTER
    for user in OF:
        who = f"User:{user}"
        found += [
            AclBinding(who, AclOperation.WRITE, transactional_id, f"tx-{user}"),
            AclBinding(who, AclOperation.IDEMPOTENT_WRITE, cluster, CLUSTER_NAME),
            *(
                AclBinding(who, AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)
                for topic in OF.values()
            ),
        ]
    return found


def _quotas() -> dict[QuotaEntity, dict[str, float | None]]:
    endless: dict[str, float | None] = {PRODUCER_BYTE_RATE: ENDLESS, CONSUMER_BYTE_RATE: ENDLESS}
    held: dict[str, float | None] = {PRODUCER_BYTE_RATE: min(RATES), CONSUMER_BYTE_RATE: READ_RATE}
    others: dict[str, float | None] = {PRODUCER_BYTE_RATE: OF_OTHERS, CONSUMER_BYTE_RATE: OF_OTHERS}
    return {
        QuotaEntity(DEFAULT): others,
        QuotaEntity(APP): endless,
        **{QuotaEntity(user): dict(held) for user in OF},
    }
