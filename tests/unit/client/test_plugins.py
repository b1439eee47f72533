"""Serializers, partitioners and interceptors: configured once, closed once, by both faces."""

import asyncio
import math

import pytest

import headwater
import headwater.aio
from headwater.config.client import ConsumerSettings, ProducerSettings
from headwater.testing import Broker


class Plugin(headwater.ProducerInterceptor, headwater.ConsumerInterceptor):
    """A function of one or more arguments, and an interceptor, that notes its hooks."""

    def __init__(self, fails=False):
        self.calls = []
        self._fails = fails

    def configure(self, settings):
        self.calls.append(type(settings))

    def close(self):
        self.calls.append("close")
        if self._fails:
            raise RuntimeError("cannot close")

    def __call__(self, data, *_):
        return data


@pytest.fixture(scope="module")
def options():
    with Broker() as broker:
        broker.create_topic("t")
        yield {"bootstrap_servers": broker.bootstrap}


def test_plugins_of_a_producer_are_configured_and_closed_once(options) -> None:
    plugin = Plugin()
    given = {"key_serializer": plugin, "value_serializer": plugin, "interceptors": [plugin]}
    with headwater.Producer(**options, **given) as producer:
        producer.send("t", b"v").result(60)
        assert plugin.calls == [ProducerSettings]
    producer.close()
    assert plugin.calls == [ProducerSettings, "close"]


def test_plugins_of_a_consumer_are_closed_though_one_fails(options, caplog) -> None:
    first, second = Plugin(fails=True), Plugin()
    with headwater.Consumer(**options, value_deserializer=first, interceptors=[second]) as consumer:
        consumer.assign([("t", 0)])
    assert first.calls == second.calls == [ConsumerSettings, "close"]
    assert "close() of Plugin raised" in caplog.text


def test_plugins_of_asyncio_clients_are_closed_too(options) -> None:
    sending, reading = Plugin(), Plugin()

    async def main() -> None:
        async with headwater.aio.Producer(**options, value_serializer=sending) as producer:
            await producer.send("t", b"v")
        async with headwater.aio.Consumer(**options, value_deserializer=reading) as consumer:
            await consumer.assign([("t", 0)])

    asyncio.run(main())
    assert sending.calls == [ProducerSettings, "close"]
    assert reading.calls == [ConsumerSettings, "close"]


# -- timeouts and names that cannot be


@pytest.mark.parametrize("wrong", ["x", [1], math.nan])
def test_a_timeout_that_is_not_a_number_is_refused_in_words(options, wrong) -> None:
    with headwater.Consumer(**options) as consumer:
        consumer.assign([("t", 0)])
        for call in (consumer.poll, consumer.poll_arrow, consumer.close):
            with pytest.raises(TypeError, match="give seconds as a number"):
                call(wrong)
        assert consumer.poll(0) is not None


def test_a_flush_with_a_timeout_that_is_not_a_number_is_refused_in_words(options) -> None:
    with (
        headwater.Producer(**options) as producer,
        pytest.raises(TypeError, match="give seconds as a number"),
    ):
        producer.flush("x")


def test_a_header_name_that_utf_8_cannot_encode_is_refused_in_words(options) -> None:
    with (
        headwater.Producer(**options) as producer,
        pytest.raises(ValueError, match="is not valid Unicode"),
    ):
        producer.send("t", b"v", headers=[("\udcff", b"1")])
