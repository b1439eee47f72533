"""The sessions of the Python clients."""

import asyncio
import ssl
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import kafka
import kafka.net.sasl.oauth
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.compat.clients.kafka_python import PATIENCE_MS
from tests.compat.logins.identity_provider import fetch_token
from tests.compat.logins.session import Credentials, Session

WAIT_S = 120
POLL_S = 0.1
T = TypeVar("T")


class ConfluentSession(Session):
    """librdkafka."""

    def __init__(self, credentials: Credentials) -> None:
        self._settings = of_librdkafka(credentials)
        if credentials.token_endpoint:
            self._settings["oauth_cb"] = lambda _: fetch_token(credentials)
        self._producer = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 0})
        self._consumer: Consumer | None = None
        self._failures: list[Any] = []

    def produce(self, topic: str, value: str) -> None:
        self._producer.produce(topic, value, on_delivery=self._told)
        assert self._producer.flush(WAIT_S) == 0
        assert not self._failures, self._failures

    def _told(self, error: Any, _: Any) -> None:
        if error:
            self._failures.append(error)

    def poll(self, topic: str, group: str) -> list[str]:
        if self._consumer is None:
            reading = {"group.id": group, "auto.offset.reset": "earliest"}
            self._consumer = Consumer({**self._settings, **reading})
            self._consumer.subscribe([topic])
        found = self._consumer.consume(100, POLL_S)
        for message in found:
            if message.error():
                raise KafkaException(message.error())
        return [(message.value() or b"").decode() for message in found]

    def brokers(self) -> set[int]:
        return {*AdminClient(self._settings).list_topics(timeout=WAIT_S).brokers}

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def of_librdkafka(credentials: Credentials) -> dict[str, Any]:
    """The settings of librdkafka, also for kcat."""
    given = {
        "bootstrap.servers": credentials.bootstrap,
        "security.protocol": credentials.protocol,
        "ssl.ca.location": credentials.authority,
        "ssl.certificate.location": credentials.certificate,
        "ssl.key.location": credentials.certificate,
        "sasl.mechanism": credentials.mechanism,
        "sasl.username": credentials.user,
        "sasl.password": credentials.password,
    }
    return {key: value for key, value in given.items() if value}


class KafkaPythonTokens(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def token(self) -> str:
        return fetch_token(self._credentials)[0]


class KafkaPythonSession(Session):
    """kafka-python."""

    def __init__(self, credentials: Credentials) -> None:
        given = {
            "bootstrap_servers": credentials.bootstrap,
            "security_protocol": credentials.protocol,
            "ssl_cafile": credentials.authority,
            "ssl_certfile": credentials.certificate,
            "ssl_keyfile": credentials.certificate,
            "sasl_mechanism": credentials.mechanism,
            "sasl_plain_username": credentials.user,
            "sasl_plain_password": credentials.password,
        }
        self._settings: dict[str, Any] = {key: value for key, value in given.items() if value}
        if credentials.token_endpoint:
            self._settings["sasl_oauth_token_provider"] = KafkaPythonTokens(credentials)
        self._producer = kafka.KafkaProducer(**self._settings, enable_idempotence=True, linger_ms=0)
        self._consumer: kafka.KafkaConsumer | None = None

    def produce(self, topic: str, value: str) -> None:
        self._producer.send(topic, value.encode()).get(WAIT_S)

    def poll(self, topic: str, group: str) -> list[str]:
        if self._consumer is None:
            reading = {"group_id": group, "auto_offset_reset": "earliest"}
            self._consumer = kafka.KafkaConsumer(topic, **self._settings, **reading)
        found = self._consumer.poll(PATIENCE_MS)
        return [record.value.decode() for records in found.values() for record in records]

    def brokers(self) -> set[int]:
        admin = kafka.KafkaAdminClient(**self._settings)
        try:
            told = admin.describe_cluster()["brokers"]
        finally:
            admin.close()
        return {broker.get("broker_id", broker.get("node_id")) for broker in told}

    def close(self) -> None:
        self._producer.close()
        if self._consumer is not None:
            self._consumer.close()


class AiokafkaTokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def token(self) -> str:
        return (await asyncio.to_thread(fetch_token, self._credentials))[0]


class AiokafkaSession(Session):
    """aiokafka, on a loop of its own that runs between the calls too."""

    def __init__(self, credentials: Credentials) -> None:
        context = ssl.create_default_context(cafile=credentials.authority)
        if credentials.certificate:
            context.load_cert_chain(credentials.certificate)
        given = {
            "bootstrap_servers": credentials.bootstrap,
            "security_protocol": credentials.protocol,
            "ssl_context": context,
            "sasl_mechanism": credentials.mechanism,
            "sasl_plain_username": credentials.user,
            "sasl_plain_password": credentials.password,
        }
        self._settings: dict[str, Any] = {key: value for key, value in given.items() if value}
        if credentials.token_endpoint:
            self._settings["sasl_oauth_token_provider"] = AiokafkaTokens(credentials)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._consumer: AIOKafkaConsumer | None = None
        try:
            self._producer = self._run(self._started())
        except BaseException:
            self._end_loop()
            raise

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    async def _started(self) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**self._settings, enable_idempotence=True)
        await producer.start()
        return producer

    def produce(self, topic: str, value: str) -> None:
        self._run(self._producer.send_and_wait(topic, value.encode()))

    def poll(self, topic: str, group: str) -> list[str]:
        return self._run(self._poll(topic, group))

    async def _poll(self, topic: str, group: str) -> list[str]:
        if self._consumer is None:
            reading = {"group_id": group, "auto_offset_reset": "earliest"}
            self._consumer = AIOKafkaConsumer(topic, **self._settings, **reading)
            await self._consumer.start()
        found = await self._consumer.getmany(timeout_ms=int(POLL_S * 1000))
        return [record.value.decode() for records in found.values() for record in records]

    def brokers(self) -> set[int]:
        return self._run(self._brokers())

    async def _brokers(self) -> set[int]:
        admin = AIOKafkaAdminClient(**self._settings)
        await admin.start()
        try:
            told = await admin.describe_cluster()
        finally:
            await admin.close()
        return {broker["node_id"] for broker in told["brokers"]}

    def close(self) -> None:
        try:
            self._run(self._stop())
        finally:
            self._end_loop()

    async def _stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()
        await self._producer.stop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
