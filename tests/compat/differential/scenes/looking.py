"""Metadata (3), ApiVersions (18), DescribeLogDirs (35), DescribeCluster (60), DescribeTopicPartitions (75)."""

from headwater.wire.messages.cluster import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
)
from headwater.wire.messages.metadata import DescribeTopicPartitionsRequest, MetadataRequest
from tests.compat.differential.coordinator import coordinator
from tests.compat.differential.scene import Scene, newest, scene, versions
from tests.compat.differential.scenes.fetching import fill

_Topic = MetadataRequest.MetadataRequestTopic


@scene
def metadata(s: Scene) -> None:
    coordinator(s)
    topic_id = s.topic("seen", 2)
    for version in range(newest(MetadataRequest) + 1):
        for label, names in {
            "one": ["seen"],
            "unknown": ["absent"],
            "bad": ["a/b"],
            "empty name": [""],
            "too long": ["x" * 250],
            "internal": ["__consumer_offsets"],
            "several": ["seen", "absent", "a b"],
            "one twice": ["seen", "seen"],
        }.items():
            s.ask(label, MetadataRequest(topics=[_Topic(name=it) for it in names]), version)
        if version:
            s.ask("none", MetadataRequest(topics=[]), version)
    for version in (10, 11, 12, newest(MetadataRequest)):
        for label, row in {
            "by id": _Topic(name=None, topic_id=topic_id),
            "by unknown id": _Topic(name=None, topic_id=b"\x07" * 16),
            "by neither": _Topic(name=None),
            "by both": _Topic(name="seen", topic_id=topic_id),
            "by both, not matching": _Topic(name="seen", topic_id=b"\x07" * 16),
        }.items():
            s.ask(label, MetadataRequest(topics=[row]), version)
    rows = [_Topic(name="seen"), _Topic(name=None, topic_id=topic_id)]
    s.ask("by name and by id", MetadataRequest(topics=rows))
    for version in (8, 10):
        request = MetadataRequest(
            topics=[_Topic(name="seen"), _Topic(name="absent")],
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        s.ask("operations", request, version)
    request = MetadataRequest(
        topics=[_Topic(name="seen")], include_topic_authorized_operations=True
    )
    s.ask("operations of a topic", request)
    request = MetadataRequest(topics=[_Topic(name="absent")], allow_auto_topic_creation=False)
    s.ask("no creation", request)


@scene
def metadata_of_everything(s: Scene) -> None:
    coordinator(s)
    s.topic("among-all")
    for version in versions(MetadataRequest):
        with s.line() as line:
            line.send(MetadataRequest(topics=None if version else []), version)
            answer = line.receive()
        assert not isinstance(answer, str)
        names = {it.name for it in answer.topics}
        s.note(f"has mine (v{version})", sorted(names & {"among-all", "__consumer_offsets"}))


@scene
def api_versions(s: Scene) -> None:
    for version in range(newest(ApiVersionsRequest) + 1):
        for name, number in (
            ("headwater", "1.0"), ("", "1"), ("x", ""), ("-x", "1"), ("x-", "1"), ("a b", "1"),
            ("x", "1.0-SNAPSHOT"), ("x", "1_0"), ("ä", "1"), ("x.y-z", "v1"),
        ):  # fmt: skip
            request = ApiVersionsRequest(client_software_name=name, client_software_version=number)
            answer = s.peer.call(request, version)
            s.note(f"{name!r} {number!r} (v{version})", answer.error_code)
            s.note(f"{name!r} {number!r} tells something (v{version})", bool(answer.api_keys))
            answer_keys = {it.api_key: (it.min_version, it.max_version) for it in answer.api_keys}
            s.note(f"served (v{version})", {key: answer_keys.get(key) for key in sorted(SERVED)})
    answer = s.peer.call(
        ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3
    )
    s.note("ready for migration", answer.zk_migration_ready)


SERVED = {*range(4), *range(8, 17), *range(18, 24), 32, 33, 35, 37, 42, 44, 47, 60, 61, 74, 75}


@scene
def describe_cluster(s: Scene) -> None:
    for version in versions(DescribeClusterRequest):
        for operations in (False, True):
            request = DescribeClusterRequest(include_cluster_authorized_operations=operations)
            s.ask(f"operations {operations}", request, version)
    for kind in (0, 1, 2, 3):
        for version in (1, 2):
            s.ask(f"endpoints of type {kind}", DescribeClusterRequest(endpoint_type=kind), version)
    s.ask("fenced too", DescribeClusterRequest(include_fenced_brokers=True))


@scene
def describe_log_dirs(s: Scene) -> None:
    s.topic("on-disk", 2)
    fill(s, "on-disk")
    row = DescribeLogDirsRequest.DescribableLogDirTopic
    for version in range(1, newest(DescribeLogDirsRequest) + 1):
        for label, rows in {
            "one": [row(topic="on-disk", partitions=[0])],
            "two": [row(topic="on-disk", partitions=[1, 0])],
            "unknown partition": [row(topic="on-disk", partitions=[9])],
            "unknown topic": [row(topic="absent", partitions=[0])],
            "bad name": [row(topic="a/b", partitions=[0])],
            "no partitions": [row(topic="on-disk")],
            "none": [],
        }.items():
            s.ask(label, DescribeLogDirsRequest(topics=rows), version)
        found = s.peer.call(DescribeLogDirsRequest(topics=None), version).results
        mine = [it for folder in found for it in folder.topics if it.name == "on-disk"]
        s.note(f"all (v{version})", mine)


@scene
def describe_topic_partitions(s: Scene) -> None:
    s.topic("paged-a", 3)
    s.topic("paged-b", 2)
    s.topic("paged-c", 1)
    wanted = DescribeTopicPartitionsRequest.TopicRequest
    cursor = DescribeTopicPartitionsRequest.Cursor

    def page(label: str, names: list[str], limit: int = 2000, at: tuple[str, int] | None = None):
        request = DescribeTopicPartitionsRequest(
            topics=[wanted(name=name) for name in names],
            response_partition_limit=limit,
            cursor=at and cursor(topic_name=at[0], partition_index=at[1]),
        )
        s.ask(label, request)

    names = ["paged-b", "paged-a", "paged-c"]
    page("all three", names)
    for limit in range(-1, 8):
        page(f"limit {limit}", names, limit)
    for at in (("paged-a", 1), ("paged-a", 3), ("paged-b", 0), ("paged-b", 7), ("paged-bb", 0),
               ("z", 0), ("", 0), ("paged-a", -1), ("a/b", 0)):  # fmt: skip
        page(f"from {at}", names, 2, at)
        page(f"from {at}, enough room", names, 100, at)
    page("unknown", ["absent"])
    page("unknown among others", ["absent", "paged-a", "zzz"], 2)
    page("bad name", ["a/b"])
    page("empty name", [""])
    page("one twice", ["paged-a", "paged-a"])
    page("internal", ["__consumer_offsets", "absent"][1:])
