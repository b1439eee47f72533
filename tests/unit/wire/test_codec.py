import tracemalloc
from random import Random

import pytest

from headwater.model import ZERO_UUID
from headwater.wire import codec, interpreter
from headwater.wire.codec import WireError
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.configs import AlterConfigsRequest
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.groups import HeartbeatRequest, JoinGroupResponse
from headwater.wire.messages.internal import OffsetCommitValue
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse
from headwater.wire.messages.sasl import SaslAuthenticateRequest
from headwater.wire.messages.topics import DeleteTopicsRequest
from headwater.wire.primitives import LONGEST_STRING
from tests.unit.wire.samples import VERSIONS, sample


def produce(records, version=9):
    partition = ProduceRequest.PartitionProduceData(index=2, records=records)
    named = {"name": "t"} if version < 13 else {"topic_id": b"i" * 16}
    topic = ProduceRequest.TopicProduceData(**named, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def records_of(request):
    return request.topic_data[0].partition_data[0].records


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_compiled_and_walked_bytes_agree_and_read_back(kind, version):
    for seed in range(3):
        message = sample(kind, version, Random(seed))
        data = codec.encode_bytes(message, version)
        assert data == interpreter.encode(message, version)
        assert codec.decode(kind, version, data) == (message, len(data))
        assert interpreter.decode(kind, version, data) == (message, len(data))
        assert b"".join(finish(codec.encode_in_steps(message, version))) == data
        steps = codec.decode_in_steps(kind, version, data, 0, len(data), len(data) + 1)
        assert finish(steps) == (message, len(data))


def finish(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def wide_request(topics, partitions):
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=f"{n}") for n in range(topics)]
    ), FetchRequest(
        topics=[
            FetchRequest.FetchTopic(
                topic="t",
                partitions=[FetchRequest.FetchPartition(partition=n) for n in range(partitions)],
            )
        ]
    )


WIDE = [(wide_request(50, 60)[0], 4), (wide_request(50, 60)[1], 11)]


@pytest.mark.parametrize(("message", "version"), WIDE)
def test_steps_pause_after_every_item(message, version):
    count = 50 if isinstance(message, MetadataRequest) else 61
    data = b"".join(codec.encode(message, version))
    assert len(list(codec.encode_in_steps(message, version))) == count
    steps = codec.decode_in_steps(type(message), version, data, 0, len(data), count)
    assert len(list(steps)) == count


@pytest.mark.parametrize(("message", "version"), WIDE)
def test_more_items_than_the_limit_are_refused_before_they_are_made(message, version):
    count = 50 if isinstance(message, MetadataRequest) else 61
    data = b"".join(codec.encode(message, version))
    steps = codec.decode_in_steps(type(message), version, data, 0, len(data), count - 1)
    with pytest.raises(WireError, match=f"more than {count - 1} array items"):
        finish(steps)


def test_items_of_an_array_may_be_made_while_it_is_encoded():
    class Lazy:
        made = 0

        def __len__(self):
            return 40

        def __iter__(self):
            for number in range(40):
                self.made += 1
                yield MetadataRequest.MetadataRequestTopic(name=f"t{number}")

    lazy = Lazy()
    steps = codec.encode_in_steps(MetadataRequest(topics=lazy), 4)
    next(steps)
    assert lazy.made == 1
    whole = MetadataRequest(topics=list(lazy))
    assert b"".join(finish(steps)) == b"".join(codec.encode(whole, 4))


def test_an_old_version_has_classic_lengths():
    request = HeartbeatRequest(group_id="g", generation_id=5, member_id="m")
    assert codec.encode_bytes(request, 0) == b"\x00\x01g\x00\x00\x00\x05\x00\x01m"


def test_a_flexible_version_has_compact_lengths_and_tags():
    request = HeartbeatRequest(group_id="g", generation_id=5, member_id="m")
    assert codec.encode_bytes(request, 4) == b"\x02g\x00\x00\x00\x05\x02m\x00\x00"


