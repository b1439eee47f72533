"""Projects on disk: pipeline.yml, Python and SQL files, and what goes wrong in them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.pipelines.declaring.declare import DatasetRead, DeclarationError, Project, bind
from headwater.pipelines.declaring.project import load_project


def write(root: Path, **files: str) -> Path:
    """Files by name with __ for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


BRONZE = """from headwater import pipelines as hw

@hw.table
def bronze():
    return hw.topic("events")
"""
FULL = """
name: shop
storage: ${HW_TEST_STORAGE:-lake}
bootstrap_servers: broker:9092
definitions: ["*.py", "sql/*.sql"]
format: iceberg
target_batch_time: 5s
dead_letter_topic: shop.dead
trigger: 10 seconds
spark:
  spark.sql.shuffle.partitions: 4
  spark.ui.enabled: false
tables:
  bronze:
    format: parquet
    partition_by: [day]
    target_file_bytes: 1000
"""


def test_a_project_of_python_sql_and_yaml(tmp_path):
    write(tmp_path, pipeline__yml=FULL, bronze__py=BRONZE)
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "gold.sql").write_text(
        "CREATE MATERIALIZED VIEW gold AS SELECT count(*) AS n FROM bronze"
    )
    project = load_project(tmp_path)
    assert (project.name, project.root, project.storage) == ("shop", tmp_path, tmp_path / "lake")
    assert project.bootstrap_servers == "broker:9092"
    assert project.spark == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    settings = project.settings
    assert (settings.format, settings.dead_letter_topic) == ("iceberg", "shop.dead")
    assert (settings.target_batch_time, settings.trigger) == ("5s", "10 seconds")
    bronze, gold = project.declarations.datasets.values()
    assert (bronze.format, bronze.partition_by) == ("parquet", ("day",))
    assert bronze.options == {"target_file_bytes": "1000"}
    assert (gold.format, gold.reads) == ("iceberg", (DatasetRead("bronze", False),))
    assert bronze.origin.file == str(tmp_path / "bronze.py")


def test_overrides_stand_above_the_file(tmp_path):
    write(tmp_path, pipeline__yml="name: x\nstorage: a\n", bronze__py=BRONZE)
    overrides = {
        "storage": "/elsewhere",
        "spark.master": "local[1]",
        "tables.bronze.format": "parquet",
    }
    project = load_project(tmp_path / "pipeline.yml", overrides=overrides)
    assert str(project.storage) == "/elsewhere"
    assert project.spark == {"spark.master": "local[1]"}
    assert project.declarations.datasets["bronze"].format == "parquet"
    with pytest.raises(DeclarationError, match=r"unknown key storag; did you mean storage?"):
        load_project(tmp_path, overrides={"storag": "x"})


def test_one_file_is_a_project_too(tmp_path):
    write(tmp_path, bronze__py=BRONZE, other__py="raise RuntimeError")
    project = load_project(tmp_path / "bronze.py")
    assert (project.name, project.storage) == ("bronze", tmp_path / "storage")
    assert list(project.declarations.datasets) == ["bronze"]


def test_the_environment_fills_values_but_never_the_structure(tmp_path, monkeypatch):
    monkeypatch.setenv("HW_TEST_NAME", "a: b")
    write(tmp_path, bronze__py=BRONZE, pipeline__yml='storage: "${HW_TEST_NAME}/$${HOME}"\n')
    assert load_project(tmp_path).storage == tmp_path / "a: b" / "${HOME}"
    write(tmp_path, pipeline__yml="name: x\nstorage: ${HW_TEST_MISSING}\n")
    with pytest.raises(DeclarationError, match=r"pipeline.yml:2: the environment has no HW_TEST_M"):
        load_project(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nstorag: y\n", "2: unknown key storag; did you mean storage?"),
        ("name: x\nname: y\n", "2: duplicate key name, first at line 1"),
        ("name: [\n", "2: this is not valid YAML"),
        ("- a\n", "1: this should be `key: value` lines"),
        ("tables: &a {x: *a}\n", "1: a value contains itself"),
        ("name: a/b\n", "1: 'a/b' cannot be a name"),
        ("name: {a: b}\n", "1: name takes one value"),
        ("format: detla\n", "1: format is one of .* did you mean delta?"),
        ("\ntrigger: often\n", "2: trigger is a time such as 5s"),
        ("spark: [a]\n", "1: spark takes `key: value` lines"),
        ("spark:\n  sql.x: 1\n", "2: settings of Spark begin with spark."),
        ("tables:\n  bronce:\n    format: delta\n", "2: no file declares a table bronce; did you"),
        ("tables:\n  bronze:\n    fromat: delta\n", "3: unknown key fromat; did you mean format?"),
        ("definitions: nothing/*.py\n", "1: no .py or .sql file matches nothing"),
        ("definitions: /etc/*.py\n", "1: /etc/\\*.py should be relative to this folder"),
        ("name: !!python/object/apply:os.getcwd []\n", "1: this is not valid YAML"),
    ],
)
def test_a_wrong_pipeline_yml_is_one_line_with_its_place(tmp_path, text, said):
    write(tmp_path, bronze__py=BRONZE, pipeline__yml=text)
    with pytest.raises(DeclarationError, match=said) as problem:
        load_project(tmp_path)
    assert str(problem.value).startswith(f"{tmp_path}/pipeline.yml:")
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ny = (\n", "2: this is not valid Python"),
        ("\n\nx = 1 / 0\n", "3: loading this file failed with ZeroDivisionError: division by zero"),
        ("def f():\n    raise ValueError('a\\nb')\nf()\n", "2: .* failed with ValueError: a b$"),
        ("import json\njson.loads('{')\n", "2: loading this file failed with JSONDecodeError"),
        ("import sys\nsys.exit(3)\n", "2: loading this file failed with SystemExit: 3"),
        ("import nothing_of_that_name\n", "1: .* failed with ModuleNotFoundError"),
        ("from headwater import pipelines as hw\nhw.spark()\n", "2: .* nothing runs yet"),
        ("from pyspark.sql import functions as sf\nX = sf.col('x')\n", "2: .*into the query"),
        ("from pyspark.sql.functions import udf\nudf('double')(abs)\n", "2: .*returnType="),
        ("from headwater import pipelines as hw\nhw.tabel\n", "2: .* has no attribute 'tabel'"),
    ],
)
def test_whatever_goes_wrong_in_a_file_is_one_line_with_its_place(tmp_path, text, said):
    write(tmp_path, pipeline__yml="name: x\n", broken__py=text)
    with pytest.raises(DeclarationError, match=said) as problem:
        load_project(tmp_path)
    assert str(problem.value).startswith(f"{tmp_path}/broken.py:")
    assert "\n" not in str(problem.value)


