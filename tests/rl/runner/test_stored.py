"""Runs that go on: with a name, and what their store has of them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from tests.rl.runner.worlds import REWARD, answering, countdown, gated, participants
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.outcome import EndCause
from trio_cogment.platform import open_platform
from trio_cogment.rl import policy, run_trials
from trio_cogment.rl.runner import TrialCallback, TrialResult, open_run, run_trials_async
from trio_cogment.rl.runner._trial import stored_score
from trio_cogment.rl.runner.sites import RUN_PROPERTY
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.sdk import Controller, DatastoreClient, actor_params, trial_params
from trio_cogment.spaces import Observation, encode_action, encode_observation

SEATS: dict[str, Any] = {"player_0": answering}


def returns(n: int) -> list[float]:
    return [REWARD + REWARD + (REWARD + seed) for seed in range(n)]


async def broken_off(store: str, name: str, *, after: int, n: int) -> None:
    """Run trials until some have ended; then the rest is cancelled, as by Control-C."""

    class Told(TrialCallback):
        ended = 0

        def on_trial_end(self, result: TrialResult) -> None:
            self.ended += 1
            if self.ended == after:
                raise KeyError("enough")

    with pytest.raises(KeyError):
        await run_trials_async(
            n, environment=countdown(), seats=SEATS, seeds=0, store=store, name=name, callbacks=[Told()]
        )


async def test_a_run_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/trials.db"
    await broken_off(store, "mine", after=3, n=8)
    told = []

    class Told(TrialCallback):
        def on_trial_start(self, index: int, seed: int | None, trial_id: str) -> None:
            told.append(index)

    results = await run_trials_async(
        8, environment=countdown(), seats=SEATS, seeds=0, store=store, name="mine", resume=True, callbacks=[Told()]
    )
    assert results.index.tolist() == list(range(8))
    assert results.returns_of("player_0").tolist() == returns(8)
    assert results.terminated.all()
    assert results.causes.tolist() == ["environment"] * 8
    assert results.ticks.tolist() == [4] * 8
    # The fourth may have ended just before the run was ended.
    assert sorted(told) in (list(range(3, 8)), list(range(4, 8)))
    again = await run_trials_async(
        8, environment=countdown(), seats=SEATS, seeds=0, store=store, name="mine", resume=True
    )
    assert again.trial_ids.tolist() == results.trial_ids.tolist(), "nothing is missing any more"


#: A program that plays a run, slowly, and says so.
PROGRAM = """
import sys, time
import trio_cogment.rl as tc

class Told(tc.TrialCallback):
    def on_trial_end(self, result):
        print(result.index, flush=True)

def slowly(_observation):
    time.sleep(0.001)
    return 1

