"""Schema files that cannot be read: one error with the file's name."""

from pathlib import Path

import pytest

from headwater.pipelines.ingest.frozen_schema import IngestError, from_file


@pytest.mark.parametrize("content", [b"\x8d\xff", b"Obj\x01\x04\x14", b"{"])
def test_a_file_that_is_not_json_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "orders.avsc"
    file.write_bytes(content)
    with pytest.raises(IngestError) as wrong:
        from_file(file)
    assert str(wrong.value).startswith(f"{file}: schema at $: it is not JSON: ")


def test_a_schema_that_is_nested_too_deeply_is_an_error_that_names_its_file(tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text('{"items": ' * 100_000 + "1" + "}" * 100_000)
    with pytest.raises(IngestError, match=r"orders\.json: schema at \$: it is nested too deeply"):
        from_file(file)
