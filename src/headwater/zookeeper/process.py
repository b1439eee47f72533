"""Runs `headwater store` as a process: its folder, signals and exit."""

import asyncio
from collections.abc import Callable

from headwater.controller.store.engine import StoreEngine, on_file_thread
from headwater.errors import E, KafkaError
from headwater.seams.clock import SystemClock
from headwater.seams.files import OsFiles
from headwater.seams.network import TcpNetwork
from headwater.seams.randomness import SystemRandomness
from headwater.seams.signals import on_stop_signal
from headwater.seams.tasks import LoopTasks
from headwater.zookeeper.server_loop import StoreServer


class StoreUnusable(KafkaError):
    """The folder or its disk cannot be used; the message says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(E.KAFKA_STORAGE_ERROR, message)


def run(host: str, port: int, folder: str, on_ready: Callable[[str], None]) -> None:
    """Serve until a signal stops it; `on_ready` gets the address once clients may connect."""
    import uvloop

    uvloop.run(_serve(host, port, folder, on_ready))


async def _serve(host: str, port: int, folder: str, on_ready: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    files, tasks = OsFiles(), LoopTasks()
    _lock(files, folder)
    engine = StoreEngine(files, folder, loop.call_soon, on_file_thread(tasks), SystemClock())
    failed, stopped = asyncio.Event(), asyncio.Event()
    engine.on_failure = failed.set
    on_stop_signal(loop, stopped.set)
    server = StoreServer(engine, TcpNetwork(), SystemClock(), SystemRandomness(), loop.call_later)
    on_ready(f"{host}:{await server.start(host, port)}")
    ends = [asyncio.ensure_future(event.wait()) for event in (stopped, failed)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    server.close()
    tasks.close()
    if failed.is_set():
        raise StoreUnusable(
            f"the disk of {folder} failed (see the log): repair it and restart the store"
        )


def _lock(files: OsFiles, folder: str) -> None:
    """Lock the folder against other processes."""
    try:
        files.mkdir(folder)
        files.lock(f"{folder}/.lock")
    except BlockingIOError:
        raise StoreUnusable(
            f"{folder} is in use by another process: stop it, or choose another with --data-dir"
        ) from None
    except OSError as failure:
        raise StoreUnusable(
            f"{folder} cannot be used ({failure.strerror}): repair it, "
            "or choose another with --data-dir"
        ) from failure
