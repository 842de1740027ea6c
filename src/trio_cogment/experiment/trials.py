"""The trials of an experiment: what the environments and agents that the file names are, and each trial's parameters.

Agents are functions of the observation, or seats of `trio_cogment.rl` that live in the server, such as those of
`tc.text`. The arguments of an environment are in the configuration of each trial, so whoever reads a stored trial can
make its environment again.
"""

from __future__ import annotations

import random as random_numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trio_cogment.api import rl_pb2
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.endpoints import DISCOVER
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.environments.base import Environment
from trio_cogment.environments.making import Recipe
from trio_cogment.environments.serving import Hosting, ServedEnvironment, environment
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.experiment.definition import Condition, Experiment, TrialPlan
from trio_cogment.play.environment_games import people_params
from trio_cogment.play.games import Game
from trio_cogment.play.lobby_machine import LobbyRules
from trio_cogment.sdk import Participants
from trio_cogment.seats.base import Seat, SeatContext
from trio_cogment.seats.presence import Outcome, SeatRules
from trio_cogment.seats.scripted import policy, random
from trio_cogment.spaces.values import fill_fields

#: Finds what a name in the file stands for: an id as it is, or the attribute of a module for `MODULE:NAME`.
Resolve = Callable[[str], Any]

_RANDOM = "random"
_OUTCOMES = {"bot": Outcome.BOT, "default": Outcome.DEFAULT, "end": Outcome.LOSS}
_SEED_BITS = 31


@dataclass(frozen=True, slots=True)
class _Made:
    """An environment as a trial in a condition has it: what it says of itself, and the implementation that makes it."""

    environment: Environment
    implementation: str
    arguments: Mapping[str, Any]
    people: tuple[str, ...]
    bots: Mapping[str, str]


