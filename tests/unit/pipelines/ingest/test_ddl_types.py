"""DDL is parsed without a session; what Spark's parser says of the same text is the measure."""

import pytest
from pyspark import SparkContext
from pyspark.sql import types as st

from headwater.pipelines.declaring.sql_tokens import SqlError
from headwater.pipelines.ingest.ddl_types import columns


def test_every_type_is_parsed_and_no_session_is_needed():
    assert SparkContext._active_spark_context is None
    assert columns(
        "id BIGINT NOT NULL COMMENT 'it''s \\'one\\'', `odd name` string, d DECIMAL(12, 3), e dec, "
        "deep: ARRAY<STRUCT<x: INT NOT NULL, `y z`: MAP<STRING, ARRAY<DOUBLE>>>>, "
        "date DATE, t TIMESTAMP, l TIMESTAMP_NTZ, b BOOLEAN, raw BINARY, f FLOAT, s SMALLINT"
    ) == st.StructType(
        [
            st.StructField("id", st.LongType(), False, {"comment": "it's 'one'"}),
            st.StructField("odd name", st.StringType()),
            st.StructField("d", st.DecimalType(12, 3)),
            st.StructField("e", st.DecimalType(10, 0)),
            st.StructField(
                "deep",
                st.ArrayType(
                    st.StructType(
                        [
                            st.StructField("x", st.IntegerType(), False),
                            st.StructField(
                                "y z", st.MapType(st.StringType(), st.ArrayType(st.DoubleType()))
                            ),
                        ]
                    )
                ),
            ),
            st.StructField("date", st.DateType()),
            st.StructField("t", st.TimestampType()),
            st.StructField("l", st.TimestampNTZType()),
            st.StructField("b", st.BooleanType()),
            st.StructField("raw", st.BinaryType()),
            st.StructField("f", st.FloatType()),
            st.StructField("s", st.ShortType()),
        ]
    )


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("", "ends before a column's name"),
        ("a", "ends before a type"),
        ("a INT,", "ends before a column's name"),
        ("a BLOB", "'BLOB' is not a type of Spark"),
        ("a ARRAY<INT", "'>' is missing"),
        ("a MAP<INT>", "',' is missing"),
        ("a INT b", "'b' follows the last column"),
        ("a INT NOT", "NOT without NULL"),
        ("a DECIMAL(x)", "'x' is not a number of digits"),
        ("a INT COMMENT b", "is not a string"),
        ("5 INT", "'5' is not a column's name"),
    ],
)
def test_what_is_not_ddl_is_refused_with_the_reason(ddl, why):
    with pytest.raises(SqlError, match=why):
        columns(ddl)
