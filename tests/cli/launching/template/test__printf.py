"""`printf` by Go's documentation of its verbs, and against Python's formatting of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.cli.launching.template._printf import sprintf
from trio_cogment.cli.launching.template._values import Value

CASES: list[tuple[str, list[Value], str]] = [
    ("no verbs", [], "no verbs"),
    ("%s-%v", ["a", "b"], "a-b"),
    ("%d%%", [50], "50%"),
    ("%05d|%-5d|%5d|%+d|% d", [42, 42, 42, 42, 42], "00042|42   |   42|+42| 42"),
    ("%05d|%-05d|%+05d", [-42, -42, 42], "-0042|-42  |+0042"),
    ("%.3d|%6.3d|%.0d|", [7, 7, 0], "007|   007||"),
    ("%x|%X|%#x|%o|%#o|%O|%b|%#b", [255, 255, 255, 8, 8, 8, 5, 5], "ff|FF|0xff|10|010|0o10|101|0b101"),
    ("%c|%q|%U|%#U", [65, 65, 0x1F600, 65], "A|'A'|U+1F600|U+0041 'A'"),
    ("%q|%q", [39, 34], "'\\''|'\"'"),
    (
        "%10s|%-10s|%.2s|%q|%x|% X|%#x",
        ["abc", "abc", "abc", 'a"b', "hi", "hi", "hi"],
        '       abc|abc       |ab|"a\\"b"|6869|68 69|0x6869',
    ),
    ("%#q|%#q|%#v", ["ab", "a`b", "x"], '`ab`|"a`b"|"x"'),
    ("%t|%v|%5t", [True, False, True], "true|false| true"),
    (
        "%f|%.2f|%8.3f|%-8.1f|%08.3f|%+.1f",
        [1.5, 1.005, 3.14159, 2.0, -3.14159, 2.0],
        "1.500000|1.00|   3.142|2.0     |-003.142|+2.0",
    ),
    (
        "%e|%E|%g|%G|%.3g|%v",
        [123456.789, 1e-7, 1e20, 1e20, 1234.5, 1e21],
        "1.234568e+05|1.000000E-07|1e+20|1E+20|1.23e+03|1e+21",
    ),
    ("%v|%5.1f|%+v", [float("inf"), float("-inf"), float("nan")], "+Inf| -Inf|+NaN"),
    ("%T %T %T %T %T", ["a", 1, 1.5, True, None], "string int float64 bool <nil>"),
    ("%v|%v", [None, {"b": "2", "a": "1"}], "<nil>|map[a:1 b:2]"),
    ("%*d|%-*d|%*d|%.*f", [5, 42, 5, 42, -5, 42, 2, 1.2345], "   42|42   |42   |1.23"),
    ("%[2]d %[1]d", [1, 2], "2 1"),
    ("%[3]*.[2]*[1]f|", [12.0, 2, 6], " 12.00|"),
    ("%d", ["9000"], "%!d(string=9000)"),
    ("%s", [5], "%!s(int=5)"),
    ("%s", [None], "%!s(<nil>)"),
    ("%s", [True], "%!s(bool=true)"),
    ("%d", [1.5], "%!d(float64=1.5)"),
    ("%t", ["x"], "%!t(string=x)"),
    ("%d %d", [1], "1 %!d(MISSING)"),
    ("%d", [1, "x", None], "1%!(EXTRA string=x, <nil>)"),
    ("%", [], "%!(NOVERB)"),
    ("%!", [1], "%!!(int=1)"),
    ("%z", ["x"], "%!z(string=x)"),
    ("%[5]d", [1], "%!d(BADINDEX)"),
    ("%*d", ["x", 1], "%!(BADWIDTH)1"),
    ("%.*d", ["x", 1], "%!(BADPREC)1"),
    ("%9999999d", [1], "%!(BADWIDTH)1"),
]


@pytest.mark.parametrize(("template", "arguments", "expected"), CASES, ids=[template for template, _, _ in CASES])
def test_cases(template: str, arguments: list[Value], expected: str) -> None:
    assert sprintf(template, arguments) == expected


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 30),
    st.sampled_from("doxX"),
    st.sampled_from(["", "0", "-", "+", " "]),
)
def test_integers_are_written_as_by_python(value: int, width: int, verb: str, flag: str) -> None:
    template = f"%{flag}{width or ''}{verb}"
    assert sprintf(template, [value]) == template % value


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 12), st.sampled_from("eEfF"), st.integers(0, 30)
)
def test_floats_are_written_as_by_python(value: float, precision: int, verb: str, width: int) -> None:
    template = f"%{width or ''}.{precision}{verb}"
    assert sprintf(template, [value]) == template % value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_shortest_form_of_a_float_reads_back(value: float) -> None:
    assert float(sprintf("%v", [value])) == value


@given(st.text(), st.lists(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), max_size=4))
def test_nothing_makes_it_fail(template: str, arguments: list[Value]) -> None:
    assert isinstance(sprintf(template, arguments), str)