def test_a_name_declared_in_two_files_names_both(tmp_path):
    write(tmp_path, pipeline__yml="name: x\n", one__py=BRONZE)
    write(tmp_path, two__sql="CREATE STREAMING TABLE bronze")
    with pytest.raises(DeclarationError, match="declared twice") as problem:
        load_project(tmp_path)
    assert f"{tmp_path}/two.sql:1: " in str(problem.value)
    assert f"{tmp_path}/one.py:3" in str(problem.value)


def test_two_loads_know_nothing_of_each_other(tmp_path):
    first = write(tmp_path / "first", pipeline__yml="name: a\n", t__py=BRONZE)
    second = write(
        tmp_path / "second",
        pipeline__yml="name: b\n",
        t__py=BRONZE.replace("events", "other") + "from shared import X\nassert X == 2\n",
        shared__py="X = 2\n",
    )
    write(first, shared__py="X = 1\n")
    modules, path = set(sys.modules), list(sys.path)
    topics = [load_project(p).declarations.flows[0].topics for p in (first, second, first)]
    assert topics == [("events",), ("other",), ("events",)]
    assert sys.path == path
    assert {
        name for name in set(sys.modules) - modules if "shared" in name or "_t" in name
    } == set()


def test_a_file_that_another_imports_is_declared_once(tmp_path):
    write(tmp_path, pipeline__yml="name: x\n", common__py=BRONZE, a__py="import common\n")
    assert list(load_project(tmp_path).declarations.datasets) == ["bronze"]


def test_helpers_in_other_files_are_followed(tmp_path):
    write(
        tmp_path,
        pipeline__yml="name: x\ndefinitions: main.py\n",
        helpers__py="from headwater import pipelines as hw\ndef base(): return hw.topic('events')\n",
        main__py="from headwater import pipelines as hw\nfrom helpers import base\n"
        "@hw.table\ndef t(): return base()\n",
    )
    project = load_project(tmp_path)
    assert project.declarations.flows[0].topics == ("events",)

    class Rows:
        def topic(self, name, **options):
            return [name]

    query = project.declarations.flows[0].query
    assert callable(query)
    with bind(Rows()):  # type: ignore[arg-type]
        assert query() == ["events"]


def test_functions_for_workers_are_pickled_by_value(tmp_path):
    """Workers cannot import a project's files: they have only what is sent to them."""
    from pyspark import cloudpickle

    write(
        tmp_path,
        pipeline__yml="name: x\ndefinitions: main.py\n",
        shared__py="def double(x): return 2 * x\n",
        main__py="from headwater import pipelines as hw\nfrom shared import double\nSTEP = 1\n"
        "def udf(x): return double(x) + STEP\n"
        "@hw.table\ndef t(): return hw.topic('e').transform(lambda rows: udf)\n",
    )
    query = load_project(tmp_path).declarations.flows[0].query
    assert callable(query)
    sent = cloudpickle.dumps(query.__globals__["udf"])  # type: ignore[attr-defined]
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(20))"
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True)
    assert done.stdout == b"41\n"


def test_places_are_as_the_path_was_given(tmp_path, monkeypatch):
    write(tmp_path / "shop", pipeline__yml="name: x\n", bronze__py=BRONZE)
    monkeypatch.chdir(tmp_path)
    assert origin(load_project("shop")) == os.path.join("shop", "bronze.py") + ":3"


def origin(project: Project) -> str:
    return str(project.declarations.flows[0].origin)


def test_a_missing_project_is_told(tmp_path):
    with pytest.raises(DeclarationError, match=r"there is no such file. Name a folder with"):
        load_project(tmp_path)
    (tmp_path / "pipeline.yml").write_text("name: x\n")
    with pytest.raises(DeclarationError, match=r"declares anything. Add one"):
        load_project(tmp_path)


@pytest.mark.parametrize(
    ("text", "time"),
    [("", "10s"), ("target_batch_time: 3s\n", "3s"), ("target_batch_time: unlimited\n", "")],
)
def test_batches_have_a_limit_unless_the_project_says_otherwise(tmp_path, text, time):
    write(tmp_path, pipeline__yml=f"name: x\n{text}", one__py=BRONZE)
    assert load_project(tmp_path).settings.target_batch_time == time


@pytest.mark.parametrize("name", ["pipeline.yml", "tables.sql", "tables.py"])
def test_a_file_that_is_not_utf_8_is_an_error_with_its_place(tmp_path, name):
    (tmp_path / name).write_bytes(b"\n'\xff'")
    with pytest.raises(DeclarationError, match=rf"{name}:\d+: .*(?i:utf-8)"):
        load_project(tmp_path / name)
