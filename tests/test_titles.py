"""Titles of modules name the thing: the check that `nox -s lint` runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.check_titles import is_riddle, title_of


@pytest.mark.parametrize("title", ["What a page may say.", "Who, if anybody.", "How", "Whether it runs."])
def test_titles_that_are_riddles(title: str) -> None:
    assert is_riddle(title)


@pytest.mark.parametrize("title", ["", "Messages of a page.", "Whatever else there is.", "Shows what there is."])
def test_titles_that_name_the_thing(title: str) -> None:
    assert not is_riddle(title)


def test_a_title_is_the_first_line_of_a_docstring(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""Messages of a page.\n\nWhat they say.\n"""\n')
    assert title_of(module) == "Messages of a page."
    module.write_text("# no docstring\n")
    assert title_of(module) == ""