tc.run_trials(
    1000, environment="CartPole-v1", seats={"player_0": tc.policy(slowly)}, seeds=0, store=sys.argv[1],
    name="killed", callbacks=[Told()],
)
"""


def test_the_program_of_a_run_is_killed(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/trials.db"
    with subprocess.Popen([sys.executable, "-c", PROGRAM, store], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        told = [int(program.stdout.readline()) for _ in range(10)]
        program.kill()
    every: dict[str, Any] = {"environment": "CartPole-v1", "seats": {"player_0": policy(lambda _value: 1)}, "seeds": 0}
    results = run_trials(20, store=store, name="killed", resume=True, **every)
    expected = run_trials(20, **every)
    assert results.index.tolist() == list(range(20))
    assert not results.failures
    assert (results.returns == expected.returns).all()
    assert {trial.index for trial in results.trials if not trial.orchestrator} >= set(told)


async def test_attempts_that_did_not_end_well_count_for_nothing_but_their_ids() -> None:
    gate = trio.Event()
    async with open_platform(participants(), store="memory:") as platform:
        every: dict[str, Any] = {"on": platform, "environment": countdown(), "seeds": 0, "name": "mine"}
        async with open_run(2, seats={"player_0": gated(gate)}, **every) as run:
            while not await platform.datastore_client().trials(["mine-0"]):
                await trio.testing.wait_all_tasks_blocked()
            await run.stop(grace_seconds=0)
        results = await run_trials_async(2, seats=SEATS, resume=True, **every)
        assert results.trial_ids.tolist() == ["mine-0-2", "mine-1"]
        assert results.returns_of("player_0").tolist() == returns(2)
        stored = {trial.trial_id: trial for trial in await platform.datastore_client().trials()}
    assert {trial.params.properties[RUN_PROPERTY] for trial in stored.values()} == {"mine"}
    first = stored["mine-0"].outcome
    assert first is not None
    assert first.cause is EndCause.HARD_TERMINATION
    assert all(trial.state == TrialState.ENDED for trial in stored.values())


@pytest.mark.parametrize(("checkpoints", "again"), [(0, False), (2, False), (0, True)])
async def test_a_trial_that_was_broken_off_goes_on_at_its_last_tick(checkpoints: int, again: bool) -> None:
    """With the same result as one that was not: returns, ticks and samples are those of the whole."""
    waits, reached, stall = trio.Event(), trio.Event(), 9

    async def stalling(session: Any) -> None:
        await session.start()
        async for event in session.all_events():
            if event.observation is not None:
                if event.observation.tick_id == stall:
                    reached.set()
                    await waits.wait()
                await session.do_action(encode_action(np.int64(event.observation.tick_id % 2)))

    settings = PlatformConfig(orchestrator=OrchestratorConfig(checkpoint_ticks=checkpoints))
    async with open_platform(participants(), store="memory:", config=settings) as platform:
        datastore = platform.datastore_client()
        every: dict[str, Any] = {
            "on": platform,
            "environment": "CartPole-v1",
            "seeds": 4,
            "seats": {"player_0": stalling},
        }
        with trio.CancelScope() as scope:
            async with open_run(1, name="mine", **every):
                await reached.wait()
                scope.cancel()
        if again:  # so is the attempt that goes on with it
            reached, stall = trio.Event(), 15
            with trio.CancelScope() as scope:
                async with open_run(1, name="mine", resume=True, **every):
                    await reached.wait()
                    scope.cancel()
        waits.set()
        results = await run_trials_async(1, name="mine", resume=True, **every)
        expected = await run_trials_async(1, name="other", **every)
        name, before = ("mine-0-3", "mine-0-2") if again else ("mine-0-2", "mine-0")
        assert results.trial_ids.tolist() == [name]
        assert (results.returns.tolist(), results.ticks.tolist()) == (
            expected.returns.tolist(),
            expected.ticks.tolist(),
        )
        (trial,) = await datastore.trials([name])
        tick = int(trial.params.properties["branch.tick"])
        assert trial.params.properties["branch.trial"] == before
        assert 0 < tick <= stall
        async with aclosing(datastore.samples_with_past(name)) as samples:
            found = [sample.tick_id async for sample in samples]
        assert found == list(range(expected.ticks[0]))
        # It is whole now: nothing is missing, and what is read of the store is the same.
        once_more = await run_trials_async(1, name="mine", resume=True, **every)
        assert once_more.returns.tolist() == expected.returns.tolist()
        assert once_more.ticks.tolist() == expected.ticks.tolist()
        assert once_more.trials[0].orchestrator == ""


async def test_one_whose_environment_cannot_be_taken_up_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    waits, reached = trio.Event(), trio.Event()

    async def counts(session: Any) -> None:
        await session.start([("*", encode_observation(Observation(np.int64(0))))])
        async for event in session.all_events():
            if event.actions:
                finish = session.end if session.tick_id == 8 else session.produce_observations
                await finish([("*", encode_observation(Observation(np.int64(session.tick_id + 1), 1.0)))])

    async def stalling(session: Any) -> None:
        await session.start()
        async for event in session.all_events():
            if event.observation is not None:
                if event.observation.tick_id == 7:
                    reached.set()
                    await waits.wait()
                await session.do_action(encode_action(np.int64(0)))

    async with open_platform(participants(), store="memory:") as platform:
        every: dict[str, Any] = {"on": platform, "environment": counts, "seats": {"player_0": stalling}, "name": "mine"}
        with trio.CancelScope() as scope:
            async with open_run(1, **every):
                await reached.wait()
                scope.cancel()
        waits.set()
        results = await run_trials_async(1, resume=True, **every)
        assert results.trial_ids.tolist() == ["mine-0-3"]
        assert not results.failures
        assert results.ticks.tolist() == [10]
    assert "it begins again, because it could not be gone on with" in caplog.text


async def test_a_name_is_not_used_twice_by_accident() -> None:
    async with open_platform(participants(), store="memory:") as platform:
        every: dict[str, Any] = {"on": platform, "environment": countdown(), "seats": SEATS, "name": "mine"}
        await run_trials_async(1, seeds=5, **every)
        with pytest.raises(FailedPreconditionError, match="resume=True: the store has trials of a run 'mine'"):
            await run_trials_async(1, seeds=5, **every)
        with pytest.raises(InvalidArgumentError, match=r"seeds: trial 0 of the run 'mine': expected 5, .* got 6"):
            await run_trials_async(1, seeds=6, resume=True, **every)
        two = {**every, "seats": {"player_0": answering, "player_1": answering}}
        with pytest.raises(InvalidArgumentError, match="seats: trial 0 of the run 'mine'"):
            await run_trials_async(1, seeds=5, resume=True, **two)
        # More trials than before, and another run whose name begins like it.
        assert len(await run_trials_async(3, seeds=5, resume=True, **every)) == 3
        assert len(await run_trials_async(2, **{**every, "name": "mine-0"})) == 2


@pytest.mark.parametrize("elsewhere", ["endpoint", "controller", "own platform"])
async def test_a_run_goes_on_from_a_datastore_elsewhere(elsewhere: str) -> None:
    async with open_platform(participants(), store="memory:") as platform, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running = await nursery.start(serve, platform.services, listeners)
        endpoint = f"grpc://127.0.0.1:{running.port}"
        on: Any = {"endpoint": endpoint, "controller": Controller(platform.channel), "own platform": None}[elsewhere]
        every: dict[str, Any] = {"on": on, "store": endpoint, "seeds": 0, "name": "far", "seats": SEATS}
        every["environment"] = countdown() if on is None else "cogment://discover"
        if elsewhere == "controller":
            every["seats"] = {}
            every["params"] = (await _actor_params(platform)).params
            every["environment"] = None
        first = await run_trials_async(2, **every)
        assert not first.failures
        results = await run_trials_async(4, resume=True, **every)
        assert not results.failures
        assert results.trial_ids.tolist() == ["far-0", "far-1", "far-2", "far-3"]
        assert results.orchestrators.tolist()[:2] == ["", ""], "they are of an earlier run"
        assert results.returns_of("player_0")[:2].tolist() == returns(2)
        nursery.cancel_scope.cancel()


async def _actor_params(platform: Any) -> Any:
    """Return a stored trial all of whose participants are elsewhere, to have its parameters."""
    from trio_cogment.environments.spec import PLAYER
    from trio_cogment.sdk import actor_params

    seats: dict[str, Any] = {"player_0": actor_params("player_0", PLAYER, implementation="answering")}
    await run_trials_async(1, on=platform, environment="cogment://discover", seats=seats, name="other")
    (stored,) = await platform.datastore_client().trials(["other-0"])
    return stored


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"resume": True}, "name: expected the name of the run that is to go on"),
        ({"resume": True, "name": "a"}, "store: expected the one that has the run"),
        ({"name": "-a"}, "name: expected 1 to 100 letters"),
        ({"name": "a", "trial_id": lambda index, count: "x"}, "trial_id: expected None"),
    ],
)
async def test_arguments(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        async with open_run(1, environment=countdown(), seats=SEATS, **given):
            pass


async def test_an_open_platform_has_its_own_store_or_none() -> None:
    async with open_platform(participants()) as platform:
        with pytest.raises(InvalidArgumentError, match="store: expected None with an open platform"):
            async with open_run(1, on=platform, environment=countdown(), seats=SEATS, store="memory:"):
                pass


async def test_the_returns_of_a_trial_that_has_no_end_are_counted_as_far_as_they_go() -> None:
    """Its orchestrator is gone; and one that cannot be read has none."""
    async with open_platform(store="memory:") as platform:
        datastore = DatastoreClient(platform.channel)
        await datastore.add_trial("half", trial_params([actor_params("ann", "player")]), user_id="me")
        async with datastore.adding("half") as adder:
            for tick in range(3):
                sample = StoredTrialSample(trial_id="half", tick_id=tick, state=TrialState.RUNNING)
                sample.actor_samples.add(actor=0, observation=0)
                sample.payloads.append(encode_observation(Observation(np.float32(0), reward=0.5)).SerializeToString())
                await adder.add(sample)
        for own in (False, True):
            score = await stored_score("here", datastore, "half", ["ann"], own=own)
            assert score is not None
            assert score.returns == {"ann": 1.5}
        assert await stored_score("here", datastore, "none", ["ann"]) is None
