"""Episodes of an environment, as the environment of a trial sees them: payloads in and out, nothing to wait for."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.message import DecodeError

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.api.common_pb2 import Checkpoint
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.shared_message import Content, ObjectPayload
from trio_cogment.base.taking_up import Past
from trio_cogment.environments.base import Environment
from trio_cogment.environments.checks import check_of
from trio_cogment.environments.encoding import (
    ActionDecoder,
    ObservationEncoder,
    encoded_frame,
    encoded_spaces,
    followed,
)
from trio_cogment.environments.errors import InvalidActionError, InvalidEnvironmentError, TakingUpError
from trio_cogment.environments.gymnasium import GymnasiumEnvironment
from trio_cogment.environments.taking_up import NOT_COMPARED, Saver, check_same, is_same
from trio_cogment.spaces import Observation, SpaceError, decode_observation, encode_observation
from trio_cogment.spaces.masks import mask_in

_log = logging.getLogger(__name__)

#: Encoded spaces that are larger, as those of pictures are, are made again with each episode: all environments that
#: wait for a trial would have them, too.
_KEPT_BYTES = 16 * 1024
#: This many ticks are played again before they are compared with the stored ones.
_COMPARED_AT_ONCE = 64
#: Instead of an actor's name in `frames_for`: all of them.
EVERYONE = "*"


@dataclass(slots=True)
class Turn:
    """What the actors get with a tick; the lists are in the actors' order.

    Attributes:
        observations: a message `Observation` for each. Its object is without frames, and without the spaces that are
            among the bytes of a trial's first ones.
        rewards: of the step that led here; None for whom the environment gave none.
        over: they are the final ones: the episode has ended for all.
        saved: the state of the environment with these observations, where it was asked for and it saves itself.
    """

    observations: list[ObjectPayload]
    rewards: list[float | None]
    over: bool
    saved: bytes | None = None


class Episode:
    """Episodes of one environment, one at a time, for the actors of one trial, or of one after the other.

    Attributes:
        environment: whose episodes they are.
        active: whether it is the turn of each actor, in the actors' order. Only their actions are looked at.
        over: no step can be made: the episode has ended, an error has ended it, or none has begun.
    """

    def __init__(
        self, environment: Environment, actors: Sequence[str], *, frames_for: Collection[str] = frozenset()
    ) -> None:
        """Prepare episodes.

        Args:
            environment: whose episodes they are.
            actors: the names of the trial's actors; each agent of the environment needs one.
            frames_for: the actors who get a frame with each observation; `*` means all of them.

        Raises:
            InvalidArgumentError: an agent has no actor, an actor is not an agent, or one in `frames_for` is none.
            InvalidEnvironmentError: the environment has a space that cannot be encoded.
        """
        self.environment = environment
        self._actors = tuple(actors)
        self._require_agents()
        self._frames_for = self._indexes(frames_for)
        observations, actions = environment.observation_spaces, environment.action_spaces
        encoders = [(actor, ObservationEncoder(observations[actor])) for actor in self._actors]
        self._encoders = [(actor, encoder.encode) for actor, encoder in encoders]
        self._encoder = encoders[0][1]
        decoders = [ActionDecoder(actions[actor]) for actor in self._actors]
        self._decoders = [decoder.decode for decoder in decoders]
        self._decode_all = decoders[0].decode_all
        self._spaces = [self._kept_spaces(actor) for actor in self._actors]
        self.active = [False] * len(self._actors)
        self.over = True
        self._saver: Saver | None = None
        self._saver_known = False

    def begin(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Turn:
        """Begin an episode, whether or not the last one is over; see `Environment.reset`.

        Raises:
            InvalidEnvironmentError: the environment returned what makes no sense.
            Exception: whatever the environment raised.
        """
        self.over = True
        turn = self._turn(self.environment.reset(seed, options))
        return Turn(self._with_spaces(turn.observations), turn.rewards, turn.over)

    def take_up(self, past: Past, seed: int | None = None, options: dict[str, Any] | None = None) -> Turn:
        """Begin an episode that goes on with a stored trial: from its checkpoint if it has one, or played again.

        Args:
            past: of the stored trial.
            seed: with which it began.
            options: with which it began.

        Returns:
            The observations of the tick `past.tick_id`.

        Raises:
            TakingUpError: the environment does not come there; the text names the tick, the actor and the field.
            InvalidEnvironmentError: the environment returned what makes no sense.
            Exception: whatever the environment raised.
        """
        try:
            turn = self._taken_up(past, seed, options)
        finally:
            self.over = True
        self.over = turn.over
        return turn

    def _taken_up(self, past: Past, seed: int | None, options: dict[str, Any] | None) -> Turn:
        stored, count = past.observations, len(past.observations)
        first = past.tick_id + 1 - count
        if not stored or len(stored[-1]) != len(self._actors):
            raise self._not_taken_up("", past.tick_id, "expected the observations of all actors up to this tick")
        if past.checkpoint is not None:
            turn = self._loaded(past.checkpoint, stored[0])
        else:
            turn = self._turn(self.environment.reset(seed, options), frames=False)
            hint = "" if seed is not None else " (the stored trial has no seed)"
            self._check(turn, stored[0], first, hint)
        environment, actors = self.environment, self._actors
        begin, made = 1, None
        if isinstance(environment, GymnasiumEnvironment):
            begin, made = self._play_usual(environment, past, first)
        for number in range(begin, count):
            if environment.over:
                raise self._not_taken_up("", first + number - 1, "expected it to go on; the episode is over")
            found: Mapping[str, Observation]
            if made is not None and isinstance(environment, GymnasiumEnvironment):
                found, made = environment.told(made), None
            else:
                actions: list[Content | None] = [*past.actions[number - 1]]
                for index in past.unavailable.get(number - 1, ()):
                    actions[index] = None
                found = environment.step(self._decoded(actions))
            if number < count - 1 and self._is_stored(found, stored[number]):
                self.active = [found[actor].active for actor in actors]
                continue
            turn = self._turn(found, frames=False)
            self._check(turn, stored[number], first + number, last=number == count - 1)
        if self.over:
            raise self._not_taken_up("", past.tick_id, "expected it to go on; the episode is over")
        turn = Turn(turn.observations, [None] * len(self._actors), False)
        if self._frames_for:
            self._add_frame(turn.observations)
        turn.observations = self._with_spaces(turn.observations)
        return turn

    def advance(self, actions: Sequence[Content | None], *, cut: bool = False, save: bool = False) -> Turn:
        """Make a step.

        Args:
            actions: in the actors' order, the bytes of a message `Action`, or an `ActionPayload` of an actor in this
                process; None for an actor who gave none. Those of actors whose last observation was not `active` are
                not looked at.
            cut: the trial ends with this step, whether or not the episode does: who still takes part is truncated.
            save: return the state of the environment, too, if it saves itself.

        Raises:
            InvalidActionError: an action is missing or not in its space. No step was made, and another call may follow.
            FailedPreconditionError: no episode has begun, or it is over.
            InvalidEnvironmentError: the environment returned what makes no sense; the episode is over.
            Exception: whatever the environment raised; the episode is over.
        """
        if self.over:
            raise FailedPreconditionError(
                f"environment {self.environment.name!r}: step: expected a reset first, because the episode is over, or "
                "none has begun"
            )
        decoded = self._decoded(actions)
        self.over = True
        try:
            found = self.environment.step(decoded)
        except InvalidActionError:
            self.over = False  # an environment with rules of its own has looked at the action, and made no step
            raise
        if cut and not self.environment.over:
            found = {actor: _truncated(observation) for actor, observation in found.items()}
            return self._turn(found, cut=True)
        turn = self._turn(found)
        if save and not turn.over:
            turn.saved = self.save()
        return turn

    def save(self) -> bytes | None:
        """Return the state of the environment; None: it does not save itself."""
        if not self._saver_known:
            self._saver, self._saver_known = Saver.of(self.environment), True
        if self._saver is None:
            return None
        try:
            return self._saver.save()
        except SpaceError as error:
            _log.warning("environment %r: its state is not saved: %s", self.environment.name, error)
            self._saver = None
            return None

    def _loaded(self, checkpoint: Checkpoint, stored: Sequence[bytes]) -> Turn:
        tick_id = checkpoint.tick_id
        observations: dict[str, Observation] = {}
        payloads: list[ObjectPayload] = []
        for actor, content in zip(self._actors, stored, strict=True):
            try:
                message = pb.Observation.FromString(content)
                for field in NOT_COMPARED:
                    message.ClearField(field)
                observation = decode_observation(message, copy=True)
                # In the types of its space, whose bounds are not looked at, as in any other step.
                value = check_of(self.environment.observation_spaces[actor])(observation.value)
                observation = replace(observation, value=value)
            except (DecodeError, SpaceError) as error:
                raise self._not_taken_up(actor, tick_id, f"observation: {error}") from None
            observations[actor] = observation
            payloads.append(ObjectPayload(observation, message.SerializeToString()))
        saver = Saver.of(self.environment)
        if saver is None:
            raise self._not_taken_up("", tick_id, "expected it to load what it has saved, which it cannot")
        try:
            saver.load(checkpoint.content, observations)
        except ValueError as error:
            raise self._not_taken_up("", tick_id, error) from None
        self.active = [observation.active for observation in observations.values()]
        self.over = False
        return Turn(payloads, [None] * len(payloads), False)

    def _play_usual(self, environment: GymnasiumEnvironment, past: Past, first: int) -> tuple[int, Any]:
        """Make steps that return what an agent sees who goes on, as most do, and compare many at a time.

        What the environment itself does is to take most of the time. The last tick is always left to the caller.

        Args:
            environment: has been reset, or has loaded its state.
            past: of the stored trial.
            first: the tick with which that begins.

        Returns:
            The first tick that is to be looked at, by its place in the past, and what the environment has returned for
            it; None: its step was not made.

        Raises:
            TakingUpError: an observation is another one.
        """
        last = len(past.observations) - 1
        for begin in range(1, last, _COMPARED_AT_ONCE):
            end = min(begin + _COMPARED_AT_ONCE, last)
            try:
                actions = self._decode_all([acted[0] for acted in past.actions[begin - 1 : end - 1]])
            except (SpaceError, IndexError):
                return begin, None  # one is none, or its actor was unavailable
            elements: list[bytes] = []
            rewards: list[float] = []
            try:
                unusual = self._encoder.make_steps(environment.make_step, actions, elements, rewards)
            finally:  # what it has raised may come of an earlier difference, which is told instead
                if elements:
                    expected = [seen[0] for seen in past.observations[begin : begin + len(elements)]]
                    self._compare(expected, self._encoder.plain(elements, rewards), first + begin)
            if unusual is not None:
                return begin + len(elements), unusual
        return max(last, 1), None

    def _compare(self, expected: Sequence[bytes], found: bytes, first: int) -> None:
        """Compare stored observations with others, which are equally long, one after the other."""
        size = len(found) // len(expected)
        if b"".join(expected) == found and set(map(len, expected)) == {size}:
            return
        for place, one in enumerate(expected):
            other = found[place * size : (place + 1) * size]
            if one != other:  # with a frame it is the same all the same
                check_same(self.environment.name, self._actors[0], first + place, one, other)

    def _is_stored(self, found: Mapping[str, Observation], stored: Sequence[bytes]) -> bool:
        """Whether observations are the stored ones, byte for byte; if not, they may be so but for frames and spaces."""
        try:
            for (actor, encode), expected in zip(self._encoders, stored, strict=True):
                observation = found[actor]
                if observation.action_mask is not None or bytes(encode(observation)) != expected:
                    return False
        except SpaceError:
            return False
        return True

    def _check(self, turn: Turn, stored: Sequence[bytes], tick_id: int, hint: str = "", *, last: bool = False) -> None:
        for actor, payload, expected in zip(self._actors, turn.observations, stored, strict=True):
            got = bytes(payload)
            if got == expected:
                continue
            if last and not turn.over and not payload.value.truncated:
                # The trial was cut off here, and the episode was not: that is no difference.
                cut = encode_observation(_truncated(payload.value)).SerializeToString()
                if is_same(expected, cut):
                    continue
            check_same(self.environment.name, actor, tick_id, expected, got, hint)

    def _not_taken_up(self, actor: str, tick_id: int, reason: object) -> TakingUpError:
        return TakingUpError(self.environment.name, actor, tick_id, reason)

    def _decoded(self, actions: Sequence[Content | None]) -> dict[str, Any]:
        if len(actions) != len(self._actors):
            raise InvalidArgumentError(
                f"environment {self.environment.name!r}: actions: expected {len(self._actors)}, got {len(actions)}"
            )
        decoded: dict[str, Any] = {}
        for actor, active, payload, decode in zip(self._actors, self.active, actions, self._decoders, strict=True):
            if not active:
                continue
            try:
                if payload is None:
                    raise SpaceError("expected one, because it is the actor's turn; got none", root="action")
                decoded[actor] = decode(payload)
            except SpaceError as error:
                raise InvalidActionError(self.environment.name, actor, error) from None
        return decoded

    def _turn(self, found: Mapping[str, Observation], *, cut: bool = False, frames: bool = True) -> Turn:
        payloads: list[ObjectPayload] = []
        rewards: list[float | None] = []
        active: list[bool] = []
        for actor, encode in self._encoders:
            observation = found[actor]
            if observation.action_mask is not None:
                observation = self._with_mask(actor, observation)
            try:
                payloads.append(encode(observation))
            except SpaceError as error:
                raise InvalidEnvironmentError(self.environment.name, actor, error) from None
            rewards.append(observation.reward)
            active.append(observation.active)
        if self._frames_for and frames:
            self._add_frame(payloads)
        self.active = active
        over = self.over = cut or self.environment.over
        return Turn(payloads, rewards, over)

    def _with_mask(self, actor: str, observation: Observation) -> Observation:
        given = observation.action_mask
        try:
            mask = mask_in(self.environment.action_spaces[actor], given)
        except SpaceError as error:
            if observation.active:
                raise InvalidEnvironmentError(self.environment.name, actor, error.of("action_mask")) from None
            mask = None  # it says nothing: the actor does not act now, and some environments give no whole mask then
        return observation if mask is given else replace(observation, action_mask=mask)

    def _add_frame(self, payloads: list[ObjectPayload]) -> None:
        frame = self.environment.frame()
        if frame is not None:
            encoded = encoded_frame(frame)
            for index in self._frames_for:
                payloads[index] = followed(payloads[index], encoded)

    def _require_agents(self) -> None:
        agents, actors = list(self.environment.agents), list(self._actors)
        if sorted(agents) != sorted(actors):
            raise InvalidArgumentError(
                f"environment {self.environment.name!r}: actors: expected {', '.join(map(repr, agents))}, which are "
                f"its agents; got {', '.join(map(repr, actors)) or 'none'}"
            )

    def _indexes(self, frames_for: Collection[str]) -> list[int]:
        for name in frames_for:
            if name != EVERYONE and name not in self._actors:
                raise InvalidArgumentError(
                    f"environment {self.environment.name!r}: frames_for: expected actors, or {EVERYONE!r} for all of "
                    f"them; got {name!r}"
                )
        return [index for index, actor in enumerate(self._actors) if EVERYONE in frames_for or actor in frames_for]

    def _with_spaces(self, observations: Sequence[ObjectPayload]) -> list[ObjectPayload]:
        """Return observations for actors who have not seen any."""
        return [
            followed(payload, self._encoded_spaces(actor) if spaces is None else spaces)
            for actor, payload, spaces in zip(self._actors, observations, self._spaces, strict=True)
        ]

    def _kept_spaces(self, actor: str) -> bytes | None:
        spaces = self._encoded_spaces(actor)
        return spaces if len(spaces) <= _KEPT_BYTES else None

    def _encoded_spaces(self, actor: str) -> bytes:
        try:
            return encoded_spaces(self.environment.observation_spaces[actor], self.environment.action_spaces[actor])
        except SpaceError as error:
            raise InvalidEnvironmentError(self.environment.name, actor, error) from None


def _truncated(observation: Observation) -> Observation:
    if not observation.alive:
        return observation
    return replace(observation, truncated=True, active=False, alive=False)
