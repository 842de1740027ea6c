"""Episodes that are stored."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_cogment.rl as tc
from tests.environments._games import Rps
from tests.rl.views.environments import Counter
from trio_cogment import open_platform
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, LocalProtocolError
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.rpc._in_process_call import End


async def stored(path: Path) -> Mapping[str, list[float | None]]:
    """Return the rewards in the observations of each stored trial."""
    found: dict[str, list[float | None]] = {}
    async with open_platform(RL_SPEC, store=f"sqlite:{path}") as platform:
        client = platform.datastore_client()
        async for trial in client.all_trials():
            rewards = found[trial.trial_id] = []
            async for sample in client.samples([trial.trial_id]):
                for actor in sample.actors.values():
                    message = actor.observation
                    if message is not None:
                        rewards.append(message.reward if message.HasField("reward") else None)
    return found


@pytest.mark.parametrize("thread", [False, True])
async def test_every_episode_and_nothing_else_is_stored(tmp_path: Path, thread: bool) -> None:
    path = tmp_path / "trials.db"
    ids: list[str] = []

    def play() -> None:
        env = tc.make(Counter, store=f"sqlite:{path}", thread=thread)
        for length in (5, 5, 4):
            env.reset()
            ids.append(env.trial_id)
            for _ in range(length):
                env.step(1)
        env.close()

    await trio.to_thread.run_sync(play)
    found = await stored(path)
    whole: list[Any] = [None, 0.1, 0.2, 0.30000000000000004, 0.4, 0.5]
    assert sorted(found) == sorted(ids)
    assert [found[trial_id] for trial_id in ids[:2]] == [whole, whole]
    assert found[ids[2]][:5] == whole[:5]


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("steps", [0, 2])
async def test_closing_right_after_a_reset_does_not_wait_for_the_trial_started_ahead(steps: int, thread: bool) -> None:
    def play() -> None:
        env = tc.make(Counter, store="memory:", thread=thread)
        for _ in range(2):  # the second ends the first in its middle
            env.reset()
            for _ in range(steps):
                env.step(1)
        env.reset()
        env.close()

    with trio.move_on_after(10) as patience:
        await trio.to_thread.run_sync(play, abandon_on_cancel=True)
    assert not patience.cancelled_caught


@pytest.mark.parametrize("thread", [False, True])
async def test_a_view_that_is_closed_at_once_stores_what_began(tmp_path: Path, thread: bool) -> None:
    """The next trial has been started ahead, or is just being started."""
    path = tmp_path / "trials.db"
    ids = []

    def play() -> None:
        for resets in (0, 1, 2) * 5:
            env = tc.make(Counter, store=f"sqlite:{path}", thread=thread)
            for _ in range(resets):
                env.reset()
                ids.append(env.trial_id)
            env.close()

    await trio.to_thread.run_sync(play)
    async with open_platform(RL_SPEC, store=f"sqlite:{path}") as platform:
        found = [trial.trial_id async for trial in platform.datastore_client().all_trials()]
    assert sorted(found) == sorted(ids)


async def test_what_played_is_stored(tmp_path: Path) -> None:
    """The version that counts at the reset, though the trial was started ahead."""
    path = tmp_path / "trials.db"
    played: list[tuple[str, int, str]] = []

    def play() -> None:
        seats: dict[str, tc.Seat] = {
            "player_1": tc.model("bot@-2", load=lambda data: lambda _: int(data)),
        }
        view = tc.make_parallel(Rps(rounds=2), seats=seats, store=f"sqlite:{path}", model_registry=tmp_path / "models")
        assert [view.store_model("bot", data) for data in (b"0", b"1")] == [1, 2]
        for number in (2, 0, None):
            view.reset()
            seen = [int(view.step({"player_0": 0})[0]["player_0"]) for _ in range(2)]
            assert view.agents == []
            played.append((view.trial_id, seen[0], f"bot@{seen[0] + 1}"))
            assert seen[0] == seen[1]
            if number is not None:
                view.store_model("bot", b"%d" % number)
        view.close()

    await trio.to_thread.run_sync(play)
    async with open_platform(RL_SPEC, store=f"sqlite:{path}") as platform:
        client = platform.datastore_client()
        stored = {trial.trial_id: trial.params async for trial in client.all_trials()}
    assert [move for _, move, _ in played] == [0, 1, 2]
    assert {trial_id: dict(params.properties) for trial_id, params in stored.items()} == {
        trial_id: {"policy.player_1": policy} for trial_id, _, policy in played
    }
    assert {params.actors[1].implementation for params in stored.values()} == {"model:bot@-2"}


def test_a_file_that_another_view_has_open(tmp_path: Path) -> None:
    env = tc.make(Counter, store=f"sqlite:{tmp_path / 'trials.db'}")
    try:
        text = r"trials\.db is in use by another datastore in this process: use make_vec .*, or platform="
        with pytest.raises(FailedPreconditionError, match=text):
            tc.make(Counter, store=f"sqlite:{tmp_path / 'trials.db'}")
        tc.make(Counter, platform=env).close()
        with pytest.raises(LocalProtocolError, match=r"a view is open in this thread; close it \(env\.close"):
            tc.export(f"sqlite:{tmp_path / 'trials.db'}", parquet=tmp_path / "data")
    finally:
        env.close()


def test_a_store_that_is_only_a_path() -> None:
    with pytest.raises(InvalidArgumentError, match=r"got 'x\.db'; did you mean 'sqlite:x\.db'\?$"):
        tc.make(Counter, store="x.db")
    with pytest.raises(InvalidArgumentError, match=r"got 'sqlite:'$"):
        tc.make(Counter, store="sqlite:")


async def test_rewards_that_nobody_is_sent_are_stored_as_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(path: str) -> None:
        env = tc.make_parallel(Rps, store=path)
        env.reset(seed=1)
        while env.agents:
            env.step({"player_0": 1, "player_1": 0})
        env.close()

    async def rewards_of(path: str) -> list[Any]:
        found = []
        async with open_platform(RL_SPEC, store=path) as platform:
            client = platform.datastore_client()
            async for trial in client.all_trials():
                async for sample in client.samples([trial.trial_id]):
                    for name, actor in sample.actors.items():
                        message = actor.message
                        received = [
                            (sample.name(one.sender), one.reward, one.confidence) for one in message.received_rewards
                        ]
                        found.append((sample.tick_id, name, message.reward, message.HasField("reward"), received))
        return found

    with tempfile.TemporaryDirectory() as folder:
        told, sent = f"sqlite:{folder}/told.db", f"sqlite:{folder}/sent.db"
        await trio.to_thread.run_sync(play, told)
        monkeypatch.setattr(End, "passes_objects", property(lambda _call: False))
        await trio.to_thread.run_sync(play, sent)
        found = await rewards_of(told)
        assert found == await rewards_of(sent)
        assert any(received for *_, received in found)


@pytest.mark.parametrize("kind", ["one", "many", "agents"])
async def test_a_model_goes_into_the_registry_of_the_view(tmp_path: Path, kind: str) -> None:
    def store() -> list[int]:
        options: dict[str, Any] = {"store": f"sqlite:{tmp_path / 'trials.db'}", "model_registry": tmp_path / "models"}
        env: Any
        if kind == "many":
            env = tc.make_vec(Counter, 2, **options)
        else:
            env = tc.make_parallel(Rps, **options) if kind == "agents" else tc.make(Counter, **options)
        try:
            return [env.store_model("walker", content) for content in (b"first", b"second")]
        finally:
            env.close()

    assert await trio.to_thread.run_sync(store) == [1, 2]
    async with open_platform(RL_SPEC, model_registry=tmp_path / "models") as platform:
        _, data = await platform.model_registry_client().retrieve("walker", 2)
        assert data == b"second"


def test_a_view_without_a_registry_stores_no_model() -> None:
    env = tc.make(Counter)
    try:
        with pytest.raises(
            FailedPreconditionError, match="store_model: expected a model registry, and the view has none"
        ):
            env.store_model("walker", b"")
    finally:
        env.close()
