"""What `headwater` and `headwater.aio` offer: all of it listed, importable and documented."""

import inspect
import pydoc
import subprocess
import sys

import pytest

import headwater
import headwater.aio

ONLY_AT_THE_TOP = {"__version__", "aio", "codec", "errors", "testing"}


@pytest.mark.parametrize("module", [headwater, headwater.aio], ids=lambda module: module.__name__)
def test_dir_lists_every_public_name_and_each_can_be_had(module) -> None:
    assert dir(module) == sorted(module.__all__)
    for name in dir(module):
        found = getattr(module, name)
        if inspect.isclass(found):
            assert found.__name__ == name
            assert inspect.getdoc(found), name


def test_the_asyncio_module_differs_in_what_waits_alone() -> None:
    assert set(headwater.aio.__all__) == set(headwater.__all__) - ONLY_AT_THE_TOP
    differing = {
        n for n in headwater.aio.__all__ if getattr(headwater, n) is not getattr(headwater.aio, n)
    }
    assert differing == {"Admin", "Consumer", "Producer", "transform"}


def test_submodules_need_no_import_of_their_own() -> None:
    code = (
        "import headwater; print(headwater.aio.Admin, headwater.errors.E, headwater.testing.Broker)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_help_begins_with_an_example_and_names_the_clients() -> None:
    text = pydoc.render_doc(headwater, renderer=pydoc.plaintext)
    assert "from headwater import Admin, Consumer, NewTopic, Producer" in text[:600]
    assert "headwater.client.consumer.blocking.Consumer" in text
