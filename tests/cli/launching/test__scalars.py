"""Values of environment variables by their YAML types."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.cli.launching._file import environment_text, quiet_value


def scalar(text: str, style: str | None = None) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, style=style)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", ""),
        ("~", ""),
        ("null", ""),
        ("yes", "true"),
        ("On", "true"),
        ("y", "true"),
        ("no", "false"),
        ("FALSE", "false"),
        ("yEs", "yEs"),
        ("9000", "9000"),
        ("+5", "5"),
        ("-5", "-5"),
        ("0", "0"),
        ("-0", "0"),
        ("0x10", "16"),
        ("-0xff", "-255"),
        ("010", "8"),
        ("0o17", "15"),
        ("0b101", "5"),
        ("08", "8"),
        ("1_000", "1000"),
        ("_1", "_1"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "1.8446744073709552e+19"),
        ("1.50", "1.5"),
        ("1e3", "1000"),
        (".5", "0.5"),
        ("1e6", "1e+06"),
        ("1e400", "+Inf"),
        ("-.inf", "-Inf"),
        (".NaN", "NaN"),
        ("1.2.3", "1.2.3"),
        ("12:30", "12:30"),
        ("2001-01-01", "2001-01-01"),
        (".", "."),
        ("0x", "0x"),
        ("text", "text"),
    ],
)
def test_plain_scalars(written: str, expected: str) -> None:
    assert environment_text(scalar(written)) == expected


@given(st.text(), st.sampled_from(["'", '"', "|", ">"]))
def test_what_is_quoted_stays_as_it_is(text: str, style: str) -> None:
    assert environment_text(scalar(text, style)) == text


@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_stay_themselves(value: int) -> None:
    assert environment_text(scalar(str(value))) == str(value)


@given(st.text(alphabet="0123456789abcdefxo_.+-eE", min_size=1))
def test_any_text_has_a_value(text: str) -> None:
    assert isinstance(environment_text(scalar(text)), str)


def test_booleans() -> None:
    assert [quiet_value(scalar(text)) for text in ("yes", "true", "off", "1")] == [True, True, False, None]
