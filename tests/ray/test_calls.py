"""Calls between a run and its workers, without a cluster: news, the order of calls, and the room for workers."""

from __future__ import annotations

import inspect
import logging
import pickle
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

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
        self.attempts: list[str] = []

    async def attempt(self, task: Task, started: Started) -> Attempt:
        self.attempts.append(task.trial_id)
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
    """With three trials that have ended for each that runs, long before the time is over."""
    monkeypatch.setattr(_worker, "_GATHER_SECONDS", 1000.0)
    trials, sites = _Trials(), [Held() for _ in range(5)]
    trials._told_at = time.monotonic()
    calls = Calls(trials)
    await calls.begin("new")
    async with trio.open_nursery() as nursery:
        for index, site in enumerate(sites):
            nursery.start_soon(trials.play, site, [task(index)])
        for site in sites[:3]:
            site.ends.set()
            await trio.testing.wait_all_tasks_blocked(0.001)
            assert not calls.ended["new"].is_set()
        sites[3].ends.set()
        told = await calls.end("new")
        sites[4].ends.set()
    assert sorted(trial_id for trial_id, what in told if what is None) == [f"trial-{index}" for index in range(5)]
    assert sorted(trial_id for trial_id, what in told if what is not None) == [f"trial-{index}" for index in range(4)]


async def test_news_of_trials_that_run_on_are_told_soon() -> None:
    """At once, where there have been none for a moment, and after this moment otherwise."""
    trials, site = _Trials(), Held()
    calls = Calls(trials)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trials.play, site, [task(0)])
        await calls.begin("old")
        assert await calls.end("old") == [("trial-0", None)]
        told_at = trials._told_at
        nursery.start_soon(trials.play, site, [task(1)])
        await calls.begin("new", heard=1)
        assert await calls.end("new") == [("trial-1", None)]
        assert trials._told_at >= told_at + _worker._GATHER_SECONDS
        site.ends.set()


