"""Implementations that may be registered."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType, MethodType

from trio_cogment.base.errors import InvalidArgumentError


def check_implementation(what: str, implementation: object, *, lambdas: bool = True) -> None:
    """Check that this is, or may be, an async function of a session.

    A lambda (unless `lambdas` is false), and what is not written in Python, may return an awaitable without saying so:
    these are found out when they are called.

    Raises:
        InvalidArgumentError: it is none; `what` names it.
    """
    expected = f"{what}: expected an async function"
    if inspect.iscoroutine(implementation):
        implementation.close()  # or Python complains that nobody awaited it
        name = implementation.__name__
        raise InvalidArgumentError(f"{expected}, got a coroutine: give `{name}`, not `{name}()`")
    if isinstance(implementation, type):
        name = implementation.__name__
        raise InvalidArgumentError(f"{expected}, got the class {name!r}")
    if not callable(implementation):
        raise InvalidArgumentError(f"{expected}, got {implementation!r}")
    function = _function_of(implementation)
    if function is None or (lambdas and function.__name__ == "<lambda>"):
        return
    if any(map(inspect.iscoroutinefunction, (implementation, function, inspect.unwrap(function)))):
        return
    if inspect.isasyncgenfunction(function):
        raise InvalidArgumentError(f"{expected}, got {function.__name__!r}, which has a `yield`")
    raise InvalidArgumentError(
        f"{expected}, got the ordinary function {function.__name__!r}; write `async def`, or adapt it with "
        "`trio_cogment.sync`"
    )


def _function_of(implementation: object) -> FunctionType | None:
    """Return the function that a call would run, None if it is not one of Python."""
    while isinstance(implementation, functools.partial):
        implementation = implementation.func
    if not isinstance(implementation, FunctionType | MethodType):
        implementation = type(implementation).__call__
    if isinstance(implementation, MethodType):
        implementation = implementation.__func__
    return implementation if isinstance(implementation, FunctionType) else None
