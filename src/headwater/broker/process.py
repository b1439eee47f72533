"""Runs a broker as a process: signals, the garbage collector, the real seams."""

import asyncio
import gc
from collections.abc import Callable
from typing import TypeAlias

from headwater.broker.lifecycle_loop import BrokerServer
from headwater.config.broker import BrokerSettings
from headwater.log.log_dir import LogDirError
from headwater.seams import Seams
from headwater.seams.clock import SystemClock
from headwater.seams.files import OsFiles
from headwater.seams.limits import raise_open_file_limit
from headwater.seams.machine import read_boot_id
from headwater.seams.network import TcpNetwork
from headwater.seams.process_use import SystemProcessMeter
from headwater.seams.randomness import SystemRandomness
from headwater.seams.signals import on_stop_signal
from headwater.seams.tasks import LoopTasks
from headwater.seams.workers import ProcessWorkers

GC_THRESHOLDS = (5_000, 3, 100)
"""When the collector looks at the youngest objects, at older ones, and at all: counts of new ones, of looks.

Requests leave no cycles, so it finds little, but it holds the loop: a look at the youngest takes less
than a millisecond, one at all objects of 10,000 partitions a tenth of a second, so that must be rare.
"""


def system_seams() -> Seams:
    """The seams to the real clock, disk, network and threads."""
    clock, randomness, files = SystemClock(), SystemRandomness(), OsFiles()
    tasks = LoopTasks()
    return Seams(
        clock,
        randomness,
        files,
        TcpNetwork(tasks),
        tasks,
        raise_open_file_limit(),
        read_boot_id(),
        ProcessWorkers(),
        SystemProcessMeter(),
    )


OnReady: TypeAlias = Callable[[str, str | None], None]
"""Gets the address for clients, and that of the metrics if they are shown."""


def run(settings: BrokerSettings, on_ready: OnReady) -> None:
    """Serve until a signal stops it; `on_ready` is called once clients may connect."""
    import uvloop

    uvloop.run(_serve(settings, on_ready))
    gc.freeze()  # the end of the process looks at no object again


async def _serve(settings: BrokerSettings, on_ready: OnReady) -> None:
    loop = asyncio.get_running_loop()
    broker = BrokerServer(settings, system_seams())
    stopped = asyncio.Event()
    on_stop_signal(loop, stopped.set)
    gc.disable()
    if not await _started(broker, stopped):
        return
    _collect_rarely()
    first = broker.listeners[0]
    on_ready(f"{first.host or '127.0.0.1'}:{first.port}", broker.metrics_address)
    ends = [asyncio.ensure_future(event.wait()) for event in (stopped, broker.storage_lost)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    await broker.stop()
    if broker.storage_lost.is_set():
        raise LogDirError("the disks failed (see the log): repair them and restart the broker")


async def _started(broker: BrokerServer, stopped: asyncio.Event) -> bool:
    """Start the broker; False if it was stopped first, perhaps because it waits for others."""
    starting, stopping = (asyncio.ensure_future(one) for one in (broker.start(), stopped.wait()))
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    try:
        if starting.cancel():
            await asyncio.gather(starting, return_exceptions=True)
            broker.abandon()
            return False
        starting.result()
    except BaseException:
        broker.abandon()
        raise
    return True


def _collect_rarely() -> None:
    """Freeze the objects of the start, so that the collector skips them, and collect rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
