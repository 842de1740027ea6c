"""Calls between a run and its workers, without a cluster: news, the order of calls, and the room for workers."""

from __future__ import annotations

import inspect
import logging
import pickle
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio

import trio_cogment.ray
from tests.ray.cluster import with_deadline
from trio_cogment.base.errors import FailedPreconditionError, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.ray import _worker, _workers
from trio_cogment.ray._worker import Told, Worker, _Trials
from trio_cogment.ray._workers import _disconnect, _places, _WorkerSite
from trio_cogment.rl.runner.sites import Attempt, Started, Task, Verdict
from trio_cogment.sdk.bridges.thread import TrioThread


def task(index: int) -> Task:
    return Task(index, None, f"trial-{index}", 9.0)


class Held:
    """A site whose trials begin at once, and end when they are told to."""

    name = "held"

    def __init__(self) -> None:
        self.ends = trio.Event()

    async def attempt(self, task: Task, started: Started) -> Attempt:
        await started()
        await self.ends.wait()
        return Attempt.failed(task, self.name, "it is short", Verdict.DONE)

    async def probe(self) -> None:
        pass

    async def end_trials(self, *, hard: bool) -> None:
        self.ends.set()


class Calls:
    """Calls of `news` in threads, each of which may wait for ever."""

    def __init__(self, trials: _Trials) -> None:
        self.trials = trials
        self.told: dict[str, tuple[int, list[tuple[str, Told]]]] = {}
        self.ended = {name: threading.Event() for name in ("old", "new")}

    async def begin(self, name: str, heard: int = 0) -> None:
        """Call it; return when it waits."""
        before = self.trials._calls

        def call() -> None:
            self.told[name] = self.trials.news(heard)
            self.ended[name].set()

        threading.Thread(target=call, daemon=True).start()
        await trio.to_thread.run_sync(with_deadline, lambda: self.trials._calls > before, 60)
        with self.trials._changed:
            pass  # it has the lock from the count until it waits

    async def end(self, name: str) -> list[tuple[str, Told]]:
        assert await trio.to_thread.run_sync(self.ended[name].wait, 60)
        return self.told[name][1]


async def test_news_that_come_one_after_the_other_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one does not end the call, and the end of the last trial does, long before the time is over."""
    monkeypatch.setattr(_worker, "_GATHER_SECONDS", 1000.0)
    trials, site = _Trials(), Held()
    calls = Calls(trials)
    await calls.begin("new")
    async with trio.open_nursery() as nursery:
        for index in range(3):
            nursery.start_soon(trials.play, site, task(index))
            await trio.testing.wait_all_tasks_blocked(0.001)
            assert not calls.ended["new"].is_set()
        site.ends.set()
    told = await calls.end("new")
    assert [trial_id for trial_id, what in told if what is None] == [f"trial-{index}" for index in range(3)]
    assert sorted(trial_id for trial_id, what in told if what is not None) == [f"trial-{index}" for index in range(3)]


async def test_news_of_trials_that_run_on_are_told_soon() -> None:
    trials, site = _Trials(), Held()
    calls = Calls(trials)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trials.play, site, task(0))
        await calls.begin("new")
        assert await calls.end("new") == [("trial-0", None)]
        site.ends.set()


async def test_a_call_that_nobody_hears_any_more_takes_no_news() -> None:
    """It waits on in its thread when the connection has broken, and another call has come."""
    trials, site = _Trials(), Held()
    site.ends.set()
    calls = Calls(trials)
    await calls.begin("old")
    await calls.begin("new")
    assert await calls.end("old") == []
    await trials.play(site, task(0))
    assert [trial_id for trial_id, _ in await calls.end("new")] == ["trial-0"] * 2


async def test_news_are_kept_until_they_have_been_heard() -> None:
    """The reply of a call may be lost, too."""
    trials, site = _Trials(), Held()
    site.ends.set()
    await trials.play(site, task(0))
    heard, told = await trio.to_thread.run_sync(trials.news, 0)
    assert (heard, len(told)) == (2, 2)
    assert await trio.to_thread.run_sync(trials.news, 0) == (2, told)
    await trials.play(site, task(1))
    heard, told = await trio.to_thread.run_sync(trials.news, 2)
    assert (heard, [trial_id for trial_id, _ in told]) == (4, ["trial-1"] * 2)


def test_a_worker_is_no_actor_of_asyncio() -> None:
    """With one asynchronous method, also a private one, Ray would call all of them one at a time."""
    assert inspect.getmembers(Worker, inspect.iscoroutinefunction) == []


def test_an_end_of_a_worker_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        yield None
        raise ZeroDivisionError("closing")

    worker = Worker.__new__(Worker)
    worker._name, worker._thread = "worker 3", TrioThread(opened(), "test")
    with caplog.at_level(logging.ERROR):
        worker.stop()
    assert "worker 3: its end has failed" in caplog.messages


class Called(_WorkerSite):
    """A worker, whose calls are noted, and go on when they are let.

    Attributes:
        calls: what was called: the method, and the ids of the trials or the arguments.
        goes_on: a call of `give` waits for it.
        failing: calls of `give` fail then.
    """

    def __init__(self) -> None:
        super().__init__("one", None)
        self.calls: list[tuple[str, Any]] = []
        self.goes_on = trio.Event()
        self.failing = False
        self._up.set()

    async def _call(self, method: str, *args: Any) -> Any:
        given = [task.trial_id for task in pickle.loads(args[0])] if method == "give" else args
        self.calls.append((method, given))
        if method == "give":
            await self.goes_on.wait()
            if self.failing:
                raise UnavailableError("gone")


async def given(site: Called, nursery: trio.Nursery) -> list[Attempt]:
    """Give a worker a trial, which is on its way then, and another one that waits; return how they end."""
    ends: list[Attempt] = []

    async def attempt(index: int) -> None:
        async def started() -> None:
            pass

        ends.append(await site.attempt(task(index), started))

    nursery.start_soon(site.give)
    for index in range(2):
        nursery.start_soon(attempt, index)
        await trio.testing.wait_all_tasks_blocked()
    return ends


async def test_no_trial_is_begun_after_the_end_of_all() -> None:
    site = Called()
    async with trio.open_nursery() as nursery:
        ends = await given(site, nursery)
        async with trio.open_nursery() as ending:
            ending.start_soon(lambda: site.end_trials(hard=True))
            await trio.testing.wait_all_tasks_blocked()
            site.goes_on.set()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert site.calls == [("give", ["trial-0"]), ("end_trials", (True,))]
    assert [(end.result.trial_id, end.verdict) for end in ends] == [("trial-1", Verdict.NOT_STARTED)]


async def test_trials_that_were_lost_are_not_given() -> None:
    site = Called()
    async with trio.open_nursery() as nursery:
        ends = await given(site, nursery)
        site._lose(list(site._trials), UnavailableError("gone"))
        site.goes_on.set()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [given for method, given in site.calls if given] == [["trial-0"]]
    assert [end.verdict for end in ends] == [Verdict.IN_DOUBT] * 2


NODES: list[dict[str, Any]] = [
    {"Alive": True, "NodeID": "a", "Resources": {"CPU": 2.0}},
    {"Alive": True, "NodeID": "b", "Resources": {"CPU": 4.0}},
    {"Alive": False, "NodeID": "c", "Resources": {"CPU": 8.0}},
]


def strategy(kind: str) -> Any:
    from ray.util.scheduling_strategies import In, NodeAffinitySchedulingStrategy, NodeLabelSchedulingStrategy

    return {
        "word": "SPREAD",
        "labels": NodeLabelSchedulingStrategy({"zone": In("here")}),
        "soft labels": NodeLabelSchedulingStrategy({}, soft={"zone": In("here")}),
        "node": NodeAffinitySchedulingStrategy("b" * 56, soft=False),
        "soft node": NodeAffinitySchedulingStrategy("b" * 56, soft=True),
    }[kind]


@pytest.mark.parametrize("private", [True, False], ids=["private", "openly"])
@pytest.mark.parametrize("kind", ["word", "labels", "soft labels", "node", "soft node"])
def test_places_of_each_scheduling_strategy(monkeypatch: pytest.MonkeyPatch, kind: str, private: bool) -> None:
    """Ray's private function is not needed: without it only the totals are known."""
    nodes = [{**node, "NodeID": node["NodeID"] * 56} for node in NODES]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    if private:
        free = {nodes[0]["NodeID"]: {"CPU": 1.0}, nodes[1]["NodeID"]: {"CPU": 3.0}}
        monkeypatch.setattr("ray._private.state.available_resources_per_node", lambda: free)
    else:
        monkeypatch.setitem(sys.modules, "ray._private.state", None)
    only = slice(1, 2) if kind == "node" else slice(2)
    where, more, room, unused = _places(strategy(kind))
    assert (where, more) == ("that node" if kind == "node" else "the Ray cluster", "nodes")
    assert [has["CPU"] for has in room] == [2.0, 4.0][only]
    assert [has["CPU"] for has in unused] == ([1.0, 3.0] if private else [2.0, 4.0])[only]


