"""Descriptors are divided, and a broker that has too few of them goes on."""

import resource

import pytest

from headwater.broker.listening import connection_limits, warn_of_plaintext
from headwater.broker.open_files import OpenFiles
from headwater.config.broker import BrokerSettings
from headwater.config.listeners import Listener
from headwater.seams.limits import raise_open_file_limit
from tests.unit.broker.live import Live, batch
from tests.unit.log.test_descriptors import FewDescriptors


@pytest.mark.parametrize("limit", [256, 1024, 4096, 65_536, 1 << 20])
def test_files_and_connections_leave_a_reserve(limit):
    shares = OpenFiles.of(limit)
    assert shares.files + shares.connections + shares.backlog < limit
    assert min(shares) >= 8


def test_the_soft_limit_is_raised_to_the_hard_one():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
        limit = raise_open_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, before[1])
        assert limit > 200
        assert raise_open_file_limit() == limit
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_limit_that_cannot_be_had_is_told_once(caplog):
    shares = OpenFiles.of(1024)
    assert connection_limits(BrokerSettings.load(), shares).descriptors == shares.connections
    assert not caplog.records, "the default asks for nothing"
    connection_limits(BrokerSettings.load(None, {"max.connections": "100000"}), shares)
    (warning,) = caplog.records
    assert "max.connections=100000" in warning.getMessage()


@pytest.mark.parametrize(
    ("host", "protocol", "warned"),
    [
        ("127.0.0.1", "PLAINTEXT", 0),
        ("localhost", "PLAINTEXT", 0),
        ("::1", "PLAINTEXT", 0),
        ("", "PLAINTEXT", 1),
        ("0.0.0.0", "PLAINTEXT", 1),
        ("192.0.2.1", "PLAINTEXT", 1),
        ("192.0.2.1", "SASL_SSL", 0),
    ],
)
def test_plain_text_for_a_whole_network_is_told(caplog, host, protocol, warned):
    warn_of_plaintext(Listener("L", host, 9092, protocol))
    assert len(caplog.records) == warned


def test_more_partitions_than_descriptors_are_written_and_read(tmp_path):
    count = 40
    limit = 24
    files = FewDescriptors(limit)
    with Live(tmp_path, files=files, open_files=limit) as live, live.client() as client:
        live.create("wide", count)
        for partition in range(count):
            answer = client.produce("wide", batch(b"x"), partition=partition)
            assert (answer.error_code, answer.base_offset) == (0, 0)
        for partition in range(count):
            assert client.fetch("wide", partition=partition).records
        assert not live.broker.storage_lost.is_set()
