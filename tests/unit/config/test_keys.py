import pytest

from headwater.config.keys import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    PASSWORD,
    ConfigError,
    Key,
    SettingsBase,
    key,
)


class Sample(SettingsBase):
    """A small table."""

    # fmt: off
    on: bool = key("on", BOOLEAN, default=False, doc="")
    size_bytes: int = key("size.bytes", INT, default=5, at_least=1, at_most=10, doc="")
    share: float = key("share", DOUBLE, default=0.5, doc="")
    kinds: tuple[str, ...] = key("kinds", LIST, default=(), one_of=("a", "b"), doc="")
    secret: str = key("secret", PASSWORD, default=None, doc="", check=lambda _: "it is too short")
    # fmt: on


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("on", " TRUE ", True),
        ("on", "false", False),
        ("size.bytes", "+7", 7),
        ("share", "1e3", 1000.0),
        ("kinds", "a, b", ("a", "b")),
        ("kinds", "", ()),
    ],
)
def test_text_is_read_as_java_reads_it(name: str, text: str, value: object) -> None:
    assert Sample.key(name).parse(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (-0.000125, "-1.25E-4"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (123456789.0, "1.23456789E8"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
    ],
)
def test_a_number_is_printed_as_java_prints_it(value: float, text: str) -> None:
    row = Sample.key("share")
    assert row.text(value) == text
    assert row.parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("on", "yes", "it takes true or false"),
        ("size.bytes", "1_0", "it takes a whole number"),
        ("size.bytes", "٣", "it takes a whole number"),
        ("size.bytes", "0", "it must be 1 to 10"),
        ("size.bytes", "11", "it must be 1 to 10"),
        ("size.bytes", "99999999999", "it does not fit in 32 bits"),
        ("share", "nan", "it takes a number"),
        ("kinds", "a,c", "it takes a, b"),
        ("kinds", "a,a", "duplicate entry"),
    ],
)
def test_a_bad_value_is_refused_with_key_value_and_reason(
    name: str, text: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Sample.key(name).parse(text)
    assert refused.value.message == f"{name} cannot be {text!r}: {reason}"


def test_a_secret_is_not_repeated_in_the_error() -> None:
    with pytest.raises(ConfigError) as refused:
        Sample.key("secret").parse("hunter2")
    assert "hunter2" not in refused.value.message


def test_an_unknown_key_names_the_nearest_one() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown config sise\.bytes; did you mean size\.bytes\?"
    ):
        Sample.key("sise.bytes")
    with pytest.raises(ConfigError, match=r"unknown config zzz\Z"):
        Sample.key("zzz")


@pytest.mark.parametrize("row", Sample.KEYS.values(), ids=lambda row: row.name)
def test_a_default_survives_printing_and_parsing(row: Key) -> None:
    text = row.text(row.default)
    assert row.default is None or (text is not None and row.parse(text) == row.default)


def test_settings_do_not_change() -> None:
    sample = Sample({row.name: row.default for row in Sample.KEYS.values()})
    assert sample.size_bytes == 5
    with pytest.raises(AttributeError, match="settings do not change"):
        sample.size_bytes = 6


def test_an_attribute_is_the_key_with_underscores() -> None:
    with pytest.raises(TypeError, match=r"a\.b must be declared as a_b"):
        type("Wrong", (SettingsBase,), {"ab": key("a.b", INT, default=1, doc="")})