async def test_calls_that_bring_trials_do_not_hold_up_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast they come: the moment is that since the last news, not since the last call."""
    monkeypatch.setattr(_worker, "_GATHER_SECONDS", 1000.0)
    trials, site = _Trials(), Held()
    trials._told_at = time.monotonic() - 1000
    calls = Calls(trials)
    async with trio.open_nursery() as nursery:
        await calls.begin("old")
        await calls.begin("new")
        assert await calls.end("old") == []
        nursery.start_soon(trials.play, site, [task(0)])
        assert await calls.end("new") == [("trial-0", None)]
        site.ends.set()


async def test_trials_that_come_after_the_end_of_all_are_not_begun() -> None:
    """They were on their way when the run was stopped, and Ray may have called the end first."""
    trials, site = _Trials(), Held()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trials.play, site, [task(0)])
        await trio.testing.wait_all_tasks_blocked()
        await trials.end(site, hard=True)
        await trials.play(site, [task(1)])
    assert site.attempts == ["trial-0"]
    _, told = await trio.to_thread.run_sync(trials.news, 0)
    verdicts = {trial_id: what.verdict for trial_id, what in told if isinstance(what, Attempt)}
    assert verdicts == {"trial-0": Verdict.DONE, "trial-1": Verdict.NOT_STARTED}


async def test_a_call_that_nobody_hears_any_more_takes_no_news() -> None:
    """It waits on in its thread when the connection has broken, and another call has come."""
    trials, site = _Trials(), Held()
    site.ends.set()
    calls = Calls(trials)
    await calls.begin("old")
    await calls.begin("new")
    assert await calls.end("old") == []
    await trials.play(site, [task(0)])
    assert (await calls.end("new"))[0] == ("trial-0", None)


async def test_news_are_kept_until_they_have_been_heard() -> None:
    """The reply of a call may be lost, too."""
    trials, site = _Trials(), Held()
    site.ends.set()
    await trials.play(site, [task(0)])
    first, told = await trio.to_thread.run_sync(trials.news, 0)
    assert (first, len(told)) == (0, 2)
    assert await trio.to_thread.run_sync(trials.news, 0) == (0, told)
    await trials.play(site, [task(1)])
    first, told = await trio.to_thread.run_sync(trials.news, 2)
    assert (first, [trial_id for trial_id, _ in told]) == (2, ["trial-1"] * 2)


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
    """A worker, whose calls are noted, and return when they are let.

    Attributes:
        calls: what was called: the method, and the ids of the trials or the arguments.
        replies: what each call of `exchange` returns, by its number, when it is there: the number of the first of the
            news, and the news; None: the worker is gone.
    """

    def __init__(self) -> None:
        super().__init__("one", None)
        self.calls: list[tuple[str, Any]] = []
        self.heard: list[int] = []
        self.replies: list[trio.MemorySendChannel[Any]] = []
        self._up.set()

    async def _call(self, method: str, *args: Any) -> Any:
        if method != "exchange":
            self.calls.append((method, args))
            return None
        heard, pickled = args
        self.heard.append(heard)
        self.calls.append((method, [task.trial_id for task in pickle.loads(pickled)]))
        reply, replied = trio.open_memory_channel[Any](1)
        self.replies.append(reply)
        said = await replied.receive()
        if said is None:
            raise UnavailableError("gone")
        return pickle.dumps(said)

    def reply(self, number: int, *said: Any) -> None:
        self.replies[number].send_nowait(said or None)


class Talk:
    """Trials that are given to a worker, in virtual time.

    Attributes:
        site: the worker.
        ends: how the trials have ended.
    """

    def __init__(self, nursery: trio.Nursery, clock: MockClock) -> None:
        self.site, self.ends = Called(), list[Attempt]()
        self._nursery, self._clock = nursery, clock
        for _ in range(2):
            nursery.start_soon(self.site.talk)

    async def attempt(self, *indices: int) -> None:
        """Begin attempts, and let the calls come that they need."""

        async def attempt(index: int) -> None:
            async def started() -> None:
                pass

            self.ends.append(await self.site.attempt(task(index), started))

        for index in indices:
            self._nursery.start_soon(attempt, index)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(2):
            await trio.testing.wait_all_tasks_blocked()
            self._clock.jump(2 * _workers._GATHER_SECONDS)
        await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
async def talk(mock_clock: MockClock, nursery: trio.Nursery) -> Talk:
    """Return a worker that has been called once, with no trials."""
    talk = Talk(nursery, mock_clock)
    await talk.settle()
    assert talk.site.calls == [("exchange", [])]
    return talk


def done(index: int) -> tuple[str, Attempt]:
    return f"trial-{index}", Attempt.failed(task(index), "one", "it is short", Verdict.DONE)


async def test_trials_that_start_together_go_in_one_call(mock_clock: MockClock, talk: Talk) -> None:
    """With the next trials comes the call for the next news, so that each round costs one call."""
    await talk.attempt(0, 1)
    assert [sorted(ids) for _, ids in talk.site.calls[1:]] == [["trial-0", "trial-1"]]
    talk.site.reply(0, 0, [])  # another call has come
    await talk.settle()
    talk.site.reply(1, 0, [("trial-0", None), ("trial-1", None), done(0), done(1)])
    await talk.attempt(2, 3)
    assert [sorted(ids) for _, ids in talk.site.calls[2:]] == [["trial-2", "trial-3"]]
    assert talk.site.heard == [0, 0, 4]
    assert sorted(end.result.index for end in talk.ends) == [0, 1]


async def test_there_are_no_more_than_two_calls_for_trials(mock_clock: MockClock, talk: Talk) -> None:
    await talk.attempt(0)
    await talk.attempt(1)
    await talk.attempt(2)
    assert talk.site.calls == [("exchange", []), ("exchange", ["trial-0"])]
    talk.site.reply(0, 0, [])
    await talk.settle()
    assert [sorted(ids) for _, ids in talk.site.calls[2:]] == [["trial-1", "trial-2"]]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_news_that_two_calls_tell_count_once(mock_clock: MockClock, talk: Talk, order: tuple[int, int]) -> None:
    """Of the news that the first call takes along the second one does not know, when it is sent."""
    await talk.attempt(0, 1)
    replies = [[("trial-0", None)], [("trial-0", None), ("trial-1", None), done(0)]]
    for number in order:
        talk.site.reply(number, 0, replies[number])
        await talk.settle()
    assert [end.result.index for end in talk.ends] == [0]
    talk.site.reply(2, 3, [done(1)])
    await talk.settle()
    assert talk.site.heard[2] == 3
    assert [end.result.index for end in talk.ends] == [0, 1]


async def test_a_worker_that_is_gone_is_told_once(mock_clock: MockClock, talk: Talk) -> None:
    """What the other call says of it, later, does not concern the process that has come since; nor what it heard."""
    await talk.attempt(0)
    talk.site.reply(1)
    await talk.settle()
    assert [end.verdict for end in talk.ends] == [Verdict.IN_DOUBT]
    assert not talk.site._up.is_set()
    talk.site._up.set()  # it has been asked, and has answered
    await talk.attempt(1)
    talk.site.reply(0, 0, [("trial-0", None), ("trial-9", None)])
    await talk.settle()
    assert talk.site._up.is_set()
    assert talk.site.calls[2:] == [("exchange", ["trial-1"])]
    talk.site.reply(2, 0, [("trial-1", None), done(1)])
    await talk.settle()
    assert [end.verdict for end in talk.ends] == [Verdict.IN_DOUBT, Verdict.DONE]


async def test_a_worker_that_does_not_end_a_trial_is_lost_with_all(
    talk: Talk, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[bool] = []
    monkeypatch.setattr("ray.kill", lambda handle, no_restart: killed.append(no_restart))
    await talk.attempt(0)
    mock_clock.jump(5)
    await talk.attempt(1)
    talk.site.reply(0, 0, [("trial-0", None)])
    await talk.settle()
    mock_clock.jump(task(0).timeout_seconds + _workers._HUNG_SECONDS - 5)
    await talk.settle()
    assert sorted((end.result.index, end.verdict.name) for end in talk.ends) == [(0, "SITE_LOST"), (1, "IN_DOUBT")]
    assert killed == [False]


async def test_trials_that_wait_are_not_given_after_the_end_of_all(mock_clock: MockClock, talk: Talk) -> None:
    await talk.attempt(0)
    await talk.attempt(1)
    await talk.site.end_trials(hard=True)
    await talk.settle()
    assert talk.site.calls[1:] == [("exchange", ["trial-0"]), ("end_trials", (True,))]
    assert [(end.result.trial_id, end.verdict) for end in talk.ends] == [("trial-1", Verdict.NOT_STARTED)]


async def test_trials_that_were_lost_are_not_given(mock_clock: MockClock, talk: Talk) -> None:
    await talk.attempt(0)
    await talk.attempt(1)
    for number in range(2):
        talk.site.reply(number)
    await talk.settle()
    talk.site._up.set()
    await talk.settle()
    assert talk.site.calls[1:] == [("exchange", ["trial-0"]), ("exchange", [])]
    assert [end.verdict for end in talk.ends] == [Verdict.IN_DOUBT] * 2


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
