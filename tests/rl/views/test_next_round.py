"""The trial of the next episode: started ahead, and what it is started with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_cogment.rl as tc
from tests.environments._games import Rps
from tests.rl.views.environments import Counter
from trio_cogment import open_platform
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.rl.datasets.trials import TrialRecord
from trio_cogment.rl.views.gymnasium import TrialEnv
from trio_cogment.rl.views.match import Match
from trio_cogment.rl.views.platforms import ViewPlatform

#: What a record says of an episode: its seed and its options.
Told = tuple[int | None, Mapping[str, Any]]


class Silent(Counter):
    """Says nothing of its options."""

    options: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.options = options
        return super().reset(seed=seed)


async def stored(path: Path) -> dict[str, Told]:
    """Return what is stored of each trial."""
    async with open_platform(RL_SPEC, store=f"sqlite:{path}") as platform:
        records = [TrialRecord.of(trial, 0) async for trial in platform.datastore_client().all_trials()]
    return {record.stored.trial_id: (record.seed, record.options) for record in records}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The seeds in the parameters of the trials that views start, in order."""
    seeds: list[int | None] = []
    launch = ViewPlatform.launch

    def noted(self: ViewPlatform, round_: Any, params: Any) -> None:
        config = EnvironmentConfig.FromString(params.environment.config.content)
        seeds.append(config.seed if config.HasField("seed") else None)
        launch(self, round_, params)

    monkeypatch.setattr(ViewPlatform, "launch", noted)
    return seeds


@pytest.mark.parametrize("thread", [False, True])
async def test_a_stored_trial_says_how_its_episode_began(tmp_path: Path, thread: bool) -> None:
    path = tmp_path / "trials.db"
    expected: dict[str, Told] = {}

    def play() -> None:
        env = tc.make(Counter, store=f"sqlite:{path}", thread=thread)
        for seed, options in ((3, None), (None, None), (4, {"size": 2}), (0, None), (5, {}), (None, {"a": [1, "b"]})):
            _, info = env.reset(seed=seed, options=options)
            assert info["options"] == (options or {})
            env.step(1)
            expected[env.trial_id] = seed, options or {}
        env.reset()
        expected[env.trial_id] = None, {}
        env.close()

    await trio.to_thread.run_sync(play)
    assert await stored(path) == expected


@pytest.mark.parametrize("make", [tc.make_parallel, tc.make_aec])
async def test_with_several_agents(tmp_path: Path, make: Callable[..., Any]) -> None:
    path = tmp_path / "trials.db"
    expected: dict[str, Told] = {}

    def play() -> None:
        view = make(Rps(rounds=2), store=f"sqlite:{path}", seats={"player_1": tc.random(seed=1)})
        for seed in (1, None, 2, 3):
            view.reset(seed=seed)
            expected[view.trial_id] = seed, {}
        view.close()

    await trio.to_thread.run_sync(play)
    assert await stored(path) == expected


async def test_with_several_environments(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"

    def play() -> None:
        envs = tc.make_vec(Counter, 3, store=f"sqlite:{path}")
        envs.reset(seed=7)
        envs.close()

    await trio.to_thread.run_sync(play)
    assert sorted((await stored(path)).values(), key=str) == [(7, {}), (8, {}), (9, {})]


def test_trials_are_started_ahead_unless_each_reset_has_a_seed(launched: list[int | None]) -> None:
    env = tc.make(Counter, store="memory:")
    env.reset(seed=1)
    assert launched == [1, None]
    env.reset(seed=2)  # the one that was started ahead does not say that
    assert launched == [1, None, 2]
    env.reset(seed=3)
    assert launched == [1, None, 2, 3]
    env.reset()
    assert launched == [1, None, 2, 3, None, None]
    env.reset()
    assert launched == [1, None, 2, 3, None, None, None]
    env.close()


def test_without_a_store_any_reset_takes_the_trial_that_was_started_ahead(launched: list[int | None]) -> None:
    env = tc.make(Counter)
    for seed in (1, 2, None):
        env.reset(seed=seed)
    env.close()
    assert launched == [None] * 4


async def test_what_cannot_be_stored_is_left_out_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trials.db"

    def play() -> None:
        env = tc.make(Silent(), store=f"sqlite:{path}")
        for _ in range(2):
            env.reset(seed=2**64, options={"size": 2, "log": print})
            assert env.environment.options == {"size": 2, "log": print}
        env.close()

    await trio.to_thread.run_sync(play)
    assert list((await stored(path)).values()) == [(None, {"size": 2})] * 2
    said = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    begin = "environment 'Silent': reset: left out of what is stored of the episode: "
    assert len(said) == 2
    assert said[0] == begin + "seed: expected an integer of 64 bits"
    assert said[1].startswith(begin + 'options["log"]: expected an array, a number, ')


async def test_a_reset_that_was_interrupted_leaves_no_seed_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trials.db"
    ids: list[str] = []

    def interrupted(self: Match) -> None:
        raise KeyboardInterrupt

    def play() -> None:
        env = tc.make(Counter, store=f"sqlite:{path}")
        with monkeypatch.context() as patched:
            patched.setattr(Match, "_end_running", interrupted)
            with pytest.raises(KeyboardInterrupt):
                env.reset(seed=5)
        env.reset()
        ids.append(env.trial_id)
        env.close()

    await trio.to_thread.run_sync(play)
    assert await stored(path) == {ids[0]: (None, {})}


def test_a_seed_that_an_environment_elsewhere_cannot_be_told() -> None:
    from trio_cogment.api.common_pb2 import TrialParams
    from trio_cogment.rl.views.parameters import episode_params

    with pytest.raises(InvalidArgumentError, match=r"^seed: expected an integer of 64 bits, or None; got 18446744"):
        episode_params(TrialParams(), 2**64, None)


def test_an_environment_elsewhere_is_told_the_seed_and_the_options() -> None:
    from trio_cogment.api.common_pb2 import TrialParams
    from trio_cogment.api.rl_pb2 import EnvironmentConfig
    from trio_cogment.rl.views.parameters import episode_params

    params = TrialParams(max_steps=7)
    found = episode_params(params, 3, {"size": 5})
    config = EnvironmentConfig.FromString(found.environment.config.content)
    assert (found.max_steps, config.seed, [each.key for each in config.options.fields]) == (7, 3, ["size"])
    assert params == TrialParams(max_steps=7)
    config = EnvironmentConfig.FromString(episode_params(params, 3, None).environment.config.content)
    assert (config.seed, list(config.options.fields)) == (3, [])


def test_a_view_that_nobody_holds_is_no_garbage_of_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned: list[ViewPlatform] = []
    abandon = ViewPlatform.abandon

    def noted(self: ViewPlatform) -> None:
        abandoned.append(self)
        abandon(self)

    monkeypatch.setattr(ViewPlatform, "abandon", noted)
    env: TrialEnv | None = tc.make(Counter)
    assert env is not None
    env.reset(seed=1)
    env = None
    assert len(abandoned) == 1
