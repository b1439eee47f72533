from pathlib import Path

import pytest

from headwater.config.keys import ConfigError
from headwater.config.properties import parse_properties, read_properties


def values(text: str) -> dict[str, str]:
    return {name: value for name, (value, _) in parse_properties(text, "f").items()}


def test_kafkas_own_file_style_is_read() -> None:
    text = """
    # a comment
    ! another
    node.id=1
    listeners = PLAINTEXT://:9092
    log.dirs: /a,/b
    num.partitions 3
    empty=
    bare
    """
    assert values(text) == {
        "node.id": "1",
        "listeners": "PLAINTEXT://:9092",
        "log.dirs": "/a,/b",
        "num.partitions": "3",
        "empty": "",
        "bare": "",
    }


def test_a_backslash_joins_lines_and_escapes_characters() -> None:
    assert values("a=one,\\\n   two\nb=C:\\\\data\nc\\=d=\\u00e9\\t!\n") == {
        "a": "one,two",
        "b": "C:\\data",
        "c=d": "é\t!",
    }


def test_a_trailing_backslash_at_the_end_is_harmless() -> None:
    assert values("a=one\\") == {"a": "one"}


def test_the_last_of_two_assignments_counts_and_knows_its_line() -> None:
    assert parse_properties("a=1\n\na=2", "server.properties")["a"] == ("2", "server.properties:3")


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*missing: No such file"):
        read_properties(str(tmp_path / "missing"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="binary: it is not UTF-8 text"):
        read_properties(str(tmp_path / "binary"))
