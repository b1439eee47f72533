"""What the source of the package must not do: compare secrets with ==, or run what others send."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "headwater"
_SECRET = re.compile(
    r"(^|_)(password|secret|hmac|mac|proof|verifier|(stored|server|client)_key)$", re.IGNORECASE
)
_EQUALITY = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
_MAKE_OBJECTS_OF_BYTES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
_RUN_TEXT = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen",
    "yaml.load", "yaml.full_load", "yaml.unsafe_load",
}  # fmt: skip
ALLOWED = {
    "pipelines/declaring/project.py": "it runs the pipeline that its user wrote and named",
    "wire/schema.py": "it makes the classes of messages from this package's own tables",
    "wire/source.py": "it makes the decoders of messages from this package's own tables",
}
"""Where text is run, and whose it is."""


def faults(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(one, _EQUALITY) for one in node.ops):
            compared = [_name(one) for one in (node.left, *node.comparators)]
            if any(map(_SECRET.search, compared)):
                yield node.lineno, "compares a secret: use hmac.compare_digest"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            names = [module or ""] if module else [one.name for one in node.names]
            if {name.partition(".")[0] for name in names} & _MAKE_OBJECTS_OF_BYTES:
                yield node.lineno, "makes objects of bytes that others may have written"
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            shell = any(
                one.arg == "shell" and getattr(one.value, "value", True) for one in node.keywords
            )
            if called in _RUN_TEXT or shell:
                yield node.lineno, f"runs text: {called}"


def _name(node: ast.expr) -> str:
    """The last part of a name: `credential.stored_key`, `final["proof"]`, `mac(...)`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(func=called):
            return _name(called)
    return ""


def test_the_package_compares_no_secret_and_runs_no_text():
    found = {}
    for file in PACKAGE.rglob("*.py"):
        name = str(file.relative_to(PACKAGE))
        here = list(faults(ast.parse(file.read_text())))
        if name in ALLOWED:
            assert here, f"{name} needs no exception"
            here = [one for one in here if not one[1].startswith("runs text")]
        if here:
            found[name] = here
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "if given.password == known: pass",
        'if final["proof"] != expected: pass',
        "if mac(key, text) == given: pass",
        "if token_hmac in known: pass",
        "import pickle",
        "from marshal import loads",
        "yaml.load(text)",
        "eval(text)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_rule_finds_what_it_is_for(text):
    assert len(list(faults(ast.parse(text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "if password is None: pass",
        "if user.name == name: pass",
        "re.compile(text)",
        "yaml.safe_load(text)",
    ],
)
def test_the_rule_finds_nothing_else(text):
    assert list(faults(ast.parse(text))) == []
