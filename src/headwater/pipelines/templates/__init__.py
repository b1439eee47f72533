"""Project templates: files that are copied with the project's name and folder filled in."""

from pathlib import Path
from typing import Final

from headwater.config.keys import nearest

KINDS: Final = {
    "headwater": "a pipeline for `headwater pipeline run`",
    "sdp": "a project for Spark's own `spark-pipelines run`",
}
_TEMPLATES: Final = Path(__file__).parent
_SUFFIX: Final = ".template"
"""The suffix of Python templates, which are not modules of this package."""


class ProjectTemplateError(ValueError):
    """The project cannot be created; the message says why."""


def write_template(kind: str, folder: Path, name: str) -> list[Path]:
    """Create a project `name` in `folder`; return the files. Never overwrites a file."""
    if kind not in KINDS:
        raise ProjectTemplateError(
            f"no template {kind}{nearest(kind, KINDS)}; there are {', '.join(KINDS)}"
        )
    source = _TEMPLATES / kind
    files = sorted(file for file in source.rglob("*") if file.is_file())
    targets = {
        file: folder / file.relative_to(source).as_posix().removesuffix(_SUFFIX) for file in files
    }
    if taken := [target for target in targets.values() if target.exists()]:
        raise ProjectTemplateError(f"{taken[0]} already exists: choose another folder")
    blanks = {"{{ name }}": name, "{{ folder }}": folder.resolve().as_posix()}
    for file, target in targets.items():
        text = file.read_text()
        for blank, value in blanks.items():
            text = text.replace(blank, value)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return list(targets.values())
