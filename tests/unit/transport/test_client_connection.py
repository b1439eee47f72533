"""The client end against a scripted peer on a real socket."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headwater.errors import E, KafkaError
from headwater.seams.network import TcpNetwork
from headwater.transport.client_connection import ClientConnection
from headwater.wire.framing import read_request_header, response
from headwater.wire.messages.cluster import ApiVersionsResponse
from headwater.wire.messages.groups import ListGroupsRequest, ListGroupsResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.schema import Struct

Answer = Callable[[int, int], Struct | bytes | None]
"""From API key and version to an answer, raw bytes, or silence."""
_HANG_UP = b""
"""An answer: the peer closes the connection."""


async def talk(
    answer: Answer, work: Callable[[ClientConnection], Awaitable[None]], **options: float
) -> None:
    """Serve `answer` on a free port and let `work` use a connection to it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while size := await reader.read(4):
                frame = await reader.readexactly(int.from_bytes(size))
                header = read_request_header(frame, 0, len(frame))
                reply = answer(header.api_key, header.version)
                if isinstance(reply, Struct):
                    writer.writelines(response(header.correlation_id, header.version, reply))
                elif reply == _HANG_UP:
                    return
                elif reply is not None:
                    writer.write(reply)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        connection = await ClientConnection.open(TcpNetwork(), "127.0.0.1", port, **options)  # type: ignore[arg-type]
        await work(connection)
        connection.close()
    finally:
        server.close()


def versions(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    keys = {"metadata": 3, "list_groups": 16}
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=keys[name], min_version=low, max_version=high)
            for name, (low, high) in ranges.items()
        ]
    )


def test_the_newest_version_of_both_sides_is_used() -> None:
    used = []

    def answer(key: int, version: int) -> Struct:
        used.append((key, version))
        return versions(metadata=(0, 99), list_groups=(0, 2)) if key == 18 else (
            MetadataResponse(cluster_id="c") if key == 3 else ListGroupsResponse()
        )  # fmt: skip

    async def work(connection: ClientConnection) -> None:
        assert (await connection.call(MetadataRequest(), MetadataResponse)).cluster_id == "c"
        await connection.call(ListGroupsRequest(), ListGroupsResponse)
        await connection.call(MetadataRequest(), MetadataResponse, newest=5)

    asyncio.run(talk(answer, work))
    assert used == [(18, 3), (3, 13), (16, 2), (3, 5)]


def test_answers_find_their_requests_when_several_are_under_way() -> None:
    def answer(key: int, version: int) -> Struct:
        if key == 18:
            return versions(metadata=(0, 13), list_groups=(0, 5))
        return MetadataResponse(cluster_id="c") if key == 3 else ListGroupsResponse(error_code=14)

    async def work(connection: ClientConnection) -> None:
        metadata, groups = await asyncio.gather(
            connection.call(MetadataRequest(), MetadataResponse),
            connection.call(ListGroupsRequest(), ListGroupsResponse),
        )
        assert (metadata.cluster_id, groups.error_code) == ("c", 14)

    asyncio.run(talk(answer, work))


def test_an_old_broker_is_asked_again_in_the_oldest_version() -> None:
    used = []

    def answer(key: int, version: int) -> Struct | bytes:
        used.append(version)
        if version == 3:  # refused, and in the form of version 0 whatever was asked
            return bytes([0, 0, 0, 10, 0, 0, 0, 1, 0, E.UNSUPPORTED_VERSION, 0, 0, 0, 0])
        return versions(metadata=(0, 5))

    async def work(connection: ClientConnection) -> None:
        assert connection.version_for(MetadataRequest()) == 5

    asyncio.run(talk(answer, work))
    assert used == [3, 0]


def test_an_api_that_the_broker_lacks_is_named() -> None:
    async def work(connection: ClientConnection) -> None:
        with pytest.raises(KafkaError, match="has no ListGroups") as refused:
            await connection.call(ListGroupsRequest(), ListGroupsResponse)
        assert refused.value.code is E.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError, match="speaks Metadata 98 to 99"):
            connection.version_for(MetadataRequest())

    asyncio.run(talk(lambda key, version: versions(metadata=(98, 99)), work))