class Ray:
    """The connection of this process to a cluster.

    Attributes:
        calls: what was asked of it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, connected: bool) -> None:
        self.calls: list[str] = []
        self._connected = connected
        context = SimpleNamespace(gcs_address="10.0.0.1:6379")
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setattr("ray.is_initialized", lambda: self._connected)
        monkeypatch.setattr("ray.init", lambda **_options: self._connect("init", True))
        monkeypatch.setattr("ray.shutdown", lambda: self._connect("shutdown", False))
        monkeypatch.setattr("ray.get_runtime_context", lambda: context)

    def _connect(self, call: str, connected: bool) -> None:
        self.calls.append(call)
        self._connected = connected


async def test_the_last_of_several_runs_ends_the_connection_that_one_has_made(monkeypatch: pytest.MonkeyPatch) -> None:
    ray, on, in_thread = Ray(monkeypatch, connected=False), trio_cogment.ray.workers(1), Host().runner(1)
    on._connect(1)
    on._connect(2)
    assert ray.calls == ["init"]
    await _disconnect(in_thread, 1)
    assert ray.calls == ["init"], "the second run goes on"
    await _disconnect(in_thread, 2)
    assert ray.calls == ["init", "shutdown"]


async def test_a_connection_of_the_program_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray(monkeypatch, connected=True)
    for address in (None, "auto", "10.0.0.1:6379"):
        trio_cogment.ray.workers(1, address=address)._connect(1)
        await _disconnect(Host().runner(1), 1)
    assert ray.calls == []


def test_an_address_of_another_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Ray(monkeypatch, connected=True)
    with pytest.raises(FailedPreconditionError, match=r"address: expected '10\.0\.0\.1:6379', .* got '10\.0\.0\.2:"):
        trio_cogment.ray.workers(1, address="10.0.0.2:6379")._connect(1)


async def test_workers_that_need_nothing_and_have_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_workers, "_places", lambda placement: ("that node", "nodes", [], []))
    on = trio_cogment.ray.workers(2, num_cpus=0)
    with pytest.raises(
        FailedPreconditionError, match="room for 2 of nothing each in that node, and there is room for 0"
    ):
        await on._require_room(Host().runner(1))
