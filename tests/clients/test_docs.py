"""The pages that need no Spark: a reader types every block; links and references hold."""

import re

import pytest
from tools import api_reference

from tests.pages import ROOT, Reader

DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "pipelines")
SETTINGS = {
    "docs/operations/acls": {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS",
    }
}
"""What the broker of a page needs, whose reader comes without a login."""
_LINK = re.compile(r"\]\(([^)#:]+)(?:#([\w-]+))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_PATH = re.compile(r"`((?:tests|tools|examples)/[\w./]+)`")


def name_of(page):
    return str(page.relative_to(ROOT).with_suffix(""))


@pytest.mark.parametrize("page", [p for p in PAGES if "```" in p.read_text()], ids=name_of)
def test_a_reader_can_type_every_block_of_a_page(page, tmp_path):
    with Reader(tmp_path, **SETTINGS.get(name_of(page), {})) as reader:
        reader.read(page)


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target, heading in _LINK.findall(text):
        place = page.parent / target
        assert place.exists(), target
        assert not heading or heading in headings(place), f"{target}#{heading}"
    for path in _PATH.findall(text):
        assert (ROOT / path).exists(), path


def headings(page):
    """What can follow the # of a link."""
    found = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("folder", ["clients", "pipelines"])
def test_every_page_is_in_the_index(folder):
    index = (DOCS / folder / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (DOCS / folder).glob("*.md")} - {"README.md"}
    assert [name for name in sorted(pages) if f"({name})" not in index] == []


def test_the_reference_says_what_the_docstrings_say():
    assert api_reference.outdated() == [], "run python -m tools.api_reference"


def test_the_reference_has_every_public_name():
    import headwater

    page = (DOCS / "clients" / "reference.md").read_text(encoding="utf-8")
    for name in set(headwater.__all__) - {"__version__", "codec"}:
        assert f"`headwater.{name}`" in page, name