def test_a_listener_that_closes_without_an_answer_may_use_tls() -> None:
    async def work(connection: ClientConnection) -> None:
        raise AssertionError("the connection opened")

    with pytest.raises(KafkaError, match=r"set security\.protocol to SSL or SASL_SSL"):
        asyncio.run(talk(lambda key, version: _HANG_UP, work))


def test_a_listener_that_closes_at_the_first_request_may_need_a_login() -> None:
    async def work(connection: ClientConnection) -> None:
        with pytest.raises(KafkaError, match="if its listener needs a login"):
            await connection.call(MetadataRequest(), MetadataResponse)

    asyncio.run(talk(lambda key, _: versions(metadata=(0, 9)) if key == 18 else _HANG_UP, work))


def test_something_else_that_listens_there_is_suspected_to_be_no_broker() -> None:
    async def work(connection: ClientConnection) -> None:
        raise AssertionError("the connection opened")

    said = r"accepted a connection, but did not answer within 0\.05 s: is it a Kafka broker\?$"
    with pytest.raises(KafkaError, match=said):
        asyncio.run(talk(lambda key, version: None, work, setup_timeout_s=0.05))


def test_a_broker_that_is_silent_is_given_up_on() -> None:
    async def work(connection: ClientConnection) -> None:
        with pytest.raises(
            KafkaError, match=r"did not answer within 0\.05 s \(Metadata\)"
        ) as refused:
            await connection.call(MetadataRequest(), MetadataResponse, timeout_s=0.05)
        assert refused.value.code is E.REQUEST_TIMED_OUT
        with pytest.raises(KafkaError, match="closed the connection"):
            await connection.call(MetadataRequest(), MetadataResponse)

    asyncio.run(
        talk(
            lambda key, _: versions(metadata=(0, 9)) if key == 18 else None,
            work,
            timeout_s=60,
        )
    )


@pytest.mark.parametrize(
    "garbage",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff\xff\xff\xff", b"\0\0\0\4\0\0\0\7", b"\0\0\0\1x"],
)
def test_a_peer_that_does_not_speak_kafka_is_told_apart(garbage: bytes) -> None:
    async def work(connection: ClientConnection) -> None:
        raise AssertionError("no connection should come of this")

    with pytest.raises(KafkaError) as refused:
        asyncio.run(talk(lambda key, version: garbage, work, timeout_s=0.2))
    assert refused.value.code in {E.NETWORK_EXCEPTION, E.REQUEST_TIMED_OUT}


def test_an_answer_is_read_the_moment_it_is_there_before_whoever_waits() -> None:
    order: list[str] = []

    def answer(key: int, version: int) -> Struct:
        return versions(metadata=(0, 13)) if key == 18 else MetadataResponse(cluster_id="c")

    async def work(connection: ClientConnection) -> None:
        def read(frame: bytes | memoryview) -> str | None:
            order.append("read")
            asyncio.get_running_loop().call_soon(order.append, "called by read")
            return connection.decode(frame, MetadataResponse, 13).cluster_id

        assert await connection.start_reading(MetadataRequest(), 13, read) == "c"
        order.append("waited")

    asyncio.run(talk(answer, work))
    assert order == ["read", "called by read", "waited"]


def test_what_reading_an_answer_raises_is_for_whoever_waits() -> None:
    def answer(key: int, version: int) -> Struct:
        return versions(metadata=(0, 13)) if key == 18 else MetadataResponse(cluster_id="c")

    async def work(connection: ClientConnection) -> None:
        def read(frame: bytes | memoryview) -> None:
            raise LookupError("nothing there")

        with pytest.raises(LookupError):
            await connection.start_reading(MetadataRequest(), 13, read)
        assert (await connection.call(MetadataRequest(), MetadataResponse)).cluster_id == "c"

    asyncio.run(talk(answer, work))
