"""Reading topics as DataFrames."""


def test_a_topic_is_read_as_a_table(spark, bootstrap, topic, produce):
    name = topic(partitions=2)
    produce(name, [b"a", b"b"], key=b"k", partition=1)
    produce(name, [b"c"], partition=0)
    rows = (
        spark.read.format("headwater")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", name)
        .load()
    )
    assert rows.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    assert sorted((r.partition, r.offset, r.value) for r in rows.collect()) == [
        (0, 0, b"c"),
        (1, 0, b"a"),
        (1, 1, b"b"),
    ]
