"""Members of a classic group, which join, commit growing offsets, and sometimes leave."""

from collections.abc import Callable

from headwater.errors import E
from headwater.wire.messages.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from headwater.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from simulator.cluster import Cluster
from simulator.invariants import Promises
from simulator.workload.audit import GROUP_TOPIC
from simulator.workload.client import Client, Disturbed

REJOIN = (E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID)
SESSION_MS = 6000


class Member(Client):
    """One member, the only one that commits for the partition of its number."""

    def __init__(
        self, cluster: Cluster, promises: Promises, name: str, group: str, partition: int
    ) -> None:
        super().__init__(cluster, promises, name)
        self._group = group
        self._partition = partition
        self._books = promises.commits_of(group, partition)
        self._member_id = ""
        self._generation = -1

    async def run(self, done: Callable[[], bool]) -> None:
        """Take part in the group until `done`."""
        while not done():
            try:
                if self._generation < 0:
                    await self._join()
                else:
                    await self._take_part()
            except Disturbed:
                await self.back_off()
            await self.pause(150)
        self.disconnect()

    async def _find_coordinator(self) -> None:
        """Find the coordinator; the first request creates the offsets topic."""
        request = FindCoordinatorRequest(coordinator_keys=[self._group])
        answer = await self.call(request, FindCoordinatorResponse)
        self.check(answer.coordinators[0].error_code)

    async def _join(self) -> None:
        await self._find_coordinator()
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=2000,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = await self.call(request, JoinGroupResponse)
        error = self.check(joined.error_code, E.MEMBER_ID_REQUIRED, *self._rejoin_after())
        if error is E.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return
        if error is not E.NONE:
            self._forget(error)
            return
        self._member_id = joined.member_id
        await self._sync(joined)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        shares = [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member.member_id, assignment=member.member_id.encode()
            )
            for member in joined.members
        ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        synced = await self.call(request, SyncGroupResponse)
        error = self.check(synced.error_code, *self._rejoin_after())
        if error is not E.NONE:
            self._forget(error)
        elif bytes(synced.assignment) != self._member_id.encode():
            self.promises.complain(f"I11: {self.name} was given another member's share")
        else:
            self._generation = joined.generation_id

    async def _take_part(self) -> None:
        match self.chance.randrange(10):
            case 0:
                await self._leave()
            case 1 | 2:
                await self._beat()
            case _:
                await self._commit()

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._member_id
        )
        answer = await self.call(request, HeartbeatResponse)
        self._forget(self.check(answer.error_code, *self._rejoin_after()))

    async def _commit(self) -> None:
        self._books.asked += 1
        offset = self._books.asked
        row = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=self._partition, committed_offset=offset, committed_metadata=""
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name=GROUP_TOPIC, topic_id=await self.topic_id(GROUP_TOPIC), partitions=[row]
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[topic],
        )
        power_cuts = self.cluster.node.power_cuts
        answer = await self.call(request, OffsetCommitResponse)
        error = self.check(answer.topics[0].partitions[0].error_code, *self._rejoin_after())
        if error is E.NONE and power_cuts == self.cluster.node.power_cuts:
            self._books.acknowledged = offset
        self._forget(error)

    async def _leave(self) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self._member_id)
        request = LeaveGroupRequest(group_id=self._group, members=[identity])
        answer = await self.call(request, LeaveGroupResponse)
        self.check(answer.error_code, *self._rejoin_after())
        self._member_id, self._generation = "", -1

    def _rejoin_after(self) -> tuple[E, ...]:
        """Return the errors after which a member rejoins; only a power failure may lose a group."""
        return (*REJOIN, E.GROUP_ID_NOT_FOUND) if self.cluster.node.power_cuts else REJOIN

    def _forget(self, error: E) -> None:
        """Join again after the group has moved on."""
        if error is not E.NONE:
            self._generation = -1
        if error in (E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND):
            self._member_id = ""
