"""Workers as sites of a run: equal results everywhere, faults, and what is refused."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_cogment.ray
import trio_cogment.rl as tc
from tests.ray.cluster import PATIENT, Grid, end, lives, parent_of, raylet_of, started_again, with_deadline
from tests.ray.worlds import Paced, Still, Talking, played
from tests.stores.postgresql_server import postgresql_server
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.services import ServiceKind
from trio_cogment.base.taking_up import branch_of
from trio_cogment.platform import open_platform
from trio_cogment.ray import _workers
from trio_cogment.rl.datasets.sources import open_source
from trio_cogment.rl.runner import Progress, Results, open_run, run_trials_async
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.sdk import Participants, serve_participants
from trio_cogment.servers.directory import DirectoryServer
from trio_cogment.servers.discovery import open_directory
from trio_cogment.spaces import decode_observation, encode_action

N = 200
STEP_SECONDS = 0.003
#: How long a worker may live whose node is gone.
ZOMBIE_SECONDS = 2.0
#: How long a run may take after Ray has told that a worker is gone; and where its host stands still.
END_SECONDS, STILL_SECONDS = 30.0, 90.0
SEATS: dict[str, Any] = {"player_0": tc.random(seed=1)}
#: A seat that draws may do otherwise in a trial that goes on in the middle.
STEADY: dict[str, Any] = {"player_0": tc.policy(lambda state: int(state[2] > 0))}


def on_nodes(count: int = 2) -> trio_cogment.ray.Workers:
    return trio_cogment.ray.workers(count, resources={"room": 1})


def checked(results: Results) -> Results:
    """Check that each trial has one result, and none has failed."""
    assert results.index.tolist() == list(range(len(results)))
    assert results.failures == ()
    assert not {trial.trial_id for trial in results.lost} & set(results.trial_ids)
    return results


#: The results in one process, by the number of trials and the seats.
_known: dict[tuple[int, int], Results] = {}


async def in_process(n: int = N, seats: dict[str, Any] = SEATS) -> Results:
    if (n, id(seats)) not in _known:
        results = await run_trials_async(n, environment=Paced, seats=seats, seeds=0, parallel=4)
        _known[n, id(seats)] = checked(results)
    return _known[n, id(seats)]


def same(one: Results, other: Results) -> bool:
    return all((getattr(one, name) == getattr(other, name)).all() for name in ("returns", "ticks", "seeds", "causes"))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When Ray has told a run that a worker of its is gone."""
    times: list[float] = []
    lose = _workers._WorkerSite._lose

    def noted(site: Any, error: Any) -> None:
        times.append(trio.current_time())
        lose(site, error)

    monkeypatch.setattr(_workers._WorkerSite, "_lose", noted)
    return times


async def with_fault(folder: Path, fault: Callable[[int], None], told: list[float]) -> Results:
    """Run trials on two workers; when some have ended, something happens to the process that has played most.

    The run is to end soon after Ray has told.
    """
    arguments = {"folder": str(folder), "seconds": STEP_SECONDS}
    async with open_run(
        N, on=on_nodes(), environment=Paced, arguments=arguments, seats=SEATS, seeds=0, parallel=8, retries=2
    ) as run:
        count = 0
        async for _ in run:
            count += 1
            if count == 30:
                ((pid, _),) = played(folder).most_common(1)
                await trio.to_thread.run_sync(fault, pid)
        results = checked(await run.wait())
        assert trio.current_time() - told[0] <= END_SECONDS
        return results


async def test_equal_results_everywhere(grid: Grid, tmp_path: Path) -> None:
    grid.have(2)
    expected = await in_process()
    async with open_platform(tc.RL_SPEC) as one, open_platform(tc.RL_SPEC) as two:
        every: dict[str, Any] = {"environment": Paced, "seats": SEATS, "seeds": 0, "parallel": 8}
        assert same(await run_trials_async(N, on=[one, two], **every), expected)
    arguments = {"folder": str(tmp_path)}
    results = await run_trials_async(N, on=on_nodes(), arguments=arguments, **every)
    assert same(checked(results), expected)
    assert set(results.orchestrators.tolist()) == {"worker 0", "worker 1"}
    assert len(played(tmp_path)) == 2


