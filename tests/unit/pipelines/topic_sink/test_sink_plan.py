"""What a sink makes of options and columns; the refusals are tested through Spark as well."""

import re

import pyarrow
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from headwater.pipelines.topic_sink.sink_plan import SinkError, plan_sink

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
PAIR = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def shape(**columns):
    return StructType([StructField(name, kind()) for name, kind in columns.items()])


def test_the_rows_of_a_batch_become_records():
    columns = StructType(
        [
            StructField("headers", ArrayType(PAIR)),
            StructField("value", StringType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("key", BinaryType()),
        ]
    )
    batch = pyarrow.RecordBatch.from_pylist(
        [
            {
                "headers": [
                    {"key": "a", "value": b"1"},
                    {"key": "headwater.origin", "value": b"x"},
                ],
                "value": "v\u00e9",
                "topic": "t",
                "partition": 2,
                "key": b"k",
            },
            {"headers": None, "value": None, "topic": "u", "partition": None, "key": None},
        ]
    )
    assert list(plan_sink(SERVERS, columns).rows(batch)) == [
        ("t", 2, b"k", "v\u00e9".encode(), (("a", b"1"),)),
        ("u", None, None, None, ()),
    ]


def test_kafka_options_are_settings_of_the_producer_and_others_take_what_they_know():
    made = plan_sink(
        {**SERVERS, "Topic": "t", "kafka.linger.ms": "50", "kafka.client.id": "me"},
        shape(value=BinaryType, id=LongType),
    )
    assert made.producer["linger_ms"] == "50"
    assert made.client == {"bootstrap_servers": "127.0.0.1:9092", "client_id": "me"}
    assert made.plain
    assert made.columns == {"value"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({**SERVERS, "originBatch": "3"}, "set both or none"),
        ({**SERVERS, "originQuery": "q", "originBatch": "third"}, "the number of a batch"),
        ({**SERVERS, "kafka.enable.idempotence": "false"}, "must be true"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "transactional.id cannot be set"),
        ({**SERVERS, "kafka.sasl.mechanism": "PLAIN"}, "set security.protocol=SASL_SSL"),
        ({**SERVERS, "kafka.security.protocol": "SASL_SSL"}, "security"),
        ({**SERVERS, "kafka.acks": "1"}, "kafka.acks must be all"),
        ({**SERVERS, "kafka.linger": "1"}, "did you mean linger_ms"),
        ({**SERVERS, "topics": "t"}, "unknown option topics.*did you mean topic"),
        ({**SERVERS, "topic": "no spaces"}, "option topic: "),
    ],
)
def test_what_cannot_be_is_refused(options, words):
    with pytest.raises(SinkError, match=words):
        plan_sink({"topic": "t", **options}, shape(value=StringType))


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ({"id": StringType}, "t", "needs a column value, string or binary; there is id"),
        ({"value": StringType}, None, "no topic is given"),
        ({"value": LongType}, "t", "column value is bigint; it must be string or binary"),
        ({"value": StringType, "key": IntegerType}, "t", "column key is int"),
        ({"value": StringType, "partition": StringType}, "t", "it must be int"),
        ({"value": StringType, "headers": StringType}, "t", "array<struct<key:string,value:bin"),
        ({"value": StringType, "topic": BinaryType}, None, "column topic is binary"),
    ],
)
def test_columns_that_make_no_record_are_refused(columns, topic, words):
    options = SERVERS if topic is None else {**SERVERS, "topic": topic}
    with pytest.raises(SinkError, match=re.escape(words)):
        plan_sink(options, shape(**columns))


def test_transactions_can_be_turned_off():
    def planned(**options):
        return plan_sink({**SERVERS, "topic": "t", **options}, shape(value=StringType))

    assert planned().transactional
    assert not planned(transactions="off").transactional
    with pytest.raises(SinkError, match=r"transactions is auto .* or off, not 'on'"):
        planned(transactions="on")
