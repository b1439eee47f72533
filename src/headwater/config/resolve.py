"""Shows where a value comes from, as DescribeConfigs does.

Kafka's order: the topic's own value, this broker's stored value, the cluster's stored value, the file
(with the command line), the default. Within one source, the synonyms of a key have an order of their
own: milliseconds before minutes before hours.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from headwater.config.keys import Key, Mode, Type

if TYPE_CHECKING:
    from headwater.config.broker import BrokerSettings


class ConfigSource(IntEnum):
    """Where a value was set, with its number in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5


class Layers(NamedTuple):
    """What is set for a broker, as text, highest precedence first."""

    broker: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, str]


class Synonym(NamedTuple):
    """One source of a key's value."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigRow(NamedTuple):
    """One key as DescribeConfigs shows it; the first of `synonyms` is in effect."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: Type
    doc: str


BROKER_SYNONYMS: tuple[tuple[str, ...], ...] = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
_SYNONYMS_OF = {name: group for group in BROKER_SYNONYMS for name in group}


def configured(layers: Layers, names: Sequence[str]) -> Iterator[tuple[str, str, ConfigSource]]:
    """Each setting of any of `names`, highest precedence first."""
    for layer, source in zip(layers, _LAYER_SOURCES, strict=True):
        for name in names:
            if name in layer:
                yield name, layer[name], source


_LAYER_SOURCES = (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT, ConfigSource.STATIC)


def topic_rows(settings: "BrokerSettings", overrides: Mapping[str, str]) -> list[ConfigRow]:
    """Every key of a topic with these overrides on this broker."""
    from headwater.config.topic import TopicSettings

    topic = TopicSettings.resolve(settings, overrides)
    rows = []
    for key in TopicSettings.KEYS.values():
        value = key.text(getattr(topic, key.attribute))
        synonyms = _broker_synonyms(settings, key.synonyms)
        if key.name in overrides:
            synonyms = (Synonym(key.name, _shown(key, value), ConfigSource.TOPIC), *synonyms)
        rows.append(_row(key, value, synonyms, read_only=False))
    return rows


def broker_rows(settings: "BrokerSettings") -> list[ConfigRow]:
    rows = []
    for key in settings.KEYS.values():
        value = key.text(getattr(settings, key.attribute))
        found = _broker_synonyms(settings, _SYNONYMS_OF.get(key.name, (key.name,)))
        # A synonym that precedes this key's first own value is not shown: it belongs to another key.
        own = next((at for at, row in enumerate(found) if row.name == key.name), len(found))
        rows.append(_row(key, value, found[own:], read_only=key.mode is Mode.READ_ONLY))
    return rows + _idle_rows(settings)


def _idle_rows(settings: "BrokerSettings") -> list[ConfigRow]:
    """The stored keys of Kafka that have no effect."""
    stored = {**settings.layers.cluster, **settings.layers.broker}
    rows = []
    for name in stored:
        if name not in settings.KEYS:
            key = settings.dynamic_key(name)
            found = configured(settings.layers, (name,))
            synonyms = tuple(Synonym(name, _shown(key, text), source) for _, text, source in found)
            rows.append(_row(key, stored[name], synonyms, read_only=False))
    return rows


def cluster_rows(settings: "BrokerSettings") -> list[ConfigRow]:
    """Only the keys that are set for the whole cluster, as Kafka shows them."""
    rows = []
    for name, text in settings.layers.cluster.items():
        key = settings.dynamic_key(name)
        synonym = Synonym(name, _shown(key, text), ConfigSource.DYNAMIC_DEFAULT)
        rows.append(_row(key, text, (synonym,), read_only=False))
    return rows


def _broker_synonyms(settings: "BrokerSettings", names: Sequence[str]) -> tuple[Synonym, ...]:
    found = [
        Synonym(name, _shown(settings.KEYS[name], text), source)
        for name, text, source in configured(settings.layers, names)
    ]
    for name in names:
        key = settings.KEYS[name]
        if key.default is not None:
            found.append(Synonym(name, _shown(key, key.text(key.default)), ConfigSource.DEFAULT))
    return tuple(found)


def _row(
    key: Key, value: str | None, synonyms: tuple[Synonym, ...], *, read_only: bool
) -> ConfigRow:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    shown = _shown(key, value)
    return ConfigRow(
        key.name, shown, source, read_only, key.sensitive, synonyms, key.type, key.explanation
    )


def _shown(key: Key, value: str | None) -> str | None:
    return None if key.sensitive else value
