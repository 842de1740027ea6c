"""The trials of an experiment: what the environments and agents that the file names are, and each trial's parameters.

Agents are functions of the observation, or seats of `trio_cogment.rl` that live in the server: stored models
(`tc.model`), language models (`tc.text`). A `wizard` is a seat for a researcher: to the trial a person like the others,
whose place a bot has until somebody sits down there.

The arguments of an environment are in the configuration of each trial, so whoever reads a stored trial can make its
environment again.
"""

from __future__ import annotations

import random as random_numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from trio_cogment.api import rl_pb2
from trio_cogment.api.common_pb2 import ActorParams, TrialParams
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.errors import CogmentError, InvalidArgumentError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.base.taking_up import RESUME_OWNER
from trio_cogment.environments.base import Environment
from trio_cogment.environments.errors import EnvironmentFailedError
from trio_cogment.environments.making import Recipe
from trio_cogment.environments.serving import Hosting, ServedEnvironment, environment
from trio_cogment.environments.spec import HUMAN, PLAYER, RL_SPEC
from trio_cogment.experiment.definition import Condition, Experiment, TrialPlan
from trio_cogment.play.environment_games import people_params
from trio_cogment.play.games import Game
from trio_cogment.play.lobby_machine import LobbyRules
from trio_cogment.sdk import ModelRegistryClient, Participants
from trio_cogment.seats.base import Seat, SeatContext
from trio_cogment.seats.local import LocalSeat
from trio_cogment.seats.presence import Outcome, SeatRules
from trio_cogment.seats.scripted import policy, random
from trio_cogment.spaces import Discrete
from trio_cogment.spaces.values import fill_fields

#: Finds what a name in the file stands for: an id as it is, or the attribute of a module for `MODULE:NAME`.
Resolve = Callable[[str], Any]

_RANDOM, _WIZARD = "random", "wizard"
#: The implementation of a program in a person's place.
_PROGRAM = "demo"
#: Begins the name of a trial's property: which version plays an agent.
_POLICY = "policy."
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


@dataclass(frozen=True, slots=True)
class GroupTrial:
    """A trial that a group is about to play.

    Attributes:
        game: its parameters, and how seats are held.
        people: the participants' ids, by the agents that they play.
        wizards: the agents that researchers play.
        policies: which version plays, by agents that stored models play, as `Seat.choose` says.
    """

    game: Game
    people: Mapping[str, str]
    wizards: tuple[str, ...]
    policies: Mapping[str, str]


