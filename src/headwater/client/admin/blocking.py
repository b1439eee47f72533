"""The blocking face of the admin.

Derived from `admin.py` by `python -m tools.blocking_faces`; do not edit.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Never, Unpack

from headwater.client.admin.acls import AclBinding
from headwater.client.admin.admin_core import AdminCore
from headwater.client.admin.arguments import ConfigValue
from headwater.client.admin.blocking_caller import BlockingCaller
from headwater.client.admin.brokers import ClusterDescription, LogDirDescription
from headwater.client.admin.configs import ConfigChange, ConfigEntry, ConfigResource
from headwater.client.admin.groups import GroupDescription, GroupListing, PartitionLag
from headwater.client.admin.offset_resets import OffsetChange, ResetTo
from headwater.client.admin.replicas import PartitionReassignment
from headwater.client.admin.tokens import DelegationToken
from headwater.client.admin.topics import NewTopic
from headwater.client.admin.transactions import (
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from headwater.client.admin.users import UserScramCredentialAlteration
from headwater.client.cluster import TopicView
from headwater.client.consumer.record import OffsetAndMetadata, OffsetAndTimestamp
from headwater.config.client import AdminSettings
from headwater.config.client_options import AdminOptions
from headwater.errors import E
from headwater.model import TopicPartition
from headwater.security.acls import AclFilter
from headwater.security.quotas import QuotaEntity

Partitions = Iterable[TopicPartition | tuple[str, int]]


class Admin:
    """Manages topics, configs, groups, transactions and brokers, from any thread.

    ```python
    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topics([NewTopic("orders", partitions=6)])
        admin.reset_group_offsets("billing", ResetTo.duration("PT1H"), dry_run=True)
    ```

    Failed calls are retried while that may help, within `default_api_timeout_ms`. If a call is
    refused for several topics or groups, one error names all of them.
    """

    def __init__(self, *positional: Never, **settings: Unpack[AdminOptions]) -> None:
        AdminSettings.refuse_positional(type(self).__name__, positional)
        self._core = AdminCore(settings)
        self._caller = BlockingCaller(self._core)

    @property
    def settings(self) -> AdminSettings:
        """The settings in force: those given, and the defaults of the rest."""
        return self._core.settings

    # -- topics

    def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> None:
        """Create topics; with `validate_only`, only check whether the broker would."""
        self._caller.run(self._core.topics.create_topics(topics, validate_only=validate_only))

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted."""
        return self._caller.run(self._core.topics.list_topics(internal=internal))

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicView]:
        """Return the partitions of topics with their leaders, replicas and in-sync replicas."""
        return self._caller.run(self._core.topics.describe_topics(names))

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics with all their records."""
        self._caller.run(self._core.topics.delete_topics(names))

    def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Grow each topic to the given number of partitions; it cannot shrink."""
        self._caller.run(self._core.topics.create_partitions(counts, validate_only=validate_only))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset in each partition (-1: all); return the new starts."""
        return self._caller.run(self._core.topics.delete_records(before))

    def list_offsets(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Find the first record at or after a time in each partition; -2 is the start, -1 the end."""
        return self._caller.run(self._core.topics.list_offsets(times))

    def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._caller.run(self._core.topics.beginning_offsets(partitions))

    def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will get."""
        return self._caller.run(self._core.topics.end_offsets(partitions))

    # -- configs

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return all configs of each resource by name; `documentation` adds help and synonyms."""
        return self._caller.run(
            self._core.configs.describe_configs(resources, documentation=documentation)
        )

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange] | Mapping[str, ConfigValue | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change configs and leave all others as they are; None restores the default."""
        self._caller.run(self._core.configs.alter_configs(changes, validate_only=validate_only))

    def replace_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, ConfigValue]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give each resource exactly these configs; all others return to their defaults."""
        self._caller.run(self._core.configs.replace_configs(configs, validate_only=validate_only))

    # -- groups

    def list_groups(self, states: Iterable[str] = ()) -> list[GroupListing]:
        """List all groups, or those in the given states, sorted by name."""
        return self._caller.run(self._core.groups.list_groups(states))

    def describe_group(self, group_id: str) -> GroupDescription:
        """Return the state, assignment strategy and members of a group."""
        return self._caller.run(self._core.groups.describe_group(group_id))

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Return the state, assignment strategy and members of several groups."""
        return self._caller.run(self._core.groups.describe_groups(group_ids))

    def lag(self, group_id: str) -> dict[TopicPartition, PartitionLag]:
        """Return how far a group is behind in each partition that it reads or has committed."""
        return self._caller.run(self._core.groups.lag(group_id))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, and their offsets."""
        self._caller.run(self._core.groups.delete_groups(group_ids))

    def group_offsets(
        self, group_id: str, partitions: Partitions | None = None, *, stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed, all of them by default.

        Args:
            group_id: The group.
            partitions: Only these.
            stable: Wait for open transactions that commit an offset of `partitions`.
        """
        return self._caller.run(
            self._core.groups.group_offsets(group_id, partitions, stable=stable)
        )

    def set_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Commit offsets for a group that has no members."""
        self._caller.run(self._core.groups.set_group_offsets(group_id, offsets))

    def delete_group_offsets(self, group_id: str, partitions: Partitions) -> None:
        """Delete a group's committed offsets for partitions that it is not reading."""
        self._caller.run(self._core.groups.delete_group_offsets(group_id, partitions))

    def reset_group_offsets(
        self,
        group_id: str,
        to: ResetTo,
        topics: Iterable[str | tuple[str, int]] | None = None,
        *,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Move a group that has no members to other offsets; return each offset before and after.

        Args:
            group_id: The group; it is created if it does not exist.
            to: The new position: `ResetTo.earliest()`, `.offset(7)`, `.duration("PT1H")`, ...
            topics: Topics, or single partitions as (topic, number); by default everything that
                the group has committed.
            dry_run: Return the changes without making them.
        """
        return self._caller.run(
            self._core.groups.reset_group_offsets(group_id, to, topics, dry_run=dry_run)
        )

    # -- transactions

    def supports_transactions(self) -> bool:
        """Return whether every broker of the cluster has transactions."""
        return self._caller.run(self._core.transactions.supports_transactions())

    def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        *,
        longer_than_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """List the transactional ids of all coordinators, sorted.

        Args:
            states: Only ids in these states: `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`,
                `CompleteCommit`, `CompleteAbort`.
            producer_ids: Only the ids of these producers.
            longer_than_ms: Only transactions that have been open for longer than this.
            id_pattern: Only ids that match this regular expression as a whole.
        """
        return self._caller.run(
            self._core.transactions.list_transactions(
                states, producer_ids, longer_than_ms=longer_than_ms, id_pattern=id_pattern
            )
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """Return the state, producer, timeout and partitions of transactional ids."""
        return self._caller.run(self._core.transactions.describe_transactions(transactional_ids))

    def describe_producers(
        self, partitions: Partitions, *, broker_id: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producers that partitions remember, as their leaders or one broker know them."""
        return self._caller.run(
            self._core.transactions.describe_producers(partitions, broker_id=broker_id)
        )

    def abort_transaction(
        self, partition: TopicPartition | tuple[str, int], producer: ProducerState
    ) -> None:
        """Abort the open transaction of a producer in one partition, past its coordinator.

        Only for a transaction that hangs: one that no coordinator will end. `describe_producers`
        returns the producer. Records of a transaction that is not hanging are torn apart.
        """
        self._caller.run(self._core.transactions.abort_transaction(partition, producer))

    # -- users

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, dict[str, int]]:
        """Return the SCRAM mechanisms of some or all users, each with its iterations."""
        return self._caller.run(self._core.users.describe_user_scram_credentials(users))

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialAlteration]
    ) -> None:
        """Set and delete passwords of users, at most one of each user in a call.

        Connections that are open stay open; a user without a credential cannot log in again.
        """
        self._caller.run(self._core.users.alter_user_scram_credentials(alterations))

    # -- quotas

    def describe_client_quotas(
        self, entity: QuotaEntity | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return quotas: all of them, or those of the entities that have all parts of `entity`.

        With `strict`, only that entity. An empty name stands for the default.
        """
        return self._caller.run(self._core.quotas.describe_client_quotas(entity, strict=strict))

    def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas of entities; None removes one. With `validate_only`, check and change nothing."""
        self._caller.run(
            self._core.quotas.alter_client_quotas(changes, validate_only=validate_only)
        )

    # -- ACLs

    def describe_acls(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        """Return the ACLs that a filter selects, by default all."""
        return self._caller.run(self._core.acls.describe_acls(wanted))

    def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Create ACLs; they are in force on the answering broker when this returns."""
        self._caller.run(self._core.acls.create_acls(bindings))

    def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete the ACLs that the filters select, and return them."""
        return self._caller.run(self._core.acls.delete_acls(filters))

    # -- delegation tokens

    def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int | None = None,
    ) -> DelegationToken:
        """Create a delegation token, with which others can log in as its owner.

        Args:
            owner: Whom the token logs in, like User:alice; by default the user of this admin.
            renewers: Who may renew and end the token, beside its owner.
            max_lifetime_ms: How long the token lasts at most, however often it is renewed; by
                default what the broker allows.
        """
        return self._caller.run(
            self._core.tokens.create_delegation_token(
                owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms
            )
        )

    def renew_delegation_token(self, hmac: bytes, period_ms: int | None = None) -> int:
        """Extend a token by a period, by default the broker's; return its new expiry time."""
        return self._caller.run(self._core.tokens.renew_delegation_token(hmac, period_ms))

    def expire_delegation_token(self, hmac: bytes, period_ms: int | None = None) -> int:
        """End a token after a period, by default at once; return its new expiry time.

        Connections that logged in with it are served until their sessions end.
        """
        return self._caller.run(self._core.tokens.expire_delegation_token(hmac, period_ms))

    def describe_delegation_token(
        self, owners: Iterable[str] | None = None
    ) -> list[DelegationToken]:
        """Return the tokens that this user may see: of some owners, requesters and renewers, or all."""
        return self._caller.run(self._core.tokens.describe_delegation_token(owners))

    # -- brokers

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, its controller and its live brokers."""
        return self._caller.run(self._core.brokers.describe_cluster())

    def describe_log_dirs(self, broker_ids: Iterable[int] | None = None) -> list[LogDirDescription]:
        """Return the log directories of some or all brokers with the size of every replica."""
        return self._caller.run(self._core.brokers.describe_log_dirs(broker_ids))

    def alter_replica_log_dirs(self, targets: Mapping[int, Mapping[TopicPartition, str]]) -> None:
        """Move replicas to other log directories of their brokers: {1: {("orders", 0): "/disk2"}}.

        The records are copied after this returns: `describe_log_dirs` shows what is under way. A
        replica that the broker does not have yet is created there. The directory where a replica
        is cancels its move.
        """
        self._caller.run(self._core.brokers.alter_replica_log_dirs(targets))

    # -- replicas

    def elect_leaders(
        self, partitions: Partitions | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, E]:
        """Elect the preferred leaders of some or all partitions; return the result for each.

        Args:
            partitions: The partitions; by default all, of which only those are returned whose
                preferred replica does not lead yet.
            unclean: Elect any live replica where no in-sync replica is live. Records that only
                the in-sync replicas have are lost.
        """
        return self._caller.run(self._core.replicas.elect_leaders(partitions, unclean=unclean))

    def reassign_partitions(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Move partitions to the given brokers, the preferred leader first; None cancels a move.

        The records are copied after this returns: `list_reassignments` shows what is under way.
        If one partition is refused, none is moved.
        """
        self._caller.run(self._core.replicas.reassign_partitions(targets))

    def list_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Return the moves of replicas that are under way."""
        return self._caller.run(self._core.replicas.list_reassignments())

    # -- closing

    def close(
        self,
        timeout: float | None = None,
    ) -> None:
        """Close every connection; TimedOutError after `timeout` seconds."""
        self._caller.close(timeout)

    def __enter__(self) -> "Admin":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
