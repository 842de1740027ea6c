"""Games of TextArena as the environment of trials: what is seen and said is text."""

from __future__ import annotations

import platform
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, MissingExtraError, NotFoundError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.spaces import Frame, Observation, Space
from trio_cogment.spaces.elementary import any_text

#: What the names of these games begin with: `textarena/TicTacToe-v0`.
PREFIX = "textarena/"
#: The numbers of players with which a game is tried, if none is given: no game says how many it takes.
_PLAYERS = (2, 1, 3, 4, 5, 6, 7, 8)
#: NumPy's generator takes seeds below this.
_NUMPY_SEEDS = 2**32

#: Held while a game computes: they all draw from the one generator of Python's module `random`, or from NumPy's.
_turn = threading.Lock()


class TextArenaEnvironment:
    """A game of TextArena, whose players are `player_0`, `player_1`, ...; see `base.Environment`.

    Players speak in turns. A player sees all that it was told since the game began, a paragraph for each message, as
    TextArena's own wrapper for language models writes it; what TextArena says about the player at the end (its role,
    whether it has made an invalid move) is its information.

    TextArena's games draw from Python's one generator, which a reset with a seed seeds for the whole process; some draw
    from NumPy's, which no reset seeds. Here each game has states of its own, which are put there while the game
    computes, and taken away again, and a seed seeds both: games beside each other, and everything else in the
    process, draw what they would draw alone.

    Attributes:
        env: the game itself.
    """

    def __init__(self, name: str, *, players: int | None = None, **arguments: Any) -> None:
        """Make a game.

        Args:
            name: its id, with or without `textarena/`.
            players: how many play; by default the first number of 2, 1, 3, ... that the game takes.
            arguments: of the game.

        Raises:
            MissingExtraError: TextArena is not installed, or what a game of it needs.
            FailedPreconditionError: the game is written for a newer Python.
            NotFoundError: there is no such game.
            InvalidArgumentError: it does not take so many players.
        """
        textarena = _textarena()
        short_name = name.removeprefix(PREFIX)
        self.name = PREFIX + short_name
        registry = textarena.envs.registration.ENV_REGISTRY
        if short_name not in registry:
            meant = suggestion(
                short_name, registry, "textarena.envs.registration.ENV_REGISTRY has those that there are"
            )
            raise NotFoundError(f"environment {self.name!r}: there is no game of that name; {meant}")
        self._make: Callable[[], Any] = lambda: textarena.make(short_name, **arguments)
        lot = int(np.random.default_rng().integers(2**63))
        self._drawn: Any = random.Random(lot).getstate()
        self._drawn_of_numpy: Any = np.random.RandomState(lot % _NUMPY_SEEDS).get_state()
        with self._own_generator():
            try:
                self.env = self._make()
            except LookupError as error:  # of the lists of words that some games load
                told = " ".join(str(error).split())[:200]
                raise MissingExtraError(f"environment {self.name!r}: {told}") from error
            except SyntaxError as error:
                raise FailedPreconditionError(
                    f"environment {self.name!r}: Python {platform.python_version()} cannot read this game of "
                    f"TextArena, written for a newer one ({error.filename}, line {error.lineno}: {error.msg})"
                ) from error
            self._players = self._number_of_players(players)
        self._game = self._innermost()
        self._narrator = textarena.GAME_ID
        self.metadata: Mapping[str, Any] = {"render_modes": [], "render_mode": None}
        self.agents: Sequence[str] = tuple(f"player_{player}" for player in range(self._players))
        self.observation_spaces: Mapping[str, Space] = dict.fromkeys(self.agents, any_text())
        self.action_spaces: Mapping[str, Space] = dict.fromkeys(self.agents, any_text())
        self._told = [""] * self._players
        self.over = True

    def _innermost(self) -> Any:
        found = self.env
        while hasattr(found, "env") and "env" in vars(found):
            found = found.env
        return found

    def _number_of_players(self, wanted: int | None) -> int:
        reasons = []
        for number in _PLAYERS if wanted is None else (wanted,):
            try:
                self.env.reset(num_players=number)
            except Exception as error:  # noqa: BLE001  games refuse a number in several ways, or fail because of it
                reasons.append(f"{number}: {type(error).__name__}: {error}")
            else:
                return number
        raise InvalidArgumentError(f"environment {self.name!r}: players: {'; '.join(reasons)[:300]}")

    @contextmanager
    def _own_generator(self) -> Iterator[None]:
        """Let the block draw from this game's states of Python's generator, and of NumPy's."""
        with _turn:
            others, others_of_numpy = random.getstate(), np.random.get_state()
            random.setstate(self._drawn)
            np.random.set_state(self._drawn_of_numpy)
            try:
                yield
            finally:
                self._drawn, self._drawn_of_numpy = random.getstate(), np.random.get_state()
                random.setstate(others)
                np.random.set_state(others_of_numpy)

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        """Begin a game.

        Raises:
            InvalidArgumentError: there are options.
        """
        if options:
            text = f"options: expected none, because TextArena has none; got {', '.join(map(repr, options))}"
            raise InvalidArgumentError(f"environment {self.name!r}: {text}")
        with self._own_generator():
            if seed is not None:
                random.seed(seed)
                np.random.seed(seed % _NUMPY_SEEDS)
            # Made anew: some games keep a shuffled deck, and the wrapper of all of them the text of the game before.
            self.env = self._make()
            self._game = self._innermost()
            self.env.reset(num_players=self._players, seed=seed)
        self._told = [""] * self._players
        self.over = False
        return self._observations(None, {})

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        """Say what one player says."""
        ((_, said),) = actions.items()
        rewards: Mapping[int, float] | None = None
        about: Mapping[int, Any] = {}
        with self._own_generator():
            self.over, _ = self.env.step(action=str(said))
            if self.over:
                rewards, about = self.env.close()
        return self._observations(rewards or {}, about or {})

    def _observations(self, rewards: Mapping[int, float] | None, about: Mapping[int, Any]) -> dict[str, Observation]:
        state = self._game.state
        found = {}
        for player, agent in enumerate(self.agents):
            messages, state.observations[player] = state.observations[player], []
            self._told[player] += "".join(self._paragraph(sender, text) for sender, text, _ in messages)
            active = not self.over and state.current_player_id == player
            found[agent] = Observation(
                self._told[player],
                None if rewards is None else float(rewards.get(player, 0.0)),
                terminated=self.over,
                info=dict(about.get(player, {})) if self.over else {},
                active=active,
                alive=not self.over,
            )
        return found

    def _paragraph(self, sender: int, text: str) -> str:
        names = self._game.state.role_mapping
        name = "GAME" if sender == self._narrator else names.get(sender, f"Player {sender}")
        return f"\n[{name}] {text}"

    def frame(self) -> Frame | None:
        """Return None: what is drawn is among what players are told."""
        return None

    def close(self) -> None:
        """End the game."""
        self.over = True


def _textarena() -> Any:
    try:
        import textarena
        import textarena.envs.registration
    except ModuleNotFoundError as error:
        if error.name != "textarena":
            raise
        raise MissingExtraError.plain("textarena") from error
    return textarena
