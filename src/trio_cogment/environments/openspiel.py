"""Games of OpenSpiel as the environment of trials; the extra `openspiel` brings it.

OpenSpiel's games are trees: a node is a player's move, a move of all players at once, a move of chance, or an end. Here
the moves of chance are made between the steps, by the episode's generator. So a step is one move of those whose turn it
is, as in PettingZoo, and an episode is a game from its beginning to its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError, NotFoundError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.environments.errors import InvalidActionError
from trio_cogment.spaces import Box, Discrete, Frame, Observation, Space
from trio_cogment.spaces.elementary import any_text
from trio_cogment.spaces.pictures import frame_of

#: What the names of these games begin with: `openspiel/kuhn_poker`.
PREFIX = "openspiel/"

#: What agents are shown: the tensor of what they see now; that of all that they have seen, which not all games have;
#: or what they see as text.
Seen = Literal["observation", "information_state", "text"]

#: Seeds of OpenSpiel's own generators are of 31 bits.
_SEEDS = 2**31
#: So many legal actions an error names at most.
_NAMED = 20
#: The parameter by which games that draw within themselves take their seed.
_SEED_PARAMETER = "rng_seed"


class OpenSpielEnvironment:
    """A game of OpenSpiel, whose players are `player_0`, `player_1`, ...; see `base.Environment`.

    Players move in turns or all at once, as the game says. Every player is shown every step, and told what the step
    changed of its return; so its rewards add up to the game's `returns()`. The mask of actions has the legal ones of
    whose turn it is. An end is always `terminated`: OpenSpiel's games have their limits in their rules.

    Attributes:
        game: the game itself, a `pyspiel.Game`.
        state: the present state, a `pyspiel.State`; None before the first reset.
        illegal_actions: "refuse": a view does not send them, since the game has no answer to them.
    """

    illegal_actions = "refuse"

    def __init__(
        self, name: str, *, observation: Seen | None = None, render_mode: str | None = None, **parameters: Any
    ) -> None:
        """Load a game.

        Args:
            name: of the game, with or without `openspiel/`.
            observation: what agents are shown; by default the first of `observation`, `information_state` and `text`
                that the game has.
            render_mode: `ansi`, or None for no pictures. They show all that is hidden from players.
            parameters: of the game: `players=3`, `imp_info=True`. That of a game within a game is a text, as in
                `stage_game="matrix_pd()"`.

        Raises:
            MissingExtraError: OpenSpiel is not installed.
            NotFoundError: there is no such game.
            InvalidArgumentError: it has no such parameters, or the players do not move one by one or all at once.
        """
        self._pyspiel = _pyspiel()
        self._short_name = name.removeprefix(PREFIX)
        self._parameters = parameters
        self.name = PREFIX + self._short_name
        known = self._pyspiel.registered_names()
        if self._short_name not in known:
            meant = suggestion(self._short_name, known, "pyspiel.registered_names() are those that there are")
            raise NotFoundError(f"environment {self.name!r}: there is no game of that name; {meant}")
        self.game = self._loaded()
        kind = self.game.get_type()
        self._require_moves(kind)
        self._seen = self._chosen(observation, kind)
        self.metadata: Mapping[str, Any] = {
            "render_modes": ["ansi"],
            "render_mode": render_mode,
            "is_parallelizable": kind.dynamics == self._pyspiel.GameType.Dynamics.SIMULTANEOUS,
        }
        self._renders = render_mode == "ansi"
        self.agents: Sequence[str] = tuple(f"player_{player}" for player in range(self.game.num_players()))
        self._shape = self._shape_of()
        space: Space = any_text() if self._shape is None else _unbounded(self._shape)
        self.observation_spaces: Mapping[str, Space] = dict.fromkeys(self.agents, space)
        actions = Discrete(self.game.num_distinct_actions())
        self.action_spaces: Mapping[str, Space] = dict.fromkeys(self.agents, actions)
        #: Games that draw within themselves have no nodes of chance: a generator of their own goes with the game.
        self._draws_inside = kind.chance_mode == self._pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC
        self._generator = np.random.default_rng()
        self._returns: NDArray[np.float64] = np.zeros(len(self.agents))
        self._last: list[Any] = []
        self.state: Any = None
        self.over = True

    # The game

    def _loaded(self, **more: Any) -> Any:
        given = {**self._parameters, **more}
        text = ",".join(f"{key}={_as_parameter(value)}" for key, value in given.items())
        try:
            return self._pyspiel.load_game(f"{self._short_name}({text})" if given else self._short_name)
        except (self._pyspiel.SpielError, IndexError) as error:  # an IndexError of C++, if a parameter is missing
            kinds = {kind.short_name: kind for kind in self._pyspiel.registered_games()}
            takes = ", ".join(kinds[self._short_name].parameter_specification) or "none"
            raise InvalidArgumentError(
                f"environment {self.name!r}: {str(error).strip()}; parameters that it takes: {takes}"
            ) from None

    def _require_moves(self, kind: Any) -> None:
        if kind.dynamics == self._pyspiel.GameType.Dynamics.MEAN_FIELD:
            raise InvalidArgumentError(
                f"environment {self.name!r}: expected players who move one by one or all at once; it is a game of a "
                "mean field, which has a distribution of players instead"
            )

    def _chosen(self, wanted: Seen | None, kind: Any) -> Seen:
        offered: dict[Seen, bool] = {
            "observation": kind.provides_observation_tensor,
            "information_state": kind.provides_information_state_tensor,
            "text": kind.provides_observation_string or kind.provides_information_state_string,
        }
        for seen in get_args(Seen) if wanted is None else (wanted,):
            if offered.get(seen):
                return seen  # type: ignore[no-any-return]  # get_args has no types
        has = ", ".join(repr(name) for name, there in offered.items() if there) or "none of them"
        raise InvalidArgumentError(f"environment {self.name!r}: observation: expected {has}; got {wanted!r}")

    def _shape_of(self) -> tuple[int, ...] | None:
        if self._seen == "text":
            self._of_text = "observation_string"
            if not self.game.get_type().provides_observation_string:
                self._of_text = "information_state_string"
            return None
        try:
            return tuple(getattr(self.game, f"{self._seen}_tensor_shape")())
        except self._pyspiel.SpielError as error:
            raise InvalidArgumentError(f"environment {self.name!r}: {str(error).strip()}") from None

    # Episodes

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        """Begin a game.

        Raises:
            InvalidArgumentError: there are options.
        """
        if options:
            text = f"options: expected none, because OpenSpiel has none; got {', '.join(map(repr, options))}"
            raise InvalidArgumentError(f"environment {self.name!r}: {text}")
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        if self._draws_inside and _SEED_PARAMETER in self.game.get_type().parameter_specification:
            drawn = int(self._generator.integers(_SEEDS))
            self.game = self._loaded(**{_SEED_PARAMETER: self._parameters.get(_SEED_PARAMETER, drawn)})
        self.state = self.game.new_initial_state()
        self._returns = np.zeros(len(self.agents))
        self._last = [self.observation_spaces[agent].sample(np.random.default_rng(0)) for agent in self.agents]
        self._play_chance()
        return self._observations(first=True)

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        """Make the move of one player, or of all at once, and those of chance that follow.

        Raises:
            InvalidActionError: a move is not legal; none was made.
        """
        state = self.state
        moves = []
        for player, agent in enumerate(self.agents):
            if agent not in actions:
                moves.append(self._pyspiel.INVALID_ACTION)  # of who has no move among those who move at once
                continue
            move = int(actions[agent])
            legal = state.legal_actions(player)
            if move not in legal:
                some = ", ".join(map(str, legal[:_NAMED])) + (", ..." if len(legal) > _NAMED else "")
                text = f"action: expected a legal one, of {some}, as the action mask says; got {move}"
                raise InvalidActionError(self.name, agent, text)
            moves.append(move)
        if state.is_simultaneous_node():
            state.apply_actions(moves)
        else:
            state.apply_action(moves[state.current_player()])
        self._play_chance()
        return self._observations()

    def _play_chance(self) -> None:
        """Make the moves of chance, until somebody moves or the game is over."""
        while self.state.is_chance_node():
            outcomes = self.state.chance_outcomes()
            limits = np.cumsum([probability for _, probability in outcomes])
            # The sum is 1 but for rounding, and what is drawn is below 1.
            place = int(np.searchsorted(limits, self._generator.random() * limits[-1], side="right"))
            self.state.apply_action(outcomes[min(place, len(outcomes) - 1)][0])

    def _observations(self, *, first: bool = False) -> dict[str, Observation]:
        state = self.state
        self.over = over = state.is_terminal()
        returns = np.array(state.returns())
        # Not `rewards()`, which are those of the last move only, and that may have been one of chance.
        gained, self._returns = returns - self._returns, returns
        together = not over and state.is_simultaneous_node()
        found = {}
        for player, agent in enumerate(self.agents):
            legal = [] if over else state.legal_actions(player)
            active = bool(legal) and (together or state.current_player() == player)
            found[agent] = Observation(
                self._value(player),
                None if first else float(gained[player]),
                terminated=over,
                action_mask=self._mask(legal) if active else None,
                active=active,
                alive=not over,
            )
        return found

    def _value(self, player: int) -> Any:
        state = self.state
        try:
            if self._shape is None:
                value: Any = getattr(state, self._of_text)(player)
            else:
                tensor = getattr(state, f"{self._seen}_tensor")(player)
                value = np.array(tensor, np.float32).reshape(self._shape)
        except self._pyspiel.SpielError:
            if not state.is_terminal():
                raise
            return self._last[player]  # some games show nothing any more
        self._last[player] = value
        return value

    def _mask(self, legal: Sequence[int]) -> NDArray[np.int8]:
        mask = np.zeros(self.game.num_distinct_actions(), np.int8)
        mask[legal] = 1
        return mask

    def frame(self) -> Frame | None:
        """Return the whole state as text; None without `render_mode="ansi"`."""
        return frame_of(str(self.state)) if self._renders else None

    def close(self) -> None:
        """End the game."""
        self.over = True


def _pyspiel() -> Any:
    try:
        import pyspiel
    except ModuleNotFoundError as error:
        if error.name != "pyspiel":
            raise
        raise MissingExtraError.of("open-spiel", "openspiel") from error
    return pyspiel


def _unbounded(shape: tuple[int, ...]) -> Box:
    return Box(-np.inf, np.inf, shape, np.float32)


def _as_parameter(value: Any) -> str:
    """Return a parameter of a game as OpenSpiel reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
