"""The threat model names tests that exist; the security page has every key of the hardened profile."""

import ast
import re
from pathlib import Path

from headwater.config.security_profile import _RULES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
THREATS = (ROOT / "docs" / "threat-model.md").read_text()


def test_the_tests_that_cover_threats_exist():
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", THREATS)
    assert len(named) > 10
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text())
        defined = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
        assert name in defined, f"{file} has no {name}"


def test_the_hardened_profile_is_described():
    unlimited = {"max.connections.per.ip.overrides"}
    assert [name for name in _RULES.keys() - unlimited if f"`{name}`" not in PAGE] == []


def test_packages_are_installed_by_version_and_hash_only():
    setup = (ROOT / "tools" / "setup.sh").read_text()
    installs = [line for line in setup.splitlines() if "pip install" in line]
    assert [line for line in installs if "--require-hashes" not in line] == [
        line for line in installs if line.endswith("--no-deps --no-build-isolation --editable .")
    ]
    lock = (ROOT / "requirements" / "dev.lock").read_text()
    packages = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)[1:]
    assert len(packages) > 50
    pinned = re.compile(
        r"[\w.\[\],-]+==\S+( ; [^\\\n]+)? \\\n    --hash=sha256:[0-9a-f]{64}( |\n|$)"
    )
    assert [text for text in packages if not pinned.match(text)] == []
