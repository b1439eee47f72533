"""Both faces of the admin have the same methods, arguments and help; only the waiting differs."""

import inspect

import pytest

import headwater
import headwater.aio

ONE_FACE_ONLY = {
    "forked": "only the blocking face has connections on a thread that a fork leaves behind",
    "close": "the blocking face takes a timeout, a task is cancelled instead",
}


def methods(face: type) -> dict[str, object]:
    return {
        name: method
        for name, method in vars(face).items()
        if inspect.isfunction(method) and not name.startswith("_") and name not in ONE_FACE_ONLY
    }


def test_both_faces_of_the_admin_have_the_same_methods() -> None:
    assert list(methods(headwater.Admin)) == list(methods(headwater.aio.Admin))


@pytest.mark.parametrize("name", methods(headwater.aio.Admin))
def test_a_method_has_the_same_signature_and_help_in_both_faces(name) -> None:
    blocking, asyncio = (getattr(face, name) for face in (headwater.Admin, headwater.aio.Admin))
    assert inspect.signature(blocking) == inspect.signature(asyncio)
    assert blocking.__doc__ == asyncio.__doc__
    assert blocking.__doc__
    assert inspect.iscoroutinefunction(asyncio)
    assert not inspect.iscoroutinefunction(blocking)


def test_both_faces_take_the_same_settings() -> None:
    assert inspect.signature(headwater.Admin) == inspect.signature(headwater.aio.Admin)