class ExperimentTrials:
    """See the module. Making one makes each environment once; it blocks.

    Args:
        experiment: the file.
        resolve: finds environments and agents; raises a `CogmentError`.
        hosting: where environments run; see `environments.serving.environment`.
        people: people take part. If not, programs try it out: trials say so of their actors and their owner, and random
            actions play the agents that are a researcher's.

    Attributes:
        participants: the environments and agents, for the platform.
        params: of a trial, for who asks where trials are stored.
        needs_models: an agent is a stored model, so the platform needs a model registry.

    Raises:
        InvalidArgumentError: an environment has no such agent, or what a name stands for cannot be used; the text names
            the trial.
        CogmentError: an environment could not be made.
    """

    def __init__(
        self, experiment: Experiment, resolve: Resolve, *, hosting: Hosting = "inline", people: bool = True
    ) -> None:
        self.participants = Participants(RL_SPEC)
        self._experiment = experiment
        self._resolve = resolve
        self._hosting = hosting
        self._served: dict[str, tuple[str, ServedEnvironment, Any]] = {}
        self._people = people
        self._seats: dict[str, Seat] = {}  # of agents, by their names in the file
        self._registered: set[str] = set()
        self._made: dict[tuple[int, str], _Made] = {}
        self.params = TrialParams()
        stand_in = experiment.dropout.bot
        with _at(experiment.places.get("", "")):
            seat = self._seat(stand_in, "dropout: bot")
            if stand_in == _WIZARD or seat.chooses:
                raise InvalidArgumentError(
                    "dropout: bot: expected random, or MODULE:NAME of a function or a seat that is the same in all "
                    f"trials; got {stand_in!r}"
                )
        self._register(stand_in, SeatContext(experiment.name, stand_in))
        for number, trial in enumerate(experiment.trials):
            for condition in experiment.conditions:
                with _at(experiment.places.get(trial.name, "")):
                    self._made[number, condition.name] = self._make(trial, condition)
                    # What is wrong with it is told now, and not to the first group.
                    places = [f"{k}" for k in range(experiment.waiting.size)]
                    self.params = self._group_trial(number, condition.name, 1, places, (), {}).game.params
        self.needs_models = any(seat.chooses for seat in self._seats.values())

    async def aclose(self) -> None:
        """Close the environments that no trial uses."""
        for _, served, _ in self._served.values():
            await served.aclose()

    def _make(self, trial: TrialPlan, condition: Condition) -> _Made:
        changes = condition.changes(trial.name)
        # The condition is named where it makes a difference.
        in_condition = f"trial {trial.name!r} in condition {condition.name!r}"
        where = in_condition if changes.arguments else f"trial {trial.name!r}"
        arguments = {**trial.arguments, **changes.arguments}
        implementation, target = self._environment(trial.environment)
        made = _made(target, arguments, where, _hint(condition, "arguments"))
        agents = list(made.agents)
        people = tuple(trial.people or agents[: self._experiment.waiting.size])
        if len(people) < self._experiment.waiting.size:
            raise InvalidArgumentError(
                f"{where}: expected an environment of {self._experiment.waiting.size} agents or more, as many as a "
                f"group has people; {made.name!r} has {len(agents)}"
            )
        if trial.agents_argument:
            self._check_agents_argument(trial, target, arguments, agents, people, where)
        self._check_labels(trial, made, people, where)
        bots = {**trial.bots, **changes.bots}
        for name in people:
            if name not in agents:
                raise InvalidArgumentError(f"{where}: people: there is no agent {name!r}; {suggestion(name, agents)}")
        for name in bots:
            of = in_condition if name in changes.bots else where
            if name not in agents:
                hint = _hint(condition, "bots") if name in condition.bots else ""
                raise InvalidArgumentError(f"{of}: bots: there is no agent {name!r}; {suggestion(name, agents)}{hint}")
            if name in people:
                raise InvalidArgumentError(
                    f"{of}: bots: {name!r} is a person's; for those who go there is dropout: bot"
                )
        used = {agent: bots.get(agent, _RANDOM) for agent in agents if agent not in people}
        for agent, name in used.items():
            if name == _WIZARD and not self._people:
                used[agent] = _RANDOM
            elif name != _WIZARD:
                self._seat(name, f"{in_condition if agent in changes.bots else where}: bots: {agent}")
        return _Made(made, implementation, arguments, people, used)

    def _check_labels(self, trial: TrialPlan, made: Environment, people: Sequence[str], where: str) -> None:
        """See that each of the actions that people choose from has a label, if some have."""
        for agent in people:
            space = made.action_spaces.get(agent)
            if trial.labels and isinstance(space, Discrete) and len(trial.labels) != space.n:
                raise InvalidArgumentError(
                    f"{where}: labels: expected {space.n}, one for each action of {agent!r}; got {len(trial.labels)}"
                )

    def _check_agents_argument(
        self,
        trial: TrialPlan,
        target: Any,
        arguments: Mapping[str, Any],
        agents: Sequence[str],
        people: Sequence[str],
        where: str,
    ) -> None:
        """See that the environment can be made with one person less, by its argument."""
        fewer = [agent for agent in agents if agent != people[-1]] if len(agents) > 1 else list(agents)
        made = _made(target, {**arguments, trial.agents_argument: fewer}, where, "")
        if sorted(made.agents) != sorted(fewer):
            raise InvalidArgumentError(
                f"{where}: agents_argument: expected {trial.agents_argument}={fewer} to make an environment of these "
                f"agents; it has {list(made.agents)}"
            )

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

    def _seat(self, name: str, where: str) -> Seat:
        """Return who plays an agent, of its name in the file."""
        if name not in self._seats:
            found = _RANDOM if name in (_RANDOM, _WIZARD) else self._resolve(name)
            if isinstance(found, Seat):
                seat = found
            elif found == _RANDOM:
                seat = random()
            elif callable(found):
                seat = policy(found)
            else:
                raise InvalidArgumentError(
                    f"{where}: expected random, wizard, or MODULE:NAME of a function or a seat; got {name!r}"
                )
            if not isinstance(seat, LocalSeat):
                raise InvalidArgumentError(
                    f"{where}: expected an agent that lives in this server (a function, tc.text, tc.model); got "
                    f"{seat.label!r}"
                )
            self._seats[name] = seat
        return self._seats[name]

    def _register(self, name: str, context: SeatContext) -> str:
        """Have an agent be there for trials; return its implementation: one for each version of a model."""
        implementation = f"{name} {context.policy}".strip()
        if implementation not in self._registered:
            actor = self._seats[name].actor(context)
            assert actor is not None, "it is local"
            self.participants.register_actor(actor, implementation, [PLAYER])
            self._registered.add(implementation)
        return implementation

    async def prepare(
        self,
        trial: int,
        condition: str,
        group: int,
        places: Sequence[str | None],
        gone: Sequence[int] = (),
        models: ModelRegistryClient | None = None,
        chosen: Mapping[str, str] | None = None,
    ) -> GroupTrial:
        """Return what a trial is started with, and who plays which of its agents.

        Args:
            trial: its number in the file, from 0.
            condition: of the group.
            group: its number; the seed of the environment follows from it.
            places: who has which of the agents that are people's; None: a bot has it, or nobody.
            gone: the numbers of those that nobody has: the trial is without them.
            models: of the platform; None: it has no model registry.
            chosen: the properties of a trial that goes on, which has the versions of models with which it began.

        Raises:
            CogmentError: the file asks for what cannot be, or there is no such version of a model.
        """
        contexts = {}
        for agent, name in self._made[trial, condition].bots.items():
            if name == _WIZARD:
                continue
            seat, context = self._seats[name], SeatContext(self._experiment.name, agent, model_registry=models)
            if seat.chooses:
                before = None if chosen is None else chosen.get(f"{_POLICY}{agent}")
                context = replace(context, policy=await seat.choose(context) if before is None else before)
            contexts[agent] = context
        return self._group_trial(trial, condition, group, places, gone, contexts)

    def _group_trial(
        self,
        trial: int,
        condition: str,
        group: int,
        places: Sequence[str | None],
        gone: Sequence[int],
        contexts: Mapping[str, SeatContext],
    ) -> GroupTrial:
        plan, made, dropout = self._experiment.trials[trial], self._made[trial, condition], self._experiment.dropout
        people = {agent: who for agent, who in zip(made.people, places, strict=True) if who is not None}
        without = {made.people[place] for place in gone}
        params = people_params(
            made.environment,
            list(people),
            bot=dropout.bot,
            default=dropout.default,
            seed=random_numbers.Random(f"{self._experiment.seed} {group} {trial}").getrandbits(_SEED_BITS),
            tick_hz=plan.tick_hz,
            observe_every=plan.observe_every,
            hold_action=plan.hold_action,
        )
        actors = [actor for actor in params.actors if actor.name not in without]
        wizards = tuple(actor.name for actor in actors if made.bots.get(actor.name) == _WIZARD)
        for actor in actors:
            if actor.name in wizards:
                actor.endpoint, actor.implementation = CLIENT, HUMAN
            elif actor.name in made.bots:
                self._be_played(actor, made, contexts.get(actor.name))
            elif not self._people and actor.endpoint == CLIENT:
                actor.implementation = _PROGRAM
        del params.actors[:]
        params.actors.extend(actors)
        arguments = dict(made.arguments)
        if plan.agents_argument:
            arguments[plan.agents_argument] = [actor.name for actor in actors]
        params.environment.implementation = made.implementation
        config = rl_pb2.EnvironmentConfig.FromString(params.environment.config.content)
        fill_fields(config.arguments, arguments)
        config.frames_for.extend(wizards)
        params.environment.config.content = config.SerializeToString()
        policies = {agent: context.policy for agent, context in contexts.items() if context.policy}
        for agent, chosen in policies.items():
            params.properties[f"{_POLICY}{agent}"] = chosen
        params.properties[RESUME_OWNER] = (
            self._experiment.name if self._people else f"{self._experiment.name} {_PROGRAM}"
        )
        rules = SeatRules(
            come_seconds=dropout.grace_seconds,
            grace_seconds=dropout.grace_seconds,
            action_seconds=plan.action_seconds,
            outcome=_OUTCOMES[dropout.in_the_trial],
        )
        game = Game(
            name=self._experiment.name,
            params=params,
            lobby=LobbyRules(seats=len(people) + len(wizards)),
            seat=rules,
            seats=dict.fromkeys(wizards, replace(rules, outcome=Outcome.BOT)),
            bot=dropout.bot,
            title=plan.title or self._experiment.title,
            text=plan.text,
            labels=plan.labels,
            renderer=plan.renderer,
            feedback="feedback" in plan.show if plan.talk is None else plan.talk,
        )
        return GroupTrial(game, people, wizards, policies)

    def _be_played(self, actor: ActorParams, made: _Made, context: SeatContext | None) -> None:
        """Have an agent be played by the one whom the file names; without a context that is only tried."""
        name = made.bots[actor.name]
        if context is None and self._seats[name].chooses:
            implementation = name
        else:
            implementation = self._register(name, context or SeatContext(self._experiment.name, actor.name))
        actor.CopyFrom(
            self._seats[name].actor_params(
                actor.name,
                environment=made.environment.name,
                implementation=implementation,
                action_space=made.environment.action_spaces[actor.name],
            )
        )

    def role(self, trial: int, condition: str, place: int) -> str:
        """Return the agent that is played in a place of a trial."""
        return self._made[trial, condition].people[place]


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Have errors begin with the place in the file."""
    try:
        yield
    except CogmentError as error:
        error.args = (f"{place}{error}",)
        raise


def _made(target: Any, arguments: Mapping[str, Any], where: str, hint: str) -> Environment:
    """Make an environment once, to see what it has; an error names the trial."""
    try:
        made = Recipe(target, dict(arguments)).make()
    except EnvironmentFailedError as error:
        raise EnvironmentFailedError(f"{where}: {error}{hint}") from error
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: {error}{hint}") from error
    made.close()
    return made


def _hint(condition: Condition, what: str) -> str:
    """Return the end of an error of a trial that may not be meant by what a condition has for all."""
    if not getattr(condition, what):
        return ""
    return f"; what is for one of the trials alone is in conditions.{condition.name}.trials.TRIAL.{what}"
