"""One trial of a view: the environment's part in it, and those of the actors whom the view drives.

Their events are handled where they arrive. So a step of a view, whose last action completes the tick, has everybody's
next observation when it returns: the environment has been stepped on the way.

At a rate the trial does not wait for a step. What comes while nobody waits is kept for the next one, the newest only,
with the rewards of those before it; and an action says which observation it answers, so that it is late if it is.

Where an actor of the view and the environment are both in this process, an observation is the object that the
environment returned, as it would be without a trial; and so with actions. What comes from elsewhere is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from trio_cogment.api.common_pb2 import TakenUp
from trio_cogment.base.errors import CogmentError, FailedPreconditionError
from trio_cogment.base.shared_message import Content, ObjectPayload
from trio_cogment.base.taking_up import Past
from trio_cogment.environments.episode import Episode, Turn
from trio_cogment.rl.views.codec import ObservationDecoder, observation_message
from trio_cogment.rl.views.drivers import Driver
from trio_cogment.rl.views.seating import Seating
from trio_cogment.sdk import ActorSession, EnvironmentSession, Reward
from trio_cogment.spaces import Observation, SpaceError, decode_observation


class EpisodeFailedError(CogmentError):
    """The trial of a view has failed: its environment has raised an exception, or an actor is lost, for example.

    The exception that is to blame, if it is of this process, is the cause. The view can be reset.
    """


class Round:
    """One trial; its methods run in Trio's thread.

    Args:
        trial_id: of the trial.
        mine: the actors whom the view drives.
        environment: its name, for errors.
        episode: of the environment in this process; None if it is elsewhere.
        actors: of the trial, in the order of its parameters.
        seating: who takes the seats of the others.
        around: the driver.
        decoders: of the observations of mine; without them the spaces are decoded, too.
        rewards: the environment in this process sends them also as Cogment's; those in observations are for mine.
        told: these are for the record alone, because all actors are mine.
        past: of the stored trial with which it goes on.

    Attributes:
        trial_id: of the trial.
        seating: who takes the seats of the others.
        chosen: what plays there where there is a choice, by actor; known when the trial is being started.
        launched: the orchestrator has been asked to start it, and has answered.
        observations: of this tick, by actor; those of mine only.
        ending: the observations are the last ones.
        failure: why the trial cannot go on; None if it can.
        raised: what those raised who took the parts of actors in this process, by actor.
        lost: the trial ended before its last observations; the text is what the orchestrator said.
        interrupted: Control-C came while the environment computed.
        discarded: it was given up.
    """

    def __init__(
        self,
        trial_id: str,
        mine: Sequence[str],
        *,
        environment: str,
        episode: Episode | None,
        actors: Sequence[str],
        seating: Seating,
        around: Driver[object],
        decoders: Mapping[str, ObservationDecoder] | None = None,
        rewards: bool = True,
        told: bool = False,
        past: Past | None = None,
    ) -> None:
        self.trial_id = trial_id
        self.past = past
        self.launched_at = 0.0
        self.seating = seating
        self.chosen: dict[str, str] = {}
        self.launched = trio.Event()
        self.observations: dict[str, Observation] = {}
        self.ending = False
        self.failure: Exception | None = None
        self.raised: dict[str, Exception] = {}
        self.lost: str | None = None
        self.interrupted = False
        self.discarded = False
        self._name = environment
        self._episode = episode
        self._actors = actors
        self._around = around
        self._decoders = decoders
        self._rewards = rewards
        self._told = told
        self._sessions: dict[str, ActorSession[Any, Any, Any]] = {}
        self._environment: EnvironmentSession[Any, Any, Any] | None = None
        self._scope = trio.CancelScope()
        # Whoever is still to come before it can begin, and the observations of this tick that are still to come.
        self._absent = len(mine) + (episode is not None)
        self._missing = len(mine)
        self._mine = len(mine)
        #: Of a trial at a rate: the ticks of the observations that the caller has, and what has come since.
        self._has_rate = False
        self._ticks: dict[str, int] = {}
        self._newer: dict[str, Observation] = {}
        self._newer_ticks: dict[str, int] = {}
        self._newer_is_last = False

    # What the view does

    def is_parked(self) -> bool:
        """Whether it can begin, or never will."""
        return self._absent == 0 or self.is_broken()

    def is_broken(self) -> bool:
        """Whether the trial cannot go on."""
        return self.failure is not None or self.lost is not None

    def is_ready(self) -> bool:
        """Whether the observations of this tick are there, or never will be."""
        return self._missing == 0 or self.failure is not None or self.lost is not None

    def begin(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Reset the environment, if it is in this process, and send its first observations."""
        if self._episode is not None and not self.is_broken():
            if self.past is None:
                self._send(self._play(self._episode.begin, seed, options))
            else:
                self._send(self._play(self._episode.take_up, self.past, seed, options))

    def start_with(self) -> TakenUp | None:
        """Return the stored trial with which it goes on as its environment elsewhere needs it: with its past."""
        if self.past is None or self._episode is None:
            return None if self.past is None else self.past.message()
        return TakenUp(trial_id=self.past.trial_id, tick_id=self.past.tick_id)

    def act(self, actions: Mapping[str, Content]) -> None:
        """Send the actions of mine; each of them must be there."""
        if self._has_rate:
            self._act_in_time(actions)
            return
        self._missing = self._mine
        self.observations = {}
        for name, action in actions.items():
            self._sessions[name].do_action_nowait(action)

    def _act_in_time(self, actions: Mapping[str, Content]) -> None:
        answered = self._ticks
        self.observations, self._newer = self._newer, {}
        self._ticks, self._newer_ticks = self._newer_ticks, {}
        self._missing = self._mine - len(self.observations)
        if self._newer_is_last:
            self.ending = self._missing == 0
            return  # nobody wants an action any more
        for name, action in actions.items():
            self._sessions[name].do_action_nowait(action, tick_id=answered[name])

    def discard(self) -> None:
        """Give it up: the environment is not used any more, and nothing of it is an error."""
        self.discarded = True

    # The environment's part

    async def play_environment(self, session: EnvironmentSession[Any, Any, Any]) -> None:
        """Take the environment's part, from the trial's start to its end."""
        self._environment = session
        with self._scope:
            session.take_up()  # the view has read its past
            await session.start()
            self._arrived()
            await session.handle_contents(self._on_actions)
        if self.failure is not None and not self.discarded:
            raise self.failure

    def _on_actions(self, actions: list[Content | None]) -> None:
        episode = self._episode
        session = self._environment
        if episode is not None and session is not None and not self.discarded and self.failure is None:
            if session.wants_checkpoint:
                self._send(self._play(episode.advance, actions, save=True))
            else:
                self._send(self._play(episode.advance, actions))

    def _play(self, function: Callable[..., Turn], *args: Any, **kwargs: Any) -> Turn | None:
        try:
            return self._around.exposed(function, *args, **kwargs)
        except KeyboardInterrupt:
            self.interrupted = True
            self._fail(FailedPreconditionError(f"environment {self._name!r}: interrupted by Control-C"))
        except Exception as error:  # noqa: BLE001  the environment is the user's: it ends this trial and nothing else
            self._fail(error)
        return None

    def _send(self, turn: Turn | None) -> None:
        session = self._environment
        if turn is None or session is None:
            return
        observations = list(enumerate(turn.observations))
        if turn.saved is not None:
            session.checkpoint(turn.saved)
        rewards: list[Reward] = []
        if self._rewards:
            for actor, reward in zip(self._actors, turn.rewards, strict=True):
                if reward is not None:
                    rewards.append(Reward(actor, reward))
        if turn.over:
            session.end_nowait(observations, rewards, told=self._told)
        else:
            session.produce_observations_nowait(observations, rewards, told=self._told)

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self._scope.cancel()  # the environment's part raises it, so that the trial ends with it
        self._around.notify()

    # The parts of the actors

    async def play_part(self, session: ActorSession[Any, Any, Any]) -> None:
        """Take the part of an actor: one whom the view drives, or one whose seat is in this process."""
        implementation = self.seating.actor(session.name, self.chosen) or self.play_actor
        try:
            await implementation(session)
        except Exception as error:
            self.raised[session.name] = error
            raise

    def is_raised_by(self, error: Exception) -> bool:
        """Whether the view raises an error because of this one, which a participant of this process has raised.

        It does not if the trial goes on without that participant, or was over already.
        """
        if self.ending or self.discarded:
            return False
        needed = (raised for actor, raised in self.raised.items() if self.seating.is_needed(actor))
        return error is self.failure or any(error is raised for raised in needed)

    async def play_actor(self, session: ActorSession[Any, Any, Any]) -> None:
        """Take the part of an actor whom the view drives, from the trial's start to its end."""
        self._sessions[session.name] = session
        self._has_rate = session.tick_hz > 0
        try:
            await session.start()
            self._arrived()
            await session.handle_contents(partial(self._on_observation, session))
        finally:
            if not (self.ending or self._newer_is_last or self.discarded) and self.lost is None:
                self.lost = session.details or "the trial ended"
                self._around.notify()

    def _on_observation(self, session: ActorSession[Any, Any, Any], payload: Content) -> None:
        name = session.name
        found: Observation | None = None
        if self._episode is not None and isinstance(payload, ObjectPayload):
            found = payload.value
        # One who is out is shown the same value again and again, which the receiver might change.
        if found is None or not (found.alive or found.terminated or found.truncated):
            found = self._decoded(name, bytes(payload))
        if self._has_rate:
            self._take_in_time(session, found)
            return
        if found is not None:
            self.observations[name] = found
        if session.is_ending:
            self.ending = True
        self._missing -= 1
        if self._missing == 0:
            self._around.notify()

    def _take_in_time(self, session: ActorSession[Any, Any, Any], found: Observation | None) -> None:
        """Take an observation of a trial that does not wait; None: it could not be read, and `failure` says why."""
        name, waits = session.name, self._missing > 0
        there, ticks = (self.observations, self._ticks) if waits else (self._newer, self._newer_ticks)
        before = there.get(name)
        if found is not None:
            if before is not None and before.reward is not None and found.reward is not None:
                found = replace(found, reward=before.reward + found.reward)
            there[name], ticks[name] = found, session.tick_id
        if session.is_ending:
            self._newer_is_last = True
            self.ending = self.ending or waits
        if waits and before is None:
            self._missing -= 1
        if self._missing == 0 or self.failure is not None:
            self._around.notify()

    def _decoded(self, name: str, content: bytes) -> Observation | None:
        try:
            if self._decoders is None:
                return decode_observation(observation_message(content), copy=True)
            return self._decoders[name].decode(content)
        except SpaceError as error:
            self.failure = EpisodeFailedError(f"environment {self._name!r}, actor {name!r}: {error}")
            return None

    def _arrived(self) -> None:
        self._absent -= 1
        if self._absent == 0:
            self._around.notify()
