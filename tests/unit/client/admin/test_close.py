"""Both faces of the admin give up a close that takes too long."""

import asyncio

import pytest

import headwater
import headwater.aio
from headwater import TimedOutError
from headwater.client.admin.calls import AdminCalls

ADDRESS = "127.0.0.1:1"


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_a_close_ends_after_its_timeout(monkeypatch, face) -> None:
    async def hang(_: AdminCalls) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(AdminCalls, "close", hang)

    async def close_async() -> None:
        await headwater.aio.Admin(bootstrap_servers=ADDRESS).close(0.01)

    def close() -> None:
        if face == "asyncio":
            asyncio.run(close_async())
        else:
            headwater.Admin(bootstrap_servers=ADDRESS).close(0.01)

    with pytest.raises(TimedOutError, match=r"within 0\.01 s"):
        close()
