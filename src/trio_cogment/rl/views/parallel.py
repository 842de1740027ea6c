"""Seats of a trial as a parallel environment of PettingZoo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.errors import InvalidActionError
from trio_cogment.rl.views.agents import Illegal, ParallelEnv, SeatedAgents, check_illegal, open_match, plays_illegal
from trio_cogment.rl.views.copies import Recipe
from trio_cogment.rl.views.match import Match
from trio_cogment.rl.views.options import PlatformOptions, Rate
from trio_cogment.rl.views.turns import info_of
from trio_cogment.seats.base import Seat
from trio_cogment.spaces import SpaceError

#: Observations, rewards, terminations, truncations and infos, by agent.
Step: TypeAlias = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


class TrialParallelEnv(SeatedAgents, ParallelEnv):  # type: ignore[misc]  # PettingZoo's class has no types
    """Agents' seats in trials, as a parallel environment: each episode is a trial. `make_parallel` makes it.

    The agents are those of the caller's; others are seen in what they do. Where agents take turns, a step is a round in
    which each of the caller's agents acts once, and what the others do meanwhile belongs to it; an agent's reward is
    the sum over it.
    """

    def __init__(self, match: Match, *, render_mode: str | None = None, plays_illegal: bool = False) -> None:
        """Take the seats; see `SeatedAgents`."""
        super().__init__(match, render_mode=render_mode, plays_illegal=plays_illegal)
        self._takes_rounds = len(match.mine) == 1 or bool(self.metadata.get("is_parallelizable"))

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode, in a new trial; a trial that still runs is ended hard.

        Args:
            seed: of the environment, and of what other seats draw; None goes on with the generators they have.
            options: the environment's own.

        Returns:
            Observations and infos, by agent.

        Raises:
            EpisodeFailedError: an actor cannot be reached or is lost, or the environment raised an exception.
            InvalidArgumentError: agents take turns, and may not act all at once.
            CogmentError: the environment returned what makes no sense, for example.
        """
        turns = self._turns
        self.agents, self._begun = [], True
        turns.reset(seed, options)
        if len(turns.asked) < len(turns.live) and not self._takes_rounds:
            raise InvalidArgumentError(
                f"environment {self._match.name!r}: make_parallel: expected agents that act all at once, or "
                "metadata['is_parallelizable'] where they take turns; use make_aec"
            )
        self.agents = list(turns.live)
        found = {agent: turns.observations[agent] for agent in self.agents}
        return (
            {agent: observation.value for agent, observation in found.items()},
            {agent: info_of(observation) for agent, observation in found.items()},
        )

    def step(self, actions: Mapping[str, Any]) -> Step:
        """Make a step.

        Args:
            actions: of the `agents`; those of agents who are out are ignored.

        Returns:
            Observations, rewards, terminations, truncations and infos of those who took part in it.

        Raises:
            InvalidActionError: an action is missing, not in its space, or forbidden by a mask; no step was made. Where
                agents take turns, what is legal once the others have acted is the game's to say.
            InvalidArgumentError: there is an action of somebody else.
            FailedPreconditionError: there was no `reset`, or the episode is over.
            EpisodeFailedError, CogmentError: as `reset`; the episode is over.
        """
        turns = self._turns
        turns.check_running(self._begun)
        for agent in actions:
            if agent not in self.action_spaces:
                raise turns.unknown(agent, "step: actions")
        try:
            if len(turns.asked) == len(turns.live):
                for agent in turns.asked:
                    if agent in actions:
                        turns.check_action(agent, actions[agent])
                turns.step(actions)
                rewards, ended = turns.rewards, turns.ended
            else:
                rewards, ended = self._round(actions)
        finally:
            self.agents = list(turns.live)
        observations = {agent: turns.observations[agent] for agent in rewards}
        flags = {agent: ended.get(agent, (False, False)) for agent in rewards}
        return (
            {agent: observation.value for agent, observation in observations.items()},
            rewards,
            {agent: terminated for agent, (terminated, _) in flags.items()},
            {agent: truncated for agent, (_, truncated) in flags.items()},
            {agent: info_of(observation) for agent, observation in observations.items()},
        )

    def _round(self, actions: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, tuple[bool, bool]]]:
        """Let each agent act once, in the order in which they are asked; return rewards, and who ended."""
        turns = self._turns
        # All of them first: later ones would be refused in the middle of the round.
        for agent in turns.live:
            if agent not in actions:
                missing = SpaceError("expected one of every agent, got none", root="action")
                raise InvalidActionError(self._match.name, agent, missing)
            turns.check_action(agent, actions[agent])
        rewards: dict[str, float] = {}
        ended: dict[str, tuple[bool, bool]] = {}
        waiting = set(turns.live)
        while now := [agent for agent in turns.asked if agent in waiting]:
            turns.step({agent: actions[agent] for agent in now})
            waiting.difference_update(now)
            for agent, reward in turns.rewards.items():
                rewards[agent] = rewards.get(agent, 0.0) + reward
            ended.update(turns.ended)
        return rewards, ended


