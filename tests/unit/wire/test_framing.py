import struct

import pytest

from headwater.wire import codec, framing
from headwater.wire.codec import WireError
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.control import ControlledShutdownRequest
from headwater.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from headwater.wire.messages.headers import RequestHeader as HeaderStruct
from headwater.wire.messages.headers import ResponseHeader
from headwater.wire.messages.internal import OffsetCommitKey
from headwater.wire.messages.produce import ProduceRequest

HEARTBEAT = 12


@pytest.mark.parametrize("client_id", ["rdkafka", "", None, "größe"])
@pytest.mark.parametrize("version", [0, 4])
def test_a_request_reads_back(version, client_id):
    body = HeartbeatRequest(group_id="g")
    frame = framing.request_frame(HEARTBEAT, version, 77, client_id, body)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    header = framing.read_request_header(memoryview(frame), 4, len(frame))
    assert header[:4] == (HEARTBEAT, version, 77, client_id)
    assert codec.decode(HeartbeatRequest, version, frame, header.body) == (body, len(frame))


def test_the_header_is_the_one_that_its_struct_declares():
    struct_form = HeaderStruct(
        request_api_key=18, request_api_version=3, correlation_id=9, client_id="c"
    )
    data = codec.encode_bytes(struct_form, 2)
    header = framing.read_request_header(data, 0, len(data))
    assert header == (18, 3, 9, "c", len(data))


def test_tags_of_a_request_header_are_passed_over():
    data = b"\x00\x0c\x00\x04\x00\x00\x00\x09\xff\xff" + b"\x01\x00\x02ab"
    assert framing.read_request_header(data, 0, len(data)).body == len(data)


def test_controlled_shutdown_0_has_no_client_id():
    data = b"\x00\x07\x00\x00\x00\x00\x00\x09" + b"\x00\x00\x00\x01"
    header = framing.read_request_header(data, 0, len(data))
    assert header == (7, 0, 9, None, 8)
    message, _ = codec.decode(ControlledShutdownRequest, 0, data, header.body)
    assert message.broker_id == 1
    assert framing.request_frame(7, 0, 9, "ignored", message)[4:] == data


def test_a_header_is_readable_for_a_version_of_api_versions_from_the_future():
    data = b"\x00\x12\x00\x63\x00\x00\x00\x09\x00\x01c\x00whatever"
    assert framing.read_request_header(data, 0, len(data)).version == 99


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x0c\x00\x04\x00\x00\x00\x09\x00",  # no client id
        b"\x00\x0c\x00\x04\x00\x00\x00\x09\x00\x05abc",  # a cut client id
        b"\x00\x0c\x00\x04\x00\x00\x00\x09\x00\x01c",  # no tags
        b"\x00\x0c\x00\x04\x00\x00\x00\x09\x00\x01\xff\x00",  # no text
        b"\x03\xe7\x00\x04\x00\x00\x00\x09\x00\x01c\x00",  # key 999
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS hello
    ],
)
def test_a_header_that_is_none_is_refused(data):
    with pytest.raises(WireError):
        framing.read_request_header(data, 0, len(data))


def test_a_header_ends_where_its_frame_ends():
    data = b"\x00\x0c\x00\x04\x00\x00\x00\x09\x00\x01c\x00"
    for end in range(len(data)):
        with pytest.raises(WireError):
            framing.read_request_header(data, 0, end)


@pytest.mark.parametrize(("version", "tags"), [(3, b""), (4, b"\x00")])
def test_a_response_has_the_header_of_its_version(version, tags):
    message = HeartbeatResponse(error_code=27)
    body = codec.encode_bytes(message, version)
    expected = struct.pack(">ii", 4 + len(tags) + len(body), 77) + tags + body
    assert b"".join(framing.response(77, version, message)) == expected
    parts = framing.response_frame(77, HEARTBEAT, version, codec.encode(message, version))
    assert b"".join(parts) == expected
    assert framing.read_response_header(expected[4:], HEARTBEAT, version) == (77, 4 + len(tags))


def test_the_answer_to_api_versions_never_has_tags_in_its_header():
    frame = b"".join(framing.response(5, 3, ApiVersionsResponse()))
    assert codec.decode(ResponseHeader, 0, frame, 4)[0].correlation_id == 5
    body = codec.decode(ApiVersionsResponse, 3, frame, 8)
    assert body == (ApiVersionsResponse(), len(frame))


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x05", b"\x00\x00\x00\x05\x09"]
)
def test_a_response_header_that_is_none_is_refused(data):
    with pytest.raises(WireError):
        framing.read_response_header(data, HEARTBEAT, 4)


def test_a_request_passes_its_records_through():
    records = bytearray(b"batch")
    partition = ProduceRequest.PartitionProduceData(records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    parts = framing.request(9, 1, None, ProduceRequest(topic_data=[topic]))
    assert parts[1] is records
    assert struct.unpack_from(">i", parts[0]) == (sum(map(len, parts)) - 4,)


def test_a_message_of_another_api_is_refused():
    with pytest.raises(WireError, match="not a request of API 12"):
        framing.request_frame(HEARTBEAT, 0, 1, None, ApiVersionsRequest())
    with pytest.raises(WireError, match="does not belong to an API"):
        framing.response(1, 0, OffsetCommitKey())
