"""Seats in this process: a function of the observation that returns the action."""

from __future__ import annotations

import dataclasses
import inspect
import zlib
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.trial_seeds import seed_of
from trio_cogment.sdk import ActorImplementation, ActorSession, Event, EventType
from trio_cogment.seats.base import Seat, SeatContext, SeatError
from trio_cogment.spaces import Observation, Space, SpaceError, decode_observation, encode_action

# An agent's part in one trial, without the trial: messages in, actions out, nothing to wait for.

#: What is answered by who is not asked.
NO_ACTION = pb.Action()


class Player:
    """Reads the observations of one agent in one trial, and makes messages of its actions.

    Attributes:
        environment: the name of the environment, for errors.
        agent: whose part it is.
    """

    def __init__(self, environment: str, agent: str) -> None:
        self.environment = environment
        self.agent = agent
        self._observation_space: Space | None = None
        self._action_space: Space | None = None
        self._mask: Any = None

    @property
    def action_space(self) -> Space:
        """The agent's action space, which came with its first observation."""
        assert self._action_space is not None
        return self._action_space

    def observe(self, message: pb.Observation) -> Observation | None:
        """Return what the agent has to act on, always with its spaces; None if it is not asked for an action.

        Raises:
            SeatError: the message makes no sense, or it is the first and has no spaces.
        """
        try:
            observation = decode_observation(message)
        except SpaceError as error:
            raise SeatError(self.environment, self.agent, error) from None
        if observation.action_space is not None:
            self._observation_space, self._action_space = observation.observation_space, observation.action_space
        if not (observation.active and observation.alive):
            return None
        if self._action_space is None:
            raise SeatError(
                self.environment,
                self.agent,
                "action_space: expected it with the first observation of the trial, got none; the environment has to "
                "be one that trio_cogment.rl serves, or one that does the same",
            )
        return dataclasses.replace(
            observation, observation_space=self._observation_space, action_space=self._action_space
        )

    def act(self, action: Any) -> pb.Action:
        """Return an action as a message.

        Raises:
            SeatError: it is not in the action space.
        """
        try:
            return encode_action(action, self._action_space)
        except SpaceError as error:
            raise SeatError(self.environment, self.agent, error) from None


#: What answers in one trial: called with an observation, always with its spaces, when the agent is asked to act.
Answer: TypeAlias = Callable[[Observation], Any]


class LocalSeat(Seat):
    """A seat that is taken by a function of this process.

    It is asked when the agent is to act: not while it is another's turn, not when the agent is out, and not for the
    last observation of a trial.
    """

    @abstractmethod
    async def begin(self, context: SeatContext) -> Answer:
        """Return what answers in a new trial; its actions may be awaitable.

        Raises:
            Exception: nobody can take the seat; it is as if the actor had failed.
        """

    def seeded(self, seed: int) -> LocalSeat:
        """Return what sits there in a trial with a seed; see `Seat.seeded`."""
        return self

    def actor(self, context: SeatContext) -> ActorImplementation:
        """Return the implementation; see `Seat.actor`."""

        async def sit(session: ActorSession[Any, Any, Any]) -> None:
            player = Player(context.environment, session.name)
            answer = await self._answer_first(session, player, context)
            if answer is not None:
                await session.handle(partial(_answer_now, session, player, answer))

        return sit

    async def _answer_first(
        self, session: ActorSession[Any, Any, Any], player: Player, context: SeatContext
    ) -> Answer | None:
        """Take part until the first action, and to the end of the trial if that is awaitable.

        Returns:
            What answered, if that was at once: then no task has to be switched to for the following actions.
        """
        answer: Answer | None = None
        async for event in session.all_events():
            asked = _asked(player, event)
            if asked is not None:
                if answer is None:
                    # Not before: a trial may be started while the last one of the same seat still runs.
                    seed = seed_of(session.trial_id)
                    seat = self if seed is None else self.seeded(seed)
                    answer = await seat.begin(replace(context, agent=session.name, seed=seed))
                action = answer(asked)
                if not inspect.isawaitable(action):
                    await session.do_action(player.act(action))
                    return answer
                await session.do_action(player.act(await action))
            elif event.observation is not None:
                await session.do_action(NO_ACTION)
        return None


def _answer_now(
    session: ActorSession[Any, Any, Any], player: Player, answer: Answer, event: Event[pb.Observation, None]
) -> None:
    asked = _asked(player, event)
    if asked is not None:
        action = answer(asked)
        if inspect.isawaitable(action):
            if inspect.iscoroutine(action):
                action.close()
            text = f"action: expected one at once, as before, got {type(action).__name__}: make it always awaitable"
            raise SeatError(player.environment, player.agent, text)
        session.do_action_nowait(player.act(action))
    elif event.observation is not None:
        session.do_action_nowait(NO_ACTION)


def _asked(player: Player, event: Event[pb.Observation, None]) -> Observation | None:
    """Return the observation that is to be answered with an action, if it is one."""
    if event.observation is None or event.type is not EventType.ACTIVE:
        return None
    return player.observe(event.observation.payload)


class Function:
    """A function that a user gave, as `Answer`.

    It gets the observation's value, and if it takes two arguments the whole `Observation`, too. A class is called
    without arguments for each trial, and the object that it makes is the function of that trial. An object with a
    method `reset` has it called at the beginning of each trial; if that has a parameter `seed`, it gets a number that
    depends on the trial's seed and on the agent, or None in a trial without a seed.
    """

    def __init__(self, given: Any, field: str) -> None:
        """Take what was given.

        Args:
            given: the function, the class or the object.
            field: what it is called in errors.

        Raises:
            InvalidArgumentError: it cannot be called.
        """
        if not callable(given):
            raise InvalidArgumentError(f"{field}: expected a function of the observation, got {given!r}")
        self._given = given

    def begin(self, context: SeatContext) -> Answer:
        """Return what answers in a new trial."""
        function = self._given
        if isinstance(function, type):
            function = function()
        reset = getattr(function, "reset", None)
        if callable(reset):
            if _takes_seed(reset):
                # Not the bare seed: the environment draws with that, and so does whoever else sits there.
                reset(seed=None if context.seed is None else zlib.crc32(f"{context.seed} {context.agent}".encode()))
            else:
                reset()
        if required_arguments(function) >= 2:
            return lambda observation: function(observation.value, observation)
        return lambda observation: function(observation.value)


def _takes_seed(function: Callable[..., Any]) -> bool:
    try:
        return "seed" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some functions in C have no signature
        return False


def required_arguments(function: Callable[..., Any]) -> int:
    """Return how many positional arguments without defaults a function takes; 1 if that cannot be found out."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions in C have no signature
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)
