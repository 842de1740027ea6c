"""`run_trials` as an ordinary function, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

import trio

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.rl.runner._opening import RunOptions
from trio_cogment.rl.runner._opening import run_trials_async as run_trials_async
from trio_cogment.rl.runner.results import Results
from trio_cogment.sync import Platform, TrioThread


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


def run_trials(n: int, *, check: bool = False, **settings: Unpack[RunOptions]) -> Results:
    """Run trials, and return their results as arrays; see `trio_cogment.rl.run_trials_async`.

    The trials run in a thread of their own, and so do policies and callbacks that are given; this function waits.
    Control-C ends them.

    Args:
        n: how many trials.
        check: raise if a trial has failed, when all have ended.
        **settings: see there; `on` is a platform of `trio_cogment.sync`, or endpoints.

    Raises:
        FailedPreconditionError: it is called within a Trio program, which would stand still.
        Exception: whatever the asynchronous function raises.
    """
    if trio.lowlevel.in_trio_task():
        raise FailedPreconditionError(
            "run_trials: in a Trio program await trio_cogment.rl.run_trials_async, or use open_run"
        )
    on = settings.get("on")
    if isinstance(on, Platform):
        settings["on"] = on.platform
        return on.call(run_trials_async, n, check=check, **settings)
    thread = TrioThread(_nothing(), "trio-cogment run")
    try:
        return thread.call(run_trials_async, n, check=check, **settings)
    finally:
        thread.close()
