"""Spark on a broker that asks for a login over TLS: our source and sink, and Spark's own connector."""

import pytest

import headwater
from headwater import AclBinding, AclOperation, AclPatternType, AclResourceType
from tests.compat.logins import ways
from tests.compat.logins.java_properties import java_properties
from tests.compat.logins.secured_broker import PASSWORD, start_secured_broker
from tests.pipelines.connector_jars import official_connector

WAY, CONNECTOR = "SCRAM-SHA-512", "spark"
SOURCE, TARGET = (ways.application(WAY, name) for name in ("source", "target"))
PATIENCE_S = 600


@pytest.fixture(scope="module")
def secured():
    topics = [SOURCE, TARGET, *(ways.topic(way, CONNECTOR) for way in ways.WALKS)]
    with start_secured_broker(ways.users(), topics) as broker:
        yield broker


def test_a_stream_over_sasl_ssl_shows_its_secrets_nowhere(spark, secured, tmp_path):
    """The sink writes transactions, whose ids and groups a user must be allowed to use."""
    way = ways.WALKS[WAY]
    with secured.admin() as admin:
        admin.create_acls(
            AclBinding(
                f"User:{way.user}", operation, kind, "headwater-sink.", AclPatternType.PREFIXED
            )
            for operation, kind in (
                (AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID),
                (AclOperation.READ, AclResourceType.GROUP),
            )
        )
    settings = java_properties(way.credentials(secured))
    client = {name.replace(".", "_"): value for name, value in settings.items()}
    file, checkpoint = tmp_path / "user.properties", tmp_path / "checkpoint"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    sent = [b"%d" % number for number in range(5)]
    with headwater.Producer(**client) as producer:
        for value in sent:
            producer.send(SOURCE, value)
    reader = spark.readStream.format("headwater").option("configFile", str(file))
    stream = reader.options(
        subscribe=SOURCE, startingOffsets="earliest", maxOffsetsPerTrigger="3"
    ).load()
    query = (
        stream.select("value")
        .writeStream.format("headwater")
        .options(configFile=str(file), topic=TARGET, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    assert [row["numInputRows"] for row in query.recentProgress] == [3, 2]
    with headwater.Consumer(**client, isolation_level="read_committed") as consumer:
        consumer.assign([(TARGET, 0)])
        consumer.seek_to_beginning()
        assert [record.value for record in consumer.read_to_end()] == sent
    typed = spark.readStream.format("headwater").options(
        **{"subscribe": SOURCE, "configFile": str(file), "kafka.sasl.jaas.config": "hunter2"}
    )
    shown = "".join(plan._jdf.queryExecution().toString() for plan in (stream, typed.load()))
    kept = b"".join(path.read_bytes() for path in checkpoint.rglob("*") if path.is_file())
    assert "hunter2" not in shown
    assert PASSWORD not in shown
    assert PASSWORD.encode() not in kept


@pytest.mark.parametrize("way", ways.WALKS)
def test_the_official_connector_logs_in(spark, secured, way):
    missing = official_connector()[1]
    if missing:
        pytest.skip(missing)
    settings = java_properties(ways.WALKS[way].credentials(secured))
    if endpoint := settings.get("sasl.oauthbearer.token.endpoint.url"):
        allowed = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
        spark._jvm.java.lang.System.setProperty(allowed, endpoint)
    options = {f"kafka.{name}": value for name, value in settings.items()}
    topic = ways.topic(way, CONNECTOR)
    frame = spark.createDataFrame([(f"{way} {number}",) for number in range(3)], "value string")
    frame.coalesce(1).write.format("kafka").options(**options, topic=topic).save()
    found = spark.read.format("kafka").options(**options, subscribe=topic).load().collect()
    assert sorted(row.value.decode() for row in found) == [f"{way} {number}" for number in range(3)]
