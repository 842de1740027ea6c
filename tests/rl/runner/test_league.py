"""Matchmaking, ratings, and a league over a model registry."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.rl.runner.worlds import answering
from trio_cogment import rl
from trio_cogment.api.spaces_pb2 import Observation
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rl.runner import League, TrialResult, run_trials_async
from trio_cogment.rl.runner.matchmaking import NAMED, matchmaking, prioritised
from trio_cogment.rl.runner.ratings import Record, expected_score, updated
from trio_cogment.sdk import EnvironmentSession
from trio_cogment.spaces import Discrete, decode_action, encode_observation
from trio_cogment.spaces import Observation as Envelope


def test_expected_scores() -> None:
    assert expected_score(1000, 1000) == 0.5
    assert expected_score(1400, 1000) == pytest.approx(10 / 11)
    assert expected_score(1000, 1400) + expected_score(1400, 1000) == pytest.approx(1)


def test_ratings_after_a_game() -> None:
    winner, loser = updated(1000, 1000, 1)
    assert (winner, loser) == (1016, 984)
    assert sum(updated(1200, 900, 0.5)) == pytest.approx(2100)
    assert updated(1200, 900, 0.5)[0] < 1200, "a draw against a weaker player costs"


def test_win_rates_have_a_prior() -> None:
    record = Record()
    assert record.win_rate == 0.5
    record.add(1)
    assert record.win_rate == 0.75
    for _ in range(100):
        record.add(0)
    assert 0 < record.win_rate < 0.02


RATES = {1: 0.9, 2: 0.5, 3: 0.1}


def drawn(choice: str, count: int = 3000, **arguments: Any) -> Counter[int]:
    choose = prioritised(choice, **arguments) if choice in ("hard", "even") else matchmaking(choice)
    rng = random.Random(3)
    return Counter(choose([1, 2, 3], RATES, rng) for _ in range(count))


def test_latest_and_uniform() -> None:
    assert drawn("latest") == {3: 3000}
    assert all(900 < count < 1100 for count in drawn("uniform").values())


def test_prioritised() -> None:
    hard = drawn("hard")
    assert hard[3] > hard[2] > hard[1] > 0
    assert hard[3] / hard[2] == pytest.approx(0.81 / 0.25, rel=0.2)
    even = drawn("even")
    assert even[2] > max(even[1], even[3])
    assert drawn("pfsp") == hard


def test_nobody_is_forgotten() -> None:
    choose = prioritised()
    rng = random.Random(1)
    assert choose([1, 2], {1: 1.0, 2: 1.0}, rng) in (1, 2), "even if the learner beats everybody"


def test_names_of_matchmaking() -> None:
    with pytest.raises(InvalidArgumentError, match="matchmaking: expected a function or one of latest, uniform, pfsp"):
        matchmaking("best")
    with pytest.raises(InvalidArgumentError, match="weighting: expected one of hard, even, got 'soft'"):
        prioritised("soft")
    assert set(NAMED) == {"latest", "uniform", "pfsp"}


# With a registry


async def highest(session: EnvironmentSession[Any, Any, Any]) -> None:
    """A game of one step: everybody names a number, and gets it as reward."""
    space = Discrete(100)
    first = Envelope(0, observation_space=Discrete(1), action_space=space)
    await session.start([("*", encode_observation(first))])
    async for event in session.all_events():
        if event.actions is not None:
            final: list[tuple[str | int, Observation]] = [
                (
                    action.actor_index,
                    encode_observation(
                        Envelope(0, reward=float(decode_action(action.payload, space)), terminated=True)
                    ),
                )
                for action in event.actions
            ]
            await session.end(final)


def numbers(data: bytes) -> Any:
    """A version of the policy: it always names its number."""
    return lambda _value: int(data)


async def league_of(platform: Platform, *versions: int, **options: Any) -> League:
    league = League(platform.model_registry_client(), "numbers", load=numbers, seed=1, **options)
    for version in versions:
        await league.add(b"%d" % version)
    return league


async def play(platform: Platform, league: League, own: int, trials: int) -> Any:
    from trio_cogment.seats.scripted import policy

    seats = {"player_0": policy(lambda _value: own), "player_1": league.seat()}
    return await run_trials_async(trials, on=platform, environment=highest, seats=seats, callbacks=[league], check=True)


async def test_a_league(tmp_path: Path) -> None:
    async with open_platform(RL_SPEC, model_registry=tmp_path) as platform:
        league = await league_of(platform, 10, 50, 90, matchmaking="uniform")
        results = await play(platform, league, 50, 30)
        assert set(results.returns_of("player_1")) == {10.0, 50.0, 90.0}
        assert [league.games(version) for version in (1, 2, 3)] == [
            *(int((results.returns_of("player_1") == number).sum()) for number in (10, 50, 90)),
        ]
        assert league.win_rate(1) > league.win_rate(2) == 0.5 > league.win_rate(3)
        assert league.rating_of(1) < league.rating_of(2) < league.rating_of(3)
        assert league.rating + sum(map(league.rating_of, (1, 2, 3))) == pytest.approx(4000)
        # A new version takes part in the next trial.
        await league.add(b"99")
        assert list(await league.versions()) == [1, 2, 3, 4]


async def test_the_learner_meets_whom_it_loses_to(tmp_path: Path) -> None:
    async with open_platform(RL_SPEC, model_registry=tmp_path) as platform:
        league = await league_of(platform, 10, 90)
        await play(platform, league, 50, 40)
        assert league.games(2) > 3 * league.games(1)


async def test_equal_seeds_give_equal_matches(tmp_path: Path) -> None:
    async with open_platform(RL_SPEC, model_registry=tmp_path) as platform:
        league = await league_of(platform, 10, 50, 90)
        first = await play(platform, league, 50, 10)
        again = await play(platform, await league_of(platform), 50, 10)
        assert first.returns.tolist() == again.returns.tolist()


async def test_newest_and_kept(tmp_path: Path) -> None:
    loaded: list[bytes] = []

    def load(data: bytes) -> Any:
        loaded.append(data)
        return numbers(data)

    async with open_platform(RL_SPEC, model_registry=tmp_path) as platform:
        await league_of(platform, 1, 2, 3, 4)
        league = League(
            platform.model_registry_client(), "numbers", load=load, newest=2, matchmaking="uniform", kept=2, seed=0
        )
        await play(platform, league, 5, 12)
        assert sorted(loaded) == [b"3", b"4"], "each is loaded once"


@pytest.mark.usefixtures("quiet")
async def test_a_league_without_versions(tmp_path: Path) -> None:
    async with open_platform(RL_SPEC, model_registry=tmp_path) as platform:
        await platform.model_registry_client().create_model("numbers")
        league = await league_of(platform)
        seats: dict[str, Any] = {"player_0": answering, "player_1": league.seat()}
        results = await run_trials_async(1, on=platform, environment=highest, seats=seats, callbacks=[league])
    assert "expected a version of the model" in results.failures[0].error


def test_what_does_not_count() -> None:
    league = League(None, "numbers", load=numbers)  # type: ignore[arg-type]  # it is not asked
    for error, returns in (("it broke", {"player_0": 1.0, "player_1": 0.0}), ("", {})):
        league._matches["trial"] = {"player_1": 1}
        league.on_trial_end(TrialResult(0, "trial", None, "here", returns=returns, error=error))
    assert league.games(1) == 0
    assert league._matches == {}


async def test_the_opponents_of_seeded_trials_depend_on_their_seeds_only(tmp_path: Path) -> None:
    """Whatever runs beside them, in whatever order they end, and however the others went."""
    async with open_platform(RL_SPEC, model_registry=tmp_path) as platform:
        await league_of(platform, 10, 50, 90)

        async def opponents(seeds: list[int], parallel: int) -> dict[int, float]:
            league = await league_of(platform)  # "pfsp", which goes by the results
            results = await run_trials_async(
                len(seeds),
                on=platform,
                environment=highest,
                seats={"player_0": rl.policy(lambda _value: 50), "player_1": league.seat()},
                callbacks=[league],
                seeds=seeds,
                parallel=parallel,
                check=True,
            )
            return {result.seed: result.returns["player_1"] for result in results.trials if result.seed is not None}

        seeds = list(range(24))
        together = await opponents(seeds, 8)
        assert await opponents(seeds[::-1], 3) == together
        assert set(together.values()) == {10.0, 50.0, 90.0}
        for seed in seeds[-5:]:
            assert await opponents([seed], 1) == {seed: together[seed]}