class ExperimentTrials:
    """See the module. Making one makes each environment once; it blocks.

    Args:
        experiment: the file.
        resolve: finds environments and agents; raises a `CogmentError`.
        hosting: where environments run; see `environments.serving.environment`.

    Attributes:
        participants: the environments and agents, for the platform.
        params: of a trial, for who asks where trials are stored.

    Raises:
        InvalidArgumentError: an environment has no such agent, or what a name stands for cannot be used; the text names
            the trial.
        CogmentError: an environment could not be made.
    """

    def __init__(self, experiment: Experiment, resolve: Resolve, *, hosting: Hosting = "inline") -> None:
        self.participants = Participants(RL_SPEC)
        self._experiment = experiment
        self._resolve = resolve
        self._hosting = hosting
        self._served: dict[str, tuple[str, ServedEnvironment, Any]] = {}
        self._bots: dict[str, str] = {}
        self._made: dict[tuple[int, str], _Made] = {}
        self.params = TrialParams()
        self._bot(experiment.dropout.bot, "dropout: bot")
        for number, trial in enumerate(experiment.trials):
            for condition in experiment.conditions:
                self._made[number, condition.name] = self._make(trial, condition)
                # What is wrong with it is told now, and not to the first group.
                game, _ = self.game(number, condition.name, 1, [f"{k}" for k in range(experiment.waiting.size)])
                self.params = game.params

    async def aclose(self) -> None:
        """Close the environments that no trial uses."""
        for _, served, _ in self._served.values():
            await served.aclose()

    def _make(self, trial: TrialPlan, condition: Condition) -> _Made:
        where = f"trial {trial.name!r}"
        arguments = {**trial.arguments, **condition.arguments}
        implementation, target = self._environment(trial.environment)
        made = Recipe(target, arguments).make()
        made.close()
        agents = list(made.agents)
        people = tuple(trial.people or agents[: self._experiment.waiting.size])
        if len(people) < self._experiment.waiting.size:
            raise InvalidArgumentError(
                f"{where}: expected an environment of {self._experiment.waiting.size} agents or more, as many as a "
                f"group has people; {made.name!r} has {len(agents)}"
            )
        bots = {**trial.bots, **condition.bots}
        for what, names in (("people", people), ("bots", bots)):
            for name in names:
                if name not in agents:
                    raise InvalidArgumentError(
                        f"{where}: {what}: there is no agent {name!r}; {suggestion(name, agents)}"
                    )
        for name in bots:
            if name in people:
                raise InvalidArgumentError(
                    f"{where}: bots: {name!r} is a person's; for those who go there is dropout: bot"
                )
        used = {agent: self._bot(bots.get(agent, _RANDOM), f"{where}: bots: {agent}") for agent in agents}
        return _Made(made, implementation, arguments, people, used)

    def _environment(self, name: str) -> tuple[str, Any]:
        """Return the implementation that serves an environment, and what makes it."""
        if name not in self._served:
            target = self._resolve(name)
            served = environment(target, hosting=self._hosting)
            implementation = "".join(letter if letter.isprintable() else "-" for letter in name)
            self.participants.register_environment(served, implementation)
            self._served[name] = implementation, served, target
        implementation, _, target = self._served[name]
        return implementation, target

    def _bot(self, name: str, where: str) -> str:
        """Return the implementation of an agent."""
        if name not in self._bots:
            found = _RANDOM if name == _RANDOM else self._resolve(name)
            if isinstance(found, Seat):
                seat = found
            elif name == _RANDOM:
                seat = random()
            elif callable(found):
                seat = policy(found)
            else:
                raise InvalidArgumentError(
                    f"{where}: expected random, or MODULE:NAME of a function or a seat; got {name!r}"
                )
            actor = None if seat.chooses else seat.actor(SeatContext(self._experiment.name, name))
            if actor is None:
                raise InvalidArgumentError(
                    f"{where}: expected an agent that lives in this server and is chosen once (a function, tc.text); "
                    f"got {seat.label!r}"
                )
            self.participants.register_actor(actor, name, [PLAYER])
            self._bots[name] = name
        return self._bots[name]

    def game(self, trial: int, condition: str, group: int, places: list[str | None]) -> tuple[Game, dict[str, str]]:
        """Return what a trial is started with, and who plays which of its agents.

        Args:
            trial: its number in the file, from 0.
            condition: of the group.
            group: its number; the seed of the environment follows from it.
            places: who has which of the agents that are people's; None: a bot has it.

        Raises:
            InvalidArgumentError: the file asks for what cannot be.
        """
        plan, made, dropout = self._experiment.trials[trial], self._made[trial, condition], self._experiment.dropout
        people = {agent: who for agent, who in zip(made.people, places, strict=True) if who is not None}
        params = people_params(
            made.environment,
            list(people),
            bot=dropout.bot,
            default=dropout.default,
            seed=random_numbers.Random(f"{self._experiment.seed} {group} {trial}").getrandbits(_SEED_BITS),
        )
        self._complete(params, made, people)
        outcome = _OUTCOMES[dropout.then]
        game = Game(
            name=self._experiment.name,
            params=params,
            lobby=LobbyRules(seats=len(people)),
            seat=SeatRules(
                come_seconds=dropout.grace_seconds,
                grace_seconds=dropout.grace_seconds,
                action_seconds=plan.action_seconds,
                outcome=outcome,
            ),
            bot=dropout.bot,
            title=plan.title or self._experiment.title,
            text=plan.text,
            labels=plan.labels,
            renderer=plan.renderer,
            feedback="feedback" in plan.show,
        )
        return game, people

    def _complete(self, params: TrialParams, made: _Made, people: Mapping[str, str]) -> None:
        """Put the arguments of the environment, and the agents that the file names, into the parameters of a trial."""
        params.environment.implementation = made.implementation
        config = rl_pb2.EnvironmentConfig.FromString(params.environment.config.content)
        fill_fields(config.arguments, dict(made.arguments))
        params.environment.config.content = config.SerializeToString()
        for actor in params.actors:
            if actor.endpoint.strip() == DISCOVER and actor.name not in made.people:
                actor.implementation = made.bots[actor.name]
