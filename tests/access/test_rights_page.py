"""The table of rights in the documents is that of the code."""

from __future__ import annotations

import pytest
from tools.rights import BEGIN, END, PAGE, written

from trio_cogment.access.rights import RIGHTS
from trio_cogment.access.roles import Role


def test_the_page_is_as_the_tool_writes_it() -> None:
    page = PAGE.read_text()
    assert page == written(page), "run python tools/rights.py"


def test_every_call_and_every_role_is_there() -> None:
    page = PAGE.read_text()
    table = page[page.index(BEGIN) : page.index(END)]
    for service, methods in RIGHTS.items():
        rows = [line for line in table.splitlines() if line.startswith(f"| {service} |")]
        listed = [call.strip() for row in rows for call in row.split("|")[2].split(",")]
        assert sorted(listed) == sorted(methods)
    assert all(f"- **{role.value}** " in table for role in Role)


def test_a_page_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the lines"):
        written("# Security\n")
