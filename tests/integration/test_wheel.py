"""What users install: a wheel, built from the source archive, in an environment of its own.

The environment has the wheel and, through a path file, the dependencies of this one: nothing is
downloaded. The editable checkout is not on that path, so every import comes from the wheel.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest
from tools.free_ports import free_port

from headwater import __version__
from tests.pages import ROOT

PARTS = ["pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE", "tools/project-urls"]
REPOSITORY = "https://example.org/headwater"
BUILT = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "*.c")
COMPILED = [
    "headwater/records/_codec",
    "headwater/client/producer/_fast_send",
    "headwater/broker/_fast_produce",
    "headwater/log/compaction/_key_map",
]

pytestmark = pytest.mark.timeout(300)


def run(*command, **options):
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=240, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this checkout by way of its source archive, compiled without optimization."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout = folder / "checkout"
    shutil.copytree(ROOT / "src", checkout / "src", ignore=BUILT)
    (checkout / "tools").mkdir()
    for part in PARTS:
        shutil.copy(ROOT / part, checkout / part)
    run("sh", "tools/project-urls", REPOSITORY, cwd=checkout)
    make = "from setuptools import build_meta; print(build_meta.build_sdist('../sdist'))"
    run(sys.executable, "-c", make, cwd=checkout)
    (archive,) = (folder / "sdist").iterdir()
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    quick = {**os.environ, "CFLAGS": "-O0 -g0", "HEADWATER_REQUIRE_COMPILED": "1"}
    run(sys.executable, "-m", "pip", "wheel", *options, "-w", folder, source, env=quick)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of commands of an environment that has the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel)
    place = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    with open(f"{place}/dependencies.pth", "w") as path_file:
        path_file.write(sysconfig.get_path("purelib"))
    return folder / "bin"


def test_a_wheel_has_the_compiled_parts_and_what_users_need_alone(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for part in COMPILED:
        assert any(name.startswith(part) and name.endswith(".so") for name in names), part
    assert {"headwater/py.typed", "headwater/collect/browser.js"} <= set(names)
    assert any(name.startswith("headwater/pipelines/templates/") for name in names)
    licenses = f"headwater-{__version__}.dist-info/licenses"
    assert {f"{licenses}/LICENSE", f"{licenses}/NOTICE"} <= set(names)
    unwanted = [name for name in names if name.endswith((".pyx", ".pxi", ".pxd", ".c"))]
    unwanted += [name for name in names if name.startswith(("headwater/sim", "tests", "tools"))]
    assert unwanted == []


def test_its_metadata_says_where_and_what_it_is(wheel):
    about = zipfile.ZipFile(wheel).read(f"headwater-{__version__}.dist-info/METADATA").decode()
    lines = about.partition("\n\n")[0].splitlines()
    assert f"Project-URL: Source, {REPOSITORY}" in lines
    assert f"Version: {__version__}" in lines
    assert "Classifier: Operating System :: POSIX :: Linux" in lines
    assert "License-Expression: Apache-2.0" in lines
    extras = {line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra")}
    assert extras == {"spark", "lake", "spark-jre", "charts", "collect", "security"}


def test_an_installed_broker_takes_and_gives_a_record(installed, tmp_path):
    headwater = installed / "headwater"
    port = free_port()
    environment = {**os.environ, "HEADWATER_BOOTSTRAP": f"127.0.0.1:{port}"}
    environment.pop("PYTHONPATH", None)
    options = {"cwd": tmp_path, "env": environment}

    assert run(headwater, "--version", **options) == f"headwater {__version__}\n"
    ask = "import headwater; print(headwater.codec, headwater.__file__)"
    codec, place = run(installed / "python", "-c", ask, **options).split()
    assert codec == "compiled"
    assert place.startswith(str(installed.parent)), "the checkout hides the wheel"

    up = subprocess.Popen(
        [headwater, "up", "--port", str(port)], stdout=subprocess.PIPE, text=True, **options
    )
    try:
        assert up.stdout.readline().startswith(f"headwater is ready at 127.0.0.1:{port}")
        run(headwater, "topics", "create", "orders", **options)
        run("sh", "-c", f"echo hello | {headwater} produce orders", **options)
        assert run(headwater, "consume", "orders", **options) == "hello\n"
        up.send_signal(signal.SIGTERM)
        assert up.wait(60) == 0
    finally:
        up.kill()
        up.communicate()
