"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from typing import Any

from headwater.broker.context import Context
from headwater.broker.handlers.named_once import once
from headwater.broker.request import Request
from headwater.broker.turns import Steps, drained, each
from headwater.config.resolve import ConfigRow, broker_rows, cluster_rows, topic_rows
from headwater.controller.commands import (
    AlterConfigs,
    AlteredResource,
    ConfigEdit,
    ConfigOutcome,
    ResourceKind,
)
from headwater.errors import E, KafkaError
from headwater.model import topic_name_problem
from headwater.security.acls import CLUSTER_NAME
from headwater.security.rights import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    Right,
)
from headwater.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Row = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


class ConfigResourceKind(IntEnum):
    """A kind of resource with configs, by its number in the protocol."""

    TOPIC = ResourceKind.TOPIC
    BROKER = ResourceKind.BROKER
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_DESCRIBE = (DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_CLUSTER_CONFIGS)
_ALTER = (ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS)


def _authorize(
    context: Context, request: Request, rights: tuple[Right, Right, Right], kind: int, name: str
) -> None:
    """Raise KafkaError unless the client has the right to the resource's configs."""
    right, resource = _needed(rights, kind, name)
    if not context.permits(request, right, resource):
        raise context.refusal(request, right, resource)


def _needed(rights: tuple[Right, Right, Right], kind: int, name: str) -> tuple[Right, str]:
    """Return the right that a resource's configs need, and to what."""
    of_topic, of_group, of_cluster = rights
    if kind == ConfigResourceKind.TOPIC:
        return of_topic, name
    return (of_group, name) if kind == ConfigResourceKind.GROUP else (of_cluster, CLUSTER_NAME)


# DescribeConfigs


def handle_describe_configs(
    context: Context, request: Request, body: DescribeConfigsRequest
) -> Steps[None]:
    """Return every config of each resource, with its source.

    A broker knows the overrides of topics that it holds replicas of; it reads those of others first.
    """
    resources = yield from once(body.resources, _resource_with_all_configs)
    topics = []
    for resource in resources:
        name = resource.resource_name
        if resource.resource_type == ConfigResourceKind.TOPIC and name in context.metadata.topics:
            topics.append(name)
        yield

    def reply() -> None:
        described = partial(_described, context, request, body)
        request.reply_in_turns(DescribeConfigsResponse(results=each(resources, described)))

    context.configs.learn(topics, reply)


def _resource_with_all_configs(
    resource: DescribeConfigsRequest.DescribeConfigsResource,
) -> tuple[int, str] | None:
    if resource.configuration_keys:
        return None  # the answer is hardly longer than the keys
    return resource.resource_type, resource.resource_name


def _described(
    context: Context,
    request: Request,
    body: DescribeConfigsRequest,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
) -> _Result:
    kind, name = resource.resource_type, resource.resource_name
    result = _Result(resource_type=kind, resource_name=name)
    try:
        _authorize(context, request, _DESCRIBE, kind, name)
        rows = _rows(context, kind, name)
    except KafkaError as refusal:
        result.error_code, result.error_message = refusal.code, refusal.message
        return result
    wanted = frozenset(resource.configuration_keys or ())
    shown = [row for row in rows if not wanted or row.name in wanted]
    result.configs = each(shown, partial(_row, body))
    return result


def _rows(context: Context, kind: int, name: str) -> Sequence[ConfigRow]:
    if kind == ConfigResourceKind.TOPIC:
        return _topic_rows(context, name)
    if kind == ConfigResourceKind.BROKER:
        if not name:
            return cluster_rows(context.settings)
        _refuse_other_broker(context, name)
        return broker_rows(context.settings)
    if kind == ConfigResourceKind.BROKER_LOGGER:
        _refuse_other_broker(context, name)
        return ()
    if kind in (ConfigResourceKind.CLIENT_METRICS, ConfigResourceKind.GROUP):
        if not name:
            raise KafkaError(E.INVALID_REQUEST, "the resource has no name")
        return ()
    raise KafkaError(E.INVALID_REQUEST, f"resources of type {kind} have no configs")


