"""Produce (0): batches whose records are not numbered 0, 1, 2 … within the batch."""

from collections.abc import Mapping

from headwater.records.batch import batches
from headwater.records.compression import Codec
from headwater.records.record import decode_records
from headwater.wire.messages.fetch import FetchRequest
from tests.compat.differential.batch import batch, with_deltas
from tests.compat.differential.scene import Scene, scene
from tests.compat.differential.scenes.producing import NAMED, produce

FEW = {
    "as they should be": [0, 1, 2],
    "all 0": [0, 0, 0],
    "from 1": [1, 2, 3],
    "backward": [2, 1, 0],
    "with a gap": [0, 1, 5],
    "large": [7, 70, 70_000],
    "negative": [-1, -2, -3],
    "one": [3],
}
MANY = {
    "as they should be": list(range(10)),
    "all 0": [0] * 10,
    "wrong at the end": [*range(9), 8],
}
"""More records than are looked at in every batch."""


def _send(s: Scene, topic: str, codec: Codec, cases: Mapping[str, list[int]], how: str) -> None:
    """Each case twice to a partition of its own, as an idempotent producer, and what is stored."""
    for partition, (label, deltas) in enumerate(cases.items()):
        made = batch(count=len(deltas), codec=codec, producer=(4711, 0, 0))
        request = produce(topic, with_deltas(made, deltas), partition=partition)
        answers = [s.peer.call(request, NAMED) for _ in range(2)]
        parts = [answer.responses[0].partition_responses[0] for answer in answers]
        s.note(
            f"{how} {codec.name}, {label}",
            {
                "error_codes": [part.error_code for part in parts],
                "base_offsets": [part.base_offset for part in parts],
                "stored": _stored(s, topic, partition),
            },
        )


def _stored(s: Scene, topic: str, partition: int) -> list[object]:
    """What the header of each batch says, and the offset and the value of each record."""
    wanted = FetchRequest.FetchPartition(
        partition=partition, fetch_offset=0, partition_max_bytes=1 << 24
    )
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])])
    found = s.peer.call(request, 11).responses[0].partitions[0].records or b""
    return [
        {
            "header": list(header._replace(length=0, crc=0)),
            "offsets": [record.offset for record in records],
            "values": [record.value for record in records],
        }
        for at, header in batches(found)
        for records in [decode_records(found[at : at + header.size])]
    ]


@scene
def produce_offset_deltas_out_of_place(s: Scene) -> None:
    for codec in Codec:
        for how, cases in (("few", FEW), ("many", MANY)):
            topic = f"{how}-{codec.name}"
            s.topic(topic, len(cases))
            _send(s, topic, codec, cases, how)


@scene
def produce_offset_deltas_out_of_place_where_all_batches_are_read(s: Scene) -> None:
    for codec in Codec:
        for kind, key, value in (
            ("compacted", "cleanup.policy", "compact"),
            ("made gzip", "compression.type", "gzip"),
            ("made plain", "compression.type", "uncompressed"),
        ):
            topic = f"{kind}-{codec.name}".replace(" ", "-")
            s.topic(topic, len(MANY), {key: value})
            _send(s, topic, codec, MANY, kind)
