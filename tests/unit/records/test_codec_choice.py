import os
import subprocess
import sys

import aiokafka.partitioner
import pytest
from kafka.partitioner.default import murmur2 as theirs

import headwater
from headwater.records import codec as chosen
from tests.unit.records.codecs import BOTH, codec

__all__ = ["codec"]

CONTRACT = [
    "BatchWriter",
    "ColumnReader",
    "decode_batch",
    "decode_columns",
    "decode_run",
    "encode_columns",
    "murmur2",
    "read_end",
    "split_rows",
    "sum_rows",
]
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From the tests of Kafka's Utils.murmur2."""


@pytest.mark.parametrize("key", JAVA)
def test_keys_hash_as_in_java(codec, key):
    assert codec.murmur2(key) == JAVA[key]


def test_keys_of_every_length_hash_as_in_other_clients(codec):
    for size in range(100):
        key = bytes((17 * size + 91 * place) & 0xFF for place in range(size))
        assert codec.murmur2(key) & 0xFFFFFFFF == theirs(key)
        assert codec.murmur2(key) & 0xFFFFFFFF == aiokafka.partitioner.murmur2(key)


def test_both_codecs_offer_the_whole_contract(codec):
    assert all(hasattr(codec, name) for name in CONTRACT)


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_says_which_codec_is_in_use():
    assert headwater.codec == chosen.NAME
    assert chosen.BatchWriter.__module__.rpartition(".")[2].startswith(
        {"pure": "pure", "compiled": "_codec"}[chosen.NAME]
    )


def test_other_names_are_no_part_of_the_package():
    with pytest.raises(AttributeError, match="kodek"):
        headwater.kodek  # noqa: B018


@pytest.mark.parametrize("name", ["pure", pytest.param("compiled", marks=BOTH[1].marks)])
def test_the_environment_chooses_the_codec(name):
    assert (
        run("import headwater; print(headwater.codec)", HEADWATER_CODEC=name).stdout == name + "\n"
    )


def test_an_unknown_codec_is_refused_by_name():
    failed = run("import headwater.records.codec", HEADWATER_CODEC="fast")
    assert failed.returncode == 1
    assert "'pure' or 'compiled', not 'fast'" in failed.stderr


def test_a_codec_that_was_not_built_is_replaced_unless_it_was_asked_for():
    hide = "import sys; sys.modules['headwater.records._codec'] = None; "
    report = hide + "import headwater; print(headwater.codec)"
    assert run(report, HEADWATER_CODEC="").stdout == "pure\n"
    assert run(report, HEADWATER_CODEC="compiled").returncode == 1


def test_importing_the_package_imports_no_codec():
    code = "import headwater, sys; print([name for name in sys.modules if 'headwater.' in name])"
    assert run(code).stdout == "[]\n"
