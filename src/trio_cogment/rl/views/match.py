"""A match: the trials of one view, one after the other, as `reset` and `step` of ordinary functions.

All views are made of this. Each trial is one episode; each step is one tick. While an episode runs, its successor is
started ahead (`next_round`): it waits, with everybody in place, for its `reset`.
"""

from __future__ import annotations

import dataclasses
import math
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError, LocalProtocolError
from trio_cogment.base.shared_message import Content
from trio_cogment.base.taking_up import Past
from trio_cogment.environments.base import Environment
from trio_cogment.environments.errors import InvalidActionError
from trio_cogment.rl.views.codec import NO_ACTION, ActionEncoder, ObservationDecoder
from trio_cogment.rl.views.drivers import at_once, nothing
from trio_cogment.rl.views.next_round import NextRound
from trio_cogment.rl.views.options import PlatformOptions, Rate
from trio_cogment.rl.views.parameters import (
    RemoteEnvironment,
    driven_agents,
    episode_of,
    episode_params,
    is_remote,
    params_of,
    recorded_params,
)
from trio_cogment.rl.views.rounds import EpisodeFailedError, Round
from trio_cogment.rl.views.seating import Seating
from trio_cogment.rl.views.sharing import platform_for
from trio_cogment.seats.base import Seat
from trio_cogment.spaces import Observation, SpaceError

#: Trio's tasks get a turn after this many steps, even if no step had to wait for them. A turn takes as long as half a
#: step, or several if samples are stored in it: that comes more often, because few samples may wait, and after so long
#: a time at most, because what a slow environment has done is to be stored soon, too.
_STEPS_PER_TURN = 256
_RECORDED_STEPS_PER_TURN = 64
_RECORDED_SECONDS_PER_TURN = 0.005


@dataclasses.dataclass(frozen=True, slots=True)
class BranchPoint:
    """A tick of a stored trial with which others go on.

    Attributes:
        past: of the stored trial.
        seed: with which it began.
        options: with which it began.
    """

    past: Past
    seed: int | None
    options: dict[str, Any] | None


