"""Read a topic whole, with nothing but a connection: the tests of producers trust no consumer."""

import asyncio

from headwater.errors import KafkaError, error_of
from headwater.records.codec import decode_batch
from headwater.seams.network import TcpNetwork
from headwater.testing import Broker
from headwater.transport.client_connection import ClientConnection
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse

Row = tuple
"""Offset, timestamp, timestamp type, key, value, headers."""


def read_all(broker: Broker, topic: str) -> dict[int, list[Row]]:
    """All records by partition."""
    return asyncio.run(_read(broker.bootstrap, topic))


async def _read(bootstrap: str, topic: str) -> dict[int, list[Row]]:
    host, _, port = bootstrap.rpartition(":")
    connection = await ClientConnection.open(TcpNetwork(), host, int(port))
    try:
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        told = await connection.call(asked, MetadataResponse)
        partitions = [row.partition_index for row in told.topics[0].partitions]
        return {number: await _partition(connection, topic, number) for number in partitions}
    finally:
        connection.close()


async def _partition(connection: ClientConnection, topic: str, number: int) -> list[Row]:
    rows: list[Row] = []
    while True:
        offset = rows[-1][0] + 1 if rows else 0
        part = FetchRequest.FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=8 << 20
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=16 << 20,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
        )
        answer = await connection.call(request, FetchResponse, newest=12)
        told = answer.responses[0].partitions[0]
        if told.error_code:
            raise KafkaError(error_of(told.error_code))
        records = bytes(told.records or b"")
        if not records:
            return rows
        rows += [row for row in _decoded(records) if row[0] >= offset]


def _decoded(records: bytes) -> list[Row]:
    rows: list[Row] = []
    position = 0
    while position < len(records):
        size, batch = decode_batch(records, position)
        rows += batch
        position += size
    return rows
