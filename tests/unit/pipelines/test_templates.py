"""Projects to begin with."""

import pytest
import yaml

from headwater.pipelines.declaring.graph import check
from headwater.pipelines.declaring.project import load_project
from headwater.pipelines.templates import ProjectTemplateError, write_template


def test_a_new_pipeline_has_no_problem_and_reads_its_topic(tmp_path):
    files = write_template("headwater", tmp_path / "shop", "shop")
    project = load_project(tmp_path / "shop")
    assert check(project, topics=["events"]) == []
    assert project.name == "shop"
    assert set(project.declarations.datasets) >= {"events", "actions_per_minute"}
    assert tmp_path / "shop" / "pipeline.yml" in files


def test_a_project_for_spark_names_its_folder_only_where_a_path_must_be_absolute(tmp_path):
    folder = tmp_path / "shop"
    write_template("sdp", folder, "shop")
    written = yaml.safe_load((folder / "spark-pipeline.yml").read_text())
    assert written["name"] == "shop"
    assert written["storage"] == f"file://{folder}/pipeline-storage"
    texts = [file.read_text() for file in folder.rglob("*.*") if file.is_file()]
    assert "{{" not in "".join(texts)
    assert "".join(texts).count(str(tmp_path)) == 1, (
        "other paths are relative: the files are shared"
    )
    compile((folder / "transformations" / "events.py").read_text(), "events.py", "exec")


def test_nothing_is_overwritten(tmp_path):
    write_template("sdp", tmp_path, "shop")
    before = (tmp_path / "spark-pipeline.yml").read_text()
    with pytest.raises(ProjectTemplateError, match=r"spark-pipeline\.yml already exists"):
        write_template("sdp", tmp_path, "other")
    assert (tmp_path / "spark-pipeline.yml").read_text() == before


def test_an_unknown_kind_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(ProjectTemplateError, match="no template spd; did you mean sdp"):
        write_template("spd", tmp_path, "shop")
