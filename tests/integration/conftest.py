"""One Apache Kafka for all tests that also run against it."""

import pytest
from tools.apache_kafka import ApacheKafka
from tools.jars import JarsUnavailable

from tests.integration.either import SETTINGS, Apache


@pytest.fixture(scope="session")
def apache_kafka():
    try:
        kafka = ApacheKafka(SETTINGS, heap="512M").__enter__()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    try:
        yield Apache(kafka.bootstrap)
    finally:
        kafka.__exit__(None, None, None)
