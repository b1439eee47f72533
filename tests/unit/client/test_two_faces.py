"""Both faces of a client have the same methods, arguments and docstrings."""

import inspect

import pytest
from tools import blocking_faces

import headwater
import headwater.aio

PAIRS = [
    (headwater.Consumer, headwater.aio.Consumer),
    (headwater.Producer, headwater.aio.Producer),
    (headwater.Admin, headwater.aio.Admin),
]
KNOWN = [{"poll", "commit", "process"}, {"send", "flush"}, {"create_topics", "lag"}]
RENAMED = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"} | {
    "__anext__": "__next__"
}


def surface(face) -> dict[str, object]:
    return {
        RENAMED.get(name, name): member
        for name, member in vars(face).items()
        if name in RENAMED or name in RENAMED.values() or not name.startswith("_")
    }


def arguments(member: object) -> list[tuple[str, object, object]]:
    found = inspect.signature(member).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


@pytest.mark.parametrize(("blocking", "asyncio"), PAIRS, ids=lambda face: face.__name__)
def test_the_faces_have_the_same_names_arguments_and_docstrings(blocking, asyncio) -> None:
    ours, theirs = surface(blocking), surface(asyncio)
    assert list(ours) == list(theirs)
    assert any(some <= ours.keys() for some in KNOWN)
    for name, member in ours.items():
        other = theirs[name]
        if isinstance(member, property):
            continue
        assert arguments(member) == arguments(other), name
        text = inspect.getdoc(other)
        for sentence, instead in blocking_faces.SENTENCES.items():
            text = text and text.replace(sentence, instead)
        assert _words(inspect.getdoc(member)) == _words(text), name
    assert arguments(blocking.__init__) == arguments(asyncio.__init__)


def _words(text: str | None) -> list[str]:
    """Line breaks may differ where a sentence does."""
    for sentence, instead in blocking_faces.SENTENCES.items():
        text = text and " ".join(text.split()).replace(" ".join(sentence.split()), instead)
    return (text or "").split()


def test_a_blocking_method_waits_where_the_other_is_awaited() -> None:
    for blocking, asyncio in PAIRS:
        for name, member in surface(asyncio).items():
            other = surface(blocking)[name]
            assert not inspect.iscoroutinefunction(other), name
            assert not inspect.isasyncgenfunction(other), name
            if inspect.iscoroutinefunction(member):
                assert "await" not in inspect.getsource(other)
