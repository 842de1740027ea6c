"""Methods that wait, made of asynchronous ones: their arguments and results are the same."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Concatenate, ParamSpec, TypeVar

from trio_cogment.sdk.session_views import View
from trio_cogment.sync._portal import Caller, Items, TrioThread

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[View[A, Any], P], T]:
    """Return a method that calls an asynchronous one and waits for its result."""

    @functools.wraps(method)
    def call(view: View[A, Caller], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return view._caller.call(method, view._target, *args, **kwargs)

    return call


def iterating(
    method: Callable[Concatenate[A, P], AsyncIterable[T]],
) -> Callable[Concatenate[View[A, Any], P], Items[T]]:
    """Return a method that gives the items of an asynchronous iteration."""

    @functools.wraps(method)
    def call(view: View[A, TrioThread[Any]], /, *args: P.args, **kwargs: P.kwargs) -> Items[T]:
        return Items(view._caller, functools.partial(method, view._target, *args, **kwargs))

    return call


def watching(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[AsyncIterable[T]]],
) -> Callable[Concatenate[View[A, Any], P], Items[T]]:
    """Return a method that gives the items of an iteration which an asynchronous context manager opens."""

    @functools.wraps(method)
    def call(view: View[A, TrioThread[Any]], /, *args: P.args, **kwargs: P.kwargs) -> Items[T]:
        return Items(view._caller, functools.partial(method, view._target, *args, **kwargs))

    return call
