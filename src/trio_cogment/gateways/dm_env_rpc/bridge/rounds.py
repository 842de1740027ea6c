"""The steps of a sequence: a request for each actor that is still there, and one turn of what comes of all of them.

Nobody waits for a step: an action goes out in the task that brings it, and the last answer is told in the task that
brings that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import trio

from trio_cogment.base.errors import CogmentError, RemoteProtocolError, StatusCode, UnavailableError, of_peer
from trio_cogment.base.shared_message import Content
from trio_cogment.environments.encoding import followed
from trio_cogment.environments.episode import Turn
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.gateways.dm_env_rpc.bridge.agents import Agent, truncated
from trio_cogment.gateways.dm_env_rpc.bridge.plans import Plan
from trio_cogment.gateways.dm_env_rpc.client.connection import Connection
from trio_cogment.gateways.dm_env_rpc.client.errors import DmEnvRpcError
from trio_cogment.gateways.dm_env_rpc.client.requests import Reply, Step
from trio_cogment.spaces import Observation, SpaceError


@dataclass(frozen=True, slots=True)
class Player:
    """An actor, and its connection to the server."""

    connection: Connection
    agent: Agent


class _Round:
    """A step, while its answers come.

    Args:
        players: all of them.
        on_turn: told when every answer has come.
        cut: the trial ends with it.

    Attributes:
        asked_at: when, on Trio's clock.
    """

    def __init__(self, players: Sequence[Player], on_turn: Callable[[Turn], None], cut: bool) -> None:
        self.asked_at = trio.current_time()
        self.missing = sum(not player.agent.out for player in players)
        self.told: dict[str, Observation] = {}
        self.on_turn = on_turn
        self.cut = cut


class Rounds:
    """See the module.

    Args:
        plan: of the trial.
        players: its actors.

    Attributes:
        settled: no answer is awaited, and nothing has gone wrong.
    """

    def __init__(self, plan: Plan, players: Sequence[Player]) -> None:
        self.settled = True
        self._plan = plan
        self._players = players
        self._round: _Round | None = None
        self._over = trio.Event()
        self._error: Exception | None = None

    def step(self, actions: Sequence[Content | None], cut: bool, on_turn: Callable[[Turn], None]) -> None:
        """Begin a step; see `SteppedHost.step`.

        Raises:
            InvalidActionError: an action is missing or not in its space; no step was made.
        """
        decoded = {
            player.agent.name: player.agent.actions(content)
            for player, content in zip(self._players, actions, strict=True)
            if not player.agent.out
        }
        self.settled = False
        asked = self._round = _Round(self._players, on_turn, cut)
        for player in self._players:
            agent = player.agent
            if agent.out:
                asked.told[agent.name] = agent.after_the_end()
            elif self._round is asked:  # or another one has failed already
                self._ask(asked, player, decoded[agent.name], "")

    def _ask(self, asked: _Round, player: Player, actions: Mapping[str, Any], refusal: str) -> None:
        def answered(reply: Reply[Step]) -> None:
            if self._round is asked:
                self._take(asked, player, actions, refusal, reply)

        try:
            player.connection.begin_step_nowait(actions, player.agent.view.wanted).give_to(answered)
        except CogmentError as error:
            self._fail(named(self._plan, player.agent.name, error))

    def _take(
        self, asked: _Round, player: Player, actions: Mapping[str, Any], refusal: str, reply: Reply[Step]
    ) -> None:
        """Take an answer to a step; the last one is told, and the first error ends the sequence."""
        agent = player.agent
        try:
            try:
                step = reply.result()
            except DmEnvRpcError as error:
                if not (actions and self._plan.repeat_refused):
                    raise
                self._ask(asked, player, {}, error.message or error.code.name)
                return
            asked.told[agent.name] = agent.advance(step, refusal)
            asked.missing -= 1
            if not asked.missing:
                self._tell(asked)
        except CogmentError as error:
            self._fail(named(self._plan, agent.name, error))
        except Exception as error:  # noqa: BLE001  the boundary between connection and trial: `wait_over` raises it
            self._fail(error)

    def _tell(self, asked: _Round) -> None:
        told = asked.told
        if asked.cut or (self._plan.end_with_any and any(player.agent.out for player in self._players)):
            told = {name: truncated(observation) for name, observation in told.items()}
        turn = turn_of(self._players, told)
        self._round, self.settled = None, True
        if turn.over:
            self._over.set()
        asked.on_turn(turn)

    def _fail(self, error: Exception) -> None:
        self._round, self._error, self.settled = None, error, False
        self._over.set()

    async def wait_over(self) -> None:
        """See `SteppedHost.wait_over`.

        Raises:
            CogmentError: the server is lost, refuses, breaks the protocol, or does not answer in time.
        """
        seconds = self._plan.link.step_timeout_seconds
        try:
            while not self._over.is_set():
                asked = self._round
                since = trio.current_time() if asked is None else asked.asked_at
                with trio.move_on_at(since + seconds) as patience:
                    await self._over.wait()
                if patience.cancelled_caught and asked is not None and self._round is asked:
                    raise too_late(self._plan, "step")
        finally:
            self._round = None  # what comes now is told to nobody
        if self._error is not None:
            raise self._error


def turn_of(players: Sequence[Player], told: Mapping[str, Observation], *, begins: bool = False) -> Turn:
    """Return what actors have been told as a turn; with the first one of a sequence come the spaces."""
    observations = []
    for player in players:
        content = player.agent.encode(told[player.agent.name])
        observations.append(followed(content, player.agent.view.spaces) if begins else content)
    rewards = [told[player.agent.name].reward for player in players]
    return Turn(observations, rewards, over=not any(observation.alive for observation in told.values()))


def too_late(plan: Plan, what: str) -> UnavailableError:
    """Return the error for a server that does not answer in time."""
    seconds = plan.link.step_timeout_seconds
    return of_peer(UnavailableError(f"environment {plan.server_name!r}: {what}: expected answers within {seconds:g} s"))


#: Refusals of a server that may answer another time.
_FOR_NOW = (StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED, StatusCode.DEADLINE_EXCEEDED)


def named(plan: Plan, actor: str, error: CogmentError) -> CogmentError:
    """Return an error that names environment and actor."""
    server = plan.server_name
    if isinstance(error, UnavailableError) or (isinstance(error, DmEnvRpcError) and error.code in _FOR_NOW):
        return of_peer(UnavailableError(f"environment {server!r}, actor {actor!r}: {error}"))
    if isinstance(error, DmEnvRpcError | RemoteProtocolError | SpaceError):
        return InvalidEnvironmentError(server, actor, error)
    return error
