"""Applies a change of configs: the new overrides of a resource, or why they are refused. Pure."""

from collections.abc import Mapping, Sequence

from headwater.config.broker import BrokerSettings
from headwater.config.keys import LIST, ConfigError, Key
from headwater.config.topic import TopicSettings
from headwater.controller.commands import (
    AlteredResource,
    ConfigEdit,
    ConfigOperation,
    ResourceKind,
)
from headwater.controller.state import ClusterState
from headwater.controller.store.znodes import DEFAULT_ENTITY
from headwater.controller.topic_rules import check_configs_fit, existing_topic
from headwater.errors import E, KafkaError


def entity_of(resource: AlteredResource, state: ClusterState) -> tuple[str, str]:
    """The type and name of a resource below /config."""
    if resource.kind == ResourceKind.TOPIC:
        existing_topic(resource.name, state)
        return "topics", resource.name
    if resource.kind != ResourceKind.BROKER:
        raise KafkaError(E.INVALID_REQUEST, f"resources of type {resource.kind} have no configs")
    if not resource.name:
        return "brokers", DEFAULT_ENTITY
    if not resource.name.isascii() or not resource.name.isdigit():
        raise KafkaError(E.INVALID_REQUEST, f"{resource.name!r} is not a broker id")
    stored = ("brokers", resource.name) in state.entity_configs
    if int(resource.name) not in state.brokers and not stored:
        raise KafkaError(E.INVALID_REQUEST, f"there is no broker {resource.name}")
    return "brokers", str(int(resource.name))


def edited(resource: AlteredResource, present: Mapping[str, str]) -> dict[str, str]:
    """The overrides after the change."""
    if resource.replacement is not None:
        overrides = {name: _needed(name, value) for name, value in resource.replacement.items()}
    else:
        overrides = _with_edits(resource, present)
    _check(resource, overrides, present)
    return overrides


def _needed(name: str, value: str | None) -> str:
    if value is None:
        raise KafkaError(E.INVALID_REQUEST, f"{name} has no value")
    return value


def _with_edits(resource: AlteredResource, present: Mapping[str, str]) -> dict[str, str]:
    _refuse_repetition(resource.edits)
    overrides = dict(present)
    for edit in resource.edits:
        if edit.operation == ConfigOperation.DELETE:
            overrides.pop(edit.name, None)
            continue
        value = _needed(edit.name, edit.value)
        if edit.operation != ConfigOperation.SET:
            value = _list_edit(resource, edit, value, overrides)
        overrides[edit.name] = value
    return overrides


def _refuse_repetition(edits: Sequence[ConfigEdit]) -> None:
    names = [edit.name for edit in edits]
    if len(set(names)) < len(names):
        raise KafkaError(E.INVALID_REQUEST, "a config appears twice in the change of one resource")


def _list_edit(
    resource: AlteredResource,
    edit: ConfigEdit,
    value: str,
    overrides: Mapping[str, str],
) -> str:
    if edit.operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise KafkaError(E.INVALID_REQUEST, f"{edit.operation} is not an operation on configs")
    row = _row(resource, edit.name)
    if row.type is not LIST:
        raise ConfigError(f"{edit.name} is not a list: nothing can be appended or subtracted")
    have = _entries(overrides.get(edit.name, row.text(row.default) or ""))
    given = _entries(value)
    if edit.operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys([*have, *given]))
    gone = set(given)
    return ",".join(entry for entry in have if entry not in gone)


def _row(resource: AlteredResource, name: str) -> Key:
    table = TopicSettings if resource.kind == ResourceKind.TOPIC else BrokerSettings
    return table.key(name)


def _entries(text: str) -> list[str]:
    return [entry for part in text.split(",") if (entry := part.strip())]


def _check(
    resource: AlteredResource, overrides: Mapping[str, str], present: Mapping[str, str]
) -> None:
    # Stored values that do not change are not checked again: a key that a newer version no longer
    # accepts must not block a change of another key.
    fresh = {name: value for name, value in overrides.items() if present.get(name) != value}
    if resource.kind == ResourceKind.TOPIC:
        problem = TopicSettings.check(fresh) or TopicSettings.check(
            {name: value for name, value in overrides.items() if name in TopicSettings.KEYS}
        )
    else:
        problem = BrokerSettings.check(fresh, cluster_wide=not resource.name)
        if problem is not None:  # as Kafka answers; topics get INVALID_CONFIG
            raise KafkaError(E.INVALID_REQUEST, problem.message)
    if problem is not None:
        raise problem
    if fresh:
        check_configs_fit(overrides)
