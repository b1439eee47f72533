"""Files with secrets."""

import os
import stat

from headwater.pki.authority import write_private


def test_a_secret_goes_into_the_file_that_was_made(tmp_path, monkeypatch):
    """Not into one that somebody else puts in its place, in a folder that others may write to."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    os_open = os.open

    def swapped(path, flags, mode=0o777, **more):
        descriptor = os_open(path, flags, mode, **more)
        if os.path.basename(path).startswith(".login"):
            os.unlink(path)
            os.symlink(elsewhere, path)
        return descriptor

    monkeypatch.setattr(os, "open", swapped)
    write_private(tmp_path / "login.properties", "a secret")
    assert elsewhere.read_text() == ""


def test_a_file_with_a_secret_is_for_its_owner_alone(tmp_path):
    path = tmp_path / "login.properties"
    for text in ("one", "two"):
        write_private(path, text)
        assert path.read_text() == text
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