def test_tags_are_written_in_order_and_only_when_they_say_something():
    key = ApiVersionsResponse.FinalizedFeatureKey(name="f", max_version_level=2)
    response = ApiVersionsResponse(finalized_features_epoch=1, finalized_features=[key])
    tags = b"\x02" + b"\x01\x08" + bytes(7) + b"\x01" + b"\x02\x08\x02\x02f\x00\x02\x00\x00\x00"
    assert codec.encode_bytes(response, 3).endswith(tags)
    assert codec.encode_bytes(ApiVersionsResponse(), 3).endswith(b"\x00")


def test_a_value_that_the_version_cannot_carry_is_refused_by_name():
    request = HeartbeatRequest(group_instance_id="static")
    with pytest.raises(WireError, match=r"HeartbeatRequest\.group_instance_id .* v2"):
        codec.encode(request, 2)


def test_a_default_that_the_version_cannot_carry_is_left_out():
    assert codec.encode_bytes(HeartbeatRequest(), 0) == bytes(8)


def test_an_ignorable_value_is_dropped_by_a_version_without_it():
    with_name = ApiVersionsRequest(client_software_name="x")
    assert codec.encode(with_name, 0) == codec.encode(ApiVersionsRequest(), 0)


def test_null_is_refused_where_the_version_knows_none():
    response = JoinGroupResponse(protocol_name=None)
    with pytest.raises(WireError):
        codec.encode(response, 6)
    data = codec.encode_bytes(response, 7)
    assert codec.decode(JoinGroupResponse, 7, data)[0].protocol_name is None


def test_null_is_refused_when_read_where_the_version_knows_none():
    all_topics = codec.encode_bytes(MetadataRequest(topics=None), 1)
    assert codec.decode(MetadataRequest, 1, all_topics)[0].topics is None
    with pytest.raises(WireError, match="topics: null"):
        codec.decode(MetadataRequest, 0, all_topics)


def test_a_uuid_of_the_wrong_size_is_refused():
    topic = DeleteTopicsRequest.DeleteTopicState(topic_id=b"short")
    with pytest.raises(WireError, match="16 bytes"):
        codec.encode(DeleteTopicsRequest(topics=[topic]), 6)


@pytest.mark.parametrize("value", [1 << 31, "five", None, 1.5])
def test_a_value_of_another_kind_is_refused(value):
    with pytest.raises(WireError, match="HeartbeatRequest v4"):
        codec.encode(HeartbeatRequest(generation_id=value), 4)


def test_text_that_has_no_utf8_is_refused():
    with pytest.raises(WireError):
        codec.encode(HeartbeatRequest(group_id="\ud800"), 4)
    with pytest.raises(WireError):
        codec.decode(HeartbeatRequest, 0, b"\x00\x01\xff\x00\x00\x00\x05\x00\x01m")


def test_a_version_that_was_never_declared_is_refused():
    with pytest.raises(WireError, match="no version 5"):
        codec.encode(HeartbeatRequest(), 5)
    with pytest.raises(WireError, match="no version -1"):
        codec.decode(HeartbeatRequest, -1, b"")


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_read_as_views_of_what_was_received(version):
    received = bytearray(codec.encode_bytes(produce(b"batch", version), version))
    request, _ = codec.decode(ProduceRequest, version, received)
    records = records_of(request)
    assert isinstance(records, memoryview)
    assert records.obj is received
    assert records == b"batch"


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_written_without_being_copied(version):
    batch = memoryview(bytearray(b"batch"))
    assert any(part is batch for part in codec.encode(produce(batch, version), version))


@pytest.mark.parametrize("version", [3, 9])
def test_records_may_be_a_list_of_buffers(version):
    pieces = [b"one", bytearray(b"two"), memoryview(b"three")]
    parts = codec.encode(produce(pieces, version), version)
    assert all(any(part is piece for part in parts) for piece in pieces)
    assert b"".join(parts) == codec.encode_bytes(produce(b"onetwothree", version), version)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 16382, 16383, 2097150, 2097151, 3000000])
def test_every_length_of_records_is_written_as_the_twin_writes_it(size):
    message = produce(bytes(size))
    data = codec.encode_bytes(message, 9)
    assert data == interpreter.encode(message, 9)
    assert len(records_of(codec.decode(ProduceRequest, 9, data)[0])) == size


def test_absent_records_are_null():
    for version in (3, 9):
        data = codec.encode_bytes(produce(None, version), version)
        assert records_of(codec.decode(ProduceRequest, version, data)[0]) is None