async def test_trials_that_start_at_the_same_time_go_in_one_call(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    grid.have(2)
    given: list[int] = []
    call = _workers._WorkerSite._call

    async def noted(site: Any, method: str, *args: Any) -> Any:
        if method == "exchange":
            given.append(len(pickle.loads(args[1])))
        return await call(site, method, *args)

    monkeypatch.setattr(_workers._WorkerSite, "_call", noted)
    checked(await run_trials_async(N, on=on_nodes(1), environment=Paced, seats=SEATS, seeds=0, parallel=16))
    assert next(filter(None, given)) == 16
    assert sum(given) == N


async def test_a_worker_that_is_killed(grid: Grid, tmp_path: Path, told: list[float]) -> None:
    grid.have(2)
    killed = []

    def kill(pid: int) -> None:
        killed.append(pid)
        os.kill(pid, signal.SIGKILL)

    results = await with_fault(tmp_path, kill, told)
    assert same(results, await in_process()), "as if nothing had been"
    assert killed[0] not in [pid for pid in played(tmp_path) if lives(pid)]
    # Four at a time ran there, and no more than these were lost.
    assert 0 < len(results.lost) <= 4
    assert len(played(tmp_path)) == 3, "another process has taken its place"


async def test_a_raylet_that_is_killed(grid: Grid, tmp_path: Path, told: list[float]) -> None:
    nodes = grid.have(2)
    gone: list[int] = []

    def kill(pid: int) -> None:
        raylet = parent_of(pid)
        (node,) = (node for node in nodes if raylet_of(node) == raylet)
        os.kill(raylet, signal.SIGKILL)
        gone.append(pid)
        with_deadline(lambda: not lives(pid), ZOMBIE_SECONDS)
        grid.forget(node)

    results = await with_fault(tmp_path, kill, told)
    assert not lives(gone[0]), "nobody plays on where the run does not look any more"
    assert len(results.lost) <= 4
    assert same(results, await in_process())


#: A worker that is told of its raylet's process.
BEGINS = "from trio_cogment.ray._worker import _end_with_parent; _end_with_parent(); print('works')"


def test_a_worker_whose_raylet_died_before_it_could_ask() -> None:
    """Linux tells nobody of a death before the question; also while the dead one's parent has not looked."""
    with subprocess.Popen([sys.executable, "-c", ""]) as raylet:
        os.waitid(os.P_PID, raylet.pid, os.WEXITED | os.WNOWAIT)  # it is dead, and there
        dead = begun_below(raylet.pid)
        raylet.wait()
    assert (dead.returncode, dead.stdout) == (-signal.SIGKILL, "")
    gone = begun_below(raylet.pid)
    assert (gone.returncode, gone.stdout) == (-signal.SIGKILL, "")
    living = begun_below(os.getpid())
    assert (living.returncode, living.stdout) == (0, "works\n")


def begun_below(raylet: int) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "RAY_RAYLET_PID": str(raylet)}
    return subprocess.run([sys.executable, "-c", BEGINS], env=env, stdout=subprocess.PIPE, text=True, check=False)


async def test_workers_are_told_of_their_raylet(grid: Grid) -> None:
    import ray

    grid.have(1)
    told = ray.remote(num_cpus=0, resources={"room": 1})(lambda: (os.environ["RAY_RAYLET_PID"], os.getppid()))
    variable, parent = await trio.to_thread.run_sync(ray.get, told.remote())
    assert int(variable) == parent
    assert parent in [raylet_of(node) for node in grid.nodes]


async def test_a_node_that_is_removed(grid: Grid, tmp_path: Path, told: list[float]) -> None:
    nodes = grid.have(2)

    def remove(pid: int) -> None:
        (node,) = (node for node in nodes if raylet_of(node) == parent_of(pid))
        grid.remove(node)

    results = await with_fault(tmp_path, remove, told)
    assert len(results.lost) <= 4
    assert same(results, await in_process())


