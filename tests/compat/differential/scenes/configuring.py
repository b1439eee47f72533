"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74)."""

from headwater.config.broker import BrokerSettings
from headwater.wire.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from tests.compat.differential.scene import Scene, newest, scene, versions

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
_Resource = DescribeConfigsRequest.DescribeConfigsResource
DESCRIBE = newest(DescribeConfigsRequest)


def describe(kind: int, name: str, *keys: str, **more: bool) -> DescribeConfigsRequest:
    """One resource; no keys means all."""
    row = _Resource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    return DescribeConfigsRequest(resources=[row], **more)


def alter(kind: int, name: str, dry: bool = False, **configs: str | None) -> AlterConfigsRequest:
    """All configs of a resource; keys are written with underscores."""
    rows = [
        AlterConfigsRequest.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=rows
    )
    return AlterConfigsRequest(resources=[resource], validate_only=dry)


def change(
    kind: int, name: str, *changes: tuple[str, int, str | None], dry: bool = False
) -> IncrementalAlterConfigsRequest:
    """Changes as (key, operation, value)."""
    rows = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=how, value=value)
        for key, how, value in changes
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=rows
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)


@scene
def describe_topic_configs(s: Scene) -> None:
    s.topic("plain-configs", configs={"retention.ms": "7000", "cleanup.policy": "compact"})
    s.ask("all", describe(TOPIC, "plain-configs"))
    s.ask("all, old", describe(TOPIC, "plain-configs"), 1)
    every = {"include_synonyms": True, "include_documentation": True}
    s.ask("with synonyms and documentation", describe(TOPIC, "plain-configs", **every))
    keys = ("retention.ms", "cleanup.policy", "nonsense", "retention.ms")
    for number, ratio in enumerate(("0.50", "0.001", "0.0001", "1.25e-7", "0", "1")):
        s.topic(f"ratio-{number}", configs={"min.cleanable.dirty.ratio": ratio})
        s.ask(f"ratio {ratio}", describe(TOPIC, f"ratio-{number}", "min.cleanable.dirty.ratio"))
    for version in versions(DescribeConfigsRequest):
        s.ask("some", describe(TOPIC, "plain-configs", *keys, **_fits(version, every)), version)
        s.ask("unknown topic", describe(TOPIC, "absent"), version)
        s.ask("bad name", describe(TOPIC, "a/b"), version)
        s.ask("no name", describe(TOPIC, ""), version)
        empty = describe(TOPIC, "plain-configs")
        empty.resources[0].configuration_keys = []
        s.ask("no keys", empty, version)
        s.ask("nothing", DescribeConfigsRequest(), version)


def _fits(version: int, options: dict[str, bool]) -> dict[str, bool]:
    return options if version >= 3 else {"include_synonyms": True}


@scene
def describe_broker_configs(s: Scene) -> None:
    every = {"include_synonyms": True, "include_documentation": True}
    keys = (
        "log.retention.ms", "log.retention.hours", "num.io.threads", "log.cleaner.threads",
        "message.max.bytes", "min.insync.replicas", "node.id", "compression.type", "nonsense", "group.initial.rebalance.delay.ms",
        "auto.create.topics.enable", "offsets.topic.num.partitions", "log.segment.bytes",
    )  # fmt: skip
    for name in ("1", ""):
        for key in keys:
            s.ask(f"{key} of {name!r}", describe(BROKER, name, key, **every))
        s.ask(f"in an old version, of {name!r}", describe(BROKER, name, "node.id"), 1)
    s.ask("default has none", describe(BROKER, ""))
    for name in ("2", "-1", "one"):
        s.ask(f"broker {name}", describe(BROKER, name, "node.id"))
    for kind in (0, 1, 3, 99, LOGGER, METRICS, GROUP):
        for name in ("", "1", "x"):
            s.ask(f"type {kind} named {name!r}", describe(kind, name, "node.id"))


@scene
def every_broker_config(s: Scene) -> None:
    """Types, defaults and what may change, of each key that Headwater has."""
    names = sorted(set(BrokerSettings.KEYS) - _OF_ONE_MACHINE)
    rows = s.peer.call(describe(BROKER, "1", *names, include_synonyms=True), DESCRIBE)
    told = {
        row.name: {
            "type": row.config_type,
            "read_only": row.read_only,
            "is_sensitive": row.is_sensitive,
            "value": row.value,
        }
        for row in rows.results[0].configs
    }
    s.note("keys", told)


_OF_ONE_MACHINE = {"listeners", "advertised.listeners", "log.dirs", "log.dir"}


