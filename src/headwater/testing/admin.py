"""The few admin calls that tests need before they have a client."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headwater.errors import E, KafkaError, error_of
from headwater.seams.network import TcpNetwork
from headwater.transport.client_connection import ClientConnection
from headwater.wire.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

T = TypeVar("T")
TIMEOUT_MS = 30_000


def create_topics(
    bootstrap: str, partitions: Mapping[str, int], configs: Mapping[str, str]
) -> None:
    """Make topics; KafkaError for the first one that cannot be made."""
    rows = [
        CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
        for name, value in configs.items()
    ]
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=count, replication_factor=-1, configs=rows
        )
        for name, count in partitions.items()
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)

    async def call() -> CreateTopicsResponse:
        connection = await _connect(bootstrap)
        try:
            return await connection.call(request, CreateTopicsResponse)
        finally:
            connection.close()

    for result in _run(call).topics:
        _raise(result.error_code, result.error_message)


def delete_topics(bootstrap: str, names: Sequence[str]) -> None:
    """Remove topics; KafkaError for the first one that cannot be removed."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names],
        timeout_ms=TIMEOUT_MS,
    )

    async def call() -> DeleteTopicsResponse:
        connection = await _connect(bootstrap)
        try:
            return await connection.call(request, DeleteTopicsResponse)
        finally:
            connection.close()

    for result in _run(call).responses:
        _raise(result.error_code, result.error_message)


def _run(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `call` to its end, also from a test that is itself a coroutine: then in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call())
    with ThreadPoolExecutor(1, "headwater-testing") as pool:
        return pool.submit(lambda: asyncio.run(call())).result()


async def _connect(bootstrap: str) -> ClientConnection:
    host, _, port = bootstrap.rpartition(":")
    return await ClientConnection.open(TcpNetwork(), host, int(port))


def _raise(code: int, message: str | None) -> None:
    if code != E.NONE:
        raise KafkaError(error_of(code), message)