async def test_a_host_that_stands_still_and_is_woken(grid: Grid, tmp_path: Path, told: list[float]) -> None:
    """Its trials are repeated; what it does when it wakes up in the same run counts for nothing, and it ends."""
    nodes = grid.have(2)
    arguments = {"folder": str(tmp_path), "seconds": STEP_SECONDS}
    every: dict[str, Any] = {"environment": Paced, "seats": SEATS, "seeds": 0, "parallel": 8, "retries": 2}
    async with open_run(N, on=on_nodes(), arguments=arguments, **every) as run:
        for position in range(30):
            await run.result(position)
        ((pid, _),) = played(tmp_path).most_common(1)
        raylet = parent_of(pid)
        for each in (pid, raylet):
            os.kill(each, signal.SIGSTOP)
        # Until Ray tells; the other worker would play most of the trials meanwhile.
        run.pause()
        try:
            await trio.to_thread.run_sync(with_deadline, lambda: bool(told), 300)
            before = played(tmp_path)[pid]
            run.resume()
            for each in (pid, raylet):
                os.kill(each, signal.SIGCONT)
            assert len(run.results()) < N - 50, "the run goes on for long after it has woken"
            await trio.to_thread.run_sync(with_deadline, lambda: not lives(pid), ZOMBIE_SECONDS)
            assert not run.over
        finally:
            end(pid)
            grid.forget(next(node for node in nodes if raylet_of(node) == raylet))
        results = checked(await run.wait())
        assert trio.current_time() - told[0] <= STILL_SECONDS
    assert 0 < len(results.lost) <= 4
    assert played(tmp_path)[pid] <= before + 4, "it has not got any more trials"
    assert same(results, await in_process())