@scene
def alter_topic_configs(s: Scene) -> None:
    s.topic("altered")
    for version in versions(AlterConfigsRequest):
        s.ask(
            "set", alter(TOPIC, "altered", retention_ms="1000", cleanup_policy="compact"), version
        )
        _show(s, "altered")
        s.ask("replaced", alter(TOPIC, "altered", segment_ms="60000"), version)
        _show(s, "altered")
        s.ask("only tried", alter(TOPIC, "altered", dry=True, retention_ms="5"), version)
        s.ask("unknown key", alter(TOPIC, "altered", nonsense="1"), version)
        s.ask("bad value", alter(TOPIC, "altered", retention_ms="x"), version)
        s.ask("null value", alter(TOPIC, "altered", retention_ms=None), version)
        s.ask("unknown topic", alter(TOPIC, "absent", retention_ms="1"), version)
        s.ask("bad name", alter(TOPIC, "a/b", retention_ms="1"), version)
        s.ask("no name", alter(TOPIC, "", retention_ms="1"), version)
        s.ask("nothing left", alter(TOPIC, "altered"), version)
        _show(s, "altered")
        s.ask("nothing", AlterConfigsRequest(), version)
    again = alter(TOPIC, "altered", retention_ms="1000")
    again.resources[0].configs *= 2
    s.ask("a key twice", again)
    mixed = alter(TOPIC, "altered", retention_ms="1000")
    mixed.resources += alter(TOPIC, "absent", retention_ms="1000").resources
    s.ask("good and bad", mixed)
    for kind in (0, 1, 99, LOGGER):
        s.ask(f"type {kind}", alter(kind, "x", retention_ms="1"))


def _show(s: Scene, topic: str) -> None:
    _settle(s, f"{topic}-clock")
    keys = ("retention.ms", "cleanup.policy", "segment.ms", "compression.type")
    s.ask(f"{topic} now", describe(TOPIC, topic, *keys, include_synonyms=True))


def _settle(s: Scene, clock: str) -> None:
    """Return when the broker has heard of every change so far: Apache Kafka's hear in order.

    A change of another topic follows, and is waited for.
    """
    if clock not in s.topic_ids:
        s.topic(clock)
    request = describe(TOPIC, clock, "retention.ms")
    now = str(int(s.peer.call(request, DESCRIBE).results[0].configs[0].value) + 1)
    s.peer.call(change(TOPIC, clock, ("retention.ms", SET, now)), 1)
    while s.peer.call(request, DESCRIBE).results[0].configs[0].value != now:
        pass


