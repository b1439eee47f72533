"""Topics of a broker, made and unmade through confluent-kafka's admin client."""

import base64
import itertools
import struct
import time
from collections.abc import Mapping

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from benchmarks.load.asking import ask
from benchmarks.load.encode import Topic, list_offsets_request

_TIMEOUT = 120.0


class Topics:
    """Creates topics under names of its own choice; they can be written when `create` returns."""

    def __init__(self, port: int) -> None:
        # Silent: it outlives its broker for a moment and would report every attempt to reconnect.
        self._admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        self._port = port
        self._numbers = itertools.count()

    def create(self, partitions: int, settings: Mapping[str, str]) -> Topic:
        """A new topic, every partition of which has a leader at work."""
        name = f"bench-{next(self._numbers)}"
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings))
        for done in self._admin.create_topics([new], request_timeout=_TIMEOUT).values():
            done.result()
        self.wait_until_led(name, partitions)
        return Topic(name, self._topic_id(name), partitions)

    def configure(self, topic: Topic, settings: Mapping[str, str]) -> None:
        """Changes configs of a topic."""
        resource = ConfigResource(
            ConfigResource.Type.TOPIC,
            topic.name,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in settings.items()
            ],
        )
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result(_TIMEOUT)

    def wait_until_led(self, name: str, partitions: int) -> None:
        """Returns when every partition of the topic can be written."""
        deadline = time.perf_counter() + _TIMEOUT
        while not self._is_led(name, partitions):
            if time.perf_counter() > deadline:
                raise TimeoutError(f"topic {name} has partitions without a leader")
            time.sleep(0.02)

    def delete(self, topic: Topic) -> None:
        """Deletes a topic."""
        for done in self._admin.delete_topics([topic.name], request_timeout=_TIMEOUT).values():
            done.result()

    def _is_led(self, name: str, partitions: int) -> bool:
        """Whether each partition's leader answers: metadata names leaders before they lead."""
        answer = ask(self._port, list_offsets_request(name, partitions))
        ends = list(struct.iter_unpack(">ihqq", answer[len(answer) - partitions * 22 :]))
        return len(ends) == partitions and all(error == 0 for _, error, _, _ in ends)

    def _topic_id(self, name: str) -> bytes:
        futures = self._admin.describe_topics(TopicCollection([name]), request_timeout=_TIMEOUT)
        return base64.urlsafe_b64decode(f"{futures[name].result().topic_id}==")