async def test_a_worker_alone_that_stands_still(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its raylet answers for it, so Ray says nothing; the run does, some time after its trials should be over."""
    grid.have(2)
    monkeypatch.setattr(_workers, "_HUNG_SECONDS", 2.0)
    arguments = {"folder": str(tmp_path), "seconds": STEP_SECONDS}
    every: dict[str, Any] = {"environment": Paced, "seats": SEATS, "seeds": 0, "parallel": 4}
    stopped = 0
    async with open_run(60, on=on_nodes(), arguments=arguments, retries=2, timeout_seconds=10.0, **every) as run:
        for position in range(60):
            await run.result(position)
            if position == 10:
                ((stopped, _),) = played(tmp_path).most_common(1)
                os.kill(stopped, signal.SIGSTOP)
        results = checked(await run.wait())
    assert 0 < len(results.lost) <= 4
    assert same(results, await in_process(60))
    await trio.to_thread.run_sync(with_deadline, lambda: not lives(stopped), 30)


@pytest.mark.soak
def test_a_host_that_stands_still_with_the_times_of_ray() -> None:
    """The same with the times of a cluster that nobody has tuned: Ray tells after more than a minute."""
    test = "tests/ray/test_workers.py::test_a_host_that_stands_still_and_is_woken"
    options = ["-q", "--timeout=500", "-o", "faulthandler_timeout=0", "-m", "rl_peers"]
    command = [sys.executable, "-m", "pytest", *options, test]
    subprocess.run(command, check=True, env={**os.environ, PATIENT: "1"}, timeout=600)


async def test_callbacks_progress_and_a_stop(grid: Grid, tmp_path: Path) -> None:
    grid.have(2)
    starts: list[int] = []
    ends: list[int] = []
    states: list[Progress] = []

    class Told(tc.TrialCallback):
        def on_trial_start(self, index: int, seed: int | None, trial_id: str) -> None:
            starts.append(index)

        def on_trial_end(self, result: tc.TrialResult) -> None:
            assert result.index in starts
            ends.append(result.index)

    arguments = {"seconds": STEP_SECONDS, "folder": str(tmp_path)}
    async with open_run(
        N,
        on={"ray": on_nodes()},
        environment=Paced,
        arguments=arguments,
        seats=SEATS,
        parallel=4,
        callbacks=[Told()],
        progress=states.append,
    ) as run:
        async for _ in run:
            if len(ends) == 10:
                break
        results = await run.stop()
    assert set(results.orchestrators.tolist()) == {"worker 0", "worker 1"}
    assert 10 <= len(results) < N
    assert sorted(starts) == sorted(ends) == results.index.tolist()
    assert results.causes.tolist().count("soft_termination") <= 4
    assert max(state.running for state in states) == 4
    await trio.to_thread.run_sync(with_deadline, lambda: not any(map(lives, played(tmp_path))), 20)


async def test_trials_have_time_to_end_when_the_run_is_broken_off(grid: Grid, tmp_path: Path) -> None:
    grid.have(2)
    folder = str(tmp_path)

    async def waiting(session: Any) -> None:
        note(folder, f"begun-{session.trial_id}")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
                note(folder, f"ended-{session.trial_id}")

    async with trio.open_nursery() as nursery:
        seats: dict[str, Any] = {"player_0": SEATS["player_0"]}
        arguments: dict[str, Any] = {"on": on_nodes(), "environment": waiting, "seats": seats, "name": "run"}
        nursery.start_soon(partial(run_trials_async, 2, **arguments))
        await trio.to_thread.run_sync(with_deadline, lambda: len(noted(tmp_path, "begun")) == 2, 120)
        nursery.cancel_scope.cancel()
    assert noted(tmp_path, "ended") == ["ended-run-0", "ended-run-1"]


def note(folder: str, name: str) -> None:
    Path(folder, name).touch()


def noted(folder: Path, kind: str) -> list[str]:
    return sorted(path.name for path in folder.glob(f"{kind}-*"))


async def test_a_run_on_workers_that_is_broken_off_goes_on(grid: Grid, tmp_path: Path) -> None:
    """Its trials are recorded in a datastore of this process, and go on in it; the first part was played by workers."""
    grid.have(2)
    async with open_platform(tc.RL_SPEC, store="memory:") as platform, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running = await nursery.start(serve, platform.services, listeners)
        every: dict[str, Any] = {"store": f"grpc://127.0.0.1:{running.port}", "name": "broken", "seats": STEADY}
        every |= {"seeds": 0, "environment": Paced, "parallel": 4}
        async with open_run(N, on=on_nodes(), **every, arguments={"seconds": STEP_SECONDS}) as run:
            for position in range(20):
                await run.result(position)
            await run.stop(grace_seconds=0)
        there = {trial.trial_id for trial in await platform.datastore_client().trials()}
        results = checked(await run_trials_async(40, on=on_nodes(), resume=True, **every))
        assert {f"broken-{index}" for index in range(10)} <= there
        assert results.orchestrators.tolist().count("") >= 20
        assert same(results, await in_process(40, STEADY))
        nursery.cancel_scope.cancel()


async def test_a_trial_of_a_worker_that_is_broken_off_goes_on_in_the_middle(grid: Grid) -> None:
    """The worker that has it then reads in the datastore of the run what was played before."""
    grid.have(2)
    async with open_platform(tc.RL_SPEC, store="memory:") as platform, trio.open_nursery() as nursery:
        running = await nursery.start(serve, platform.services, await open_listeners("127.0.0.1"))
        every: dict[str, Any] = {"store": f"grpc://127.0.0.1:{running.port}", "name": "cut", "environment": Paced}
        every |= {"seeds": 0, "seats": STEADY, "hosting": "thread"}
        client = platform.datastore_client()
        async with open_run(1, on=on_nodes(1), **every, arguments={"seconds": 0.3}) as run:
            with trio.fail_after(120):
                while not any(trial.samples_count > 2 for trial in await client.trials()):  # noqa: ASYNC110  it plays
                    await trio.sleep(0.05)
            (cut,) = (await run.stop(grace_seconds=0)).trials
        (result,) = checked(await run_trials_async(1, on=on_nodes(1), resume=True, **every)).trials
        first, second = await client.trials()
        assert branch_of(second.params.properties) == (first.trial_id, first.samples_count - 1)
        assert result.trial_id == second.trial_id
        whole = await run_trials_async(1, environment=Paced, seats=STEADY, seeds=0)
        assert 2 < cut.ticks < result.ticks == whole.ticks[0]
        assert result.returns["player_0"] == whole.returns[0, 0]
        nursery.cancel_scope.cancel()


#: A program whose run is on the cluster, and is recorded elsewhere.
PROGRAM = """
import sys
import ray
import trio_cogment.rl as tc
from tests.ray.worlds import Paced
from trio_cogment.ray import workers

class Told(tc.TrialCallback):
    def on_trial_end(self, result):
        print("ended", result.index, flush=True)

ray.init(address=sys.argv[1], log_to_driver=False)
tc.run_trials(
    1000, on=workers(2, resources={"room": 1}), environment=Paced, arguments={"folder": sys.argv[3], "seconds": 0.003},
    seats={"player_0": tc.policy(lambda state: int(state[2] > 0))}, seeds=0, store=sys.argv[2], name="killed",
    callbacks=[Told()], parallel=4,
)
"""


async def test_the_program_of_a_run_is_killed(grid: Grid, tmp_path: Path) -> None:
    """Nothing that was stored is lost, its workers end, and the next run does what is missing."""
    grid.have(2)
    async with open_platform(tc.RL_SPEC, store="memory:") as platform, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running = await nursery.start(serve, platform.services, listeners)
        store = f"grpc://127.0.0.1:{running.port}"
        command = [sys.executable, "-c", PROGRAM, grid.cluster.address, store, str(tmp_path)]
        program = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
        assert program.stdout is not None
        said = b""
        while said.count(b"ended") < 10:
            said += await program.stdout.receive_some()
        program.kill()
        await program.wait()
        await trio.to_thread.run_sync(with_deadline, lambda: not any(map(lives, played(tmp_path))), 60)
        every: dict[str, Any] = {"store": store, "name": "killed", "seats": STEADY, "seeds": 0, "environment": Paced}
        results = checked(await run_trials_async(40, on=on_nodes(), resume=True, **every))
        assert same(results, await in_process(40, STEADY))
        assert results.orchestrators.tolist().count("") >= 10
        nursery.cancel_scope.cancel()


@pytest.mark.postgresql
async def test_trials_go_on_without_their_database(grid: Grid, tmp_path: Path) -> None:
    """Their samples wait in the workers, and are there when it is back."""
    grid.have(2)
    every: dict[str, Any] = {"environment": Paced, "seats": SEATS, "seeds": 0, "parallel": 4}
    with postgresql_server() as server:
        store = server.database()
        arguments = {"folder": str(tmp_path), "seconds": STEP_SECONDS}
        async with open_run(60, on=on_nodes(), arguments=arguments, store=store, **every) as run:
            for position in range(60):
                await run.result(position)
                if position == 10:
                    await trio.to_thread.run_sync(server.stop, "immediate")
                    await trio.sleep(1)
                    await trio.to_thread.run_sync(server.start)
            results = checked(await run.wait())
        async with open_source(store) as datastore:
            stored = await datastore.trials()
    assert len(results.lost) == 0
    assert {trial.trial_id for trial in stored} == set(results.trial_ids.tolist())
    assert all(trial.is_complete for trial in stored)
    assert same(results, await in_process(60))


async def test_models_are_loaded_once_by_each_worker(grid: Grid, tmp_path: Path) -> None:
    grid.have(2)
    folder = str(tmp_path)

    def load(data: bytes) -> Any:
        with Path(folder, f"loaded-{os.getpid()}").open("a") as file:
            file.write(".")
        return lambda _observation: int(data)

    async with (
        open_platform(tc.RL_SPEC, model_registry=str(tmp_path / "models")) as platform,
        trio.open_nursery() as nursery,
    ):
        await platform.model_registry_client().store("left", b"0")
        listeners = await open_listeners("127.0.0.1")
        running = await nursery.start(serve, platform.services, listeners)
        results = await run_trials_async(
            20,
            on=on_nodes(),
            environment=Paced,
            seats={"player_0": tc.model("left@-1", load)},
            model_registry=f"grpc://127.0.0.1:{running.port}",
        )
        nursery.cancel_scope.cancel()
    checked(results)
    assert [Path(folder, name).read_text() for name in noted(tmp_path, "loaded")] == [".", "."]  # noqa: ASYNC240  small
    assert set(results.orchestrators.tolist()) == {"worker 0", "worker 1"}


async def test_equal_seats_of_several_workers_do_not_draw_the_same(grid: Grid) -> None:
    """Without seeds of the trials a seat with a seed goes on drawing, and each worker has a copy of it."""
    grid.have(2)
    still = partial(run_trials_async, environment=Still, seats=SEATS, parallel=2)
    results = checked(await still(12, on=on_nodes()))
    by_worker: dict[str, list[float]] = {}
    for trial in results.trials:
        by_worker.setdefault(trial.orchestrator, []).append(trial.returns["player_0"])
    one, two = by_worker.values()
    assert one[:3] != two[:3]
    # With seeds each trial draws for itself, on whatever worker.
    seeded = checked(await still(12, on=on_nodes(), seeds=0))
    assert (seeded.returns == (await still(12, seeds=0)).returns).all()


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ({"count": 5}, r"expected room for 5 of 1 CPU, 1 room each in the Ray cluster, and there is room for 4"),
        ({"count": 1, "num_cpus": 3}, r"there is room for 0: ask for fewer workers, or smaller ones"),
        ({"count": 1, "num_gpus": 1}, r"1 GPU, .*there is room for 0"),
    ],
)
async def test_workers_that_do_not_fit(grid: Grid, workers: dict[str, Any], said: str) -> None:
    grid.have(2)
    on = trio_cogment.ray.workers(**workers, resources={"room": 1})
    with pytest.raises(FailedPreconditionError, match=said):
        await run_trials_async(1, on=on, environment=Paced, seats=SEATS)


@pytest.mark.parametrize(
    ("count", "index", "said"),
    [
        (2, -1, "expected room for 2 of 1 CPU each in the placement group, and there is room for 1"),
        (1, 1, "expected room for 1 of 1 CPU each in the placement group, and there is room for 0"),
    ],
)
async def test_workers_that_do_not_fit_their_placement_group(
    grid: Grid, monkeypatch: pytest.MonkeyPatch, count: int, index: int, said: str
) -> None:
    from ray.util import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    grid.have(2)
    group = placement_group([{"CPU": 1.5}, {"room": 1}])
    try:
        placement = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        on = trio_cogment.ray.workers(count, placement=placement)
        with monkeypatch.context() as patch:
            patch.setattr(_workers, "_START_SECONDS", 5.0)
            with pytest.raises(FailedPreconditionError, match=said):
                await run_trials_async(1, on=on, environment=Paced, seats=SEATS)
        fits = trio_cogment.ray.workers(1, placement=PlacementGroupSchedulingStrategy(group))
        checked(await run_trials_async(1, on=fits, environment=Paced, seats=SEATS))
    finally:
        remove_placement_group(group)


async def test_workers_that_do_not_fit_their_node(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    import ray

    grid.have(2)
    monkeypatch.setattr(_workers, "_START_SECONDS", 5.0)
    node, *_ = (one["NodeID"] for one in ray.nodes() if one["Alive"] and one["Resources"].get("room"))
    on = trio_cogment.ray.workers(3, placement=NodeAffinitySchedulingStrategy(node, soft=False))
    with pytest.raises(FailedPreconditionError, match="of 1 CPU each in that node, and there is room for 2"):
        await run_trials_async(1, on=on, environment=Paced, seats=SEATS)


async def test_room_that_is_on_no_node(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node has a free processor, so the cluster has two; a worker that takes two fits nowhere."""
    from ray.util import placement_group, remove_placement_group

    grid.have(2)
    monkeypatch.setattr(_workers, "_START_SECONDS", 5.0)
    monkeypatch.setattr(_workers, "_ROOM_LOOKS", 4)
    group = placement_group([{"CPU": 1, "room": 1}] * 2, strategy="STRICT_SPREAD")
    try:
        assert await trio.to_thread.run_sync(group.wait, 60)
        with pytest.raises(
            FailedPreconditionError, match="of 2 CPU each in the Ray cluster, and others leave room for 0"
        ):
            await run_trials_async(1, on=trio_cogment.ray.workers(1, num_cpus=2), environment=Paced, seats=SEATS)
    finally:
        remove_placement_group(group)


class Served:
    """An actor of Ray that has a policy, and serves it for seats of trials elsewhere.

    Args:
        directory: the endpoint of the directory with which it registers.
    """

    def __init__(self, directory: str) -> None:
        threading.Thread(target=trio.run, args=(self._serve, directory), daemon=True).start()

    async def _serve(self, directory: str) -> None:
        participants = Participants(tc.RL_SPEC)
        participants.register_actor(_left, "on-gpu")
        async with open_directory(directory) as client:
            await serve_participants(participants, address="127.0.0.1", directory=client)


async def _left(session: Any) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            active = decode_observation(event.observation.payload).active
            await session.do_action(encode_action(0) if active else b"")


async def test_a_policy_on_a_gpu_serves_seats_of_workers(grid: Grid) -> None:
    import ray

    grid.have(2)
    node = started_again(lambda: grid.cluster.add_node(num_cpus=0, num_gpus=1))
    try:
        async with (
            DirectoryServer() as server,
            open_platform(directory=server) as platform,
            trio.open_nursery() as nursery,
        ):
            running = await nursery.start(serve, platform.services, await open_listeners("127.0.0.1"))
            directory = f"grpc://127.0.0.1:{running.port}"
            policy = ray.remote(num_cpus=0, num_gpus=1)(Served).remote(directory)
            async with open_directory(directory) as client:
                with trio.fail_after(120):
                    while not await client.inquire(ServiceKind.ACTOR):  # noqa: ASYNC110  a process that starts
                        await trio.sleep(0.1)
            results = await run_trials_async(
                8,
                on=on_nodes(),
                environment=Paced,
                seats={"player_0": tc.endpoint("cogment://discover", "on-gpu")},
                directory=directory,
                seeds=0,
                parallel=2,
            )
            ray.kill(policy)
            nursery.cancel_scope.cancel()
    finally:
        grid.cluster.remove_node(node)
    checked(results)
    assert set(results.orchestrators.tolist()) == {"worker 0", "worker 1"}
    assert same(results, await run_trials_async(8, environment=Paced, seats={"player_0": _left}, seeds=0))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"arguments": {"lock": threading.Lock()}}, "arguments: 'lock': expected what can be pickled for the workers"),
        (
            {"store": "sqlite:trials.db"},
            r"store: expected one that many processes can write to, .*got 'sqlite:trials.db'",
        ),
        ({"environment": "Nope-v1"}, "Nope"),
        ({"seats": {}}, "seats: expected one for each actor, none for 'player_0'"),
        ({"seeds": [1 << 70]}, "seeds: 1180591620717411303424: cannot be set"),
    ],
)
async def test_what_makes_no_sense_is_said_at_once(grid: Grid, given: dict[str, Any], said: str) -> None:
    grid.have(2)
    arguments: dict[str, Any] = {"environment": Paced, "seats": SEATS, **given}
    with pytest.raises((InvalidArgumentError, FailedPreconditionError), match=said):
        await run_trials_async(1, on=on_nodes(1), **arguments)


