"""Trials as episodes of verifiers: each seat that is left is an agent there, and each of its turns one of the agent's.

`verifiers_plugin` makes the two classes that a module of verifiers exports: a taskset, whose tasks are seeds, and an
environment with an `AgentConfig` for each seat. Its `run` starts a trial for each episode. An agent that is to act is
told what it observes by `interaction.turn`, and its reply is the action. The trials of an environment run on one
platform, with Trio in a thread of its own; calls in both directions are awaited.

verifiers: https://github.com/PrimeIntellect-ai/verifiers, version 0.4 (`verifiers.v1`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import new_class
from typing import Any, TypeAlias, TypeVar

import trio

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError, MissingExtraError
from trio_cogment.environments.making import make_environment
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rl.runner import TrialResult, run_trials_async
from trio_cogment.rl.views.options import is_address
from trio_cogment.rl.views.parameters import driven_agents
from trio_cogment.sdk import ActorImplementation, ActorSession, EventType, Participants
from trio_cogment.sdk.bridges.call import result_of
from trio_cogment.sdk.bridges.thread import TrioThread
from trio_cogment.seats.base import Seat, SeatContext, SeatError
from trio_cogment.seats.local import NO_ACTION
from trio_cogment.seats.rendering import Conversation, place_prompt, read_action
from trio_cogment.spaces import Observation, SpaceError, decode_observation, encode_action

try:
    import verifiers.v1 as vf
except ModuleNotFoundError as missing:
    if missing.name not in ("verifiers", "verifiers.v1"):  # the second: it is an older one
        raise
    raise MissingExtraError.plain("'verifiers>=0.4'") from missing

T = TypeVar("T")

#: Sends a turn to an agent, from Trio; returns its reply, or None when its run is over.
Turn: TypeAlias = Callable[[str], Awaitable[str | None]]


class AgentSeat(Seat):
    """An agent of an episode in a seat of its trial.

    Args:
        turn: asks the agent.
        retries: how often it is asked again for one action.

    Attributes:
        rewards: one for each action: all that it got until its next one; what came before the first belongs to that.
        refused: the number of replies that were no action.
        left: why the agent took no further part; empty if it did not leave.
        terminated: the game has ended for the agent by its own rules.
        final: its last observation as text, if it has ended; None before.
    """

    label = "verifiers"

    def __init__(self, turn: Turn, retries: int) -> None:
        super().__init__()
        self._turn = turn
        self._retries = retries
        self._actions = 0
        self.rewards: list[float] = []
        self.refused = 0
        self.left = ""
        self.terminated = False
        self.final: str | None = None

    def actor(self, context: SeatContext) -> ActorImplementation:
        """See `Seat.actor`."""
        return partial(self._sit, context)

    async def _sit(self, context: SeatContext, session: ActorSession[pb.Observation, pb.Action, Any]) -> None:
        conversation = Conversation(None)
        async for event in session.all_events():
            if event.observation is None:
                continue
            try:
                observation = decode_observation(event.observation.payload)
            except SpaceError as error:
                raise SeatError(context.environment, session.name, error) from None
            conversation.space = observation.action_space or conversation.space
            self._count(observation.reward)
            if event.type is EventType.ACTIVE:
                asked = observation.active and observation.alive
                action = await self._action(context, session.name, observation, conversation) if asked else NO_ACTION
                await session.do_action(action)
            if self.final is None and (
                observation.terminated or observation.truncated or event.type is not EventType.ACTIVE
            ):
                self.terminated, self.final = observation.terminated, conversation.told(observation.value)

    def _count(self, reward: float | None) -> None:
        if len(self.rewards) < max(self._actions, 1):
            self.rewards.append(0.0)
        self.rewards[-1] += reward or 0.0

    async def _action(
        self, context: SeatContext, name: str, observation: Observation, conversation: Conversation
    ) -> pb.Action:
        space = conversation.space
        assert space is not None, "the environment is of this package"
        told = conversation.told(observation.value, observation.action_mask)
        for _ in range(1 + self._retries):
            reply = await self._turn(told)
            if reply is None:
                self.left = "the agent's run ended before the game"
                raise SeatError(context.environment, name, self.left)
            try:
                action = encode_action(read_action(space, reply, observation.action_mask), space)
            except SpaceError as error:
                self.refused += 1
                told = f"That was refused: {error}"
            else:
                self._actions += 1
                return action
        self.left = f"no action in {1 + self._retries} replies"
        raise SeatError(context.environment, name, f"{self.left}; the last was refused: {told}")

    def record(self, trace: Any, result: TrialResult) -> None:
        """Write into an agent's trace how the trial was for it."""
        trace.record_reward("game", sum(self.rewards))
        trace.record_metric("refused_replies", self.refused)
        trace.info["trial"] = {
            "trial_id": result.trial_id,
            "rewards": self.rewards[: self._actions],
            "terminated": self.terminated,
            "truncated": self.final is not None and not self.terminated,
            "final_observation": self.final or "",
            "left": self.left,
        }


