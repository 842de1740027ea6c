"""Leftovers of simulated runs of gateways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.platform import Platform
from trio_cogment.testing import World


async def until_nothing_is_left(world: World, left: Callable[[], Awaitable[list[str]]], deadline: float) -> None:
    """Wait until a function names nothing any more, at most until a deadline."""
    while names := await left():
        assert trio.current_time() < deadline, f"left: {', '.join(names)}"
        await trio.sleep(1)
    world.history.record("world", "nothing is left")


async def trials_and_tasks(platform: Platform, *beginnings: str) -> list[str]:
    """Return what is left of trials, and the tasks of the run whose names begin so."""
    infos = await platform.controller.trial_infos()
    runs = platform.orchestrator.running_trials
    return [
        *(f"trial {info.trial_id}" for info in infos if info.state != TrialState.ENDED),
        *([f"{runs} runs"] if runs else []),
        *sorted(f"task {name}" for name in _task_names() if name.startswith(beginnings)),
    ]


def _task_names() -> list[str]:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    tasks = [root]
    for task in tasks:
        for nursery in task.child_nurseries:
            tasks.extend(nursery.child_tasks)
    return [task.name for task in tasks]
