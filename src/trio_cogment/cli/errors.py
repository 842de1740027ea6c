"""The error that ends a command, and which exceptions become one."""

from __future__ import annotations

import click

from trio_cogment.base.errors import CogmentError, RpcError, StatusCode

#: What to do about an answer of a server.
_HINTS = {
    StatusCode.UNAUTHENTICATED: "--token_file names a file with a token",
    StatusCode.UNIMPLEMENTED: "`trio-cogment status` shows what a server has",
}


class Failure(click.ClickException):
    """Ends a command with one line on stderr and exit code 1."""


def failure_of(error: Exception) -> Failure | None:
    """Return what to print about an exception, None if it is a bug, which deserves its traceback.

    A group that holds a single exception counts as that exception.
    """
    cause = cause_of(error)
    if isinstance(cause, Failure):
        return cause
    if not isinstance(cause, CogmentError):
        return None
    hint = _HINTS.get(cause.code) if isinstance(cause, RpcError) else None
    return Failure(f"{cause}; {hint}" if hint else str(cause))


def cause_of(error: BaseException) -> BaseException:
    """Return the only exception in a group of one, however deep, or the error itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
