"""The controller's decisions as transcripts; `pytest tests/scenarios --rewrite` writes them again."""

from pathlib import Path

import pytest

from tests.scenarios.controller_script import ControllerScript

FOLDER = Path(__file__).parent
RULE = "----"


def played(text: str) -> str:
    """The scenario with the effects that its events have now."""
    script, lines, events = ControllerScript(), [], []
    in_effects = False
    for line in text.splitlines():
        if line == RULE:
            lines += [RULE, *(effect for event in events for effect in script.run(event)), ""]
            events, in_effects = [], True
        elif not line.strip():
            if not in_effects:
                lines.append("")
            in_effects = False
        elif not in_effects:
            lines.append(line)
            if not line.startswith("#"):
                events.append(line)
    assert not events, f"no {RULE} after {events}"
    return "\n".join(lines).rstrip() + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_controller_does_what_its_scenarios_say(path, request):
    text = path.read_text()
    now = played(text)
    if request.config.getoption("--rewrite"):
        path.write_text(now)
    else:
        assert now.splitlines() == text.splitlines(), (
            "to accept it: pytest tests/scenarios --rewrite"
        )


def test_there_are_scenarios_and_a_changed_one_is_noticed():
    paths = sorted(FOLDER.glob("*.txt"))
    assert len(paths) >= 10
    for path in paths:
        text = path.read_text()
        assert text.startswith("#"), f"{path.name} does not say what it shows"
        changed = text.replace("\nsend 1 to 0: ", "\nsend 1 to 9: ", 1)
        assert changed != text
        assert played(changed) == text
