"""The token of a program that calls servers: its variable, and the file that a variable names."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.sdk.access_token import ACCESS_TOKEN_FILE_VARIABLE, ACCESS_TOKEN_VARIABLE, access_token_of, read_token


async def test_the_given_one_comes_first_then_the_variables(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" from-file\n")
    of_file = {ACCESS_TOKEN_FILE_VARIABLE: str(path)}
    both = of_file | {ACCESS_TOKEN_VARIABLE: " from-variable "}
    assert await access_token_of("given", both) == "given"
    assert await access_token_of("", both) == "from-variable"
    assert await access_token_of("", of_file) == "from-file"
    assert await access_token_of("", {}) == ""
    with pytest.raises(InvalidArgumentError, match="token: expected printable ASCII without blanks"):
        await access_token_of("two words", {})


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(FailedPreconditionError, match=f"{path}: No such file"):
        read_token(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FailedPreconditionError, match=f"{path}: expected text"):
        read_token(path)
    path.write_text("two words")
    with pytest.raises(InvalidArgumentError, match=f"{path}: token: expected printable ASCII without blanks"):
        read_token(path)
    path.write_text(" \n")
    with pytest.raises(InvalidArgumentError, match=f"{path}: expected a token, but there is none in it"):
        read_token(path)