def test_a_head_stands_in_front_of_the_first_part():
    parts = codec.encode(HeartbeatRequest(), 0, b"head")
    assert parts == [b"head" + bytes(8)]


def test_a_message_is_read_between_other_bytes():
    data = codec.encode_bytes(HeartbeatRequest(group_id="g"), 4)
    framed = b"before" + data + b"after"
    assert codec.decode(HeartbeatRequest, 4, framed, 6) == (
        HeartbeatRequest(group_id="g"),
        6 + len(data),
    )


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_read(kind):
    data = codec.encode_bytes(HeartbeatRequest(group_id="g"), 4)
    assert codec.decode(HeartbeatRequest, 4, kind(data))[0] == HeartbeatRequest(group_id="g")


def test_nothing_past_the_end_is_read():
    data = codec.encode_bytes(HeartbeatRequest(group_id="g", member_id="m"), 0)
    for end in range(len(data)):
        with pytest.raises(WireError):
            codec.decode(HeartbeatRequest, 0, data + bytes(99), 0, end)


@pytest.mark.parametrize("version", [4, 12])
def test_every_cut_of_a_message_is_refused(version):
    partition = FetchRequest.FetchPartition(partition=1)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[partition])
    data = codec.encode_bytes(FetchRequest(topics=[topic]), version)
    for end in range(len(data)):
        with pytest.raises(WireError):
            codec.decode(FetchRequest, version, data[:end])


def with_tags(section):
    return codec.encode_bytes(ApiVersionsRequest(client_software_name="x"), 3)[:-1] + section


def test_unknown_tags_are_passed_over():
    data = with_tags(b"\x02\x05\x01a\x80\x01\x02bc")
    message, end = codec.decode(ApiVersionsRequest, 3, data)
    assert (message.client_software_name, end) == ("x", len(data))


def test_unknown_tags_beside_known_ones_are_passed_over():
    response = codec.encode_bytes(ApiVersionsResponse(finalized_features_epoch=7), 3)
    assert response.endswith(b"\x01\x01\x08" + bytes(7) + b"\x07")
    grown = response[:-11] + b"\x02" + response[-10:] + b"\x63\x01z"
    assert codec.decode(ApiVersionsResponse, 3, grown) == (
        ApiVersionsResponse(finalized_features_epoch=7),
        len(grown),
    )


def test_a_known_tag_that_lies_about_its_size_is_refused():
    response = codec.encode_bytes(ApiVersionsResponse(finalized_features_epoch=7), 3)
    with pytest.raises(WireError, match="size"):
        codec.decode(ApiVersionsResponse, 3, response[:-9] + b"\x09" + response[-8:] + b"\x00")


@pytest.mark.parametrize(
    "section",
    [
        b"\xff\xff\xff\xff\x07",  # more tags than bytes
        b"\x80\xda\xc4\x09\x00\x00",  # 20 million of them
        b"\x01\x05\xff\xff\xff\xff\x07",  # a tag larger than what is left
        b"\xff\xff\xff\xff\xff\x01",  # a varint without end
        b"\x01\x05",  # cut in a tag
    ],
)
def test_a_tag_section_that_cannot_be_is_refused(section):
    with pytest.raises(WireError):
        codec.decode(ApiVersionsRequest, 3, with_tags(section))
    with pytest.raises(WireError):
        interpreter.decode(ApiVersionsRequest, 3, with_tags(section))


def test_unknown_tags_are_passed_over_up_to_a_limit():
    sixty_four = with_tags(b"\x40" + b"\x05\x00" * 64)
    assert codec.decode(ApiVersionsRequest, 3, sixty_four)[1] == len(sixty_four)
    millions = with_tags(b"\x80\x80\x10" + b"\x05\x00" * (1 << 18))
    with pytest.raises(WireError):
        codec.decode(ApiVersionsRequest, 3, millions)