class Match:
    """Trials of one environment, driven by whoever calls `reset` and `step`, from one thread at a time.

    Args:
        environment: in this process, which it closes in the end; or elsewhere.
        seats: who takes which seat; those of all other agents are `mine`.
        mine: the agents whom the caller drives, by default all that have no seat in `seats`.
        platform: where the trials run: that of another view or match; by default one of its own.
        options: of its own platform.
        arguments: with which the environment was made, for the record.
        branch: the tick of a stored trial with which all episodes begin.
        rate: ticks by the clock; None: they end when everybody has acted.

    Attributes:
        name: of the environment.
        agents: all agents of the environment.
        mine: those whom the caller drives, in the order of `agents`.
        observation_spaces: by agent.
        action_spaces: by agent.
        environment: the environment, if it is in this process.
        platform: where the trials run.

    Raises:
        InvalidArgumentError: a seat is of no agent, or none is left for the caller.
        CogmentError: the platform cannot be opened, or the environment elsewhere cannot be reached.
    """

    def __init__(
        self,
        environment: Environment | RemoteEnvironment,
        *,
        seats: Mapping[str, Seat] = {},
        mine: Collection[str] | None = None,
        platform: Any = None,
        options: PlatformOptions | None = None,
        arguments: Mapping[str, Any] = {},
        branch: BranchPoint | None = None,
        rate: Rate | None = None,
    ) -> None:
        if rate is not None and platform is None:
            options = rate.in_real_time(options)
        self._branch = branch
        self._remote = environment if isinstance(environment, RemoteEnvironment) else None
        self.environment = environment if not isinstance(environment, RemoteEnvironment) else None
        self.agents = tuple(environment.agents)
        self.name = self._remote.endpoint if self.environment is None else self.environment.name  # type: ignore[union-attr]  # one of both
        self.mine = driven_agents(self.name, self.agents, seats, mine)
        self._seats = dict(seats)
        self._round: Round | None = None
        self._over = True
        self._steps = 0
        self._closed = False
        self._unseeded_begun = False
        self._turn_after = _STEPS_PER_TURN
        self._turn_seconds = math.inf
        self._turned_at = 0.0
        self._episode = None if self.environment is None else episode_of(self.environment, self.agents, seats)
        remote = self._remote is not None or any(is_remote(seat) for seat in seats.values())
        self.platform = platform_for(self.name, platform, options, remote=remote, seats=tuple(seats.values()))
        if self.platform.options.records:
            self._turn_after, self._turn_seconds = _RECORDED_STEPS_PER_TURN, _RECORDED_SECONDS_PER_TURN
        # A seat or an environment elsewhere would be taken by a trial that may never begin, or a datastore told of it.
        ahead = not remote and not self.platform.remote
        # Nobody else takes part, and nothing is kept: a reward beside that of the observation would reach nobody.
        self._alone = not seats and not self.platform.options.shows_rewards
        self._finalizer = weakref.finalize(self, self.platform.abandon)
        self._finalizer.atexit = False  # the drivers see to that, in their threads
        self._next: NextRound | None = None
        try:
            self._seating = Seating(self.name, self._seats, self.platform.registry())
            self._params = params_of(
                environment,
                self.name,
                self._seats,
                self.platform,
                instance=self.platform.new_trial_id(),
                arguments=arguments,
                rate=rate,
            )
            if branch is not None:
                self._params, _ = recorded_params(self._params, branch.seed, branch.options)
            self._new_round = self._round_maker(None)
            self._find_spaces()
            self._encoders = {agent: ActionEncoder(self.action_spaces[agent]).encode for agent in self.mine}
            decoders = {agent: ObservationDecoder(self.observation_spaces[agent]) for agent in self.mine}
            self._new_round = self._round_maker(decoders)
            if self._remote is None:
                self._next = NextRound(self.name, self.platform, self._params, self._new_round, ahead=ahead)
        except BaseException:  # nobody else would close it
            self.close()
            raise

    def _find_spaces(self) -> None:
        if self.environment is not None:
            self.observation_spaces = dict(self.environment.observation_spaces)
            self.action_spaces = dict(self.environment.action_spaces)
            return
        # Only its first observations tell them. The first `reset` without a seed goes on with this trial.
        round_ = self._round = self._new_round()
        driver = self.platform.driver
        driver.exchange(lambda: self.platform.launch(round_, self._params), round_.is_ready)
        self._raise_failure(round_)
        self._unseeded_begun = True
        self.observation_spaces, self.action_spaces = {}, {}
        for agent, observation in round_.observations.items():
            if observation.observation_space is None or observation.action_space is None:
                raise InvalidArgumentError(
                    f"environment {self.name!r}, actor {agent!r}: observation_space and action_space: expected them "
                    "with the first observation, got none; it has to be one that trio_cogment.rl serves"
                )
            self.observation_spaces[agent] = observation.observation_space
            self.action_spaces[agent] = observation.action_space

    # Episodes

    @property
    def trial_id(self) -> str:
        """The id of the trial of this episode, or of the last one; empty before the first."""
        return "" if self._round is None else self._round.trial_id

    @property
    def over(self) -> bool:
        """No step can be made before the next `reset`."""
        return self._over

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> dict[str, Observation]:
        """Begin an episode: a new trial. One that still runs is ended hard.

        Args:
            seed: of the environment, and of what the seats draw at random; None goes on with the generators they have.
            options: the environment's own.

        Returns:
            The first observation of each of `mine`.

        Raises:
            EpisodeFailedError: an actor cannot be reached or is lost, or the environment raised an exception.
            CogmentError: the environment returned what makes no sense, for example; the text says what.
            FailedPreconditionError: the view is closed, or used where it cannot be.
            KeyboardInterrupt: Control-C came meanwhile; `reset` again.
        """
        self._check_open()
        following, branch = self._next, self._branch
        if branch is not None and options:
            raise InvalidArgumentError(
                f"environment {self.name!r}: reset: options: expected none, as those of the stored trial hold"
            )
        if following is None:
            return self._reset_remote(seed, options)
        round_ = following.prepare(seed, options) if branch is None else following.prepare(None, None)
        self._end_running()
        self._reseed(seed)
        following.take()
        if branch is not None:
            seed, options = branch.seed, branch.options
        self._round = round_
        self._over = True
        if not round_.is_broken():
            self.platform.driver.exchange(lambda: round_.begin(seed, options), round_.is_ready)
        self._raise_failure(round_)
        self._over = round_.ending
        following.start_ahead()
        if branch is not None:
            self._leave_out_past(round_)
        return round_.observations

    def _leave_out_past(self, round_: Round) -> None:
        # The reward in it is that of the step before the branch.
        round_.observations = {
            agent: dataclasses.replace(observation, reward=None) for agent, observation in round_.observations.items()
        }

    def _reset_remote(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        platform, begun = self.platform, self._unseeded_begun
        self._unseeded_begun = False
        if (
            begun
            and self._round is not None
            and seed is None
            and not options
            and self.platform.is_up_to_date(self._round)
        ):
            self._over = self._round.ending
            return self._round.observations
        self._end_running()
        self._reseed(seed)
        self._over = True
        params = self._params if self._branch is not None else episode_params(self._params, seed, options)
        round_ = self._round = self._new_round()
        platform.driver.exchange(lambda: platform.launch(round_, params), round_.is_ready)
        self._raise_failure(round_)
        self._over = round_.ending
        if self._branch is not None:
            self._leave_out_past(round_)
        return round_.observations

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        """Make one tick.

        Args:
            actions: of those of `mine` whose last observation was `active`. Those of others are ignored.

        Returns:
            The next observation of each of `mine`.

        Raises:
            InvalidActionError: an action is missing or not in its space; the episode goes on.
            FailedPreconditionError: there was no `reset`, or the episode is over.
            EpisodeFailedError, CogmentError, KeyboardInterrupt: as `reset`; the episode is over.
        """
        messages = self.encoded(actions)
        round_ = self._round
        assert round_ is not None, "it runs"
        self._over = True  # unless all goes well
        try:
            self.platform.driver.exchange(lambda: round_.act(messages), round_.is_ready)
        except LocalProtocolError:
            self._raise_end(round_)
            raise
        return self._arrived(round_)

    def encoded(self, actions: Mapping[str, Any]) -> dict[str, Content]:
        """Check and encode the actions of a step, for `send`; see `step`."""
        round_ = self._running()
        observations = round_.observations
        messages: dict[str, Content] = {}
        encoders = self._encoders
        for agent in self.mine:
            observation = observations[agent]
            if not (observation.active and observation.alive):
                messages[agent] = NO_ACTION
                continue
            try:
                if agent not in actions:
                    raise SpaceError("expected one, because it is the actor's turn; got none", root="action")
                messages[agent] = encoders[agent](actions[agent])
            except SpaceError as error:
                raise InvalidActionError(self.name, agent, error) from None
        return messages

    def send(self, messages: dict[str, Content]) -> None:
        """Begin a step, which `receive` ends: between the two other matches may begin theirs."""
        round_ = self._running()
        self._over = True  # unless all goes well
        try:
            self.platform.driver.exchange(lambda: round_.act(messages), at_once)
        except LocalProtocolError:
            self._raise_end(round_)
            raise

    def receive(self) -> dict[str, Observation]:
        """End a step; see `step`."""
        round_ = self._round
        assert round_ is not None
        if not round_.is_ready():
            self.platform.driver.exchange(nothing, round_.is_ready)
        return self._arrived(round_)

    def _arrived(self, round_: Round) -> dict[str, Observation]:
        if round_.failure is not None or round_.lost is not None:
            self._raise_failure(round_)
        if round_.ending:
            return self._final(round_)
        self._over = False
        self._steps += 1
        waiting = None if self._next is None else self._next.waiting
        now = time.perf_counter()
        if (
            self._steps >= self._turn_after
            or now - self._turned_at > self._turn_seconds
            or (waiting is not None and not waiting.is_parked())
        ):
            self.platform.driver.let_run()
            self._steps, self._turned_at = 0, now
        return round_.observations

    def _running(self) -> Round:
        round_ = self._round
        if not self._over and round_ is not None:
            return round_
        self._check_open()
        if round_ is None or self._unseeded_begun:
            raise FailedPreconditionError(f"environment {self.name!r}: step: expected a reset first")
        raise FailedPreconditionError(
            f"environment {self.name!r}: step: expected a reset first, because the episode is over"
        )

    def _final(self, round_: Round) -> dict[str, Observation]:
        # A trial may end though the environment's episode does not: somebody has ended it, or a limit of its own.
        self.platform.forget(round_)
        return {
            agent: dataclasses.replace(observation, truncated=True)
            if observation.alive and not observation.terminated
            else observation
            for agent, observation in round_.observations.items()
        }

    def render(self) -> Any:
        """Return what the environment's own `render` returns; it is called in the thread that steps it.

        Raises:
            InvalidArgumentError: the environment is elsewhere, or has no `render`.
        """
        render = getattr(getattr(self.environment, "env", None), "render", None)
        if render is None:
            raise InvalidArgumentError(f"environment {self.name!r}: render: it cannot be rendered from here")
        return self.ask(render)

    def ask(self, function: Callable[[], Any]) -> Any:
        """Return what a function of the environment returns; it is called in the thread that steps it."""
        self._check_open()
        answers: list[Any] = []
        self.platform.driver.exchange(lambda: answers.append(function()), at_once)
        return answers[0]

    # Rounds

    def _round_maker(self, decoders: Mapping[str, ObservationDecoder] | None) -> Callable[[], Round]:
        # What it returns must not hold this object: a view that nobody closes is to be garbage at once.
        new_trial_id = self.platform.new_trial_id
        make = partial(
            Round,
            mine=self.mine,
            environment=self.name,
            episode=self._episode,
            actors=self.agents,
            seating=self._seating,
            around=self.platform.driver,
            decoders=decoders,
            rewards=not self._alone,
            told=not self._seats,
            past=None if self._branch is None else self._branch.past,
        )
        return lambda: make(new_trial_id())

    def _end_running(self) -> None:
        running = self._round
        if running is None:
            return
        platform = self.platform
        platform.forget(running)
        if running.ending:
            running.discard()
            return
        platform.driver.exchange(lambda: platform.end_now(running), at_once)
        if self._seats:
            # What other seats have begun to draw for this trial comes before what they draw for the next.
            platform.driver.call(platform.wait_gone, running)

    def _reseed(self, seed: int | None) -> None:
        if seed is not None:
            for seat in self._seats.values():
                seat.reseed(seed)

    def _raise_end(self, round_: Round) -> None:
        # The trial has ended since the last step: a seat has failed meanwhile, for example.
        self.platform.driver.exchange(nothing, round_.is_broken)
        self._raise_failure(round_)

    def _raise_failure(self, round_: Round) -> None:
        failure, lost = round_.failure, round_.lost
        if failure is None and lost is None:
            return
        self._over = True
        if round_.interrupted:
            raise KeyboardInterrupt
        if isinstance(failure, CogmentError):
            raise failure
        where = f"environment {self.name!r}, trial {round_.trial_id!r}"
        if failure is not None:
            raise EpisodeFailedError(f"{where}: {type(failure).__name__}: {failure}") from failure
        text, cause = self.platform.driver.call(self.platform.outcome, round_)
        raise EpisodeFailedError(f"{where}: {text}") from cause

    # The end

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError(f"environment {self.name!r}: the view is closed")

    def close(self) -> None:
        """End the trial that runs, and close the environment and, unless others use it, the platform.

        Closing again is harmless. A trial that was started ahead and never began is removed from the store.
        """
        if self._closed:
            return
        self._closed = self._over = True
        self._finalizer.detach()
        platform = self.platform
        try:
            running = self._round
            if running is not None and not running.ending:
                platform.driver.exchange(lambda: platform.end_now(running), at_once)
            if self._next is not None:
                self._next.withdraw()
        finally:
            try:
                platform.release()
            finally:
                if self.environment is not None:
                    self.environment.close()
