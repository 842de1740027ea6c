"""Trials of the tests: an environment of the field, in process or over sockets, and players that a function drives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from trio_cogment.api import rl_pb2
from trio_cogment.environments.serving import ServedEnvironment
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.platform import Platform, open_platform
from trio_cogment.sdk import ActorSession, Participants, actor_params, serve_participants, trial_params
from trio_cogment.spaces import Observation, decode_observation, encode_action

#: Returns the action of an actor; None: an empty one, which says nothing.
Policy = Callable[[str, Observation], Any]


class Table:
    """Runs trials, and remembers what the actors got."""

    def __init__(self, platform: Platform, endpoint: str | None) -> None:
        self.platform = platform
        self.endpoint = endpoint
        self.seen: dict[str, dict[str, list[Observation]]] = {}
        self.rewards: dict[str, dict[str, list[float]]] = {}
        self._policies: dict[str, Policy] = {}

    async def _play(self, session: ActorSession[Any, Any, Any]) -> None:
        policy = self._policies[session.trial_id]
        seen = self.seen.setdefault(session.trial_id, {}).setdefault(session.name, [])
        rewards = self.rewards.setdefault(session.trial_id, {}).setdefault(session.name, [])
        async for event in session.all_events():
            if event.reward is not None:
                rewards.append(event.reward.value)
            if event.observation is not None:
                observation = decode_observation(event.observation.payload)
                seen.append(observation)
                action = policy(session.name, observation) if observation.active else None
                await session.do_action(b"" if action is None else encode_action(action))

    async def start(
        self,
        actors: list[str],
        policy: Policy,
        *,
        config: rl_pb2.EnvironmentConfig | None = None,
        max_steps: int = 0,
        environment: str = "",
    ) -> str:
        """Start a trial; return its id."""
        trial = f"trial-{len(self._policies)}"
        self._policies[trial] = policy
        more: dict[str, Any] = {} if self.endpoint is None else {"environment_endpoint": self.endpoint}
        params = trial_params(
            [actor_params(name, PLAYER, implementation="player") for name in actors],
            environment=environment,
            environment_config=config,
            max_steps=max_steps,
            **more,
        )
        return await self.platform.controller.start_trial(params, trial_id=trial)

    async def play_branch(self, branch_of: str, tick: int, policy: Policy) -> dict[str, list[Observation]]:
        """Run a branch of a stored trial to its end; return what each actor saw.

        Raises:
            TrialFailedError: it failed.
        """
        trial = f"trial-{len(self._policies)}"
        self._policies[trial] = policy
        await self.platform.controller.start_branch(branch_of, tick, trial_id=trial)
        await self.platform.controller.wait_trial(trial)
        return self.seen[trial]

    async def play(self, actors: list[str], policy: Policy, **settings: Any) -> dict[str, list[Observation]]:
        """Run a trial to its end; return what each actor saw.

        Raises:
            TrialFailedError: it failed.
        """
        trial = await self.start(actors, policy, **settings)
        await self.platform.controller.wait_trial(trial)
        return self.seen[trial]


@asynccontextmanager
async def open_table(
    environments: Mapping[str, ServedEnvironment] | ServedEnvironment, *, sockets: bool = False, **options: Any
) -> AsyncIterator[Table]:
    """Open a platform with these environments and options; with sockets they are served by gRPC."""
    if isinstance(environments, ServedEnvironment):
        environments = {"default": environments}
    participants = Participants(RL_SPEC)
    for name, served in environments.items():
        participants.register_environment(served, name)
    async with (
        open_platform(RL_SPEC if sockets else participants, **options) as platform,
        trio.open_nursery() as nursery,
    ):
        endpoint = None
        if sockets:
            server = await nursery.start(lambda task_status: _serve(participants, task_status))
            endpoint = f"grpc://127.0.0.1:{server.port}"
        table = Table(platform, endpoint)
        platform.participants.register_actor(table._play, "player", [PLAYER])
        try:
            yield table
        finally:
            for served in environments.values():
                await served.aclose()
            nursery.cancel_scope.cancel()


async def _serve(participants: Participants, task_status: Any) -> None:
    await serve_participants(participants, port=0, address="127.0.0.1", task_status=task_status)
