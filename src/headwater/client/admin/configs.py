"""Configs of topics, brokers and the cluster: describe and change."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from headwater.client.admin.arguments import (
    ConfigValue,
    as_list,
    as_mapping,
    checked_text,
    config_text,
)
from headwater.client.admin.calls import AdminCalls
from headwater.client.cluster import Node
from headwater.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_BY_RESOURCE = "{ConfigResource: {key: value}}"


class ConfigResourceType(IntEnum):
    """The kinds of things that have configs."""

    TOPIC = 2
    BROKER = 4


class ConfigResource(NamedTuple):
    """A topic or a broker; a broker without a name means all brokers."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> "ConfigResource":
        """A topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> "ConfigResource":
        """A broker, or the defaults of all brokers."""
        return cls(ConfigResourceType.BROKER, "" if node_id is None else str(node_id))


class AlterConfigOp(IntEnum):
    """How a config changes."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change of one config."""

    name: str
    value: str | None = None
    operation: AlterConfigOp = AlterConfigOp.SET


class ConfigEntry(NamedTuple):
    """The effective value of a config."""

    name: str
    value: str | None
    source: int
    """1 topic, 2 this broker, 3 all brokers, 4 the broker's file, 5 default."""
    read_only: bool
    sensitive: bool
    documentation: str | None
    synonyms: tuple[tuple[str, str | None, int], ...] = ()
    """Name, value and source of each level that can set it, highest precedence first."""

    @property
    def is_default(self) -> bool:
        """Whether the default applies."""
        return self.source == 5


class ConfigAdmin:
    """Describes and changes configs."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        wanted = list(map(_checked, as_list("describe_configs", resources)))
        found: dict[ConfigResource, dict[str, ConfigEntry]] = {}

        async def attempt() -> None:
            for node, rows in (await self._by_node(wanted)).items():
                request = DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsRequest.DescribeConfigsResource(
                            resource_type=row.type, resource_name=row.name, configuration_keys=None
                        )
                        for row in rows
                    ],
                    include_documentation=documentation,
                    include_synonyms=documentation,
                )
                answer = await self._calls.cluster.ask(node, request, DescribeConfigsResponse)
                await self._calls.raise_refusals(
                    (_shown(result), result.error_code, result.error_message)
                    for result in answer.results
                )
                for result in answer.results:
                    resource = ConfigResource(
                        ConfigResourceType(result.resource_type), result.resource_name
                    )
                    found[resource] = {row.name: _entry(row) for row in result.configs}

        await self._calls.retry("the description of configs", attempt)
        return found

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange] | Mapping[str, ConfigValue | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        given = as_mapping("alter_configs", changes, _BY_RESOURCE)
        wanted = {_checked(resource): _changes(rows) for resource, rows in given.items()}

        async def attempt() -> None:
            for node, resources in (await self._by_node(wanted)).items():
                request = IncrementalAlterConfigsRequest(
                    resources=[_incremental(one, wanted[one]) for one in resources],
                    validate_only=validate_only,
                )
                answer = await self._calls.cluster.ask(
                    node, request, IncrementalAlterConfigsResponse
                )
                await self._calls.raise_refusals(
                    (_shown(result), result.error_code, result.error_message)
                    for result in answer.responses
                )

        await self._calls.retry("the change of configs", attempt)

    async def replace_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, ConfigValue]],
        *,
        validate_only: bool = False,
    ) -> None:
        for resource in as_mapping("replace_configs", configs, _BY_RESOURCE):
            _checked(resource)

        async def attempt() -> None:
            for node, resources in (await self._by_node(configs)).items():
                request = AlterConfigsRequest(
                    resources=[
                        AlterConfigsRequest.AlterConfigsResource(
                            resource_type=one.type,
                            resource_name=one.name,
                            configs=[
                                AlterConfigsRequest.AlterableConfig(
                                    name=name, value=config_text(name, value)
                                )
                                for name, value in configs[one].items()
                            ],
                        )
                        for one in resources
                    ],
                    validate_only=validate_only,
                )
                answer = await self._calls.cluster.ask(node, request, AlterConfigsResponse)
                await self._calls.raise_refusals(
                    (_shown(result), result.error_code, result.error_message)
                    for result in answer.responses
                )

        await self._calls.retry("the change of configs", attempt)

    async def _by_node(
        self, resources: Iterable[ConfigResource]
    ) -> dict[Node, list[ConfigResource]]:
        """Group resources by the node to ask: a broker's own configs only from that broker."""
        anyone = await self._calls.cluster.any_node()
        grouped: dict[Node, list[ConfigResource]] = {}
        for one in resources:
            own = one.type == ConfigResourceType.BROKER and one.name
            node = self._calls.cluster.nodes.get(int(one.name), anyone) if own else anyone
            grouped.setdefault(node, []).append(one)
        return grouped


def _checked(resource: ConfigResource) -> ConfigResource:
    if not isinstance(resource, ConfigResource):
        raise TypeError(
            f"{resource!r} is not a ConfigResource: write ConfigResource.topic({resource!r})"
        )
    if resource.type not in list(ConfigResourceType):
        raise TypeError(
            f"{resource.type!r} is not a type of ConfigResource: write ConfigResource.topic(NAME), "
            "ConfigResource.broker(ID), or ConfigResource.broker() for all brokers"
        )
    name = checked_text("the name of a ConfigResource", resource.name)
    if (
        resource.type == ConfigResourceType.BROKER
        and name
        and not (name.isascii() and name.isdigit())
    ):
        raise ValueError(
            f"{name!r} is not the id of a broker: write ConfigResource.broker(1), for example"
        )
    return resource


_Result = (
    DescribeConfigsResponse.DescribeConfigsResult
    | IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    | AlterConfigsResponse.AlterConfigsResourceResponse
)


def _shown(result: _Result) -> str:
    """Return the name of a resource for messages."""
    if result.resource_type != ConfigResourceType.BROKER:
        return result.resource_name
    return f"broker {result.resource_name}" if result.resource_name else "all brokers"


def _entry(row: DescribeConfigsResponse.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        row.name,
        row.value,
        row.config_source,
        row.read_only,
        row.is_sensitive,
        row.documentation or None,
        tuple((other.name, other.value, other.source) for other in row.synonyms),
    )


def _changes(
    rows: Iterable[ConfigChange] | Mapping[str, ConfigValue | None],
) -> list[ConfigChange]:
    if isinstance(rows, Mapping):
        return [
            ConfigChange(name, None, AlterConfigOp.DELETE)
            if value is None
            else ConfigChange(name, config_text(name, value), AlterConfigOp.SET)
            for name, value in rows.items()
        ]
    found: list[Any] = as_list("alter_configs", rows)
    for row in found:
        if not isinstance(row, ConfigChange):
            raise TypeError(f"alter_configs takes ConfigChanges or {{key: value}}, not {row!r}")
    return found


def _incremental(
    resource: ConfigResource, changes: Iterable[ConfigChange]
) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
    return IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=change.name, config_operation=change.operation, value=change.value
            )
            for change in changes
        ],
    )
