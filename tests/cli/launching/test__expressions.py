"""Expressions of RE2: by its documentation, and those that Python reads in the same way."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.cli.launching._expressions import compiled


@pytest.mark.parametrize(
    ("expression", "found", "not_found"),
    [
        ("up", ["it is up now"], ["down"]),
        (r"^Listening \[port:\d+\]$", ["Listening [port:9000]"], ["Listening [port:]", "x Listening [port:1]"]),
        (r"end\z", ["the end"], ["end."]),
        (r"\Qa.b*\E+", ["a.b**"], ["aab"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        ("[[:digit:]]+x", ["12x"], ["x", ":x"]),
        ("^[[:alpha:][:digit:]_-]+$", ["aZ9_-"], ["a:", "a["]),
        ("^[^[:space:]]$", ["x", "["], [" ", "\t"]),
        ("^[[:punct:]]+$", string.punctuation.split(), ["a"]),
        ("^[]a]+$", ["]a"], ["b"]),
        ("^[^]a]+$", ["b["], ["]"]),
        ("^[a[]+$", ["a["], ["]"]),
        ("^[a&&b||~~]+$", ["&|~ab"], ["c"]),
        (r"^[\]x]+$", ["]x"], ["\\"]),
        (r"\x{1F600}[\x{e9}]", ["\U0001f600é"], ["e"]),
        (r"^\w$", ["a"], ["é"]),
        ("(?i)ready", ["READY", "ready"], []),
        ("a(?i)b", ["ab", "aB"], ["Ab", "AB"]),
        ("a(?i)b|c", ["aB", "C"], ["AB", "A"]),
        ("(?:(?i)a|b)c", ["Ac", "Bc"], ["AC"]),
        ("(?i)a(?-i)b", ["Ab"], ["AB"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("(?<port>[0-9]+)/(?P<name>x)", ["1/x"], ["/x"]),
        ("(?s)a.b", ["a\nb"], []),
        (r"\(\)\|", ["()|"], ["("]),
        ("a|b", ["a", "b"], ["c"]),
    ],
)
def test_expressions(expression: str, found: list[str], not_found: list[str]) -> None:
    pattern = compiled(expression)
    assert [text for text in found if not pattern.search(text)] == []
    assert [text for text in not_found if pattern.search(text)] == []


@pytest.mark.parametrize(
    "expression",
    [
        "(",
        ")",
        "a)",
        "(a",
        "[a",
        "[[:nothing:]]",
        "[[:^alpha:]]",
        "*",
        r"\pL",
        r"\C",
        "(?U)a",
        r"\x{110000}",
        "a\\",
        "[]",
    ],
)
def test_what_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compiled(expression)


@given(st.text())
def test_escaped_text_is_found(text: str) -> None:
    assert compiled(re.escape(text)).search(f"before {text} after")
    if r"\E" not in text:
        assert compiled(f"\\Q{text}\\E").search(f"before {text} after")


@given(st.text("ab01.*+?()[]|^$\\-:{},dwsQEzx<P>i", max_size=12), st.text("ab01", max_size=8))
def test_only_its_own_error_comes_out(expression: str, text: str) -> None:
    try:
        compiled(expression).search(text)
    except ValueError:
        return


@given(st.text("ab1.*+?()|^$", max_size=12), st.lists(st.text("ab1", max_size=8), min_size=1))
def test_plain_expressions_mean_the_same_as_before(expression: str, texts: list[str]) -> None:
    try:
        expected = re.compile(expression)
    except re.error:
        with pytest.raises(ValueError, match=r"."):
            compiled(expression)
    else:
        pattern = compiled(expression)
        assert [bool(pattern.search(text)) for text in texts] == [bool(expected.search(text)) for text in texts]