@pytest.mark.parametrize(
    ("kind", "version", "data"),
    [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x07"),
        (MetadataResponse, 1, b"\x00\x00\x00\x01" + b"\x7f" * 40),
        (FetchRequest, 4, bytes(17) + b"\x7f\xff\xff\xff"),
        (
            ProduceRequest,
            3,
            b"\xff\xff\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff",
        ),
        (DeleteTopicsRequest, 1, b"\x00\x00\x00\x09" + b"\x00\x00" * 8),
    ],
)
def test_a_count_that_the_bytes_cannot_hold_makes_nothing(kind, version, data):
    codec.decoder(kind, version)
    tracemalloc.start()
    with pytest.raises(WireError):
        codec.decode(kind, version, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(
    ("make", "version"),
    [
        (lambda text: DeleteTopicsRequest(topic_names=[text]), 4),
        (lambda text: HeartbeatRequest(group_instance_id=text), 4),
        (lambda text: HeartbeatRequest(group_id=text), 4),
    ],
    ids=["an item", "nullable", "a field"],
)
def test_a_compact_string_of_a_request_is_as_long_as_a_classic_one(make, version):
    """Kafka refuses longer ones, whose work would hold the loop."""
    longest, longer = make("x" * LONGEST_STRING), make("x" * (LONGEST_STRING + 1))
    kind = type(longest)
    data = codec.encode_bytes(longest, version)
    assert codec.decode(kind, version, data)[0] == longest
    assert interpreter.decode(kind, version, data)[0] == longest
    data = codec.encode_bytes(longer, version)
    for decode in (codec.decode, interpreter.decode):
        with pytest.raises(WireError, match="a string of 32768 bytes"):
            decode(kind, version, data)


def test_values_of_configs_may_be_longer_and_are_answered_as_they_are():
    config = AlterConfigsRequest.AlterableConfig(name="x", value="x" * (LONGEST_STRING + 1))
    resource = AlterConfigsRequest.AlterConfigsResource(configs=[config])
    messages = (
        (AlterConfigsRequest(resources=[resource]), 2),
        (MetadataResponse(cluster_id="x" * (LONGEST_STRING + 1)), 9),
    )
    for message, version in messages:
        data = codec.encode_bytes(message, version)
        for decode in (codec.decode, interpreter.decode):
            assert decode(type(message), version, data)[0] == message


def test_bytes_and_records_may_be_longer_than_strings():
    data = codec.encode_bytes(produce(bytes(LONGEST_STRING + 1)), 9)
    assert len(records_of(codec.decode(ProduceRequest, 9, data)[0])) == LONGEST_STRING + 1
    token = SaslAuthenticateRequest(auth_bytes=bytes(LONGEST_STRING + 1))
    data = codec.encode_bytes(token, 2)
    assert codec.decode(SaslAuthenticateRequest, 2, data)[0] == token


def test_a_length_below_null_counts_as_null():
    data = b"\x80\x00" + bytes(10)
    assert codec.decode(ProduceRequest, 3, data)[0].transactional_id is None


def test_any_byte_but_zero_is_true():
    data = bytearray(codec.encode_bytes(MetadataRequest(allow_auto_topic_creation=True), 4))
    data[-1] = 2
    assert codec.decode(MetadataRequest, 4, data)[0].allow_auto_topic_creation is True


def test_a_tagged_uuid_is_left_out_when_it_is_zero():
    assert OffsetCommitValue().topic_id == ZERO_UUID
    assert codec.encode_bytes(OffsetCommitValue(), 4)[-1:] == b"\x00"


def test_a_hint_about_the_leader_goes_into_a_tag():
    leader = ProduceResponse.LeaderIdAndEpoch(leader_id=2, leader_epoch=3)
    partition = ProduceResponse.PartitionProduceResponse(current_leader=leader)
    topic = ProduceResponse.TopicProduceResponse(partition_responses=[partition])
    data = codec.encode_bytes(ProduceResponse(responses=[topic]), 10)
    assert b"\x01\x00\x09\x00\x00\x00\x02\x00\x00\x00\x03\x00" in data
    with pytest.raises(WireError, match="current_leader"):
        codec.encode(ProduceResponse(responses=[topic]), 9)


def test_a_fetch_response_alternates_between_headers_and_records():
    partitions = [
        FetchResponse.PartitionData(partition_index=0, records=b"first"),
        FetchResponse.PartitionData(partition_index=1, records=b""),
        FetchResponse.PartitionData(partition_index=2, records=b"second"),
    ]
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)
    parts = codec.encode(FetchResponse(responses=[topic]), 12)
    assert [bytes(part) for part in parts[1::2]] == [b"first", b"second"]
