"""The settings of a session: the caller's first, then those of spark-submit, then the defaults."""

import pytest

from headwater.pipelines import session


class Builder:
    """Notes what a session is made with."""

    def __init__(self):
        self.conf = {}

    def appName(self, name):  # noqa: N802 - Spark's name
        self.conf["name"] = name
        return self

    def master(self, url):
        self.conf["master"] = url
        return self

    def config(self, key, value):
        self.conf[key] = value
        return self

    def getOrCreate(self):  # noqa: N802 - Spark's name
        return self


class Conf:
    """What spark-submit has set."""

    def getAll(self):  # noqa: N802 - Spark's name
        return [
            ("spark.master", "spark://there:7077"),
            ("spark.driver.host", "there"),
            ("spark.ui.enabled", "true"),
            ("spark.executor.memory", "7g"),
        ]


@pytest.fixture
def made(monkeypatch):
    """Makes a session without a JVM; returns what it was made with, and what its JVM got."""
    jvm = {}

    def make(**options):
        monkeypatch.setattr(session, "start_jvm", jvm.update)
        monkeypatch.setattr(session, "register", lambda spark: None)
        monkeypatch.setattr(session, "_prepare_environment", lambda: None)
        monkeypatch.setattr(session.SparkSession, "builder", Builder())
        return session.spark_session("name", **options).conf, jvm

    return make


@pytest.fixture
def submitted(monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(session.SparkContext, "_ensure_initialized", lambda: None)
    monkeypatch.setattr(session, "SparkConf", Conf)


def test_without_spark_submit_a_session_is_local_and_on_the_loopback_address(made, monkeypatch):
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    conf, jvm = made()
    assert conf["master"] == jvm["spark.master"] == "local[*]"
    assert conf["spark.driver.host"] == jvm["spark.driver.host"] == "127.0.0.1"
    assert conf["spark.ui.enabled"] == "false"


def test_the_master_and_the_settings_of_spark_submit_are_kept(made, submitted):
    conf, jvm = made()
    assert conf["master"] == jvm["spark.master"] == "spark://there:7077"
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.ui.enabled"} & set(conf)
    assert conf["spark.sql.session.timeZone"] == "UTC"


def test_what_the_caller_names_counts_more_than_spark_submit(made, submitted):
    conf, _ = made(master="local[2]", settings={"spark.ui.enabled": "false"})
    assert (conf["master"], conf["spark.ui.enabled"]) == ("local[2]", "false")
    assert "spark.driver.host" not in conf, "spark-submit has set it"
