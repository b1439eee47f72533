"""A key store that cannot be used yet is read again, and the log says so once."""

import shutil
import time

import pytest

from headwater.broker.listener_tls import ListenerTls, listener_tls
from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.testing.tls_stores import TlsStores
from tests.unit.broker.live import Live, until

NOT_USED = "a changed key store is not used: listener SSL: "


@pytest.fixture
def settings(tmp_path):
    stores = TlsStores(tmp_path)
    stores.authority.sign(tmp_path / "renewed.pem", "broker", ("127.0.0.1", "localhost"))
    shutil.copy(tmp_path / "broker.pem", tmp_path / "served.pem")
    return {
        **stores.broker_settings(),
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "ssl.keystore.location": str(tmp_path / "served.pem"),
    }


def replace(folder, name):
    shutil.copy(folder / name, folder / "fresh.pem")
    (folder / "fresh.pem").replace(folder / "served.pem")


def test_a_certificate_that_is_not_valid_yet_is_used_once_it_is(tmp_path, settings):
    now_ms = time.time_ns() // 1_000_000
    parsed = BrokerSettings.load(None, settings)
    tls = listener_tls(parsed, lambda: now_ms)["SSL"]
    assert tls.read_if_changed(parsed) is None
    replace(tmp_path, "renewed.pem")
    now_ms, at_ms = 0, now_ms
    for _ in range(2):
        with pytest.raises(ConfigError, match="is valid from"):
            tls.read_if_changed(parsed)
    now_ms = at_ms
    assert tls.read_if_changed(parsed) is not None
    assert tls.read_if_changed(parsed) is None


def test_the_reason_is_logged_when_it_changes(tmp_path, settings, caplog, monkeypatch):
    reads = []
    read_if_changed = ListenerTls.read_if_changed

    def noted(tls, settings):
        reads.append(tls)
        return read_if_changed(tls, settings)

    monkeypatch.setattr(ListenerTls, "read_if_changed", noted)
    monkeypatch.setattr("headwater.broker.housekeeping_loop.KEY_STORE_CHECK_S", 0.01)
    broken = tmp_path / "broken.pem"
    with Live(tmp_path / "data", settings):
        for text, logged in (("nonsense", 1), ("-----BEGIN nonsense", 2)):
            broken.write_text(text)
            replace(tmp_path, "broken.pem")
            until(lambda logged=logged: caplog.text.count(NOT_USED) == logged)
            seen = len(reads)
            until(lambda seen=seen: len(reads) > seen + 3)
            assert caplog.text.count(NOT_USED) == logged
        replace(tmp_path, "broker.pem")
        until(lambda: not reads[-1].refused)
