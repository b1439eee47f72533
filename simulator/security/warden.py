"""Administrators who change ACLs, passwords and quotas at the same time, each through any broker.

A request is sent once. One without an answer may count now, later or never.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from headwater.errors import KafkaError, error_of
from headwater.security.acls import AclOperation, AclPatternType, AclPermission, AclResourceType
from headwater.security.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaEntity
from headwater.security.scram_credentials import SCRAM_SHA_256
from headwater.wire.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from headwater.wire.messages.cluster import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from headwater.wire.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from headwater.wire.messages.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from headwater.wire.schema import Struct
from simulator.cluster import Cluster
from simulator.invariants import Promises
from simulator.node import DATA
from simulator.security.acl_history import LITERAL, PREFIXED, AclHistory, Entry
from simulator.security.users import ITERATIONS, OF, Password, Users
from simulator.workload.real_clients import RealAdmin

Answer = TypeVar("Answer", bound=Struct)

RATES = (3000.0, 6000.0)
"""Quotas of tenants, in bytes per second on each broker."""
READ_RATE = 50_000.0
PAUSE_MS = 600
OUTSIDE = ("/elsewhere", f"{DATA}/../elsewhere", "../elsewhere", f"{DATA}-elsewhere")

_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "All": AclOperation.ALL,
    "Describe": AclOperation.DESCRIBE,
}
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion

RIGHTS = [
    Entry(LITERAL + topic, f"User:{user}", "*", operation, "Allow")
    for user in OF
    for topic in OF.values()
    for operation in ("Read", "Write")
]
"""Rights that come and go."""
DENIALS = [
    Entry(PREFIXED + topic, f"User:{user}", "*", "All", "Deny")
    for user in OF
    for topic in OF.values()
]


class Warden(RealAdmin):
    """One of them."""

    def __init__(
        self,
        cluster: Cluster,
        promises: Promises,
        number: int,
        users: Users,
        history: AclHistory,
        over: Callable[[], bool],
    ) -> None:
        super().__init__(cluster, promises, f"warden {number}", lambda _: self._rule())
        self._number = number
        self._users = users
        self._history = history
        self._over = over
        self._marks = 0
        self.kept: list[Entry] = []
        """ACLs for one address whose creation was acknowledged, and nothing after that."""
        self.removed: list[Entry] = []
        """Those whose deletion was acknowledged, too."""
        self.changes = 0

    async def _rule(self) -> None:
        while not self._over():
            await self.pause(PAUSE_MS)
            try:
                await self._change()
            except (KafkaError, OSError):
                continue
            self.changes += 1

    async def _change(self) -> None:
        chance = self.chance
        match chance.randrange(11):
            case 0 | 1:
                await self.grant([chance.choice(RIGHTS)])
            case 2 | 3:
                await self.revoke(chance.choice(RIGHTS))
            case 4:
                denial = chance.choice(DENIALS)
                if self._history.has(denial):
                    await self.revoke(denial)
                elif chance.random() < 0.5:
                    await self.grant([denial])
            case 5 | 6 | 7:
                await self._mark()
            case 8:
                await self._change_password()
            case 9:
                await self._name_outside()
            case _:
                await self.set_quota(chance.choice(list(OF)), chance.choice(RATES))

    async def try_until(self, call: Callable[[], Awaitable[object]]) -> None:
        """Call again until it succeeds."""
        while True:
            try:
                await call()
            except (KafkaError, OSError):
                await self.pause(300)
            else:
                return

    async def _mark(self) -> None:
        """Create an ACL that nobody else has created, or delete such a one."""
        if self.kept and self.chance.random() < 0.4:
            entry = self.kept.pop(self.chance.randrange(len(self.kept)))
            await self.revoke(entry)
            self.removed.append(entry)
            return
        self._marks += 1
        topic = self.chance.choice(list(OF.values()))
        host = f"10.9.{self._number}.{self._marks}"
        entry = Entry(LITERAL + topic, "User:nobody", host, "Read", "Allow")
        await self.grant([entry])
        self.kept.append(entry)

    async def _name_outside(self) -> None:
        """Name a folder that is none of log.dirs, which no right allows a broker to touch (S5)."""
        path = self.chance.choice(OUTSIDE)
        if self.chance.random() < 0.5:
            new = CreateTopicsRequest.CreatableTopic(
                name=path, num_partitions=1, replication_factor=1
            )
            created = await self._ask(CreateTopicsRequest(topics=[new]), CreateTopicsResponse)
            _check(result.error_code for result in created.topics)
            return
        topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(
            name=self.chance.choice(list(OF.values())), partitions=[0]
        )
        wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[topic])
        moved = await self._ask(
            AlterReplicaLogDirsRequest(dirs=[wanted]), AlterReplicaLogDirsResponse
        )
        _check(one.error_code for result in moved.results for one in result.partitions)

    async def _change_password(self) -> None:
        """Change a tenant's password; only this warden does."""
        if self._number:
            return
        await self.set_password(self._users.passwords[self.chance.choice(list(OF))])

    # -- requests

    async def grant(self, entries: list[Entry]) -> None:
        """Create ACLs."""
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=AclResourceType.TOPIC, resource_name=name,
                resource_pattern_type=pattern_type, principal=entry.principal, host=entry.host,
                operation=_OPERATIONS[entry.operation], permission_type=_permission(entry),
            )
            for entry in entries
            for pattern_type, name in [_pattern(entry)]
        ]  # fmt: skip
        answer = await self._ask(CreateAclsRequest(creations=creations), CreateAclsResponse)
        _check(result.error_code for result in answer.results)

    async def revoke(self, entry: Entry) -> None:
        """Delete an ACL."""
        pattern_type, name = _pattern(entry)
        wanted = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=AclResourceType.TOPIC, resource_name_filter=name,
            pattern_type_filter=pattern_type, principal_filter=entry.principal,
            host_filter=entry.host, operation=_OPERATIONS[entry.operation],
            permission_type=_permission(entry),
        )  # fmt: skip
        answer = await self._ask(DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse)
        _check(result.error_code for result in answer.filter_results)
        _check(one.error_code for result in answer.filter_results for one in result.matching_acls)

    async def set_password(self, password: Password) -> None:
        """Give a user another password; former ones are replaced once that is acknowledged."""
        text = password.next()
        salt = self.chance.randbytes(16)
        salted = SCRAM_SHA_256.salted_password(text, salt, ITERATIONS)
        upsertion = _Upsertion(
            name=password.user, mechanism=SCRAM_SHA_256.number, iterations=ITERATIONS, salt=salt,
            salted_password=salted,
        )  # fmt: skip
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
        answer = await self._ask(request, AlterUserScramCredentialsResponse)
        _check(result.error_code for result in answer.results)
        password.acknowledged(text, self.cluster.scheduler.now_us)

    async def set_quota(self, user: str, rate: float) -> None:
        """Set the quotas of a tenant."""
        quotas = {PRODUCER_BYTE_RATE: rate, CONSUMER_BYTE_RATE: READ_RATE}
        await self.core.quotas.alter_client_quotas({QuotaEntity(user): quotas})

    async def _ask(self, request: Struct, answer: type[Answer]) -> Answer:
        cluster = self.core.calls.cluster
        if not cluster.nodes:
            await cluster.refresh()
        node = self.chance.choice(list(cluster.nodes.values()))
        return await cluster.ask(node, request, answer)


def _pattern(entry: Entry) -> tuple[AclPatternType, str]:
    if entry.path.startswith(LITERAL):
        return AclPatternType.LITERAL, entry.path.removeprefix(LITERAL)
    return AclPatternType.PREFIXED, entry.path.removeprefix(PREFIXED)


def _permission(entry: Entry) -> AclPermission:
    return AclPermission.ALLOW if entry.permission == "Allow" else AclPermission.DENY


def _check(codes: Iterable[int]) -> None:
    for code in codes:
        if code:
            raise KafkaError(error_of(code))
