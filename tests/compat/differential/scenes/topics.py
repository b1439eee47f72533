"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37)."""

from headwater.wire.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.compat.differential.scene import Scene, newest, scene, versions

_Topic = CreateTopicsRequest.CreatableTopic
_Config = CreateTopicsRequest.CreatableTopicConfig
_Replicas = CreateTopicsRequest.CreatableReplicaAssignment
CREATE, DELETE = newest(CreateTopicsRequest), newest(DeleteTopicsRequest)


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> _Topic:
    """A topic to create; config keys are written with underscores."""
    return _Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            _Replicas(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
        configs=[
            _Config(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def create(*topics: _Topic, dry: bool = False) -> CreateTopicsRequest:
    """A CreateTopics request."""
    return CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=dry)


@scene
def create_topics(s: Scene) -> None:
    for version in range(2, CREATE + 1):
        s.ask("good", create(topic(f"new-{version}", 2)), version)
        s.ask("again", create(topic(f"new-{version}", 2)), version)
        s.ask("only tried", create(topic(f"dry-{version}", 3), dry=True), version)
        s.ask("existing, only tried", create(topic(f"new-{version}"), dry=True), version)
        s.ask("broker's defaults", create(topic(f"default-{version}", -1, -1)), version)
        s.ask("none", create(), version)
    s.ask("several", create(topic("many-1"), topic("new-7"), topic("many-2", 0), topic("many-3")))
    s.ask("one twice", create(topic("double"), topic("double"), topic("single")))
    s.ask("one twice of which one is bad", create(topic("double", 0), topic("double")))
    manual = topic("by-hand", -1, -1, {0: [1], 1: [1]})
    s.ask("placed by hand", create(manual))
    s.ask("placed by hand, only tried", create(topic("dry", -1, -1, {0: [1]}), dry=True))


@scene
def create_topics_refused(s: Scene) -> None:
    s.topic("taken.name")
    cases = {
        "no name": topic(""),
        "dot": topic("."),
        "two dots": topic(".."),
        "slash": topic("a/b"),
        "space": topic("a b"),
        "umlaut": topic("ä"),
        "too long": topic("x" * 250),
        "as long as can be": topic("x" * 249),
        "collides": topic("taken_name"),
        "collides the other way": topic("taken.name"),
        "no partitions": topic("p0", 0),
        "-1 partitions": topic("p-default", -1),
        "-2 partitions": topic("p2", -2),
        "no replicas": topic("r0", 1, 0),
        "-1 replicas": topic("r-default", 1, -1),
        "-2 replicas": topic("r2", 1, -2),
        "more replicas than brokers": topic("r3", 1, 3),
        "neither partitions nor replicas": topic("pr", 0, 0),
        "counts and assignments": topic("both", 1, 1, {0: [1]}),
        "partitions and assignments": topic("both", 1, -1, {0: [1]}),
        "replicas and assignments": topic("both", -1, 1, {0: [1]}),
        "unknown broker": topic("placed", -1, -1, {0: [9]}),
        "broker twice": topic("placed", -1, -1, {0: [1, 1]}),
        "no brokers": topic("placed", -1, -1, {0: []}),
        "gap in the partitions": topic("placed", -1, -1, {0: [1], 2: [1]}),
        "not from 0": topic("placed", -1, -1, {1: [1]}),
        "negative partition": topic("placed", -1, -1, {-1: [1]}),
        "negative broker": topic("placed", -1, -1, {0: [-1]}),
        "unequal replicas": topic("placed", -1, -1, {0: [1], 1: [1, 9]}),
        "unknown config": topic("conf", retention_msx="1"),
        "config that is not a number": topic("conf", retention_ms="soon"),
        "config out of bounds": topic("conf", max_message_bytes="-1"),
        "config of another choice": topic("conf", cleanup_policy="burn"),
        "config null": topic("conf", retention_ms=None),
        "config null and unknown": topic("conf", nonsense=None),
        "config empty": topic("conf", retention_ms=""),
        "bad name and bad partitions": topic("a/b", 0),
        "bad config and bad partitions": topic("conf", 0, nonsense="1"),
        "existing and bad config": topic("taken.name", nonsense="1"),
        "existing and bad partitions": topic("taken.name", 0),
        "internal": topic("__share_group_state_x"),
    }
    made = {"as long as can be", "internal", "-1 partitions", "-1 replicas"}
    for label, wanted in cases.items():
        for version in versions(CreateTopicsRequest):
            if version == CREATE or label not in made:
                s.ask(label, create(wanted), version)
    twice = topic("conf-twice")
    twice.configs = [_Config(name="retention.ms", value=it) for it in ("1000", "2000")]
    s.ask("config twice", create(twice))
    placed_twice = topic("placed-twice", -1, -1, {0: [1]})
    placed_twice.assignments *= 2
    s.ask("partition placed twice", create(placed_twice))


@scene
def create_topics_with_configs(s: Scene) -> None:
    wanted = topic(
        "configured",
        retention_ms="1000",
        cleanup_policy="compact,delete",
        compression_type="zstd",
        min_insync_replicas="1",
        segment_bytes="2000000",
        message_timestamp_type="LogAppendTime",
    )
    for version in (5, CREATE):
        wanted.name = f"configured-{version}"
        s.ask("configs come back", create(wanted), version)
    s.ask("only tried", create(topic("tried", retention_ms="5"), dry=True))
    for key, value in {
        "retention_ms": " 1000 ",
        "cleanup_policy": "delete, compact",
        "unclean_leader_election_enable": "TRUE",
        "min_cleanable_dirty_ratio": "0.50",
        "preallocate": "yes",
        "segment_bytes": "1e6",
        "flush_messages": "0",
        "retention_bytes": "-1",
        "retention_ms ": "5",
        "compression_type": "GZIP",
        "leader_replication_throttled_replicas": "*",
        "follower_replication_throttled_replicas": "0:1,1:1",
    }.items():
        s.ask(f"{key}={value!r}", create(topic("spelled", **{key: value}), dry=True))


@scene
def delete_topics(s: Scene) -> None:
    for version in range(1, 6):
        s.topic(f"doomed-{version}")
        names = [f"doomed-{version}", "absent", "a/b", ""]
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=10_000)
        s.ask("by name", request, version)
        s.ask("again", request, version)
        s.ask("none", DeleteTopicsRequest(timeout_ms=1000), version)
    state = DeleteTopicsRequest.DeleteTopicState
    name, by_id = s.topic("by-name"), s.topic("by-id")
    zero, unknown = bytes(16), b"\x09" * 16
    for label, rows in {
        "by id": [state(topic_id=by_id)],
        "by name": [state(name="by-name")],
        "by both": [state(name="by-name", topic_id=name)],
        "by neither": [state()],
        "unknown id": [state(topic_id=unknown)],
        "unknown name": [state(name="absent")],
        "name and zero": [state(name="absent", topic_id=zero)],
        "bad name": [state(name="a/b")],
        "unknown id and unknown name": [state(topic_id=unknown), state(name="absent")],
        "name twice": [state(name="absent"), state(name="absent")],
        "id twice": [state(topic_id=unknown), state(topic_id=unknown)],
    }.items():
        s.ask(label, DeleteTopicsRequest(topics=rows, timeout_ms=10_000))
    both = s.topic("both-ways")
    rows = [state(name="both-ways"), state(topic_id=both)]
    s.ask("one by name and id", DeleteTopicsRequest(topics=rows, timeout_ms=10_000))


@scene
def create_partitions(s: Scene) -> None:
    s.topic("grown", 2)
    more = CreatePartitionsRequest.CreatePartitionsTopic
    place = CreatePartitionsRequest.CreatePartitionsAssignment

    def grow(
        label: str, *rows: CreatePartitionsRequest.CreatePartitionsTopic, dry: bool = False
    ) -> None:
        for version in versions(CreatePartitionsRequest):
            request = CreatePartitionsRequest(
                topics=list(rows), timeout_ms=10_000, validate_only=dry
            )
            s.ask(label, request, version)

    def to(count: int, *brokers: list[int], name: str = "grown"):
        return more(name=name, count=count, assignments=[place(broker_ids=it) for it in brokers])

    grow("fewer", more(name="grown", count=1, assignments=None))
    grow("as many", more(name="grown", count=2, assignments=None))
    grow("none", more(name="grown", count=0, assignments=None))
    grow("negative", more(name="grown", count=-1, assignments=None))
    grow("only tried", more(name="grown", count=4, assignments=None), dry=True)
    grow("unknown topic", more(name="absent", count=4, assignments=None))
    grow("bad name", more(name="a/b", count=4, assignments=None))
    grow("no name", more(name="", count=4, assignments=None))
    grow("no assignments", more(name="grown", count=4, assignments=[]))
    grow("too few assignments", to(5, [1]))
    grow("too many assignments", to(3, [1], [1]))
    grow("unknown broker", to(3, [9]))
    grow("broker twice", to(3, [1, 1]))
    grow("no broker", to(3, []))
    grow("one twice", more(name="grown", count=9, assignments=None), to(9))
    grow("nothing")
    s.ask(
        "good",
        CreatePartitionsRequest(
            topics=[more(name="grown", count=3, assignments=None), to(5, name="absent")],
            timeout_ms=10_000,
        ),
    )
    s.ask("placed", CreatePartitionsRequest(topics=[to(4, [1])], timeout_ms=10_000))
