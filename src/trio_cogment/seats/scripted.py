"""Seats of functions: `random` and `policy`."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.seats.base import SeatContext, SeatError
from trio_cogment.seats.local import Answer, Function, LocalSeat
from trio_cogment.spaces import Observation, SpaceError
from trio_cogment.spaces.masks import sample_allowed


class RandomSeat(LocalSeat):
    """Draws actions from the action space; made by `random`."""

    label = "random"

    def __init__(self, seed: int | None) -> None:
        """Keep the seed.

        Raises:
            InvalidArgumentError: the seed is negative, or no integer.
        """
        super().__init__()
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
            raise InvalidArgumentError(f"seed: expected an integer that is not negative, or None; got {seed!r}")
        self._own: tuple[int, ...] = () if seed is None else (int(seed),)
        self._seeds: tuple[int, ...] = self._own
        self._generators: dict[str, np.random.Generator] = {}

    def seeded(self, seed: int) -> RandomSeat:
        """Return one that draws by itself; see `Seat.seeded`."""
        own = RandomSeat(self._own[0] if self._own else None)
        own.reseed(seed)
        return own

    def beside(self, number: int) -> RandomSeat:
        """Return one that draws by itself; see `Seat.beside`."""
        own = RandomSeat(self._own[0] if self._own else None)
        if self._own and number:
            own._seeds = (*self._own, number)
        return own

    def reseed(self, seed: int) -> None:
        """Begin again with what is drawn; see `Seat.reseed`."""
        # Not the bare seed: the environment draws with that.
        self._seeds = (*self._own, int(seed))
        self._generators.clear()

    async def begin(self, context: SeatContext) -> Answer:
        """Return what draws; see `LocalSeat.begin`."""

        def draw(observation: Observation) -> Any:
            space = observation.action_space
            assert space is not None
            try:
                return sample_allowed(space, self._generator(context.agent), observation.action_mask)
            except SpaceError as error:
                raise SeatError(context.environment, context.agent, error.of("action_mask")) from None

        return draw

    def _generator(self, agent: str) -> np.random.Generator:
        generator = self._generators.get(agent)
        if generator is None:
            # Two agents of one seat do not draw the same; Python's own hash differs from process to process.
            words = (*self._seeds, zlib.crc32(agent.encode())) if self._seeds else None
            generator = self._generators[agent] = np.random.default_rng(words)
        return generator


def random(seed: int | None = None) -> RandomSeat:
    """Return a seat that draws its actions from the action space, and from those that the action mask allows.

    Args:
        seed: of its draws, which go on from trial to trial. In a trial that has a seed, and when a view is reset with
            one, they begin again, and depend on both seeds only; so a trial's seed determines the whole trial, whatever
            runs beside it. For that the trial is started, or its environment served, by the process of the seat.

    Raises:
        InvalidArgumentError: the seed is negative, or no integer.
    """
    return RandomSeat(seed)


class PolicySeat(LocalSeat):
    """A function of the user; made by `policy`."""

    label = "policy"

    def __init__(self, function: Any, **options: Any) -> None:
        super().__init__(**options)
        self._function = Function(function, "policy")

    async def begin(self, context: SeatContext) -> Answer:
        """Return the function for a new trial; see `LocalSeat.begin`."""
        return self._function.begin(context)


def policy(
    function: Any, *, optional: bool = False, default: Any = None, response_timeout_seconds: float = 0.0
) -> PolicySeat:
    """Return a seat that is taken by a function of the observation, which returns the action, or is async.

    Arrays that it gets are read-only. What it raises ends the trial, or the actor's part if the seat is optional.

    Args:
        function: called with the observation's value: `policy(lambda board: board.argmax())`. If it takes two arguments
            (without defaults), the second is the whole `trio_cogment.spaces.Observation`, with the action mask and, at
            every step, with the spaces. It may have the state of an episode: if it has a method `reset`, that is called
            when a trial begins. `reset(seed)` gets a seed to draw by, which depends on that of the trial (None: it has
            none), so that equal seeds give equal trials wherever they run. If it is a class, each trial has an object
            of its own, made without arguments: several trials at once need that.
        optional: the trial goes on without it, when it has failed.
        default: the action that is taken then.
        response_timeout_seconds: how long an async function may take before it counts as failed; 0: no limit.

    Raises:
        InvalidArgumentError: it cannot be called, or the seat is optional and has no default action.
    """
    return PolicySeat(function, optional=optional, default=default, response_timeout_seconds=response_timeout_seconds)
