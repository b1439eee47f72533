"""Changes the overrides below /config, and announces each change to the brokers."""

from collections.abc import Mapping

from headwater.config.broker import BrokerSettings
from headwater.controller.continuations import AwaitConfigChange
from headwater.controller.outstanding import Outstanding
from headwater.controller.store.metadata_store import Create, Set
from headwater.controller.store.znodes import (
    CONFIG_CHANGE_PREFIX,
    DEFAULT_ENTITY,
    config_path,
    encode_config,
    encode_config_change,
    user_of_clients,
)

Entity = tuple[str, str]
"""The type and the name of a node below /config, such as ("topics", "orders")."""


class StoredConfigs:
    """The overrides of topics, brokers and users in the controller's state and in the store."""

    def __init__(self, outstanding: Outstanding) -> None:
        self._outstanding = outstanding

    def overrides(self, entity: Entity) -> dict[str, str]:
        """Return the present overrides of an entity."""
        kind, name = entity
        state = self._outstanding.state
        if kind == "topics":
            return state.topics[name].config
        return state.entity_configs.get(entity, {})

    def store(
        self, entity: Entity, overrides: dict[str, str], token: int, event: str | None = None
    ) -> None:
        """Replace the overrides of an entity; the command waits until this broker applies them."""
        kind, name = entity
        state = self._outstanding.state
        event = event or _changed_configs(entity, self.overrides(entity), overrides)
        self._outstanding.report(event)
        if kind == "topics":
            state.topics[name].config = overrides
        else:
            state.entity_configs[entity] = overrides
        path, data = config_path(kind, name), encode_config(overrides)
        write = Set(path, data) if path in state.config_nodes else Create(path, data)
        above = self._create_parents(kind)
        state.config_nodes.add(path)
        notice = Create(CONFIG_CHANGE_PREFIX, encode_config_change(kind, name), sequential=True)
        self._outstanding.hold(token)
        self._outstanding.write([*above, write, notice], AwaitConfigChange(token))

    def _create_parents(self, kind: str) -> list[Create]:
        """Create the user that clients belong to, if there is no node of it yet."""
        user = user_of_clients(kind)
        if user is None:
            return []
        nodes = self._outstanding.state.config_nodes
        wanted = [config_path("users", user), f"/config/{kind}"]
        missing = [path for path in wanted if path not in nodes]
        nodes.update(missing)
        return [Create(path, encode_config({})) for path in missing]


def _changed_configs(
    entity: Entity, present: Mapping[str, str], overrides: Mapping[str, str]
) -> str:
    """Return a log line with what was set and unset."""
    kind, name = entity
    changes = [
        f"{key}={_logged(kind, key, value)}"
        for key, value in overrides.items()
        if present.get(key) != value
    ]
    changes += [f"{key} unset" for key in present if key not in overrides]
    whose = f"all {kind}" if name == DEFAULT_ENTITY else f"{kind.removesuffix('s')} {name!r}"
    return f"configs of {whose} changed: {', '.join(changes) or 'nothing'}"


def _logged(kind: str, key: str, value: str) -> str:
    if kind == "topics":
        return repr(value)
    if kind == "users":
        return "'[hidden]'"
    row = BrokerSettings.dynamic_key(key)
    shown = repr("[hidden]" if row.sensitive else value)
    return f"{shown} (has no effect here: {row.idle})" if row.idle else shown
