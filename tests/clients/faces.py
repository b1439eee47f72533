"""One test for both faces: an asyncio client with the calls of a blocking one."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.broker_under_test import PATIENCE_S

both_faces = pytest.mark.parametrize("face", ["blocking", "asyncio"], indirect=True)
"""The test runs with the clients of `headwater` and with those of `headwater.aio`."""


class Blocking:
    """Passes each call to the loop of an asyncio client and waits for its result."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._client, self._loop = client, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._call(found) if callable(found) else found

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self._call(self._client.__anext__)()

    def _call(self, method: Any) -> Any:
        async def run(args: Any, options: Any) -> Any:
            result = method(*args, **options)
            return await result if inspect.isawaitable(result) else result

        def call(*args: Any, **options: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(run(args, options), self._loop).result(
                PATIENCE_S
            )

        return call


@contextlib.contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="asyncio clients", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def asyncio_client(kind: Any, **options: Any) -> Iterator[Blocking]:
    """A client of `headwater.aio`, closed at the end."""

    async def make() -> Any:
        return kind(**options)

    with running_loop() as loop:
        client = Blocking(asyncio.run_coroutine_threadsafe(make(), loop).result(PATIENCE_S), loop)
        try:
            yield client
        finally:
            client.close()
