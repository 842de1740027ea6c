"""A program of participants: the port that a variable names."""

from __future__ import annotations

import pytest

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.sdk._participants_program import (
    DEFAULT_PORT,
    DIRECTORY_VARIABLE,
    PORT_VARIABLE,
    TOKEN_VARIABLE,
    _port,
)


def test_variables_are_those_of_the_published_sdk() -> None:
    assert (PORT_VARIABLE, DIRECTORY_VARIABLE, TOKEN_VARIABLE) == (
        "COGMENT_PARTICIPANTS_PORT",
        "COGMENT_DIRECTORY_ENDPOINT",
        "COGMENT_DIRECTORY_AUTHENTICATION_TOKEN",
    )


@pytest.mark.parametrize(
    ("text", "port"), [("", DEFAULT_PORT), (" ", DEFAULT_PORT), ("0", 0), (" 9001 ", 9001), ("65535", 65535)]
)
def test_a_port(text: str, port: int) -> None:
    assert _port(text) == port


@pytest.mark.parametrize("text", ["65536", "-1", "9001.5", "x", "9001 9002"])
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{PORT_VARIABLE}: expected a port from 0 to 65535, got '{text}'$"):
        _port(text)
