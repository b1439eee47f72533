"""The arguments of `transform`, checked, and what its function may return. Pure."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headwater.client.consumer.record import ConsumerRecord
from headwater.client.producer.interceptors import ProducerRecord
from headwater.config.keys import ConfigError

_FORCED_FOR_CONSUMERS = ("group_id", "enable_auto_commit", "isolation_level")
_FORCED_FOR_PRODUCERS = ("transactional_id",)


class TransformOptions(NamedTuple):
    """What one run of `transform` does."""

    topics: tuple[str, ...]
    target: str
    max_records: int
    max_wait_ms: int
    idle_ms: int | None
    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]
    stop: Callable[[], bool]


def transform_options(
    source: str | Sequence[str],
    target: str,
    *,
    bootstrap_servers: str | Sequence[str],
    group_id: str,
    transactional_id: str,
    max_records: int,
    max_wait_s: float,
    idle_timeout_s: float | None,
    consumer: Mapping[str, Any] | None,
    producer: Mapping[str, Any] | None,
    stop: Callable[[], bool] | None,
) -> TransformOptions:
    """Return the arguments in one form; raise for the first that cannot be."""
    if max_records < 1:
        raise ValueError(f"max_records is {max_records}: give at least 1")
    if max_wait_s < 0:
        raise ValueError(f"max_wait_s is {max_wait_s}: give 0 or more")
    reading = {
        "auto_offset_reset": "earliest",
        **_free("consumer", consumer, _FORCED_FOR_CONSUMERS),
        "bootstrap_servers": bootstrap_servers,
        "group_id": group_id,
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
    }
    writing = {
        **_free("producer", producer, _FORCED_FOR_PRODUCERS),
        "bootstrap_servers": bootstrap_servers,
        "transactional_id": transactional_id,
    }
    return TransformOptions(
        (source,) if isinstance(source, str) else tuple(source),
        target,
        max_records,
        int(1000 * max_wait_s),
        None if idle_timeout_s is None else int(1000 * idle_timeout_s),
        reading,
        writing,
        stop or _never,
    )


def _free(name: str, given: Mapping[str, Any] | None, forced: tuple[str, ...]) -> Mapping[str, Any]:
    for key in given or {}:
        if key.replace(".", "_") in (*forced, "bootstrap_servers"):
            raise ConfigError(f"transform() sets {key} itself: leave it out of `{name}`")
    return given or {}


def _never() -> bool:
    return False


def check_function(function: object, *, awaited: bool) -> None:
    """Raise TypeError unless `function` fits the face: a coroutine function, or a plain one."""
    if not callable(function):
        raise TypeError(f"transform() needs a function, not {function!r}")
    if inspect.iscoroutinefunction(function) != awaited:
        fits = "an async def, or use headwater.transform for a plain one"
        if not awaited:
            fits = "a plain def, or use headwater.aio.transform for an async one"
        raise TypeError(f"transform() cannot call {function!r}: make it {fits}")


def outputs(
    result: object, record: ConsumerRecord[Any, Any], target: str
) -> Iterator[ProducerRecord]:
    """Return what to send for the result of the function.

    None is nothing; a list or an iterator is several results; a ProducerRecord is sent as it is; all
    else is a value for the target topic, with the key of the record that it was made of.
    """
    if result is None:
        return
    if isinstance(result, list | Iterator):
        for one in result:
            yield from outputs(one, record, target)
    elif isinstance(result, ProducerRecord):
        yield result
    else:
        yield ProducerRecord(target, result, record.key)
