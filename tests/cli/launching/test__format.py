"""Output of the launcher, at each quietness and with colours."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.cli.launching import Format, Level, Source, State, Stream

SOURCE = Source("actors", 1, 2)


@pytest.mark.parametrize(
    ("quietness", "shown"),
    [
        (0, {Level.TRACE, Level.INFO, Level.WARNING, Level.ERROR}),
        (1, {Level.INFO, Level.WARNING, Level.ERROR}),
        (2, {Level.WARNING, Level.ERROR}),
        (3, {Level.ERROR}),
        (9, {Level.ERROR}),
    ],
)
def test_what_is_told_at_each_quietness(quietness: int, shown: set[Level]) -> None:
    form = Format(["actors"], quietness)
    assert {level for level in Level if form.message(level, SOURCE, "text")} == shown


def test_messages() -> None:
    form = Format(["actors"])
    assert form.message(Level.INFO, SOURCE, "é") == "[actors:(1/2)] INFO: é\n".encode()
    assert form.message(Level.TRACE, Source("actors"), "waits") == b"[actors] TRACE: waits\n"
    assert form.message(Level.ERROR, Source(), "a\udcffb") == b"[launch] ERROR: a\\udcffb\n"


def test_output_is_always_shown_as_it_is() -> None:
    for quietness in (0, 1, 2):
        form = Format(["actors"], quietness)
        assert form.output(SOURCE, Stream.STDERR, [b"\xff", b""]) == (
            b"[actors:(1/2)] stderr: \xff\n[actors:(1/2)] stderr: \n"
        )
    assert Format(["actors"], 3).output(SOURCE, Stream.STDOUT, [b"\xff", b""]) == b"\xff\n\n"


def test_each_name_has_its_colour() -> None:
    form = Format(["a", "b"], colours=True)
    assert form.output(Source("a", 1, 1), Stream.STDOUT, [b"x"]) == b"\x1b[36m[a:(1/1)]\x1b[0m stdout: x\n"
    assert form.output(Source("b", 1, 1), Stream.STDOUT, [b"x"]) == b"\x1b[33m[b:(1/1)]\x1b[0m stdout: x\n"
    assert b"\x1b[1;31mERROR\x1b[0m" in form.message(Level.ERROR, Source(), "x")


def test_states() -> None:
    states = {"a": State.RUNNING, "b": State.WAITING}
    assert Format(["a", "b"]).states(states, 80) == b"a running  b waiting"
    assert b"\x1b[36ma\x1b[0m" in Format(["a", "b"], colours=True).states(states, 80)


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=9), st.sampled_from(State)), st.integers(1, 60), st.booleans()
)
def test_the_line_of_states_fits(states: dict[str, State], width: int, colours: bool) -> None:
    line = Format(list(states), colours=colours).states(states, width).decode()
    assert len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= width
