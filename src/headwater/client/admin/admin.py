"""The admin client: topics, configs, groups, records and brokers; asyncio and blocking."""

from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from headwater.client.admin.arguments import ConfigValue
from headwater.client.admin.brokers import Brokers, ClusterDescription, LogDirDescription
from headwater.client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    Configs,
)
from headwater.client.admin.groups import (
    GroupDescription,
    GroupListing,
    Groups,
    PartitionLag,
)
from headwater.client.admin.offset_resets import OffsetChange, ResetTo
from headwater.client.admin.topics import NewTopic
from headwater.client.blocking import LoopThread, forked_error, register, unregister
from headwater.client.cluster import TopicView
from headwater.client.consumer.record import OffsetAndMetadata, OffsetAndTimestamp
from headwater.client.errors import ForkedError
from headwater.config.client import AdminSettings
from headwater.model import TopicPartition

T = TypeVar("T")
Partitions = Iterable[TopicPartition | tuple[str, int]]


class Admin(Groups, Configs, Brokers):
    """Looks after a cluster, on the event loop that it is first used on.

    ```python
    async with Admin(bootstrap_servers="localhost:9092") as admin:
        await admin.create_topics([NewTopic("orders", partitions=6)])
    ```

    Every call is repeated where that may help, within `default_api_timeout_ms`; several refusals
    of one call come as one error that names them all.
    """

    async def __aenter__(self) -> "Admin":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class BlockingAdmin:
    """Looks after a cluster, from any thread; each method is that of the asyncio `Admin`.

    ```python
    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topics([NewTopic("orders", partitions=6)])
        admin.reset_group_offsets("billing", ResetTo.duration("PT1H"), dry_run=True)
    ```
    """

    def __init__(self, **options: Any) -> None:
        self._admin = Admin(**options)
        self._forked: ForkedError | None = None
        self._thread: LoopThread = register(self)

    @property
    def settings(self) -> AdminSettings:
        """What this admin was given, and the defaults of the rest."""
        return self._admin.settings

    # -- topics

    def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> None:
        """Make topics; with `validate_only` only say whether that would work."""
        self._call(self._admin.create_topics(topics, validate_only=validate_only))

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, in order."""
        return self._call(self._admin.list_topics(internal=internal))

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicView]:
        """Partitions, leaders, replicas and in-sync replicas of topics."""
        return self._call(self._admin.describe_topics(names))

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics with all their records."""
        self._call(self._admin.delete_topics(names))

    def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Grow topics to so many partitions; fewer is impossible."""
        self._call(self._admin.create_partitions(counts, validate_only=validate_only))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what is below an offset in each partition (-1: all); returns the new starts."""
        return self._call(self._admin.delete_records(before))

    def list_offsets(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time; -2 and -1 are its two ends."""
        return self._call(self._admin.list_offsets(times))

    def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._call(self._admin.beginning_offsets(partitions))

    def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will get."""
        return self._call(self._admin.end_offsets(partitions))

    # -- configs

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """All configs of each resource, by name."""
        return self._call(self._admin.describe_configs(resources, documentation=documentation))

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange] | Mapping[str, ConfigValue | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change configs, leaving all others as they are; a value of None returns to the default."""
        self._call(self._admin.alter_configs(changes, validate_only=validate_only))

    def replace_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, ConfigValue]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give each resource exactly these configs; all others return to their defaults."""
        self._call(self._admin.replace_configs(configs, validate_only=validate_only))

    # -- groups

    def list_groups(self, states: Iterable[str] = ()) -> list[GroupListing]:
        """All groups, or those in some states, by name."""
        return self._call(self._admin.list_groups(states))

    def describe_group(self, group_id: str) -> GroupDescription:
        """State, strategy and members of a group."""
        return self._call(self._admin.describe_group(group_id))

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """State, strategy and members of several groups."""
        return self._call(self._admin.describe_groups(group_ids))

    def lag(self, group_id: str) -> dict[TopicPartition, PartitionLag]:
        """How far a group is behind, in each partition that it has committed for or reads now."""
        return self._call(self._admin.lag(group_id))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, with their offsets."""
        self._call(self._admin.delete_groups(group_ids))

    def group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Everything that a group has committed."""
        return self._call(self._admin.group_offsets(group_id))

    def set_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Set offsets of a group that has no members."""
        self._call(self._admin.set_group_offsets(group_id, offsets))

    def delete_group_offsets(self, group_id: str, partitions: Partitions) -> None:
        """Forget what a group has committed for partitions that it does not read now."""
        self._call(self._admin.delete_group_offsets(group_id, partitions))

    def reset_group_offsets(
        self,
        group_id: str,
        to: ResetTo,
        topics: Iterable[str | tuple[str, int]] | None = None,
        *,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Move a group that has no members to other offsets; says what it was and what it is.

        Args:
            group_id: The group; one that does not exist yet is made by this.
            to: Where to: `ResetTo.earliest()`, `.offset(7)`, `.duration("PT1H")`, ...
            topics: Topics, or single partitions as (topic, number); by default all that the group
                has committed for.
            dry_run: Only say what would change.
        """
        return self._call(self._admin.reset_group_offsets(group_id, to, topics, dry_run=dry_run))

    # -- brokers

    def describe_cluster(self) -> ClusterDescription:
        """Id, controller and live brokers."""
        return self._call(self._admin.describe_cluster())

    def describe_log_dirs(self, broker_ids: Iterable[int] | None = None) -> list[LogDirDescription]:
        """The log folders of some brokers, or of all, with the size of every replica."""
        return self._call(self._admin.describe_log_dirs(broker_ids))

    # -- the end

    def close(self, timeout: float | None = None) -> None:
        """Close every connection."""
        unregister(self)
        if self._forked is None:
            self._thread.call(self._admin.close(), timeout)

    def forked(self) -> None:
        """In a child process: fail with a word of what to do."""
        self._forked = forked_error("Admin")
        self._admin.forget()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._forked is not None:
            work.close()
            raise self._forked
        try:
            return self._thread.call(work)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None  # without the frames of this package

    def __enter__(self) -> "BlockingAdmin":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
