"""A start that waits for its metadata store says for what, before it gives up."""

import pytest

from headwater.broker import store_entry
from headwater.broker.registration import JoinError
from headwater.testing import Broker


def test_a_start_says_what_it_waits_for(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(store_entry, "LONG_WAIT_S", 0.05)
    limits = {"zookeeper.connection.timeout.ms": "500", "zookeeper.connect": "127.0.0.1:1"}
    with pytest.raises(JoinError, match=r"no server of zookeeper\.connect=127\.0\.0\.1:1 answered"):
        Broker({"broker.id": "1", **limits}, data_dir=tmp_path).start()
    waited = "the start has waited for zookeeper.connect=127.0.0.1:1 to answer for 0.05 s"
    assert [record.getMessage() for record in caplog.records].count(waited) == 1
