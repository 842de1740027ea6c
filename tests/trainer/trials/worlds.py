"""A platform with a trainer, for runs of trials."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.trainer.bench import Client
from trio_cogment.api.spaces_pb2 import Observation
from trio_cogment.base.config import TrainerConfig
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.platform import Platform, open_platform
from trio_cogment.sdk import EnvironmentSession, Participants
from trio_cogment.trainer import PlatformTrainer

PARAMS: dict[str, Any] = {
    "environment": {"implementation": "world", "endpoint": "cogment://discover"},
    "actors": [{"name": "ann", "actor_class": "player", "endpoint": "cogment://discover", "implementation": "player"}],
}


def rewarding(ticks: int) -> Callable[[Any], Awaitable[None]]:
    """An environment of this many steps, each rewarded with a half; at the end there is what its seed says on top."""

    async def run(session: EnvironmentSession[Any, Any, Any]) -> None:
        names = [actor.name for actor in session.actors]
        seed = session.config.seed if session.config is not None else 0

        def all_get(**of: Any) -> list[tuple[str, Observation]]:
            return [(name, Observation(active=True, alive=True, **of)) for name in names]

        await session.start(all_get())
        left = ticks
        async for event in session.all_events():
            if event.actions is None:
                continue
            left -= 1
            for name in names:
                await session.add_reward(0.5 if left else 0.5 + seed, 1, to=[name])
            if left:
                await session.produce_observations(all_get())
            else:
                await session.end(all_get(terminated=True))

    return run


def trials(count: int, **changes: Any) -> dict[str, Any]:
    """Return the changes of a configuration that make it a run of trials."""
    return {"entry_point": "builtin:trials", "trials": {"count": count, "params": PARAMS, **changes}}


@asynccontextmanager
async def training(
    participants: Participants, folder: Path, *, store: str | None = "memory:", **settings: Any
) -> AsyncIterator[tuple[Client, Platform]]:
    extension = PlatformTrainer(folder, full=False, config=TrainerConfig(**settings), host=Host(runner=inline_runner))
    async with open_platform(participants, store=store, extensions=[extension]) as platform:
        yield Client(platform.channel), platform
