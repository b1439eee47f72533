"""An ingest through the command line from a broker that requires TLS and a client's certificate."""

from pathlib import Path

import pytest
from click.testing import CliRunner

import headwater
from headwater.cli.app import command
from headwater.client.admin import BlockingAdmin
from headwater.pipelines.ingest import ingest
from headwater.testing import Broker
from tests.pipelines.conftest import SETTINGS
from tests.pipelines.lake import rows_of

PEM_END = "-----END PRIVATE KEY-----\n"


@pytest.fixture
def secured():
    with Broker(SETTINGS, tls=True) as broker:
        broker.create_topic("orders")
        yield broker


def config_with_key(settings, file):
    """Write a config file that has the private key itself, and return the key's text."""
    pem = Path(settings["ssl_keystore_location"]).read_text()
    key = pem[pem.index("-----BEGIN PRIVATE KEY") : pem.index(PEM_END)] + PEM_END
    values = {
        "security.protocol": "SSL",
        "ssl.truststore.location": settings["ssl_truststore_location"],
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": pem.replace(key, ""),
    }
    lines = (f"{name}={value}".replace("\n", "\\n") for name, value in values.items())
    file.write_text("\n".join(lines))
    return key.splitlines()[1]


def test_an_ingest_over_tls_shows_its_secrets_nowhere(spark, secured, tmp_path, monkeypatch):
    client = secured.client_settings("alice")
    file, lake = tmp_path / "alice.properties", tmp_path / "lake"
    secret = config_with_key(client, file)
    real, connections = ingest.session_scope, []

    def in_this_session(*words, **given):
        connections.append(given["connection"])
        return real(*words, **{**given, "spark": spark})

    monkeypatch.setattr(ingest, "session_scope", in_this_session)
    with headwater.Producer(**client) as producer:
        for value in (b'{"id": 1}', b'{"id": 2}', b'{"id": "three"}'):
            producer.send("orders", value)
    words = ["pipeline", "ingest", "orders", "--to", f"delta:{lake}/orders", "--no-progress"]
    words += ["--schema", "infer", "--type", "id=BIGINT", "--bootstrap-server", secured.bootstrap]
    done = CliRunner().invoke(command, ["--config", str(file), *words])

    assert done.exit_code == 0, done.output
    assert rows_of(lake / "orders", "id") == [(1,), (2,)]
    with BlockingAdmin(**client) as admin:
        assert sum(admin.end_offsets([("orders.dead", 0)]).values()) >= 1
        assert [row.offset for row in admin.group_offsets("ingest.orders.orders").values()] == [3]
    (connection,) = connections
    plans = [
        spark.readStream.format("headwater").options(subscribe="orders", **options).load()
        for options in (connection.options, {"kafka.sasl.jaas.config": "hunter2"})
    ]
    shown = "".join(plan._jdf.queryExecution().toString() for plan in plans)
    kept = b"".join(path.read_bytes() for path in lake.rglob("*") if path.is_file())
    assert "hunter2" not in shown
    assert secret not in shown + done.output
    assert secret.encode() not in kept
