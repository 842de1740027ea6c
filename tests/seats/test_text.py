"""Seats of language models, in trials."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.seats.games import NAME, Duel, play, playing
from trio_cogment import rl
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.spaces import Discrete, Graph


def scripted(*answers: Any) -> tuple[Callable[[str], Awaitable[Any]], list[str]]:
    """Return a function that gives these answers, the last one indefinitely, and the prompts that it gets."""
    prompts: list[str] = []

    async def ask(prompt: str) -> Any:
        await trio.lowlevel.checkpoint()
        prompts.append(prompt)
        return answers[min(len(prompts), len(answers)) - 1]

    return ask, prompts


async def played(seat: rl.Seat, game: Duel) -> TrialOutcome:
    seats = {"player_0": rl.random(), "player_1": seat}
    async with playing(game, seats) as platform:
        return await play(platform, seats, check=False)


async def test_answers_are_actions_and_refusals_are_explained(autojump_clock: MockClock) -> None:
    ask, prompts = scripted("I play 1.", "7", "2", "3", "1")
    game = Duel()
    assert not (await played(rl.text(ask), game)).failed
    assert game.taken[0]["player_1"] == [1, 3, 1, 1, 1]
    assert "Your last answer" not in prompts[0]
    assert 'Your last answer was refused: action: expected 0 to 3, got 7\nIt was: "7"' in prompts[2]
    assert "refused: action: expected one of 1, 3, which are allowed now; got 2" in prompts[3]
    assert prompts[1].splitlines()[3:6] == ["1", "", "Your reward for the last step: 1.0"]
    assert "Your last answer" not in prompts[4]
    assert len(prompts) == 7


async def test_after_the_last_retry_the_trial_ends(autojump_clock: MockClock, quiet: None) -> None:
    ask, prompts = scripted("rock")
    outcome = await played(rl.text(ask, retries=1), Duel())
    expected = (
        "text: no action in 2 answers; the last was 'rock': action: expected a whole number from 0 to 3; found none"
    )
    assert f"environment '{NAME}', actor 'player_1': {expected}" in str(outcome)
    assert len(prompts) == 2


async def test_after_the_last_retry_the_default_is_taken(autojump_clock: MockClock) -> None:
    ask, _ = scripted("rock", "1")
    game = Duel()
    assert not (await played(rl.text(ask, retries=0, default=3), game)).failed
    assert game.taken[0]["player_1"] == [3, 1, 1, 1, 1]


async def test_a_class_remembers_the_conversation_of_one_trial(autojump_clock: MockClock) -> None:
    class Chat:
        def __init__(self) -> None:
            self.turns = 0

        async def __call__(self, prompt: str) -> str:
            self.turns += 1
            return "3" if self.turns == 2 else "1"

    game, seats = Duel(), {"player_0": rl.random(), "player_1": rl.text(Chat, describe=lambda it: f"step {it.value}")}
    async with playing(game, seats) as platform:
        await play(platform, seats)
        await play(platform, seats)
    assert [taken["player_1"] for taken in game.taken] == [[1, 3, 1, 1, 1]] * 2


async def test_answers_that_are_no_text(autojump_clock: MockClock, quiet: None) -> None:
    ask, _ = scripted(1)
    outcome = await played(rl.text(ask), Duel())
    assert "actor 'player_1': text: expected an answer of type str, got int" in str(outcome)


async def test_actions_that_cannot_be_given_as_text(autojump_clock: MockClock, quiet: None) -> None:
    ask, prompts = scripted("1")
    outcome = await played(rl.text(ask), Duel(masks=False, action_space=Graph(Discrete(2), None)))
    assert "actor 'player_1': action_space: expected a space whose actions can be given as text" in str(outcome)
    assert not prompts


def test_what_cannot_be_asked() -> None:
    with pytest.raises(InvalidArgumentError, match="ask: expected an async function of the prompt, got 3"):
        rl.text(3)  # type: ignore[arg-type]  # the mistake that is tested
    with pytest.raises(InvalidArgumentError, match="retries: expected a number that is not negative, got -1"):
        rl.text(scripted("1")[0], retries=-1)
