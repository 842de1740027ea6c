"""What may end a command: one cause, however many nurseries it came through."""

from __future__ import annotations

from trio_cogment.cli._settings import Failure
from trio_cogment.errors import CogmentError


def failure_of(error: Exception) -> Failure | None:
    """Return what to tell about an exception, None if it is a bug: that deserves its traceback.

    A group that holds a single exception counts as that exception.
    """
    cause = cause_of(error)
    if isinstance(cause, Failure):
        return cause
    return Failure(str(cause)) if isinstance(cause, CogmentError) else None


def cause_of(error: BaseException) -> BaseException:
    """Return the one exception in a group of one, however deep, or the error itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
