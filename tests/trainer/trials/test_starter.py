"""Runs of trials."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.rl.runner.worlds import answering, countdown, failing_at, gated
from tests.trainer.dispatch.programs import until
from tests.trainer.trials.worlds import PARAMS, rewarding, training, trials
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunStep
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.sdk import Participants


def people(environment: Any = None, actor: Any = answering) -> Participants:
    found = Participants(RL_SPEC)
    found.register_environment(environment or rewarding(3), "world")
    found.register_actor(actor, "player", [PLAYER])
    return found


async def all_of(client: Any, run_id: str, kind: str = "Steps") -> list[Any]:
    async with client.stream(run_id, kind=kind) as call:
        return [message async for message in call]


async def test_episodes_and_steps_are_those_of_the_trials(tmp_path: Path) -> None:
    async with training(people(), tmp_path) as (client, platform):
        with trio.fail_after(20):
            await client.submit("r", **trials(3, parallel=2, seeds=[4, 5]))
            assert await until(client, "r", "TERM") == "TERM"
            record = await client.record("r")
            assert record.failure_reason == ""
            steps: list[RunStep] = await all_of(client, "r")
            episodes: list[RunEpisode] = await all_of(client, "r", "Episodes")
        store = platform.datastore_client()
        stored = {trial.trial_id: trial for trial in await store.trials()}
    assert sorted(stored) == ["r-ep000000", "r-ep000001", "r-ep000002"]
    assert {trial.user_id for trial in stored.values()} == {"r"}
    found = {episode.episode_index: episode for episode in episodes}
    # Three rewards of a half, and what the seed says.
    assert [found[index].total_reward for index in range(3)] == [5.5, 6.5, 1.5]
    assert [(e.agent_id, e.steps, e.terminated, e.truncated) for e in episodes] == [("ann", 3, True, False)] * 3
    metadata = json.loads(found[0].metadata_json)
    assert (metadata["trial_id"], metadata["cause"], metadata["seed"]) == ("r-ep000000", "environment", 4)
    assert (metadata["environment"], metadata["actors"]) == ("world", {"ann": "player"})
    of_first = [step for step in steps if step.episode_index == 0]
    assert [step.step_index for step in of_first] == [0, 1, 2, 3]
    assert [step.frame_ref for step in of_first] == [f"trial://r-ep000000/{tick}" for tick in range(4)]
    assert [step.terminated for step in of_first] == [False, False, False, True]
    assert sum(step.reward for step in of_first) == 5.5
    assert {(s.agent_id, s.policy_label, s.backend, s.episode_seed) for s in of_first} == {
        ("ann", "player", "world", 4)
    }
    assert json.loads(of_first[0].observation_json)["active"] is True
    assert (of_first[0].action_json, of_first[3].action_json) == ("{}", "")


@pytest.mark.parametrize(("telemetry", "indices"), [("episodes", set()), ("sample:2", {0, 2}), ("all", {0, 1, 2})])
async def test_which_steps_are_kept(tmp_path: Path, telemetry: str, indices: set[int]) -> None:
    async with training(people(), tmp_path) as (client, _):
        with trio.fail_after(20):
            await client.submit("r", **trials(3, telemetry=telemetry))
            await until(client, "r", "TERM")
            assert {step.episode_index for step in await all_of(client, "r")} == indices
            assert len(await all_of(client, "r", "Episodes")) == 3


async def test_without_a_datastore_there_is_no_telemetry(tmp_path: Path) -> None:
    async with training(people(), tmp_path, store=None) as (client, _):
        with trio.fail_after(20):
            await client.submit("r", **trials(2))
            await until(client, "r", "TERM")
            assert await all_of(client, "r", "Episodes") == []
            assert (await client.record("r")).failure_reason == ""


async def test_cancel_ends_the_trials(tmp_path: Path) -> None:
    async with training(people(countdown(10_000_000)), tmp_path) as (client, platform):
        with trio.fail_after(20):
            await client.submit("r", **trials(100, parallel=3))
            await until(client, "r", "EXEC")
            await client.cancel("r")
            infos = await platform.controller.trial_infos()
            assert [info.trial_id for info in infos if info.state != TrialState.ENDED] == []
            assert len(infos) <= 3
            assert await client.status("r") == "TERM"


async def test_the_end_of_the_platform_ends_the_trials_and_decides_nothing(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with training(people(countdown(10_000_000)), tmp_path) as (client, _):
            await client.submit("r", **trials(2))
            await until(client, "r", "EXEC")
        async with training(people(), tmp_path) as (client, _):
            await until(client, "r", "TERM")
            assert (await client.record("r")).failure_reason == "daemon restarted"


async def test_while_a_run_is_paused_no_trial_starts(tmp_path: Path) -> None:
    gate = trio.Event()
    async with training(people(actor=gated(gate)), tmp_path) as (client, platform):
        with trio.fail_after(20):
            await client.submit("r", **trials(4, parallel=1))
            await until(client, "r", "EXEC", "RDY")
            async with platform.controller.watch_trials([TrialState.ENDED]) as ends:
                await client.command("r", pause=True)
                gate.set()
                await ends.receive()
            for _ in range(100):
                await trio.lowlevel.checkpoint()
            assert len(await platform.controller.trial_infos()) == 1, (
                "the one that was there has ended, and no other began"
            )
            await client.command("r", resume=True)
            await until(client, "r", "TERM")
            assert len(await all_of(client, "r", "Episodes")) == 4


async def test_trials_start_at_the_rate_that_controllers_allow(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    gate = trio.Event()
    async with training(people(actor=gated(gate)), tmp_path) as (client, _):
        await client.submit("r", **trials(9, parallel=1))
        await until(client, "r", "EXEC", "RDY")
        await client.command("r", max_rate_hz=2)
        before = trio.current_time()
        gate.set()
        await until(client, "r", "TERM")
        assert trio.current_time() - before >= 8 * 0.5


@pytest.mark.usefixtures("quiet")
async def test_a_run_fails_with_so_many_failed_trials(tmp_path: Path) -> None:
    broken = failing_at(*range(100), wrapped=countdown())
    async with training(people(broken), tmp_path) as (client, _):
        with trio.fail_after(20):
            await client.submit("some", **trials(50, stop_after_failures=2))
            await client.submit("all", **trials(2))
            # Those that run when there are enough failures are not a success, either.
            for run_id, text in (("some", r"[2-9] of 50 trials failed: "), ("all", r"2 of 2 trials failed: ")):
                await until(client, run_id, "TERM")
                reason = (await client.record(run_id)).failure_reason
                assert re.match(text, reason)
                assert "out of luck" in reason


@pytest.mark.usefixtures("quiet")
async def test_a_run_goes_on_until_there_are_so_many_failed_trials(tmp_path: Path) -> None:
    """The first failure ends nothing, and those after the second have no turn."""
    async with training(people(failing_at(0, 4, wrapped=countdown())), tmp_path) as (client, _):
        with trio.fail_after(60):
            await client.submit("r", **trials(50, parallel=1, stop_after_failures=2))
            await until(client, "r", "TERM")
            assert (await client.record("r")).failure_reason.startswith("2 of 50 trials failed: ")


@pytest.mark.usefixtures("quiet")
async def test_a_run_succeeds_although_some_trials_fail(tmp_path: Path) -> None:
    async with training(people(failing_at(1, wrapped=countdown())), tmp_path) as (client, _):
        with trio.fail_after(20):
            await client.submit("r", **trials(3))
            await until(client, "r", "TERM")
            assert (await client.record("r")).failure_reason == ""


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"params": {"environment": 3}}, "trials.params: Failed to parse environment"),
        ({"params": {"who": 3}}, "trials.params: "),
        ({"actors": {"bob": {}}}, "trials.actors.bob: expected one of the actors 'ann'"),
        ({"actors": {"ann": {"age": 3}}}, "trials.actors.ann: "),
        ({"params": None, "params_file": "/nowhere.yaml"}, "/nowhere.yaml: No such file"),
    ],
)
async def test_parameters_that_make_no_sense(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    async with training(people(), tmp_path) as (client, _):
        with trio.fail_after(20):
            await client.submit("r", **trials(1, **changes))
            await until(client, "r", "TERM")
            assert text in (await client.record("r")).failure_reason


async def test_actors_are_changed_for_a_run_and_parameters_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(json.dumps({"trial_params": PARAMS}))
    participants = people()
    participants.register_actor(answering, "other", [PLAYER])
    async with training(participants, tmp_path / "t") as (client, _):
        with trio.fail_after(20):
            actors = {"ann": {"implementation": "other"}}
            await client.submit("r", **trials(1, params=None, params_file=str(file), actors=actors))
            await until(client, "r", "TERM")
            (episode,) = await all_of(client, "r", "Episodes")
            assert json.loads(episode.metadata_json)["actors"] == {"ann": "other"}


async def test_a_seed_that_has_no_place(tmp_path: Path) -> None:
    params = {**PARAMS, "environment": {**PARAMS["environment"], "config": {"content": "////"}}}
    async with training(people(), tmp_path) as (client, _):
        with trio.fail_after(20):
            await client.submit("r", **trials(1, params=params, seeds=[1]))
            await until(client, "r", "TERM")
            assert "cannot be set in the environment's config" in (await client.record("r")).failure_reason