@scene
def change_topic_configs(s: Scene) -> None:
    s.topic("changed")
    steps = {
        "set": [("retention.ms", SET, "1000")],
        "set and delete": [("segment.ms", SET, "60000"), ("retention.ms", DELETE, None)],
        "delete with a value": [("segment.ms", DELETE, "5")],
        "delete what is not set": [("segment.ms", DELETE, None)],
        "delete an unknown key": [("nonsense", DELETE, None)],
        "set an unknown key": [("nonsense", SET, "1")],
        "set null": [("retention.ms", SET, None)],
        "set a bad value": [("retention.ms", SET, "x")],
        "append": [("cleanup.policy", APPEND, "compact")],
        "append again": [("cleanup.policy", APPEND, "compact")],
        "subtract": [("cleanup.policy", SUBTRACT, "delete")],
        "subtract what is not there": [("cleanup.policy", SUBTRACT, "delete")],
        "append a bad value": [("cleanup.policy", APPEND, "burn")],
        "append null": [("cleanup.policy", APPEND, None)],
        "append to a number": [("retention.ms", APPEND, "5")],
        "subtract from a number": [("retention.ms", SUBTRACT, "5")],
        "operation 7": [("retention.ms", 7, "5")],
        "operation -1": [("retention.ms", -1, "5")],
        "a key twice": [("retention.ms", SET, "5"), ("retention.ms", SET, "6")],
        "a key set and deleted": [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
        "good and bad": [("retention.ms", SET, "5"), ("segment.ms", SET, "x")],
        "nothing": [],
        "no key": [("", SET, "5")],
        "subtract all": [("cleanup.policy", SUBTRACT, "compact")],
        "throttled": [("leader.replication.throttled.replicas", APPEND, "0:1")],
        "throttled more": [("leader.replication.throttled.replicas", APPEND, "1:1,2:1")],
        "throttled less": [("leader.replication.throttled.replicas", SUBTRACT, "0:1,2:1")],
        "throttled badly": [("leader.replication.throttled.replicas", SET, "abc")],
    }
    for label, changes in steps.items():
        s.ask(label, change(TOPIC, "changed", *changes))
        _show(s, "changed")
    s.ask("in an old version", change(TOPIC, "changed", ("retention.ms", SET, "9")), 0)
    s.ask("only tried", change(TOPIC, "changed", ("retention.ms", SET, "77"), dry=True))
    s.ask("badly tried", change(TOPIC, "changed", ("retention.ms", SET, "x"), dry=True))
    _show(s, "changed")
    s.ask("unknown topic", change(TOPIC, "absent", ("retention.ms", SET, "1")))
    s.ask("bad name", change(TOPIC, "a/b", ("retention.ms", SET, "1")))
    s.ask("no name", change(TOPIC, "", ("retention.ms", SET, "1")))
    twice = change(TOPIC, "changed", ("retention.ms", SET, "1"))
    twice.resources *= 2
    s.ask("a resource twice", twice)
    s.ask("no resources", IncrementalAlterConfigsRequest())
    for kind in (0, 1, 99):
        s.ask(f"type {kind}", change(kind, "x", ("retention.ms", SET, "1")))


@scene
def change_broker_configs(s: Scene) -> None:
    every = {"include_synonyms": True}

    key = "message.max.bytes"

    def show(value: str) -> None:
        request = describe(BROKER, "1", key, **every)
        while s.peer.call(request, DESCRIBE).results[0].configs[0].value != value:
            pass  # brokers hear of it a moment later
        for name in ("1", ""):
            s.ask(f"seen by {name!r}", describe(BROKER, name, key, **every))

    s.ask("cluster-wide", change(BROKER, "", (key, SET, "2000000")))
    show("2000000")
    s.ask("of one broker", change(BROKER, "1", (key, SET, "1500000")))
    show("1500000")
    s.ask("back", change(BROKER, "1", (key, DELETE, None)))
    show("2000000")
    s.ask("back, cluster-wide", change(BROKER, "", (key, DELETE, None)))
    show("1048588")
    steps = {
        "read-only": [("node.id", SET, "5")],
        "read-only, delete": [("node.id", DELETE, None)],
        "unknown": [("nonsense", SET, "5")],
        "bad value": [(key, SET, "x")],
        "out of bounds": [(key, SET, "-1")],
        "null": [(key, SET, None)],
        "append to a number": [(key, APPEND, "1")],
        "log default": [("log.retention.ms", SET, "100000")],
        "log default back": [("log.retention.ms", DELETE, None)],
        "nothing": [],
    }
    for label, changes in steps.items():
        for name in ("1", ""):
            s.ask(f"{label} at {name!r}", change(BROKER, name, *changes))
            s.ask(f"{label} at {name!r}, tried", change(BROKER, name, *changes, dry=True))
    for name in ("2", "one", "-1"):
        s.ask(f"at {name}", change(BROKER, name, (key, SET, "2000000")))
        s.ask(f"at {name}, all", alter(BROKER, name, message_max_bytes="2000000"))
    s.ask("all at once", alter(BROKER, "1", message_max_bytes="2000000"))
    show("2000000")
    s.ask("none at all", alter(BROKER, "1"))
    show("1048588")


@scene
def a_topic_follows_its_broker(s: Scene) -> None:
    s.topic("follower-of-defaults")
    keys = ("retention.ms", "min.insync.replicas", "compression.type")
    s.ask("set", change(BROKER, "", ("log.retention.ms", SET, "123456")))
    request = describe(TOPIC, "follower-of-defaults", *keys, include_synonyms=True)
    _await_retention(s, request, "123456")
    s.ask("seen", request)
    s.ask("and at the broker", change(BROKER, "1", ("log.retention.ms", SET, "654321")))
    _await_retention(s, request, "654321")
    s.ask("seen again", request)
    s.ask("unset", change(BROKER, "1", ("log.retention.ms", DELETE, None)))
    s.ask("unset everywhere", change(BROKER, "", ("log.retention.ms", DELETE, None)))
    _await_retention(s, request, "604800000")


def _await_retention(s: Scene, request: DescribeConfigsRequest, value: str) -> None:
    """Brokers hear of a change a moment later."""
    while True:
        rows = s.peer.call(request, DESCRIBE).results[0].configs
        if {row.name: row.value for row in rows}["retention.ms"] == value:
            return


@scene
def list_config_resources(s: Scene) -> None:
    s.topic("listed-resource")

    def ask(label: str, version: int, *kinds: int) -> None:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        with s.line() as line:
            line.send(request, version)
            answer = line.receive()
        if not isinstance(answer, str):
            found = {(it.resource_type, it.resource_name) for it in answer.config_resources}
            mine = {"listed-resource", "1", ""}
            answer.config_resources = []
            s.note(f"{label}: which (v{version})", [it for it in sorted(found) if it[1] in mine])
        s.note(f"{label} (v{version})", answer)

    ask("metrics", 0)
    ask("all", 1)
    for kind in (TOPIC, BROKER, LOGGER, METRICS, GROUP, 0, 1, 99):
        ask(f"type {kind}", 1, kind)
    ask("topics and brokers", 1, TOPIC, BROKER)
    ask("topics and nonsense", 1, TOPIC, 99)
