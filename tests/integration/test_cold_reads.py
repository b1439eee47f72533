"""Reading what the page cache no longer has: the same bytes, and nobody else waits."""

import os
import pathlib
import threading

from headwater.records.batch import batches
from headwater.wire.messages.fetch import FetchResponse
from tests.unit.broker.live import WAIT_S, Live, batch, fetch_request

COUNT = 40


def evict(folder: str) -> bool:
    """Drop a partition's files from the page cache; whether that worked."""
    cold = False
    for path in pathlib.Path(folder).glob("*.log"):
        fd = os.open(path, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(fd, [bytearray(10)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            cold = True
        except OSError:
            pass  # a file system that cannot tell
        os.close(fd)
    return cold


def read_all(client, topic) -> tuple[list[int], bytes]:
    offsets: list[int] = []
    data = b""
    while len(offsets) < COUNT:
        piece = bytes(client.fetch(topic, len(offsets), partition_max_bytes=300_000).records)
        assert piece, f"nothing at offset {len(offsets)}"
        offsets += [header.base_offset for _, header in batches(piece)]
        data += piece
    return offsets, data


def test_evicted_records_come_back_the_same(tmp_path):
    with Live(tmp_path, {"log.segment.bytes": "1000000"}) as live, live.client() as client:
        live.create("t")
        for number in range(COUNT):
            client.produce("t", batch(b"%d" % number + os.urandom(100_000)))
        log = live.replica("t").log
        assert len(log.segments) > 3
        warm = read_all(client, "t")
        evicted = evict(log.directory)
        slow = []
        off_loop = live.context.off_loop

        def counting(call, done, *lane):
            slow.append(call)
            off_loop(call, done)

        live.context.off_loop = counting
        assert read_all(client, "t") == warm
        assert warm[0] == list(range(COUNT))
        assert not evicted or slow, "a cold range must not be read on the loop"


def test_a_cold_reader_does_not_hold_up_a_warm_one(tmp_path):
    with Live(tmp_path) as live, live.client() as cold, live.client() as warm:
        live.create("t")
        cold.produce("t", batch(os.urandom(100_000)))
        gate = threading.Event()
        off_loop = live.context.off_loop
        live.context.off_loop = lambda call, done, *lane: off_loop(
            lambda: call() if gate.wait(WAIT_S) else None, done
        )
        evict(live.replica("t").log.directory)
        number = cold.send(fetch_request({("t", 0): 0}), 12)
        assert warm.produce("t", batch(b"meanwhile")).base_offset == 1
        assert warm.fetch("t", 1).records
        gate.set()
        assert cold.answer(FetchResponse, 12, number).responses[0].partitions[0].records
