"""Seats of the other agents in the trials of a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.environments.spec import POLICY_PROPERTY
from trio_cogment.sdk import ActorImplementation, ModelRegistryClient
from trio_cogment.seats.base import Seat, SeatContext


class Seating:
    """The seats of a view that are not the caller's.

    Attributes:
        chooses: what plays in them is chosen before each trial.
    """

    def __init__(self, environment: str, seats: Mapping[str, Seat], registry: ModelRegistryClient | None) -> None:
        self._seats = seats
        self._contexts = {agent: SeatContext(environment, agent, registry) for agent in seats}
        self._choosing = [agent for agent, seat in seats.items() if seat.chooses]
        self.chooses = bool(self._choosing)
        self._local = {agent: seat.actor(self._contexts[agent]) for agent, seat in seats.items()}

    def advice(self, participant: str) -> str:
        """Return what is said beside the failure of a trial in which a participant was lost; see `Seat.advice`."""
        return self._seats[participant].advice(participant) if participant in self._seats else ""

    async def choose(self, chosen: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return what plays in a trial, by agent, where there is a choice.

        Args:
            chosen: for this trial, when it was started ahead; the same comes back if it is still the choice.

        Raises whatever `Seat.choose` raises.
        """
        before = chosen or {}
        return {
            agent: await self._seats[agent].choose(self._contexts[agent], before.get(agent, ""))
            for agent in self._choosing
        }

    def params(self, params: TrialParams, chosen: Mapping[str, str]) -> TrialParams:
        """Return the parameters of a trial in which this was chosen."""
        named = {POLICY_PROPERTY + agent: policy for agent, policy in chosen.items() if policy}
        if not named:
            return params
        found = TrialParams()
        found.CopyFrom(params)
        found.properties.update(named)
        return found

    def is_needed(self, agent: str) -> bool:
        """Whether a trial cannot go on without the one who plays this agent."""
        seat = self._seats.get(agent)
        return seat is None or not seat.optional

    def actor(self, agent: str, chosen: Mapping[str, str]) -> ActorImplementation | None:
        """Return the implementation of an agent in a trial in which this was chosen; None if it is not one of these."""
        policy = chosen.get(agent)
        if not policy:
            return self._local.get(agent)
        return self._seats[agent].actor(replace(self._contexts[agent], policy=policy))
