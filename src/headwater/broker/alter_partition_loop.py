"""Sends the in-sync sets that this broker's leaders propose to the controller (KIP-497).

One AlterPartition is in flight at a time; proposals made meanwhile go into the next one. A request with
an unknown outcome is sent again: the controller answers a repeated proposal with the stored state.
Until the outcome is known, a proposed member counts for the high watermark.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from headwater.broker.context import Context
from headwater.broker.follower_loop import LeaderConnection
from headwater.controller.commands import AlterPartition, IsrAnswer, IsrOutcome, IsrProposal
from headwater.errors import E, KafkaError, error_of
from headwater.model import NO_LEADER, TopicPartition, Uuid
from headwater.replication.effects import ProposeIsr
from headwater.replication.replica import Replica
from headwater.seams.timers import Timer
from headwater.wire.messages.control import AlterPartitionRequest, AlterPartitionResponse

log = logging.getLogger("headwater.state-change")

RETRY_S = 0.05
MAX_PROPOSALS = 500
"""The most in one request: a broker that goes away changes the sets of thousands of partitions."""
REFUSED_S = 0.2
"""How long a leader whose proposal was refused waits before it may propose again."""
_OVERTAKEN = frozenset(
    {
        E.FENCED_LEADER_EPOCH,
        E.INVALID_UPDATE_VERSION,
        E.NEW_LEADER_ELECTED,
        E.UNKNOWN_TOPIC_ID,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_REQUEST,
    }
)
"""The controller has a newer state, which it sends in another request."""
_NOT_STORED = frozenset({E.INELIGIBLE_REPLICA, E.OPERATION_NOT_ATTEMPTED})


class _Proposed(NamedTuple):
    replica: Replica
    proposal: ProposeIsr


class AlterPartitionManager:
    """The proposals of this broker's leaders until the controller has answered them."""

    def __init__(self, context: Context, connect: Callable[[int, str], LeaderConnection]) -> None:
        self._context = context
        self._connect = connect
        self._waiting: dict[TopicPartition, _Proposed] = {}
        self._sent: dict[tuple[Uuid, int], _Proposed] = {}
        self._connection: LeaderConnection | None = None
        self._controller = NO_LEADER
        self._timer: Timer | None = None
        self._closed = False

    def propose(self, replica: Replica, proposal: ProposeIsr) -> None:
        """Propose an in-sync set for a partition; the newest proposal counts."""
        self._waiting[replica.topic_partition] = _Proposed(replica, proposal)
        self._send_in(0)

    def controller_changed(self) -> None:
        """Ask the new controller: the old one may never answer."""
        if (
            self._connection is not None
            and self._controller != self._context.metadata.controller_id
        ):
            connection, self._connection = self._connection, None
            connection.close()

    def close(self) -> None:
        """Send nothing more: the broker stops."""
        self._closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.close()

    # -- sending

    def _send_in(self, delay_s: float) -> None:
        if self._timer is None and not self._sent and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._send)

    def _send(self) -> None:
        self._timer = None
        for at in list(islice(self._waiting, MAX_PROPOSALS)):
            row = self._waiting.pop(at)
            if row.replica.leading.proposes(row.proposal):
                self._sent[row.replica.topic_id, row.replica.topic_partition.partition] = row
        if not self._sent:
            if self._waiting:
                self._send_in(0)
            return
        context = self._context
        controller = context.metadata.controller_id
        if controller == context.node_id:
            command = AlterPartition(
                context.node_id, context.control.broker_epoch, self._proposals()
            )
            context.controller.submit(command, self._decided)
        elif controller == NO_LEADER:
            self._retry("no controller is known")
        else:
            self._connection_to(controller).send(
                self._request(), AlterPartitionResponse, self._answered
            )

    def _connection_to(self, controller: int) -> LeaderConnection:
        self.controller_changed()
        if self._connection is None:
            self._connection = self._connect(controller, "isr")
            self._controller = controller
        return self._connection

    def _members(self, row: _Proposed) -> list[tuple[int, int]]:
        """The set, with the broker epoch of each member as this leader knows it (KIP-903)."""
        own = {self._context.node_id: self._context.control.broker_epoch}
        return [
            (broker, own.get(broker, row.replica.leading.broker_epoch(broker)))
            for broker in sorted(row.proposal.isr)
        ]

    def _proposals(self) -> list[IsrProposal]:
        return [
            IsrProposal(
                row.replica.topic_partition.topic,
                topic_id,
                partition,
                row.proposal.leader_epoch,
                row.proposal.partition_epoch,
                self._members(row),
                keeps_records=row.proposal.keeps_records,
            )
            for (topic_id, partition), row in self._sent.items()
        ]

    def _request(self) -> AlterPartitionRequest:
        topics: dict[Uuid, AlterPartitionRequest.AlterPartitionTopic] = {}
        for (topic_id, partition), row in self._sent.items():
            members = self._members(row)
            topic = topics.setdefault(
                topic_id, AlterPartitionRequest.AlterPartitionTopic(topic_id=topic_id)
            )
            topic.partitions.append(
                AlterPartitionRequest.AlteredPartition(
                    partition_index=partition,
                    leader_epoch=row.proposal.leader_epoch,
                    partition_epoch=row.proposal.partition_epoch,
                    new_isr_with_epochs=[
                        AlterPartitionRequest.IsrMember(broker_id=broker, broker_epoch=epoch)
                        for broker, epoch in members
                    ],
                    keeps_records=row.proposal.keeps_records,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._context.node_id,
            broker_epoch=self._context.control.broker_epoch,
            topics=list(topics.values()),
        )

    # -- answers

    def _answered(self, result: AlterPartitionResponse | KafkaError) -> None:
        if isinstance(result, KafkaError):
            self._retry(result.message)
        elif result.error_code:
            self._retry(error_of(result.error_code).name)
        else:
            for topic in result.topics:
                for one in topic.partitions:
                    outcome = IsrOutcome(
                        error_of(one.error_code),
                        one.leader_id,
                        one.leader_epoch,
                        one.partition_epoch,
                        tuple(one.isr),
                        elr=tuple(one.elr),
                    )
                    self._settle((topic.topic_id, one.partition_index), outcome)
            self._end()

    def _decided(self, answer: IsrAnswer) -> None:
        if answer.error is not E.NONE:
            self._retry(answer.error.name)
            return
        for key, outcome in zip(list(self._sent), answer.outcomes, strict=False):
            self._settle(key, outcome)
        self._end()

    def _retry(self, why: str) -> None:
        """The outcome is unknown: send the proposals again, with those made meanwhile."""
        log.info("the controller did not accept %d in-sync sets: %s", len(self._sent), why)
        self._end()

    def _end(self) -> None:
        """Send proposals without an outcome again, unless the partition has made a newer one."""
        unknown = {row.replica.topic_partition: row for row in self._sent.values()}
        self._sent = {}
        self._waiting = {**unknown, **self._waiting}
        if self._waiting:
            self._send_in(RETRY_S if unknown else 0)

    def _settle(self, key: tuple[Uuid, int], outcome: IsrOutcome) -> None:
        row = self._sent.get(key)
        if row is None:
            return
        replica, proposal = row
        at, members = replica.topic_partition, sorted(proposal.isr)
        if outcome.error is E.NONE:
            del self._sent[key]
            log.info("%s: in-sync replicas are now %s", at, list(outcome.isr))
            self._context.metrics.isr_changed(replica.leading.in_sync, outcome.isr)
            replica.leading.isr_stored(
                outcome.isr, outcome.leader_epoch, outcome.partition_epoch, outcome.elr
            )
        elif outcome.error in _NOT_STORED:
            del self._sent[key]
            log.info("%s: %s cannot be in sync yet: %s", at, members, outcome.error.name)
            loop = asyncio.get_running_loop()
            loop.call_later(REFUSED_S, lambda: replica.leading.isr_refused(proposal))
        elif outcome.error in _OVERTAKEN:
            # It may have been stored and replaced since: it counts until the newer state arrives.
            del self._sent[key]
            log.info("%s: the in-sync set %s came too late: %s", at, members, outcome.error.name)