def make_parallel(
    environment: Any,
    *,
    seats: Mapping[str, Seat] | None = None,
    agents: Sequence[str] = ("player_0", "player_1"),
    implementation: str = "",
    render_mode: str | None = None,
    rate: Rate | None = None,
    options: PlatformOptions | None = None,
    platform: Any = None,
    store: Any = None,
    model_registry: Any = None,
    orchestrator: str = "",
    directory: Any = None,
    thread: bool | None = None,
    illegal_actions: Illegal | None = None,
    **arguments: Any,
) -> TrialParallelEnv:
    """Return a parallel environment of PettingZoo whose episodes are trials.

    Args:
        environment: what is played: an id (`rps_v2`), an environment, or a function that makes one; see
            `trio_cogment.environments.making.make_environment`. Or where it is served: `grpc://host:port`, or
            `cogment://discover...`.
        seats: who takes the seats of which agents; all others are the caller's.
        agents: for an environment that is served elsewhere, all its agents.
        implementation: of an environment that is served elsewhere, if there are several.
        render_mode: with which the environment is made.
        rate: ticks end by the clock, and agents take part with a default action when they are late; see `Rate`.
        options: where the trials run, all of it; the arguments from `store` on are for what is needed most.
        platform: another view, whose platform is shared: the trials are kept in its store.
        store: keeps every episode as a trial: `memory:` or `sqlite:PATH`.
        model_registry: the folder of a model registry, for seats of models.
        orchestrator: run the trials there, `grpc://host:port`, instead of on a platform of the environment's own.
        directory: asked for what `cogment://discover` describes.
        thread: run the platform in a thread of its own; see `PlatformOptions`.
        illegal_actions: `refuse` those that an agent's mask forbids, by an InvalidActionError that names the agent and
            what is allowed, before anything is played; or `play` them, as for a policy without masks that learns from
            what the game itself does about them (PettingZoo's `TerminateIllegalWrapper` ends it with a penalty). By
            default games of OpenSpiel, which have no answer to them, refuse, and all others play.
        arguments: with which the environment is made.

    Raises:
        MissingExtraError: a package is not installed; the text has the command that installs it.
        InvalidArgumentError: there is no such environment or agent, or all agents have seats.
        CogmentError: the platform cannot be opened, or the environment elsewhere cannot be reached.
    """
    check_illegal(illegal_actions)
    if options is None:
        options = PlatformOptions(
            store=store, model_registry=model_registry, orchestrator=orchestrator, directory=directory, thread=thread
        )
    match = open_match(
        environment,
        seats=seats,
        agents=agents,
        implementation=implementation,
        render_mode=render_mode,
        options=options,
        platform=platform,
        arguments=arguments,
        rate=rate,
    )
    view = TrialParallelEnv(
        match, render_mode=render_mode, plays_illegal=plays_illegal(illegal_actions, match.environment)
    )
    settings = {
        "agents": agents,
        "implementation": implementation,
        "render_mode": render_mode,
        "rate": rate,
        "illegal_actions": illegal_actions,
    }
    view.recipe = Recipe(match, make_parallel, environment, seats, settings, arguments)
    return view
