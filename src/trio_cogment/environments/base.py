"""An environment of any of the field's interfaces, as a trial sees it: one interface for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from trio_cogment.spaces import Frame, Observation, Space

#: The agent of an environment that has only one.
SINGLE_AGENT = "player_0"


class Environment(Protocol):
    """Episodes of a game between named agents; each is the environment of one trial.

    It is used by one trial at a time, from one thread at a time, and waits for nobody. The observations that it
    returns are without frames and without spaces: `frame`, `observation_spaces` and `action_spaces` have those.

    Attributes:
        name: of the environment, for errors and for data sets, such as `CartPole-v1`.
        agents: everybody who may take part; the actors of a trial have these names.
        observation_spaces: by agent.
        action_spaces: by agent.
        metadata: what the environment says about itself, in Gymnasium's terms (`render_fps`, `render_modes`).
    """

    name: str
    agents: Sequence[str]
    observation_spaces: Mapping[str, Space]
    action_spaces: Mapping[str, Space]
    metadata: Mapping[str, Any]

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        """Begin an episode, whether or not the last one is over.

        Args:
            seed: of the environment's random generator; None goes on with the generator it has.
            options: the environment's own.

        Returns:
            The first observation of every agent.
        """

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        """Make a step of the episode.

        Args:
            actions: of the agents whose last observation was `active`; each is a value of the agent's action space.

        Returns:
            The next observation of every agent. One who is out gets its last value again, with `alive` and `active`
            false. `terminated` and `truncated` are set once, in the observation that brings the end.
        """

    @property
    def over(self) -> bool:
        """Whether the episode has ended for all agents."""

    def frame(self) -> Frame | None:
        """Return a picture of the present state, or None if the environment draws none."""

    def close(self) -> None:
        """Release what the environment holds."""


#: Makes an environment; the keyword arguments are those of `EnvironmentConfig.arguments`.
EnvironmentMaker: TypeAlias = Callable[..., Environment]
