"""The interface of a seat to whoever starts the trials: an actor's parameters, and an implementation if it is local."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

from trio_cogment.api.common_pb2 import ActorParams
from trio_cogment.base.endpoints import DISCOVER
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.sdk import ActorImplementation, ModelRegistryClient, actor_params
from trio_cogment.spaces import Space, SpaceError, encode_action


class SeatError(InvalidArgumentError):
    """Whoever has a seat answered with something that is not an action there, or cannot play there.

    Attributes:
        environment: the name of the trial's environment.
        actor: the agent whose seat it is.
        reason: the field, what was expected there, and what came.
    """

    def __init__(self, environment: str, actor: str, reason: object) -> None:
        super().__init__(f"environment {environment!r}, actor {actor!r}: {reason}")
        self.environment = environment
        self.actor = actor
        self.reason = str(reason)


@dataclass(frozen=True, slots=True)
class SeatContext:
    """Where a local seat is taken.

    Attributes:
        environment: the name of the environment, for errors.
        agent: whose seat it is.
        model_registry: of the platform, if it has one.
        policy: what `Seat.choose` returned for the trial; empty where it was not asked.
        seed: of the trial's environment, where `LocalSeat.begin` is told; None if there is none, or nobody here knows.
    """

    environment: str
    agent: str
    model_registry: ModelRegistryClient | None = None
    policy: str = ""
    seed: int | None = None


class Seat(ABC):
    """Who takes an agent's part in the trials of one view. One object may take several seats.

    When the one who sits there fails or leaves, the trial ends, and no other; unless the seat is optional: then the
    default action is taken instead, until the end of the trial.

    Attributes:
        label: a short name of what sits there: in the trial's parameters it is the actor's implementation.
        chooses: `choose` is to be asked before each trial.
        watches: who sits there is shown what the environment renders, if it renders.
        optional: whether the trial goes on without.
        default: the action that is taken when there is no other; None if there is none.
        response_timeout_seconds: how long an answer may take before the actor counts as lost; 0: no limit.
        connection_timeout_seconds: how long to wait for the actor when a trial starts; 0: no limit.
        observe_every, hold_action: see `observed`.
    """

    label: str
    chooses: bool = False
    watches: bool = False

    def __init__(
        self,
        *,
        optional: bool = False,
        default: Any = None,
        response_timeout_seconds: float = 0.0,
        connection_timeout_seconds: float = 0.0,
    ) -> None:
        """Keep what all seats have.

        Raises:
            InvalidArgumentError: it is optional and has no default action, or a timeout is negative.
        """
        if optional and default is None:
            raise InvalidArgumentError(
                "default: expected the action that an optional seat takes when nobody sits there, got None"
            )
        for name, seconds in (
            ("response_timeout_seconds", response_timeout_seconds),
            ("connection_timeout_seconds", connection_timeout_seconds),
        ):
            if not seconds >= 0:
                raise InvalidArgumentError(f"{name}: expected seconds, or 0 for no limit; got {seconds!r}")
        self.optional = optional
        self.default = default
        self.response_timeout_seconds = response_timeout_seconds
        self.connection_timeout_seconds = connection_timeout_seconds
        self.observe_every = 0
        self.hold_action = False

    def observed(self, every: int = 0, *, hold_action: bool = False) -> Self:
        """Have the seat observed every n-th tick, and return it: `policy(slow).observed(5)`; see docs/real-time.md.

        Args:
            every: n: its action answers what it is shown, and goes on until the next observation; 0: every tick.
            hold_action: when it has not acted in time, its last action is taken again, and not `default`.

        Raises:
            InvalidArgumentError: n is negative, or no integer.
        """
        if isinstance(every, bool) or not isinstance(every, int) or every < 0:
            raise InvalidArgumentError(f"every: expected how manieth tick, or 0 for every one; got {every!r}")
        self.observe_every, self.hold_action = every, hold_action
        return self

    def actor_params(
        self,
        agent: str,
        *,
        environment: str,
        implementation: str = "",
        endpoint: str = DISCOVER,
        action_space: Space | None = None,
    ) -> ActorParams:
        """Return the parameters of the actor.

        Args:
            agent: the name of the actor.
            environment: the name of the environment, for errors.
            implementation: for a local seat, the name with which what `actor` returns is registered.
            endpoint: for a local seat, where that is: `cogment://client` if it joins the trial by itself.
            action_space: of the agent, if it is known: the default action has to be in it.

        Raises:
            SeatError: the default action is not in the action space.
        """
        try:
            default = None if self.default is None else encode_action(self.default, action_space)
        except SpaceError as error:
            raise SeatError(environment, agent, error.of("default")) from None
        return actor_params(
            agent,
            PLAYER,
            implementation=self._implementation(implementation),
            endpoint=self._endpoint(endpoint),
            initial_connection_timeout_seconds=self.connection_timeout_seconds,
            response_timeout_seconds=self.response_timeout_seconds,
            optional=self.optional,
            default_action=default,
            observe_every=self.observe_every,
            hold_action=self.hold_action,
            spec=RL_SPEC,
        )

    def _implementation(self, registered: str) -> str:
        return registered

    def _endpoint(self, endpoint: str) -> str:
        return endpoint

    def advice(self, agent: str) -> str:
        """Return what is said beside the failure of a trial in which this seat was lost: `; ...`, or nothing."""
        return ""

    @abstractmethod
    def actor(self, context: SeatContext) -> ActorImplementation | None:
        """Return the implementation that takes the seat, to be registered for the class `player`; None if it is remote.

        It may run in several trials at once.
        """

    async def choose(self, context: SeatContext, chosen: str = "") -> str:
        """Choose what plays in a trial that is about to start: a version of a model, for example.

        Args:
            context: of the seat.
            chosen: what was chosen for this trial before, when it was started ahead; whoever draws by lot returns that.

        Returns:
            Its name, such as `rps@3`, with which `actor` is called for the trial; it is stored as a property of the
            trial, `policy.<agent>`. Empty if there is no choice.

        Raises:
            Exception: nobody can take the seat, and it is not optional; the trial is not started.
        """
        return ""

    def seeded(self, seed: int) -> Seat:
        """Return a seat for one trial, in which what is drawn depends on this seed, and on no other trial.

        `trial_seeds` says of which trials it is asked.

        Args:
            seed: of the environment.
        """
        return self

    def beside(self, number: int) -> Seat:
        """Return a seat for one of several views that are played at once: none of them draws from another's seat.

        Args:
            number: of the view, from 0. Unless they are reset with a seed, views with other numbers draw otherwise.
        """
        return self

    def reseed(self, seed: int) -> None:  # noqa: B027  most seats draw nothing
        """Begin again with what the seat draws at random, so that equal seeds give equal trials.

        Args:
            seed: of the environment, when a view is reset with one.
        """
