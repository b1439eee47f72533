"""The wire, nothing decoded: what the best consumer could reach with fetches of the default size.

A plain blocking socket fetches one answer at a time into one buffer that is used again and again,
and asks for the next as soon as it knows where this one ends. Batch headers are all it reads.
"""

import socket
from collections.abc import Mapping
from struct import Struct

from benchmarks.clients.contest import TOPIC, Stopwatch
from headwater.errors import E, KafkaError, error_of
from headwater.records.codec import read_end
from headwater.wire import codec
from headwater.wire.framing import read_response_header, request_frame
from headwater.wire.messages.fetch import FetchRequest, FetchResponse

FETCH, VERSION = 1, 11
MAX_PARTITION_BYTES = 1 << 20
MAX_BYTES = 50 << 20
MAX_WAIT_MS = 500
_HEADS = 64 << 10  # room for all of an answer that is not records
_SIZE = Struct(">i")


def fetch_everything(bootstrap: str, watch: Stopwatch) -> None:
    """Reads all partitions side by side; the one broker leads them all."""
    from headwater import Consumer

    with Consumer(bootstrap_servers=bootstrap) as consumer:
        places = dict.fromkeys(consumer.partitions_for(TOPIC), 0)
    room = memoryview(bytearray(len(places) * MAX_PARTITION_BYTES + _HEADS))
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch.start()
        while sum(places.values()) < watch.count:
            peer.sendall(_request(places))
            places |= _ends(_answer(peer, room), places)
        watch.stop()


def _request(places: Mapping[int, int]) -> bytes:
    partitions = [
        FetchRequest.FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=MAX_PARTITION_BYTES
        )
        for number, offset in places.items()
    ]
    message = FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=MAX_BYTES,
        topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=partitions)],
    )
    return request_frame(FETCH, VERSION, 0, "wire", message)


def _answer(peer: socket.socket, room: memoryview) -> memoryview:
    """The answer without its size: with one request on its way nothing can follow it."""
    got, end = 0, _SIZE.size
    while got < end:
        came = peer.recv_into(room[got:])
        if not came:
            raise ConnectionError("the broker hung up, or its answer is too large")
        got += came
        if got >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(room)[0]
    return room[_SIZE.size : end]


def _ends(frame: memoryview, places: Mapping[int, int]) -> dict[int, int]:
    """Where each partition of the answer goes on."""
    _, body = read_response_header(frame, FETCH, VERSION)
    answer, _ = codec.decode(FetchResponse, VERSION, frame, body)
    ends = {}
    for topic in answer.responses:
        for partition in topic.partitions:
            if partition.error_code != E.NONE:
                raise KafkaError(error_of(partition.error_code))
            number = partition.partition_index
            ends[number], _ = read_end(partition.records or b"", places[number], 0)
    return ends