def _topic_rows(context: Context, name: str) -> Sequence[ConfigRow]:
    problem = topic_name_problem(name)
    if problem:
        raise KafkaError(E.INVALID_TOPIC_EXCEPTION, problem)
    if name not in context.metadata.topics:
        raise KafkaError(E.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return topic_rows(context.settings, context.topic_overrides.get(name, {}))


def _refuse_other_broker(context: Context, name: str) -> None:
    if name != str(context.node_id):
        raise KafkaError(
            E.INVALID_REQUEST,
            f"this is broker {context.node_id}: send the request to broker {name!r}",
        )


def _row(body: DescribeConfigsRequest, row: ConfigRow) -> _Row:
    return _Row(
        name=row.name,
        value=row.value,
        read_only=row.read_only,
        config_source=row.source,
        is_sensitive=row.sensitive,
        synonyms=[
            _Synonym(name=one.name, value=one.value, source=one.source) for one in row.synonyms
        ]
        if body.include_synonyms
        else [],
        config_type=row.type,
        documentation=row.doc if body.include_documentation else None,
    )


# AlterConfigs and IncrementalAlterConfigs


def handle_alter_configs(
    context: Context, request: Request, body: AlterConfigsRequest
) -> Steps[None]:
    """Replace all overrides of each resource."""
    resources: list[AlteredResource] = []
    repeated: list[ConfigOutcome] = []
    for one in drained(body.resources):
        replacement = {config.name: config.value for config in one.configs}
        kind, name = one.resource_type, one.resource_name
        resources.append(AlteredResource(kind, name, replacement=replacement))
        if len(replacement) < len(one.configs):
            why = "a config appears twice in the new set of one resource"
            repeated.append(ConfigOutcome(kind, name, E.INVALID_REQUEST, why))
        yield
    response = AlterConfigsResponse
    yield from _alter(context, request, resources, body.validate_only, response, repeated)


def handle_incremental_alter_configs(
    context: Context, request: Request, body: IncrementalAlterConfigsRequest
) -> Steps[None]:
    """Set, unset, append to or subtract from single overrides."""
    resources = []
    for one in drained(body.resources):
        edits = [
            ConfigEdit(config.name, config.config_operation, config.value) for config in one.configs
        ] or ()
        resources.append(AlteredResource(one.resource_type, one.resource_name, edits=edits))
        yield
    response = IncrementalAlterConfigsResponse
    yield from _alter(context, request, resources, body.validate_only, response)


def _alter(
    context: Context,
    request: Request,
    resources: list[AlteredResource],
    validate_only: bool,
    response: type[AlterConfigsResponse] | type[IncrementalAlterConfigsResponse],
    already_refused: Sequence[ConfigOutcome] = (),
) -> Steps[None]:
    allowed: list[AlteredResource] = []
    refused = list(already_refused)
    known = {(one.kind, one.name) for one in refused}
    keys: dict[tuple[int, str], list[str]] = {}
    for resource in drained(resources):
        yield
        if (resource.kind, resource.name) in known:
            continue
        try:
            _refuse_misnamed(resource)
            _authorize(context, request, _ALTER, resource.kind, resource.name)
            allowed.append(resource)
            if resource.replacement or resource.edits:
                keys[resource.kind, resource.name] = _key_names(resource)
        except KafkaError as refusal:
            refused.append(
                ConfigOutcome(resource.kind, resource.name, refusal.code, refusal.message)
            )

    def reply(outcomes: list[ConfigOutcome]) -> None:
        answer: Any = response()
        answer.responses = each([*outcomes, *refused], altered)
        request.reply_in_turns(answer)

    def altered(outcome: ConfigOutcome) -> Any:
        if outcome.error is E.NONE and not validate_only:
            kind = ConfigResourceKind(outcome.kind).name
            names = keys.get((outcome.kind, outcome.name), ())
            right, of = _needed(_ALTER, outcome.kind, outcome.name)
            context.note_change(
                request,
                "configs changed",
                f"{kind} {outcome.name}",
                names,
                right=right,
                resource=of,
            )
        return response.AlterConfigsResourceResponse(
            error_code=outcome.error,
            error_message=outcome.message,
            resource_type=outcome.kind,
            resource_name=outcome.name,
        )

    context.controller.submit(AlterConfigs(allowed, validate_only), reply)


def _key_names(resource: AlteredResource) -> list[str]:
    if resource.replacement is not None:
        return sorted(resource.replacement)
    return [edit.name for edit in resource.edits]


def _refuse_misnamed(resource: AlteredResource) -> None:
    """Raise KafkaError for a name that is invalid for the kind of resource."""
    if resource.kind not in set(ConfigResourceKind):
        raise KafkaError(E.INVALID_REQUEST, f"resources of type {resource.kind} are unknown")
    if resource.kind == ConfigResourceKind.TOPIC:
        problem = topic_name_problem(resource.name)
        if problem is not None:
            code = E.INVALID_TOPIC_EXCEPTION if resource.name else E.INVALID_REQUEST
            raise KafkaError(code, problem)


# ListConfigResources


def handle_list_config_resources(
    context: Context, request: Request, body: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Return the resources with configs. 0: client metrics only. 1: by type; by default all types."""
    kinds = body.resource_types or list(ConfigResourceKind)
    if request.version == 0:
        kinds = [ConfigResourceKind.CLIENT_METRICS]
    if not set(kinds) <= set(ConfigResourceKind):
        return ListConfigResourcesResponse(error_code=E.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(kinds)
            for name in _names(context, kind)
        ]
    )


def _names(context: Context, kind: int) -> list[str]:
    if kind == ConfigResourceKind.TOPIC:
        return sorted(context.metadata.topics)
    if kind in (ConfigResourceKind.BROKER, ConfigResourceKind.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(context.metadata.brokers)]
    return []
