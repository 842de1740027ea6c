"""The programs of the page about many trials run as they stand."""

from __future__ import annotations

import pytest

from tests.test_examples import output_of, programs

PAGE = "docs/rl-runner.md"


@pytest.mark.parametrize("number", range(len(programs(PAGE))))
def test_program(number: int) -> None:
    output_of("-W", "error", "-c", programs(PAGE)[number])


def test_there_are_programs() -> None:
    assert len(programs(PAGE)) == 4