def test_arguments_of_workers() -> None:
    with pytest.raises(InvalidArgumentError, match="count: expected an integer, 1 or more, got 0"):
        trio_cogment.ray.workers(0)
    with pytest.raises(InvalidArgumentError, match="resources: GPU: expected a number, 0 or more, got -1"):
        trio_cogment.ray.workers(1, num_gpus=-1)


def test_logs_of_workers_carry_trial_ids(grid: Grid) -> None:
    """In the files of the worker's process, which Ray shows where the run was started."""
    grid.have(2)
    tc.run_trials(2, on=on_nodes(1), environment=Talking, seats=SEATS, name="told")
    files = Path(grid.cluster.head_node.get_logs_dir_path()).glob("worker-*.err")
    said = [line for file in files for line in file.read_text().splitlines() if "[mine]" in line]
    assert sorted(said) == [f"[WARNING] [mine] trial told-{index}: tired" for index in range(2)]


@pytest.mark.parametrize(("address", "tries"), [(None, 3), ("10.0.0.1:6379", 1)])
def test_a_cluster_that_does_not_start(monkeypatch: pytest.MonkeyPatch, address: str | None, tries: int) -> None:
    """Ray raises a bare Exception where its own processes did not wait for each other."""
    asked: list[str] = []

    def init(address: str, **_options: Any) -> None:
        asked.append(address)
        raise Exception("the node timed out")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", init)
    with pytest.raises(FailedPreconditionError, match=r"expected a Ray cluster at .*: the node timed out"):
        tc.run_trials(1, on=trio_cogment.ray.workers(1, address=address), environment=Paced, seats=SEATS)
    assert asked == [address or "local"] * tries


def test_ray_is_not_imported_before_it_is_used() -> None:
    for module in ("trio_cogment.ray", "trio_cogment.rl.runner", "trio_cogment.cli"):
        code = f"import sys, {module}; sys.exit('ray' in sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True)


def test_an_ordinary_function(grid: Grid) -> None:
    grid.have(2)
    results = tc.run_trials(10, on=on_nodes(), environment=Paced, seats=SEATS, seeds=0, check=True)
    assert Counter(results.orchestrators.tolist()).keys() == {"worker 0", "worker 1"}
