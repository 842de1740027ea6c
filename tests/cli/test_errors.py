"""An error that ends a command says what to do where the command line has an answer."""

from __future__ import annotations

import pytest

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.cli.errors import failure_of


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (StatusCode.UNAUTHENTICATED, "; --token_file names a file with a token"),
        (StatusCode.UNIMPLEMENTED, "; `trio-cogment status` shows what a server has"),
        (StatusCode.NOT_FOUND, ""),
    ],
)
def test_what_to_do(code: StatusCode, hint: str) -> None:
    failure = failure_of(ExceptionGroup("", [RpcError(code, "no")]))
    assert failure is not None
    assert failure.message == f"{code.name}: no{hint}"


def test_a_bug_is_no_failure() -> None:
    assert failure_of(ValueError("no")) is None
