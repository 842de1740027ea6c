"""The programs of the guide to seats run as they stand."""

from __future__ import annotations

import re
import warnings

import pytest

from tests.test_examples import ROOT

PAGE = (ROOT / "docs" / "rl-seats.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_the_programs_of_the_guide(program: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(program, "docs/rl-seats.md", "exec"), {})


def test_there_are_programs() -> None:
    assert len(PROGRAMS) == 4
