"""Runs over the embedded platform: results, failures, control."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import numpy as np
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.rl.runner.worlds import REWARD, answering, countdown, failing_at, gated, participants
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.services import ServiceKind
from trio_cogment.environments.spec import PLAYER
from trio_cogment.platform import open_platform
from trio_cogment.rl.runner import (
    Progress,
    Results,
    RunFailedError,
    TrialCallback,
    TrialResult,
    open_run,
    run_trials_async,
)
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.sdk import Controller, actor_params, serve_participants, trial_params
from trio_cogment.seats.remote import endpoint
from trio_cogment.servers.directory import DirectoryServer
from trio_cogment.servers.discovery import open_directory

SEATS: dict[str, Any] = {"player_0": answering}
TWO: dict[str, Any] = {"player_0": answering, "player_1": answering}


async def test_results_are_arrays() -> None:
    results = await run_trials_async(4, environment=countdown(3), seats=TWO, seeds=[5, 0, 9, 2], parallel=2)
    assert len(results) == results.requested == 4
    assert results.actors == ("player_0", "player_1")
    assert results.index.tolist() == [0, 1, 2, 3]
    assert results.seeds.tolist() == [5, 0, 9, 2]
    assert results.ticks.tolist() == [4] * 4
    three = REWARD + REWARD + REWARD
    assert results.returns_of("player_1").tolist() == [three] * 4, "in double precision"
    assert results.returns_of("player_0") == pytest.approx(three + np.array([5, 0, 9, 2]))
    assert results.terminated.all()
    assert not results.truncated.any()
    assert results.causes.tolist() == ["environment"] * 4
    assert (results.seconds > 0).all()
    assert len(set(results.trial_ids)) == 4
    assert results.orchestrators.tolist() == ["local"] * 4
    assert results.failures == ()


async def test_seeds() -> None:
    assert (await run_trials_async(3, environment=countdown(), seats=SEATS, seeds=7)).seeds.tolist() == [7, 8, 9]
    assert (await run_trials_async(2, environment=countdown(), seats=SEATS)).seeds.tolist() == [-1, -1]


async def test_max_steps_truncates() -> None:
    results = await run_trials_async(1, environment=countdown(1000), seats=SEATS, max_steps=5)
    assert results.causes.tolist() == ["step_limit"]
    assert results.truncated.all()
    assert not results.terminated.any()
    assert not results.failures


async def test_ticks_at_a_rate(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    results = await run_trials_async(2, environment=countdown(1000), seats=SEATS, max_steps=9, tick_hz=2, parallel=2)
    assert results.ticks.tolist() == [11, 11]
    assert trio.current_time() - began == pytest.approx(5, abs=0.1)
    with pytest.raises(InvalidArgumentError, match="tick_hz: expected a number, 0 or more"):
        await run_trials_async(1, environment=countdown(), seats=SEATS, tick_hz=-1)


async def test_no_more_than_parallel_trials_run() -> None:
    gate, most = trio.Event(), 0

    def count(progress: Progress) -> None:
        nonlocal most
        most = max(most, progress.running)

    async with open_run(7, environment=countdown(), seats={"player_0": gated(gate)}, parallel=3, progress=count) as run:
        await wait_all_tasks_blocked()
        assert run.progress.running == 3
        gate.set()
        assert len(await run.wait()) == 7
    assert most == 3
    assert run.progress == Progress(done=7, total=7, running=0, failed=0, paused=False)


@pytest.mark.usefixtures("quiet")
async def test_a_trial_that_fails_is_listed() -> None:
    environment = failing_at(1, wrapped=countdown())
    results = await run_trials_async(3, environment=environment, seats=SEATS)
    assert [failure.index for failure in results.failures] == [1]
    assert results.causes.tolist() == ["environment", "participant_failed", "environment"]
    assert "RuntimeError: out of luck" in results.failures[0].error
    assert results.lost == ()


@pytest.mark.usefixtures("quiet")
async def test_failures_are_raised_if_asked() -> None:
    environment = failing_at(0, 2, wrapped=countdown())
    with pytest.raises(RunFailedError, match=r"2 of 3 trials failed: .*out of luck") as caught:
        await run_trials_async(3, environment=environment, seats=SEATS, check=True)
    assert len(caught.value.results) == 3


@pytest.mark.usefixtures("quiet")
async def test_an_actor_that_raises_costs_its_trial() -> None:
    results = await run_trials_async(3, environment=countdown(), seats={"player_0": failing_at(1, wrapped=answering)})
    assert [failure.index for failure in results.failures] == [1]
    assert results.failures[0].cause is EndCause.PARTICIPANT_FAILED


async def test_the_log_has_the_traceback_of_an_actor(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        await run_trials_async(1, environment=countdown(), seats={"player_0": failing_at(0, wrapped=answering)})
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "out of luck" in str(record.exc_info)


async def test_a_trial_that_takes_too_long(autojump_clock: trio.testing.MockClock) -> None:
    results = await run_trials_async(
        1, environment=countdown(), seats={"player_0": gated(trio.Event())}, timeout_seconds=60
    )
    (failure,) = results.failures
    assert failure.cause is EndCause.HARD_TERMINATION
    assert "within 60 s" in failure.error


async def test_pause_and_resume() -> None:
    async with open_run(5, environment=countdown(), seats=SEATS) as run:
        run.pause()
        await wait_all_tasks_blocked()
        done = run.progress.done
        assert run.progress.paused
        assert not run.progress.running
        assert done < 5
        run.resume()
        assert len(await run.wait()) == 5


async def test_a_rate_and_names_of_trials(autojump_clock: trio.testing.MockClock) -> None:
    starts = []

    class Starts(TrialCallback):
        def on_trial_start(self, index: int, seed: int | None, trial_id: str) -> None:
            starts.append((trio.current_time(), seed, trial_id))

    before = trio.current_time()
    async with open_run(
        4,
        environment=countdown(),
        seats=SEATS,
        parallel=4,
        seeds=[7, None, None, 8],
        callbacks=[Starts()],
        trial_id=lambda index, count: f"a-{index}-{count}",
    ) as run:
        run.limit_rate(2)
        assert len(await run.wait()) == 4
    assert [round(time - before, 3) for time, _, _ in starts] == [0, 0.5, 1, 1.5]
    assert [(seed, name) for _, seed, name in starts] == [(7, "a-0-1"), (None, "a-1-1"), (None, "a-2-1"), (8, "a-3-1")]


async def test_results_as_they_come() -> None:
    async with open_run(4, environment=countdown(), seats=SEATS, parallel=2) as run:
        assert sorted([result.index async for result in run]) == [0, 1, 2, 3]
        assert sorted([result.index async for result in run]) == [0, 1, 2, 3], "those that have ended included"


async def test_a_soft_stop_lets_trials_end_in_good_order() -> None:
    async with open_run(100, environment=countdown(10_000_000), seats=SEATS, parallel=2) as run:
        await wait_until(lambda: run.progress.running == 2)
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        results = await run.stop()
    assert len(results) == 2
    assert results.requested == 100
    assert results.causes.tolist() == ["soft_termination"] * 2
    assert results.truncated.all()
    assert not results.failures


async def test_a_stop_becomes_hard(autojump_clock: trio.testing.MockClock) -> None:
    stuck = gated(trio.Event())
    async with open_run(9, environment=countdown(), seats={"player_0": stuck}, retries=3) as run:
        await wait_all_tasks_blocked()
        began = trio.current_time()
        results = await run.stop(grace_seconds=5)
        assert 5 <= trio.current_time() - began < 15
    assert results.causes.tolist() == ["hard_termination"]


async def test_a_stop_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with open_run(9, environment=countdown(), seats={"player_0": gated(trio.Event())}) as run:
        await wait_all_tasks_blocked()
        began = trio.current_time()
        await run.stop(grace_seconds=0)
        assert trio.current_time() - began < 5


async def test_a_run_that_is_left_ends_its_trials() -> None:
    async with open_platform(participants()) as platform:
        with trio.CancelScope() as scope:
            async with open_run(
                3, on=platform, environment=countdown(), seats={"player_0": gated(trio.Event())}, parallel=3
            ):
                await wait_all_tasks_blocked()
                assert len([info for info in await platform.controller.trial_infos() if info.state < 5]) == 3
                scope.cancel()
                await trio.lowlevel.checkpoint()
        ids = [info.trial_id for info in await platform.controller.trial_infos()]
        for trial_id in ids:
            outcome = await platform.controller.wait_trial(trial_id, check=False)
            assert outcome.cause in (EndCause.HARD_TERMINATION, EndCause.PARTICIPANT_LEFT, EndCause.PARTICIPANT_LOST)


class Recorder(TrialCallback):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_trial_start(self, index: int, seed: int | None, trial_id: str) -> None:
        self.told.append(("start", index, seed))

    async def on_trial_end(self, result: TrialResult) -> None:
        await trio.lowlevel.checkpoint()
        self.told.append(("end", result.index))

    def on_run_end(self, results: Results) -> None:
        self.told.append(("over", len(results)))


async def test_callbacks() -> None:
    recorder = Recorder()
    await run_trials_async(2, environment=countdown(), seats=SEATS, seeds=4, callbacks=[recorder])
    assert recorder.told == [("start", 0, 4), ("end", 0), ("start", 1, 5), ("end", 1), ("over", 2)]


async def test_a_callback_that_raises_ends_the_run() -> None:
    class Broken(TrialCallback):
        def on_trial_end(self, result: TrialResult) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_trials_async(5, environment=countdown(), seats=SEATS, callbacks=[Broken()], parallel=2)


# Over an open platform


async def test_a_platform_keeps_nothing_of_a_run() -> None:
    async with open_platform(participants()) as platform:
        for _ in range(2):
            await run_trials_async(1, on=platform, environment=countdown(), seats=SEATS)
        infos = len(await platform.controller.trial_infos())
        assert infos == 2
        assert platform.participants.registered(ServiceKind.ENVIRONMENT) == "'default'"


async def test_params_name_everybody() -> None:
    """Nobody whom the run could watch: without a store the returns are not known."""
    params = trial_params([actor_params("player_0", PLAYER, implementation="answering")])
    async with open_platform(participants()) as platform:
        results = await run_trials_async(2, on=platform, params=params, seeds=1)
    assert results.causes.tolist() == ["environment"] * 2
    assert np.isnan(results.returns).all()


async def test_returns_come_from_the_store() -> None:
    params = trial_params([actor_params("player_0", PLAYER, implementation="answering")])
    async with open_platform(participants(), store="memory:") as platform:
        results = await run_trials_async(2, on=platform, params=params, seeds=1)
        trials = await platform.datastore_client().trials()
    assert results.returns_of("player_0").tolist() == [REWARD + REWARD + (REWARD + 1), REWARD + REWARD + (REWARD + 2)]
    assert results.terminated.all()
    assert [trial.trial_id for trial in trials] == results.trial_ids.tolist()


async def test_a_store_of_its_own() -> None:
    results = await run_trials_async(2, environment=countdown(), seats=SEATS, store="memory:")
    assert not results.failures


# What makes no sense


def move(seen: object) -> int:
    """Act on an observation, which is not a function over a session."""
    return 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"seats": SEATS}, "environment: expected an environment, or its endpoint"),
        ({"environment": countdown()}, "seats: expected one for each actor, none for any actor"),
        ({"environment": countdown(), "seats": {"player_0": 3}}, "seats: 'player_0': expected a seat.*got int"),
        (
            {"environment": countdown(), "seats": {"player_0": lambda _seen: 0}},
            r"seats: 'player_0': expected an async function, got .*'<lambda>'.* make a seat, policy\(function\)",
        ),
        (
            {"environment": countdown(), "seats": {"player_0": move}},
            r"seats: 'player_0': expected an async function, got .*'move'.* make a seat, policy\(function\)",
        ),
        (
            {"environment": countdown(), "seats": SEATS, "parallel": 0},
            "parallel: expected an integer, 1 or more, got 0",
        ),
        ({"environment": countdown(), "seats": SEATS, "parallel": 1.5}, "parallel: expected an integer, .* got 1.5"),
        ({"environment": countdown(), "seats": SEATS, "max_steps": -1}, "max_steps: expected an integer, 0 or more"),
        ({"environment": countdown(), "seats": SEATS, "timeout_seconds": np.nan}, "timeout_seconds: expected a number"),
        ({"environment": countdown(), "seats": SEATS, "seeds": "a"}, "seeds: expected an integer, or 2 of them, got"),
        (
            {"environment": countdown(), "seats": SEATS, "retries": -1},
            "retries: expected an integer, 0 or more, got -1",
        ),
        ({"environment": countdown(), "seats": SEATS, "seeds": [1]}, "seeds: expected 2, one for each trial, got 1"),
        ({"environment": countdown(), "seats": SEATS, "seeds": 1 << 70}, "seeds: 1180591620717411303424: cannot be"),
        ({"environment": countdown(), "seats": SEATS, "on": []}, "on: expected an orchestrator at least"),
        ({"environment": countdown(), "seats": SEATS, "on": [7]}, "on: 0: expected a Platform.*got int"),
        ({"environment": countdown(), "seats": SEATS, "model_registry": "a"}, "model_registry: expected the endpoint"),
        ({"environment": countdown(), "params": trial_params([])}, "environment: expected None where there are params"),
        (
            {"params": trial_params([actor_params("a", PLAYER)]), "seats": SEATS},
            "seats: 'player_0': expected one of the actors 'a'",
        ),
    ],
)
async def test_bad_input(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        await run_trials_async(2, **given)


async def test_no_trials() -> None:
    with pytest.raises(InvalidArgumentError, match="n: expected an integer, 1 or more, got 0"):
        await run_trials_async(0, environment=countdown(), seats=SEATS)


async def test_nobody_of_this_process_joins_through_a_controller() -> None:
    async with open_platform(participants()) as platform:
        controller: Controller = platform.controller
        with pytest.raises(FailedPreconditionError, match="seats: 'player_0': orchestrator 0 is given as a Controller"):
            await run_trials_async(1, on=controller, environment="cogment://discover", seats=SEATS)
        elsewhere: dict[str, Any] = {"player_0": actor_params("player_0", PLAYER, implementation="answering")}
        with pytest.raises(FailedPreconditionError, match="environment 'run': orchestrator 0 runs elsewhere"):
            await run_trials_async(1, on=controller, environment=countdown(), seats=elsewhere)
        results = await run_trials_async(2, on=controller, environment="cogment://discover", seats=elsewhere)
    assert not results.failures


async def wait_until(condition: Any) -> None:
    with trio.fail_after(30):
        while not condition():
            await trio.lowlevel.checkpoint()


async def test_a_callback_may_return_something() -> None:
    told: list[int] = []

    class Counting(TrialCallback):
        def on_trial_end(self, result: TrialResult) -> Any:
            told.append(result.index)
            return len(told)

    await run_trials_async(2, environment=countdown(1), seats=SEATS, callbacks=[Counting()])
    assert sorted(told) == [0, 1]


async def test_a_directory_finds_the_seats_of_a_run() -> None:
    """Of a platform that is opened for the run; an orchestrator that is there has one of its own, or none."""
    elsewhere: dict[str, Any] = {"player_0": endpoint("cogment://discover", "answering")}
    every: dict[str, Any] = {"environment": countdown(3), "seats": elsewhere}
    async with (
        DirectoryServer() as server,
        open_platform(directory=server) as platform,
        trio.open_nursery() as nursery,
    ):
        running = await nursery.start(serve, platform.services, await open_listeners("127.0.0.1"))
        directory = f"grpc://127.0.0.1:{running.port}"
        async with open_directory(directory) as client:
            await nursery.start(partial(serve_participants, participants(), address="127.0.0.1", directory=client))
            with trio.fail_after(30):
                while not await client.inquire(ServiceKind.ACTOR):  # noqa: ASYNC110  it registers in the background
                    await trio.sleep(0.01)
            results = await run_trials_async(2, directory=directory, **every)
        with pytest.raises(InvalidArgumentError, match="directory: expected None for trials at orchestrators"):
            await run_trials_async(1, on=platform, directory=directory, **every)
        nursery.cancel_scope.cancel()
    assert not results.failures
    assert results.ticks.tolist() == [4, 4]
