"""What a broker learns about the cluster, and how it applies it."""

from headwater.broker.metadata_cache import MetadataCache
from headwater.model import CONSUMER_OFFSETS, LEADER_DURING_DELETE, TopicPartition
from headwater.wire.messages.control import UpdateMetadataRequest

Topic = UpdateMetadataRequest.UpdateMetadataTopicState
Partition = UpdateMetadataRequest.UpdateMetadataPartitionState
OLD, NEW = b"\1" * 16, b"\2" * 16


def update(name="t", topic_id=OLD, leaders=(1,), first=0, brokers=(), count=0):
    partitions = [
        Partition(partition_index=first + rank, leader=leader, leader_epoch=3, isr=[1],
                  replicas=[1, 2], offline_replicas=[2], zk_version=9)
        for rank, leader in enumerate(leaders)
    ]  # fmt: skip
    topic = Topic(
        topic_name=name, topic_id=topic_id, partition_states=partitions, partition_count=count
    )
    return UpdateMetadataRequest(controller_id=5, topic_states=[topic], live_brokers=list(brokers))


def broker(number, **endpoints):
    ends = [
        UpdateMetadataRequest.UpdateMetadataEndpoint(listener=name, host=host, port=port)
        for name, (host, port) in endpoints.items()
    ]
    return UpdateMetadataRequest.UpdateMetadataBroker(id=number, endpoints=ends, rack="r")


def test_a_topic_is_known_by_name_and_by_id():
    cache = MetadataCache("cluster")
    cache.apply(update(leaders=(1, 2)))
    assert cache.controller_id == 5
    assert cache.topic_id("t") == OLD
    assert cache.name_of == {OLD: "t"}
    assert cache.partition_count("t") == 2
    info = cache.partition("t", 1)
    assert (info.leader, info.leader_epoch, info.isr, info.replicas) == (2, 3, (1,), (1, 2))
    assert (info.offline, info.partition_epoch) == ((2,), 9)


def test_what_is_not_there():
    cache = MetadataCache("cluster")
    assert cache.partition("t", 0) is None
    assert cache.topic_id("t") is None
    assert cache.partition_count("t") == 0
    assert cache.endpoint(1, "PLAINTEXT") is None


def test_partitions_are_added_and_changed_one_by_one():
    cache = MetadataCache("cluster")
    cache.apply(update(leaders=(1,)))
    cache.apply(update(leaders=(7,), first=1))
    assert [cache.partition("t", index).leader for index in (0, 1)] == [1, 7]


def test_a_new_topic_is_not_known_before_all_of_its_partitions_are():
    """A key hashed over some of them would belong to another partition a moment later."""
    cache = MetadataCache("cluster")
    cache.apply(update(leaders=(1, 1), count=3))
    assert (cache.topics, cache.name_of, cache.partition_count("t")) == ({}, {}, 0)
    cache.apply(update(leaders=(1,), first=2, count=3))
    assert (list(cache.topics), cache.name_of, cache.partition_count("t")) == (["t"], {OLD: "t"}, 3)


def test_a_topic_that_grows_stays_known():
    cache = MetadataCache("cluster")
    cache.apply(update(leaders=(1,), count=1))
    cache.apply(update(leaders=(1,), first=1, count=3))
    assert cache.partition_count("t") == 2


def test_a_topic_that_is_deleted_before_it_is_whole_leaves_nothing():
    cache = MetadataCache("cluster")
    cache.apply(update(leaders=(1, 1), count=3))
    cache.apply(update(leaders=(LEADER_DURING_DELETE,), count=3))
    cache.apply(update(leaders=(LEADER_DURING_DELETE,), first=1, count=3))
    cache.apply(update(topic_id=NEW, leaders=(1,), count=1))
    assert cache.name_of == {NEW: "t"}


def test_an_incomplete_topic_that_a_new_controller_does_not_name_is_forgotten():
    cache = MetadataCache("cluster")
    cache.apply(of(update(leaders=(1,), count=2), 1))
    cache.apply(of(UpdateMetadataRequest(), 2))
    cache.end_series(2, 3)
    cache.apply(of(update(leaders=(1,), first=1, count=2), 2))
    assert cache.topics == {}


def test_a_deleted_topic_is_gone_with_its_id():
    cache = MetadataCache("cluster")
    cache.apply(update(leaders=(1, 1)))
    removed = cache.apply(update(leaders=(LEADER_DURING_DELETE, LEADER_DURING_DELETE)))
    assert removed == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert cache.topics == {}
    assert cache.name_of == {}


def test_the_deletion_of_an_older_topic_does_not_touch_a_newer_one():
    cache = MetadataCache("cluster")
    cache.apply(update(topic_id=NEW))
    assert cache.apply(update(topic_id=OLD, leaders=(LEADER_DURING_DELETE,))) == []
    assert cache.topic_id("t") == NEW


def test_a_remade_topic_replaces_the_old_one_whole():
    cache = MetadataCache("cluster")
    cache.apply(update(leaders=(1, 1, 1)))
    cache.apply(update(topic_id=NEW, leaders=(1,)))
    assert cache.partition_count("t") == 1
    assert cache.name_of == {NEW: "t"}


def test_brokers_are_known_by_listener_and_stay_when_an_update_names_none():
    cache = MetadataCache("cluster")
    cache.apply(update(brokers=[broker(1, IN=("a", 1), OUT=("b", 2))]))
    cache.apply(update())
    assert cache.endpoint(1, "IN") == ("a", 1)
    assert cache.endpoint(1, "OUT") == ("b", 2)
    assert cache.endpoint(1, "OTHER") is None
    cache.apply(update(brokers=[broker(2, IN=("c", 3))]))
    assert cache.endpoint(1, "IN") is None


def test_internal_topics_are_marked():
    cache = MetadataCache("cluster")
    cache.apply(update(CONSUMER_OFFSETS))
    cache.apply(update("t", NEW))
    assert cache.topics[CONSUMER_OFFSETS].internal
    assert not cache.topics["t"].internal


def of(request, controller_epoch, broker_epoch=3):
    request.controller_epoch, request.broker_epoch = controller_epoch, broker_epoch
    return request


def test_a_topic_that_a_new_controller_does_not_name_is_forgotten_in_the_end():
    cache = MetadataCache("cluster")
    cache.apply(of(update("kept"), 1))
    cache.apply(of(update("deleted", NEW), 1))
    assert cache.end_series(1, 3) == []
    cache.apply(of(UpdateMetadataRequest(), 2))
    assert cache.end_series(1, 3) == [], "the end of another controller's series"
    assert set(cache.topics) == {"kept", "deleted"}, "known until the new controller is done"
    cache.apply(of(update("kept"), 2))
    cache.apply(of(update("new", b"3" * 16), 2))
    assert cache.end_series(2, 3) == ["deleted"]
    assert set(cache.topics) == {"kept", "new"}
    assert NEW not in cache.name_of
    cache.apply(of(UpdateMetadataRequest(), 2, broker_epoch=8))
    assert sorted(cache.end_series(2, 8)) == ["kept", "new"], "another life of this broker"
