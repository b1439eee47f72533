"""The throttle of moves: the settings that limit how fast new replicas are copied.

They are the settings of kafka-reassign-partitions: rates on the brokers that take part, and in each
topic the replicas that copy (KIP-73).
"""

from collections.abc import Iterable

from headwater.cli.reassignment_plan import Assignment
from headwater.client.admin import Admin
from headwater.client.admin.configs import AlterConfigOp, ConfigChange, ConfigResource

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"


def throttled_replicas(present: Assignment, targets: Assignment) -> dict[str, dict[str, str]]:
    """By topic and key, the replicas that copy: any present one may lead, and new ones follow."""
    lists: dict[str, dict[str, list[str]]] = {}
    for at, replicas in sorted(targets.items()):
        added = [broker for broker in replicas if broker not in present[at]]
        if added:
            of_topic = lists.setdefault(at.topic, {LEADERS: [], FOLLOWERS: []})
            of_topic[LEADERS] += [f"{at.partition}:{broker}" for broker in present[at]]
            of_topic[FOLLOWERS] += [f"{at.partition}:{broker}" for broker in added]
    return {
        topic: {key: ",".join(rows) for key, rows in keys.items()} for topic, keys in lists.items()
    }


async def throttle(admin: Admin, present: Assignment, targets: Assignment, rate: int) -> None:
    """Limit the copies of a plan to `rate` bytes per second on each broker."""
    live = {node.id for node in (await admin.describe_cluster()).brokers}
    involved = {
        broker for at, to in targets.items() for broker in (*present[at], *to) if broker in live
    }
    changes: dict[ConfigResource, list[ConfigChange]] = {
        ConfigResource.topic(topic): [
            ConfigChange(key, replicas, AlterConfigOp.APPEND) for key, replicas in keys.items()
        ]
        for topic, keys in throttled_replicas(present, targets).items()
    }
    for broker in sorted(involved):
        changes[ConfigResource.broker(broker)] = [ConfigChange(key, str(rate)) for key in RATES]
    await admin.alter_configs(changes)


async def remove_throttles(admin: Admin, topics: Iterable[str]) -> bool:
    """Remove the rates of all brokers and the lists of the topics; return whether there were any."""
    live = [node.id for node in (await admin.describe_cluster()).brokers]
    keys_of = {ConfigResource.topic(topic): (LEADERS, FOLLOWERS) for topic in topics}
    keys_of |= {ConfigResource.broker(broker): RATES for broker in live}
    found = await admin.describe_configs(list(keys_of))
    changes = {
        resource: [
            ConfigChange(key, None, AlterConfigOp.DELETE)
            for key in keys
            if not found[resource][key].is_default
        ]
        for resource, keys in keys_of.items()
    }
    changes = {resource: rows for resource, rows in changes.items() if rows}
    if changes:
        await admin.alter_configs(changes)
    return bool(changes)
