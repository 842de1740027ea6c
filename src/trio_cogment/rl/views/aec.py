"""Seats of a trial as an environment of PettingZoo whose agents act one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trio_cogment.rl.views.agents import AECEnv, Illegal, SeatedAgents, check_illegal, open_match, plays_illegal
from trio_cogment.rl.views.copies import Recipe
from trio_cogment.rl.views.match import Match
from trio_cogment.rl.views.options import PlatformOptions, Rate
from trio_cogment.rl.views.turns import info_of
from trio_cogment.seats.base import Seat


class TrialAECEnv(SeatedAgents, AECEnv):  # type: ignore[misc]  # PettingZoo's class has no types
    """Agents' seats in trials, as an environment whose agents act one after the other. `make_aec` makes it.

    The agents are those of the caller's; others are seen in what they do. Where several of the caller's are to act at
    once, they do so in the environment's order, and the tick is made when the last one has: until then nobody sees
    anything new, and the rewards are 0.

    Attributes:
        agent_selection: whose turn it is; of who has ended, only `step(None)` is expected.
        rewards: of the last step.
        terminations: by agent.
        truncations: by agent.
        infos: by agent.
    """

    agent_selection: str

    def __init__(self, match: Match, *, render_mode: str | None = None, plays_illegal: bool = False) -> None:
        """Take the seats; see `SeatedAgents`."""
        super().__init__(match, render_mode=render_mode, plays_illegal=plays_illegal)
        self._actions: dict[str, Any] = {}
        self._clear()

    def _clear(self) -> None:
        self.agents = []
        self._actions = {}
        self._skip_agent_selection: str | None = None
        self.rewards: dict[str, float] = {}
        self._cumulative_rewards: dict[str, float] = {}
        self.terminations: dict[str, bool] = {}
        self.truncations: dict[str, bool] = {}
        self.infos: dict[str, dict[str, Any]] = {}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode, in a new trial; a trial that still runs is ended hard.

        Args:
            seed: of the environment, and of what other seats draw; None goes on with the generators they have.
            options: the environment's own.

        Raises:
            EpisodeFailedError: an actor cannot be reached or is lost, or the environment raised an exception.
            CogmentError: the environment returned what makes no sense, for example.
        """
        self._clear()
        self._begun = True
        turns = self._turns
        turns.reset(seed, options)
        # An agent whose part is over before it began has to be stepped with None.
        self._join([agent for agent in self.possible_agents if agent in turns.live or agent in turns.ended])
        self._take()
        self._select(after=self.possible_agents[-1])

    def _join(self, agents: Sequence[str]) -> None:
        for agent in agents:
            self.agents.append(agent)
            self.rewards[agent] = self._cumulative_rewards[agent] = 0.0
            self.terminations[agent] = self.truncations[agent] = False
            self.infos[agent] = {}

    def step(self, action: Any) -> None:
        """Act for the agent of `agent_selection`, or remove it if it has ended.

        Args:
            action: of its action space; None if it has ended.

        Raises:
            InvalidActionError: the action is not in the action space, or the agent's mask forbids it; nothing has
                changed.
            ValueError: the agent has ended, and the action is not None.
            FailedPreconditionError: there was no `reset`, or all agents are gone.
            EpisodeFailedError, CogmentError: as `reset`; the episode is over, and there are no agents.
        """
        turns = self._turns
        if not self.agents:
            turns.check_running(self._begun)
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        turns.check_action(agent, action)
        self._cumulative_rewards[agent] = 0.0
        self._actions[agent] = action
        waiting = [other for other in turns.asked if other not in self._actions]
        if waiting:
            self._clear_rewards()
            self.agent_selection = waiting[0]
            return
        actions, self._actions = self._actions, {}
        try:
            turns.step(actions)
        except BaseException:  # Control-C, too: the episode is over
            self._clear()
            raise
        self._join([other for other in turns.rewards if other not in self.agents])
        self._take()
        self._accumulate_rewards()
        self._select(after=agent)

    def _take(self) -> None:
        """Take what the last step brought."""
        turns = self._turns
        for agent in self.agents:
            self.rewards[agent] = turns.rewards.get(agent, 0.0)
            self.infos[agent] = info_of(turns.observations[agent])
            if agent in turns.ended:
                self.terminations[agent], self.truncations[agent] = turns.ended[agent]

    def _select(self, after: str) -> None:
        """Choose whose turn it is, where that agent was the last to act."""
        asked = self._turns.asked
        if asked:
            self.agent_selection = asked[0]
            self._deads_step_first()
        elif self.agents:
            order = self.possible_agents
            following = order.index(after) + 1
            self.agent_selection = next(one for one in (*order[following:], *order) if one in self.agents)

    def observe(self, agent: str) -> Any:
        """Return the newest observation of an agent.

        Raises:
            InvalidArgumentError: the agent is not one of `possible_agents`, or there was no `reset`.
        """
        return self._of_agent(self._turns.observations, agent, "observe").value


def make_aec(
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
) -> TrialAECEnv:
    """Return an environment of PettingZoo whose agents act one after the other, and whose episodes are trials.

    The environment may be one of either kind: where all agents act at once, their actions are collected for a tick.

    Args:
        environment: what is played: an id (`tictactoe_v3`), an environment, or a function that makes one; see
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
    view = TrialAECEnv(match, render_mode=render_mode, plays_illegal=plays_illegal(illegal_actions, match.environment))
    settings = {
        "agents": agents,
        "implementation": implementation,
        "render_mode": render_mode,
        "rate": rate,
        "illegal_actions": illegal_actions,
    }
    view.recipe = Recipe(match, make_aec, environment, seats, settings, arguments)
    return view