class Trials:
    """The platform of an environment's trials, with Trio in a thread of its own, for coroutines of asyncio.

    Args:
        store: keeps the trials, as for `open_platform`.
        model_registry: serves the models of other seats.
    """

    def __init__(self, store: Any, model_registry: Any) -> None:
        opened = open_platform(Participants(RL_SPEC), store=store, model_registry=model_registry)
        self._thread: TrioThread[Platform] = TrioThread(opened, "trio-cogment verifiers")

    async def run(self, **settings: Any) -> TrialResult:
        """Run one trial, with the arguments of `run_trials_async`. When the task is cancelled, the trial is ended.

        Raises:
            CogmentError: something that was given makes no sense, for example.
        """
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        async def one() -> TrialResult:
            try:
                results = await run_trials_async(1, on=self._thread.value, **settings)
                return results.trials[0]
            finally:
                loop.call_soon_threadsafe(over.set)

        call = self._thread.start(one)
        try:
            await over.wait()
        except asyncio.CancelledError:
            call.cancel()
            await over.wait()
            raise
        return call.wait()

    def close(self) -> None:
        """End what runs, and close the platform."""
        self._thread.close()


async def from_trio(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine of asyncio from Trio; cancelling the one cancels the other."""
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return await result_of(future)
    except trio.Cancelled:
        future.cancel()
        raise


class GameData(vf.TaskData):  # type: ignore[misc]  # it is not installed where types are checked
    """A game that begins with a seed."""

    seed: int | None = None


class GameTask(vf.Task[GameData, vf.State, vf.TaskConfig]):  # type: ignore[misc]  # as above
    """A game to be played; the environment gives the rewards."""


def verifiers_plugin(
    environment: Any,
    *,
    seats: Mapping[str, Seat] | None = None,
    store: Any = None,
    model_registry: Any = None,
    hosting: str = "inline",
    options: Mapping[str, Any] | None = None,
    max_steps: int = 0,
    retries: int = 2,
    **arguments: Any,
) -> tuple[type[Any], type[Any]]:
    """Return what a plugin module of verifiers exports: a taskset and an environment whose episodes are trials.

    The module gives both names, and has them in its `__all__`. The tasks are numbered, and the number is the seed.

    Args:
        environment: what is played: an id (`rps_v2`, `textarena/TicTacToe-v0`), or a function that makes one; see
            `trio_cogment.environments.making.make_environment`.
        seats: who takes the seats of which agents; all others are agents of verifiers, by the same names.
        store: keeps every episode as a trial: `memory:` or `sqlite:PATH`. Each process has a platform of its own.
        model_registry: the folder of a model registry, for seats of models.
        hosting: where the environment runs: `inline`, in the thread of the trials, `thread` or `process`.
        options: of the environment's episodes.
        max_steps: after this many the trial is ended; 0 for no limit.
        retries: how often an agent whose reply is no action is told so, and asked again. Then it leaves the trial,
            which ends.
        arguments: with which the environment is made.

    Raises:
        MissingExtraError: a package is not installed; the text has the command that installs it.
        InvalidArgumentError: there is no such environment or agent, all agents have seats, or an agent's name cannot be
            that of a field of verifiers' configuration.
        CogmentError: the environment cannot be made.
    """
    if is_address(environment):
        raise InvalidArgumentError(
            f"environment {environment!r}: expected one that runs in this process, for an episode of verifiers"
        )
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise InvalidArgumentError(f"retries: expected a number that is not negative, got {retries!r}")
    made = make_environment(environment, **arguments)
    name, spaces = made.name, dict(made.action_spaces)
    mine = driven_agents(name, tuple(made.agents), seats or {}, None)
    made.close()
    config = _config(name, mine)
    settings = {
        "environment": environment,
        "arguments": arguments,
        "hosting": hosting,
        "options": options,
        "max_steps": max_steps,
    }

    class GameTaskset(vf.Taskset[GameTask, vf.TasksetConfig]):  # type: ignore[misc]  # as above
        """Games without end, each with a seed."""

        INFINITE = True

        def load(self) -> Iterator[GameTask]:
            for number in itertools.count():
                yield GameTask(GameData(name=f"{name}#{number}", seed=number), self.config.task)

    class GameEnv(vf.Env[config]):  # type: ignore[misc]  # as above
        """Episodes that are trials."""

        _trials: Trials | None = None

        async def start(self) -> None:
            self._trials = await asyncio.to_thread(Trials, store, model_registry)

        async def stop(self) -> None:
            trials, self._trials = self._trials, None
            if trials is not None:
                await asyncio.to_thread(trials.close)

        async def run(self, task: Any, agents: Any) -> None:
            if self._trials is None:
                raise FailedPreconditionError("run: expected `async with env.serving()` around the episodes")
            loop = asyncio.get_running_loop()
            places: dict[str, Seat] = dict(seats or {})
            mind: dict[str, tuple[AgentSeat, Any]] = {}
            async with AsyncExitStack() as stack:
                for agent in mine:
                    told = (task.data.system_prompt, place_prompt(name, agent, spaces[agent]), task.data.prompt_text)
                    own = task.with_data(prompt=None, system_prompt="\n\n".join(text for text in told if text))
                    interaction = await stack.enter_async_context(getattr(agents, agent).interaction(own))
                    seat = AgentSeat(partial(_turn, loop, interaction), retries)
                    places[agent], mind[agent] = seat, (seat, interaction.trace)
                seed = getattr(task.data, "seed", None)
                result = await self._trials.run(**settings, seats=places, seeds=None if seed is None else [seed])
                if result.failed and not any(seat.left for seat, _ in mind.values()):
                    raise CogmentError(f"trial {result.trial_id!r}: {result.error}")
            for seat, trace in mind.values():
                seat.record(trace, result)

    return GameTaskset, GameEnv


async def _turn(loop: asyncio.AbstractEventLoop, interaction: Any, told: str) -> str | None:
    segment = await from_trio(loop, interaction.turn(told))
    return None if segment.terminated else str(segment.last_reply)


def _config(environment: str, agents: tuple[str, ...]) -> type[Any]:
    """Return the class of configurations in which each agent has a field of its name."""
    for agent in agents:
        if not agent.isidentifier() or agent.startswith("_") or agent in vf.EnvConfig.model_fields:
            raise InvalidArgumentError(
                f"environment {environment!r}, agent {agent!r}: expected a name that can be that of a field of "
                "verifiers' EnvConfig: letters, digits and _, and none that it has"
            )
    # A player needs no tools, so no sandbox: the program of `null` only talks to the model.
    seat = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig())
    fields = {
        "__module__": __name__,
        "__annotations__": dict.fromkeys(agents, vf.AgentConfig),
        **dict.fromkeys(agents, seat),
    }
    return new_class("GameEnvConfig", (vf.EnvConfig,), exec_body=lambda namespace: namespace.update(fields))
