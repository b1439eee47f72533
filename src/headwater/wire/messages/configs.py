"""Configurations: reading (32), writing (33, 44) and what can have one (74)."""

from headwater.wire.schema import Struct, i8, i16, i32, since


class DescribeConfigsRequest(Struct, api_key=32, versions="0-4", flexible="4+"):
    """Read configs.

    1: synonyms.
    3: documentation.
    """

    class DescribeConfigsResource(Struct):
        """A topic, broker or group, and the keys wanted; null for all."""

        resource_type: i8 = 0
        resource_name: str = ""
        configuration_keys: list[str] | None = since(default=[])

    resources: list[DescribeConfigsResource] = since(default=[])
    include_synonyms: bool = since("1+", default=False)
    include_documentation: bool = since("3+", default=False)


class DescribeConfigsResponse(Struct, api_key=32, versions="0-4", flexible="4+"):
    """Configs with their sources.

    1: source and synonyms instead of a default flag.
    3: type and documentation.
    """

    class DescribeConfigsResult(Struct):
        """One resource's configs."""

        error_code: i16 = 0
        error_message: str | None = ""
        resource_type: i8 = 0
        resource_name: str = ""
        configs: "list[DescribeConfigsResponse.DescribeConfigsResourceResult]" = since(default=[])

    class DescribeConfigsResourceResult(Struct):
        """One config."""

        name: str = ""
        value: str | None = ""
        read_only: bool = False
        is_default: bool = since("0", default=False)
        config_source: i8 = since("1+", default=-1, ignorable=True)
        is_sensitive: bool = False
        synonyms: "list[DescribeConfigsResponse.DescribeConfigsSynonym]" = since(
            "1+", default=[], ignorable=True
        )
        config_type: i8 = since("3+", default=0, ignorable=True)
        documentation: str | None = since("3+", default="", ignorable=True)

    class DescribeConfigsSynonym(Struct):
        """Another place that sets the config, strongest first."""

        name: str = ""
        value: str | None = ""
        source: i8 = 0

    throttle_time_ms: i32 = 0
    results: list[DescribeConfigsResult] = since(default=[])


class AlterConfigsRequest(Struct, api_key=33, versions="0-2", flexible="2+"):
    """Replace all configs of a resource."""

    class AlterConfigsResource(Struct):
        """A resource and its complete new configs."""

        resource_type: i8 = 0
        resource_name: str = ""
        configs: "list[AlterConfigsRequest.AlterableConfig]" = since(default=[])

    class AlterableConfig(Struct):
        """One config; null returns it to its default."""

        name: str = ""
        value: str | None = ""

    resources: list[AlterConfigsResource] = since(default=[])
    validate_only: bool = False


class AlterConfigsResponse(Struct, api_key=33, versions="0-2", flexible="2+"):
    """What was altered."""

    class AlterConfigsResourceResponse(Struct):
        """One resource's result."""

        error_code: i16 = 0
        error_message: str | None = ""
        resource_type: i8 = 0
        resource_name: str = ""

    throttle_time_ms: i32 = 0
    responses: list[AlterConfigsResourceResponse] = since(default=[])


class IncrementalAlterConfigsRequest(Struct, api_key=44, versions="0-1", flexible="1+"):
    """Change some configs of a resource."""

    class AlterConfigsResource(Struct):
        """A resource and its changes."""

        resource_type: i8 = 0
        resource_name: str = ""
        configs: "list[IncrementalAlterConfigsRequest.AlterableConfig]" = since(default=[])

    class AlterableConfig(Struct):
        """One change: set 0, delete 1, append 2, subtract 3."""

        name: str = ""
        config_operation: i8 = 0
        value: str | None = ""

    resources: list[AlterConfigsResource] = since(default=[])
    validate_only: bool = False


class IncrementalAlterConfigsResponse(Struct, api_key=44, versions="0-1", flexible="1+"):
    """What was altered."""

    class AlterConfigsResourceResponse(Struct):
        """One resource's result."""

        error_code: i16 = 0
        error_message: str | None = ""
        resource_type: i8 = 0
        resource_name: str = ""

    throttle_time_ms: i32 = 0
    responses: list[AlterConfigsResourceResponse] = since(default=[])


class ListConfigResourcesRequest(Struct, api_key=74, versions="0-1", flexible="0+"):
    """List what has configs.

    0: client metrics only.
    1: by resource type; none means all.
    """

    resource_types: list[i8] = since("1+", default=[])


class ListConfigResourcesResponse(Struct, api_key=74, versions="0-1", flexible="0+"):
    """Resources that have configs.

    1: resource type.
    """

    class ConfigResource(Struct):
        """A resource."""

        resource_name: str = ""
        resource_type: i8 = since("1+", default=16, ignorable=True)

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    config_resources: list[ConfigResource] = since(default=[])
