import subprocess
import sys

import pytest

from headwater.records.checksum import crc32c


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(bytearray(data))])
def test_the_check_value_of_crc_32c_comes_out_for_every_kind_of_buffer(kind):
    assert crc32c(kind(b"123456789")) == 0xE3069283


def test_zeros_and_ones_of_rfc_3720_come_out():
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


def test_the_records_room_starts_without_metadata_readers_and_codecs():
    code = (
        "import sys, headwater.records.rewrite, headwater.records.control;"
        "print([name for name in ('importlib.metadata', 'argparse', 'cramjam', 'lz4')"
        " if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
