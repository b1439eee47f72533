"""Quotas of clients (48, 49)."""

from headwater.wire.schema import Struct, f64, i8, i16, i32, since


class DescribeClientQuotasRequest(Struct, api_key=48, versions="0-1", flexible="1+"):
    """Which quotas to show (KIP-546).

    1: compact.
    """

    class ComponentData(Struct):
        """A condition on one part of an entity: 0 exactly this name, 1 the default, 2 any name."""

        entity_type: str = ""
        match_type: i8 = 0
        match: str | None = ""

    components: list[ComponentData] = since(default=[])
    strict: bool = False


class DescribeClientQuotasResponse(Struct, api_key=48, versions="0-1", flexible="1+"):
    """The quotas that match; no list after an error."""

    class EntryData(Struct):
        """One entity with its quotas."""

        entity: "list[DescribeClientQuotasResponse.EntityData]" = since(default=[])
        values: "list[DescribeClientQuotasResponse.ValueData]" = since(default=[])

    class EntityData(Struct):
        """A part of an entity; without a name, the default."""

        entity_type: str = ""
        entity_name: str | None = ""

    class ValueData(Struct):
        """One quota."""

        key: str = ""
        value: f64 = 0.0

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = since(default=[])


class AlterClientQuotasRequest(Struct, api_key=49, versions="0-1", flexible="1+"):
    """Changes of quotas (KIP-546).

    1: compact.
    """

    class EntryData(Struct):
        """One entity with the changes of its quotas."""

        entity: "list[AlterClientQuotasRequest.EntityData]" = since(default=[])
        ops: "list[AlterClientQuotasRequest.OpData]" = since(default=[])

    class EntityData(Struct):
        """A part of an entity; without a name, the default."""

        entity_type: str = ""
        entity_name: str | None = ""

    class OpData(Struct):
        """A quota to set or to remove."""

        key: str = ""
        value: f64 = 0.0
        remove: bool = False

    entries: list[EntryData] = since(default=[])
    validate_only: bool = False


class AlterClientQuotasResponse(Struct, api_key=49, versions="0-1", flexible="1+"):
    """The result for each entity."""

    class EntryData(Struct):
        """One entity's result."""

        error_code: i16 = 0
        error_message: str | None = ""
        entity: "list[AlterClientQuotasResponse.EntityData]" = since(default=[])

    class EntityData(Struct):
        """A part of an entity; without a name, the default."""

        entity_type: str = ""
        entity_name: str | None = ""

    throttle_time_ms: i32 = 0
    entries: list[EntryData] = since(default=[])
