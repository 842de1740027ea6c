"""Trials with old participants, in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from tests.gateways.legacy.servers import PROFILE, AgentServer, EnvironmentServer, channel
from trio_cogment.api.common_pb2 import SerializedMessage, TrialParams
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.gateways.legacy.participants import LegacyAgent, LegacyEnvironment
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.platform import Platform, open_platform
from trio_cogment.sdk import ActorSession, EnvironmentSession, Event, Participants, actor_params, trial_params

#: (name, class) of the actors, not in the order of the classes.
ACTORS = (("d1", "drone"), ("p", "plane"), ("d2", "drone"))


@dataclass
class Newcomer:
    """An actor of today: notes its events, and acts with its name and the tick."""

    events: dict[str, list[Event[Any, Any]]] = field(default_factory=dict)

    async def play(self, session: ActorSession[Any, Any, Any]) -> None:
        seen = self.events.setdefault(session.name, [])
        async for event in session.all_events():
            seen.append(event)
            if event.observation is not None and event.type.name == "ACTIVE":
                await session.do_action(f"{session.name} at {event.tick_id}".encode())

    def observations(self, name: str) -> list[bytes]:
        """Return what an actor saw."""
        return [event.observation.payload for event in self.events[name] if event.observation is not None]


@dataclass
class Field:
    """An environment of today: notes its events, and ends a trial at a tick."""

    ends_at: int = 3
    events: list[Event[Any, Any]] = field(default_factory=list)

    async def play(self, session: EnvironmentSession[Any, Any, Any]) -> None:
        await session.start([("*", b"see 0")])
        async for event in session.all_events():
            self.events.append(event)
            if event.actions is None:
                continue
            tick_id = event.tick_id + 1
            seen = [("*", b"see %d" % tick_id)]
            if tick_id == self.ends_at:
                await session.end(seen)
            else:
                await session.produce_observations(seen)


@dataclass
class Stage:
    """What plays, and the platform on which it does."""

    platform: Platform
    newcomer: Newcomer
    ground: Field

    async def start(self, params: TrialParams, trial_id: str = "trial") -> str:
        """Start a trial; its actors with the implementation `old` are old ones, and so is its environment."""
        return await self.platform.controller.start_trial(params, trial_id=trial_id)

    async def play(self, params: TrialParams, trial_id: str = "trial", *, check: bool = True) -> TrialOutcome:
        """Run a trial to its end."""
        with trio.fail_after(30):
            await self.start(params, trial_id)
            return await self.platform.controller.wait_trial(trial_id, check=check)


def parameters(
    *, old: Sequence[str] = (), environment: str = "today", actors: Sequence[tuple[str, str]] = ACTORS, **options: Any
) -> TrialParams:
    """Return the parameters of a trial.

    Args:
        old: the names of the actors that an old server plays.
        environment: its implementation.
        actors: (name, class) of each.
        options: see `trial_params`.
    """
    return trial_params(
        [actor_params(name, kind, implementation="old" if name in old else "today") for name, kind in actors],
        environment=environment,
        **options,
    )


@asynccontextmanager
async def staged(
    agents: AgentServer | None = None,
    environments: EnvironmentServer | None = None,
    profile: LegacyProfile = PROFILE,
    trial_config: bytes | None = None,
) -> AsyncIterator[Stage]:
    """Open a platform with the participants `old` and `today`."""
    newcomer, ground = Newcomer(), Field()
    found = Participants()
    found.register_actor(newcomer.play, "today")
    found.register_environment(ground.play, "today")
    async with channel(agents or AgentServer(), environments or EnvironmentServer()) as opener:
        platforms: list[Platform] = []

        async def trials(trial_id: str) -> TrialParams:
            params = TrialParams()
            for actor in await platforms[0].controller.actors(trial_id):
                params.actors.add(name=actor.name, actor_class=actor.actor_class)
            if trial_config is not None:
                params.trial_config.CopyFrom(SerializedMessage(content=trial_config))
            return params

        found.register_actor(LegacyAgent(opener, profile, trials), "old")
        found.register_environment(LegacyEnvironment(opener, profile, trials), "old")
        async with open_platform(found) as platform:
            platforms.append(platform)
            yield Stage(platform, newcomer, ground)
