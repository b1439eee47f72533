"""Reads a partition over the wire, for consumers and for the audit."""

from typing import NamedTuple

from headwater.model import TopicPartition
from headwater.records.batch import CRC_START, batches
from headwater.records.checksum import crc32c
from headwater.records.record import Record, decode_records
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from simulator.workload.client import Client, Disturbed

BY_ID = 13
VERSIONS = (4, 7, 11, 12, BY_ID, 17)


class Fetched(NamedTuple):
    """One partition's part of an answer, as a consumer reads it."""

    error_code: int
    high_watermark: int
    log_start: int
    records: list[Record]


async def fetch(
    client: Client, at: TopicPartition, offset: int, *, newest: int, max_bytes: int, wait_ms: int
) -> Fetched:
    """Fetch records from `offset` on; drop earlier ones of its batch."""
    wanted = FetchRequest.FetchPartition(
        partition=at.partition, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    topic = FetchRequest.FetchTopic(
        topic=at.topic, topic_id=await client.topic_id(at.topic), partitions=[wanted]
    )
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, topics=[topic], session_epoch=-1
    )
    answer = await client.call(request, FetchResponse, newest=newest)
    found = answer.responses[0].partitions[0]
    records = _records(client, at, memoryview(found.records or b""))
    return Fetched(
        found.error_code,
        found.high_watermark,
        found.log_start_offset,
        [record for record in records if record.offset >= offset],
    )


def _records(client: Client, at: TopicPartition, content: memoryview) -> list[Record]:
    """Yield the records of whole batches, checked as by a consumer."""
    records: list[Record] = []
    for position, header in batches(content):
        batch = content[position : position + header.size]
        if crc32c(batch[CRC_START:]) != header.crc:
            client.promises.complain(f"I10: {at} offset {header.base_offset} is served damaged")
            raise Disturbed
        records += decode_records(batch)
    return records


async def end_of(client: Client, at: TopicPartition, timestamp: int) -> int:
    """Return the earliest or latest offset, or the first one that is not older than `timestamp`."""
    partition = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=at.partition, timestamp=timestamp
    )
    topic = ListOffsetsRequest.ListOffsetsTopic(name=at.topic, partitions=[partition])
    answer = await client.call(
        ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse
    )
    found = answer.topics[0].partitions[0]
    client.check(found.error_code)
    return found.offset
