"""The service: submitting, cancelling, listing, watching, registering."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.access.keys import KEYS, NOW, control, grant, token_text
from tests.trainer.bench import STATUS, Client, FakeDispatcher, fails, serving, steps
from tests.trainer.configs import a_config
from trio_cogment.access import NEVER, Revoked, Role, Rules, Source
from trio_cogment.api.trainer.trainer_pb2 import (
    CancelRunRequest,
    HealthCheckRequest,
    HeartbeatRequest,
    ListRunsRequest,
    RegisterWorkerRequest,
    RunRecord,
    RunStatus,
    SubmitRunRequest,
)
from trio_cogment.base.errors import ResourceExhaustedError, RpcError, StatusCode
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.rpc import ClientCall, InProcessChannel
from trio_cogment.rpc.relay import OnBehalf
from trio_cogment.trainer.runs import Cause
from trio_cogment.trainer.storage import Kind, MemoryDatabase, Row

WORKER: dict[str, Any] = {"metadata": {"worker": {"module": "m", "config": {"run_id": "mine"}}}}


async def next_of(call: ClientCall) -> Any:
    with trio.fail_after(5):
        return await call.receive()


async def statuses(call: ClientCall, count: int) -> list[tuple[str, int]]:
    return [(STATUS[record.status], record.seq_id) for record in [await next_of(call) for _ in range(count)]]


# SubmitRun


async def test_submit_gives_the_run_an_id_and_a_digest() -> None:
    async with serving() as (client, _):
        reply = await client.ask("SubmitRun", SubmitRunRequest(config_json=a_config(entry_point="external")))
        assert len(reply.run_id) == 26
        assert len(reply.digest) == 64
        (record,) = await client.runs()
        assert (record.run_id, record.digest, STATUS[record.status]) == (reply.run_id, reply.digest, "INIT")
        assert record.created_at == record.updated_at
        assert not record.HasField("gpu_slot")
        assert not record.HasField("failure_reason")
        assert not record.HasField("last_heartbeat")


async def test_submit_refuses_a_bad_configuration_with_all_its_mistakes() -> None:
    async with (
        serving() as (client, _),
        fails(StatusCode.INVALID_ARGUMENT, "arguments: expected a list of te") as caught,
    ):
        await client.submit(arguments=3, run_name="")
    assert "run_name: expected a text" in caught.value.message


async def test_submit_honours_an_id_that_is_asked_for() -> None:
    async with serving() as (client, _):
        assert await client.submit("run-1") == "run-1"
        assert await client.submit(**WORKER) == "mine"


async def test_submit_refuses_an_id_that_contradicts_the_configuration() -> None:
    async with serving() as (client, _), fails(StatusCode.INVALID_ARGUMENT, "run_id: expected 'mine'"):
        await client.submit("other", **WORKER)


async def test_submit_refuses_an_id_that_is_none() -> None:
    async with serving() as (client, _), fails(StatusCode.INVALID_ARGUMENT, "run_id: expected 1 to 64 letters"):
        await client.submit("../x")


async def test_submit_of_the_same_again_returns_the_run_that_goes_on() -> None:
    async with serving() as (client, _):
        run_id = await client.submit()
        assert await client.submit() == run_id
        assert await client.submit(run_name="other") != run_id
        assert await client.submit("named") == "named"


async def test_submit_of_the_same_after_its_end_makes_a_new_run() -> None:
    async with serving() as (client, _):
        run_id = await client.submit()
        await client.cancel(run_id)
        assert await client.submit() != run_id


async def test_submit_repeated_with_its_id_is_the_same_run_and_no_other_may_have_it() -> None:
    async with serving() as (client, _):
        await client.submit("r")
        assert await client.submit("r") == "r"
        async with fails(StatusCode.ALREADY_EXISTS, "there is another run 'r'"):
            await client.submit("r", run_name="other")


@pytest.mark.parametrize(("run_id", "asked"), [("r", {}), ("mine", WORKER)])
async def test_submit_with_the_id_of_a_run_that_has_ended(run_id: str, asked: dict[str, Any]) -> None:
    async with serving() as (client, _):
        named = "" if asked else run_id
        await client.submit(named, **asked)
        await client.cancel(run_id)
        async with fails(StatusCode.ALREADY_EXISTS, f"run {run_id!r} has ended (canceled: user_cancel); expected a"):
            await client.submit(named, **asked)


async def test_submit_after_a_refusal_says_that_the_run_has_ended() -> None:
    """There may be room by now: the old refusal would not be true."""
    dispatcher = FakeDispatcher()
    dispatcher.refuses = ResourceExhaustedError("no room")
    async with serving(dispatcher=dispatcher) as (client, _):
        async with fails(StatusCode.RESOURCE_EXHAUSTED, "no room"):
            await client.submit("r", entry_point="python")
        async with fails(StatusCode.ALREADY_EXISTS, "run 'r' has ended (failed: dispatch_error: no room)"):
            await client.submit("r", entry_point="python")


async def test_submit_needs_a_dispatcher_for_what_is_not_external() -> None:
    async with serving() as (client, _), fails(StatusCode.FAILED_PRECONDITION, "starts no workers"):
        await client.submit(entry_point="python")


async def test_submit_starts_what_is_not_external() -> None:
    dispatcher = FakeDispatcher()
    async with serving(dispatcher=dispatcher) as (client, trainer):
        run_id = await client.submit(entry_point="python")
        await client.submit()
        assert dispatcher.started == [run_id]
        await trainer.reports.starting(run_id, [2, 3])
        record = await client.record(run_id)
        assert (STATUS[record.status], record.gpu_slot, list(record.gpu_slots)) == ("HSHK", 2, [2, 3])


async def test_submit_of_what_there_is_no_room_for() -> None:
    dispatcher = FakeDispatcher()
    dispatcher.refuses = ResourceExhaustedError("no GPU is free")
    async with serving(dispatcher=dispatcher) as (client, _):
        async with fails(StatusCode.RESOURCE_EXHAUSTED, "no GPU is free"):
            await client.submit("r", entry_point="python")
        record = await client.record("r")
        assert (STATUS[record.status], record.failure_reason) == ("TERM", "dispatch_error: no GPU is free")


# CancelRun


async def test_cancel_of_an_unknown_run() -> None:
    async with serving() as (client, _), fails(StatusCode.NOT_FOUND, "there is no run 'x'"):
        await client.cancel("x")


async def test_cancel_ends_the_run_and_stops_its_worker() -> None:
    dispatcher = FakeDispatcher()
    async with serving(dispatcher=dispatcher) as (client, trainer):
        await client.submit("r", entry_point="python")
        await trainer.reports.starting("r")
        await client.cancel("r")
        assert dispatcher.stopped == ["r"]
        await trainer.reports.ended("r", Cause.FAILED, "exit_code_143")
        record = await client.record("r")
        assert (STATUS[record.status], record.failure_reason) == ("TERM", "user_cancel")
        await client.cancel("r")


async def test_cancel_waits_for_the_worker_but_not_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    dispatcher = FakeDispatcher()
    async with serving(dispatcher=dispatcher, cancel_seconds=7) as (client, _):
        for run_id, takes, waits in (("a", 3, 3), ("b", 30, 7)):
            dispatcher.stop_seconds = takes
            await client.submit(run_id, entry_point="python")
            began = trio.current_time()
            await client.cancel(run_id)
            assert trio.current_time() - began == pytest.approx(waits, abs=0.1)


# ListRuns and GetHealth


async def test_list_filters_by_status_and_has_no_numbers() -> None:
    async with serving() as (client, _):
        await client.submit("a", run_name="a")
        await client.submit("b", run_name="b")
        await client.register("b")
        assert [(record.run_id, record.seq_id) for record in await client.runs()] == [("a", 0), ("b", 0)]
        assert [record.run_id for record in await client.runs(RunStatus.RUN_STATUS_RDY)] == ["b"]
        assert await client.runs(RunStatus.RUN_STATUS_TERM) == []


async def test_list_of_named_runs_has_the_detail_of_failures() -> None:
    async with serving(dispatcher=FakeDispatcher()) as (client, trainer):
        for run_id in "abc":
            await client.submit(run_id, entry_point="python", run_name=run_id)
        await trainer.reports.starting("a")
        await trainer.reports.ended("a", Cause.FAILED, "exit_code_1", "no data")
        everything = {record.run_id: (record.outcome, record.detail) for record in await client.runs()}
        assert everything == {"a": ("failed", ""), "b": ("", ""), "c": ("", "")}
        reply = await client.ask("ListRuns", ListRunsRequest(run_ids=["a", "c", "nobody"]))
        assert [(record.run_id, record.detail) for record in reply.runs] == [("a", "no data"), ("c", "")]


@pytest.mark.parametrize("status", [0, 8])
async def test_list_refuses_a_status_that_does_not_exist(status: int) -> None:
    async with serving() as (client, _), fails(StatusCode.INVALID_ARGUMENT, f"from 1 to 7, got {status}"):
        await client.ask("ListRuns", ListRunsRequest.FromString(bytes([8, status])))


async def test_health() -> None:
    async with serving() as (client, trainer):
        health = await client.ask("GetHealth", HealthCheckRequest())
        assert (health.pid, health.listen_address, health.healthy) == (os.getpid(), "127.0.0.1:50055", True)
        assert health.started_at.ToNanoseconds() == trainer.started_ns
        trainer.stop()
        assert not (await client.ask("GetHealth", HealthCheckRequest())).healthy


# WatchRuns


async def test_watch_begins_with_the_runs_as_they_are() -> None:
    async with serving() as (client, _):
        await client.submit("a")
        async with client.watch() as call:
            assert await statuses(call, 1) == [("INIT", 0)]
            await client.register("a")
            assert await statuses(call, 1) == [("RDY", 2)]
            await client.publish(steps("a", 1))
            assert await statuses(call, 1) == [("EXEC", 3)]


async def test_watch_goes_on_behind_what_is_known() -> None:
    async with serving() as (client, _):
        await client.submit("a")
        await client.register("a")
        await client.cancel("a")
        for since in (1, 2, 3):
            async with client.watch(since) as call:
                expected = [("RDY", 2), ("TERM", 3)][since - 1 :]
                assert await statuses(call, len(expected)) == expected
                await client.submit(f"b{since}", run_name=f"b{since}")
                ((status, _),) = await statuses(call, 1) if since == 3 else [("INIT", 0)]
                assert status == "INIT"


async def test_watch_from_what_is_forgotten_or_never_was_begins_anew() -> None:
    async with serving(kept_events=1) as (client, _):
        for number in range(1100):
            await client.submit(f"r{number}", run_name=str(number))
        for since in (5, 10**9):
            async with client.watch(since) as call:
                records = [await next_of(call) for _ in range(1100)]
                assert {record.seq_id for record in records} == {0}
                assert len({record.run_id for record in records}) == 1100


async def test_watch_filters_by_the_new_status() -> None:
    async with serving() as (client, _):
        await client.submit("a")
        async with client.watch(0, RunStatus.RUN_STATUS_TERM) as call:
            await client.register("a")
            await client.cancel("a")
            assert await statuses(call, 1) == [("TERM", 3)]


async def test_watchers_end_when_the_trainer_stops() -> None:
    async with serving() as (client, trainer):
        async with client.watch() as call:
            await call.wait_initial_metadata()
            trainer.stop()
            async with fails(StatusCode.UNAVAILABLE, "stopping"):
                await next_of(call)
        async with fails(StatusCode.UNAVAILABLE, "stopping"):
            await client.submit()


# Heartbeat


async def test_heartbeat_of_an_unknown_run() -> None:
    async with serving() as (client, _), fails(StatusCode.NOT_FOUND, "there is no run 'x'"):
        await client.ask("Heartbeat", HeartbeatRequest(run_id="x"))


async def test_heartbeat_is_shown_but_not_broadcast(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as (client, _):
        await client.submit("a")
        await client.register("a")
        async with client.watch(2) as call:
            for _ in range(20):
                await trio.sleep(1)
                await client.ask("Heartbeat", HeartbeatRequest(run_id="a"))
            assert (await client.record("a")).last_heartbeat.ToNanoseconds() > 0
            await client.cancel("a")
            assert await statuses(call, 1) == [("TERM", 3)]


async def test_a_run_that_is_not_heard_of_has_failed(autojump_clock: trio.testing.MockClock) -> None:
    async with serving(heartbeat_timeout_seconds=30) as (client, _):
        await client.submit("a")
        await trio.sleep(100)
        await client.register("a")
        for _ in range(3):
            await trio.sleep(29)
            await client.ask("Heartbeat", HeartbeatRequest(run_id="a"))
        await trio.sleep(29)
        await client.publish(steps("a", 1))
        await trio.sleep(29)
        assert await client.status("a") == "EXEC"
        await trio.sleep(2)
        record = await client.record("a")
        assert (STATUS[record.status], record.failure_reason) == ("TERM", "worker_timeout")


async def test_a_worker_that_does_not_register_has_failed(autojump_clock: trio.testing.MockClock) -> None:
    dispatcher = FakeDispatcher()
    async with serving(dispatcher=dispatcher, registration_timeout_seconds=30) as (client, trainer):
        await client.submit("a", entry_point="python")
        await trainer.reports.starting("a")
        async with client.watch(2) as call:
            await trio.sleep(31)
            assert await statuses(call, 2) == [("FAULT", 3), ("TERM", 4)]
        assert (await client.record("a")).failure_reason == "registration_timeout"
        assert set(dispatcher.stopped) == {"a"}


# RegisterWorker


async def test_register_makes_a_run_ready() -> None:
    async with serving() as (client, _):
        await client.submit("a")
        reply = await client.ask("RegisterWorker", RegisterWorkerRequest(run_id="a", worker_id="w"))
        assert reply.accepted_version == "MOSAIC/1.0"
        assert len(reply.session_token) == 32
        assert await client.status("a") == "RDY"


@pytest.mark.parametrize(
    ("run_id", "version", "code"),
    [
        ("", "", StatusCode.INVALID_ARGUMENT),
        ("x", "", StatusCode.NOT_FOUND),
        ("ended", "", StatusCode.FAILED_PRECONDITION),
        ("waits", "", StatusCode.FAILED_PRECONDITION),
        ("a", "MOSAIC/2.0", StatusCode.FAILED_PRECONDITION),
        ("a", "1.0", StatusCode.FAILED_PRECONDITION),
    ],
)
async def test_register_refuses(run_id: str, version: str, code: StatusCode) -> None:
    async with serving(dispatcher=FakeDispatcher()) as (client, _):
        await client.submit("a")
        await client.submit("ended")
        await client.cancel("ended")
        await client.submit("waits", entry_point="python")
        async with fails(code):
            await client.ask("RegisterWorker", RegisterWorkerRequest(run_id=run_id, proto_version=version))
        assert await client.status("a") == "INIT"


@pytest.mark.parametrize("version", ["MOSAIC/1.0", "MOSAIC/1.7", ""])
async def test_register_takes_every_version_1(version: str) -> None:
    async with serving() as (client, _):
        await client.submit("a")
        reply = await client.ask("RegisterWorker", RegisterWorkerRequest(run_id="a", proto_version=version))
        assert reply.accepted_version == "MOSAIC/1.0"


async def test_register_again_replaces_the_token() -> None:
    async with serving() as (client, _):
        await client.submit("a")
        first = await client.register("a")
        second, other = await client.register("a"), await client.register("a", "other")
        assert len({first, second, other}) == 3
        await client.publish(steps("a", 1), token=second)
        await client.publish(steps("a", 1, worker_id="other"), token=other)
        async with fails(StatusCode.UNAUTHENTICATED, "session-token"):
            await client.publish(steps("a", 1), token=first)


async def test_register_has_a_limit() -> None:
    async with serving(max_workers=2) as (client, _):
        await client.submit("a")
        await client.register("a", "1")
        await client.register("a", "2")
        await client.register("a", "2")
        async with fails(StatusCode.RESOURCE_EXHAUSTED, "has 2 workers"):
            await client.register("a", "3")


# Schedules


async def test_a_run_ends_after_its_steps() -> None:
    async with serving() as (client, _):
        await client.submit("a", schedule={"max_steps": 3})
        await client.register("a")
        async with fails(StatusCode.FAILED_PRECONDITION, "accepted=3 last_seq=0"):
            await client.publish(steps("a", 5))
        assert await client.all_of("a") == [1, 2, 3]
        record = await client.record("a")
        assert (STATUS[record.status], record.failure_reason) == ("TERM", "schedule limit")


async def test_a_run_ends_after_its_time(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as (client, _):
        await client.submit("a", schedule={"max_duration_seconds": 60})
        await trio.sleep(100)
        await client.register("a")
        await trio.sleep(59)
        assert await client.status("a") == "RDY"
        await trio.sleep(2)
        assert await client.status("a") == "TERM"


# Restarts


async def a_run_in(state: str, client: Client, trainer: Any) -> None:
    await client.submit(state, entry_point="python")
    if state != "INIT":
        await trainer.reports.starting(state, [1])
    if state not in ("INIT", "HSHK"):
        await client.register(state)
    if state in ("EXEC", "PAUSE"):
        await client.publish(steps(state, 2))
    if state == "PAUSE":
        await client.command(state, pause=True)
    if state == "TERM":
        await client.cancel(state)


async def test_what_a_restart_makes_of_runs(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path / 'runs.db'}"
    states = ("INIT", "HSHK", "RDY", "EXEC", "PAUSE", "TERM")
    async with serving(storage, FakeDispatcher()) as (client, trainer):
        for state in states:
            await a_run_in(state, client, trainer)
        assert [await client.status(state) for state in states] == list(states)
    dispatcher = FakeDispatcher()
    async with serving(storage, dispatcher) as (client, _):
        async with client.watch(1) as call:
            while {"EXEC", "PAUSE"} - {r.run_id for r in await client.runs(RunStatus.RUN_STATUS_TERM)}:
                await next_of(call)
        found = {record.run_id: record for record in await client.runs()}
        assert {run_id: STATUS[record.status] for run_id, record in found.items()} == {
            "INIT": "INIT",
            "HSHK": "INIT",
            "RDY": "INIT",
            "EXEC": "TERM",
            "PAUSE": "TERM",
            "TERM": "TERM",
        }
        assert found["EXEC"].failure_reason == found["PAUSE"].failure_reason == "daemon restarted"
        assert found["TERM"].failure_reason == "user_cancel"
        assert sorted(dispatcher.started) == ["HSHK", "INIT", "RDY"]
        assert sorted(dispatcher.recovered) == ["EXEC", "HSHK", "INIT", "PAUSE", "RDY"]
        assert {"EXEC", "PAUSE"} <= set(dispatcher.stopped)
        assert await client.all_of("EXEC") == [1, 2]


async def test_a_run_that_had_failed_is_cleaned_up_after_a_restart(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    storage = f"sqlite:{tmp_path / 'runs.db'}"
    dispatcher = FakeDispatcher()
    async with serving(storage, dispatcher) as (client, trainer):
        await client.submit("a", entry_point="python")
        await trainer.reports.starting("a")
        dispatcher.stop_seconds = math.inf
        await trainer.reports.ended("a", Cause.FAILED, "exit_code_1", "no data")
        assert await client.status("a") == "FAULT"
    dispatcher = FakeDispatcher()
    async with serving(storage, dispatcher) as (client, _):
        await trio.sleep(1)
        record = (await client.ask("ListRuns", ListRunsRequest(run_ids=["a"]))).runs[0]
        assert (STATUS[record.status], record.failure_reason, record.detail) == (
            "TERM",
            "exit_code_1",
            "no data",
        )
        assert (dispatcher.started, set(dispatcher.stopped)) == ([], {"a"})


async def test_what_is_started_again_is_marked_and_what_runs_is_ended_at_the_end(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path / 'runs.db'}"
    for again in (False, True):
        dispatcher = FakeDispatcher()
        async with serving(storage, dispatcher) as (client, _):
            await client.submit("a", entry_point="python")
            with trio.fail_after(5):
                while not dispatcher.orders:
                    await trio.lowlevel.checkpoint()
            assert [(order.run_id, order.again) for order in dispatcher.orders] == [("a", again)]
            assert not dispatcher.closed
        assert dispatcher.closed


async def test_a_worker_that_need_not_register_has_all_the_time(autojump_clock: trio.testing.MockClock) -> None:
    async with serving(dispatcher=FakeDispatcher(), registration_timeout_seconds=30) as (client, trainer):
        await client.submit("a", entry_point="python")
        await trainer.reports.starting("a", registers=False)
        await trio.sleep(1000)
        assert await client.status("a") == "HSHK"


async def test_an_external_run_goes_on_after_a_restart(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path / 'runs.db'}"
    async with serving(storage) as (client, _):
        await client.submit("a")
        await client.register("a")
        await client.publish(steps("a", 3, numbered=True))
        last: list[RunRecord] = await client.runs()
    async with serving(storage) as (client, _):
        assert [record.status for record in await client.runs()] == [record.status for record in last]
        async with fails(StatusCode.FAILED_PRECONDITION, "no worker has registered"):
            await client.publish(steps("a", 1))
        await client.register("a")
        reply = await client.publish(steps("a", 5, numbered=True))
        assert (reply.accepted, reply.dropped) == (2, 3)
        async with client.watch(3) as call:
            await client.cancel("a")
            assert await statuses(call, 1) == [("TERM", 4)]
        assert await client.all_of("a", 2) == [3, 4, 5]


async def test_the_name_of_a_run_is_shown_and_stored(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    names = {"a": "one\0 'two' é", "b": "b"}
    async with serving(f"sqlite:{path}") as (client, _):
        for run_id, name in names.items():
            await client.submit(run_id, run_name=name)
        await client.cancel("b")
        async with client.watch() as call:
            assert [(await next_of(call)).run_name for _ in names] == list(names.values())
    async with serving(f"sqlite:{path}") as (client, _):
        assert {record.run_id: record.run_name for record in await client.runs()} == names


async def test_runs_of_a_file_from_before_names_were_stored(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with serving(f"sqlite:{path}") as (client, _):
        for run_id in "ab":
            await client.submit(run_id, run_name=f"{run_id} é")
    with closing(sqlite3.connect(path)) as connection, connection:
        for column in ("run_name", "owner", "sources"):
            connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        connection.execute("DELETE FROM configs WHERE number = 2")
        connection.execute("UPDATE runs SET state = 7, outcome = 'canceled' WHERE number = 2")
        connection.execute("PRAGMA user_version = 3")
    async with serving(f"sqlite:{path}") as (client, _):
        assert [record.run_name for record in await client.runs()] == ["a é", ""]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_ended_runs_are_forgotten_after_a_while(
    kind: str, tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_cogment.trainer._sqlite._FORGOTTEN_AT_ONCE", 2)
    storage = "memory:" if kind == "memory" else f"sqlite:{tmp_path / 'runs.db'}"
    host = Host(runner=inline_runner, wall_clock=lambda: 10**18 + round(trio.current_time() * 1e9))
    dispatcher = FakeDispatcher()
    settings: dict[str, Any] = {"retention_seconds": 100, "heartbeat_timeout_seconds": 0}
    async with serving(storage, dispatcher, host, **settings) as (client, trainer):
        for run_id in ("old", "new", "active"):
            await client.submit(run_id, run_name=run_id)
            await client.register(run_id)
            await client.publish(steps(run_id, 5, numbered=True))
        await client.cancel("old")
        await trio.sleep(60)
        await client.cancel("new")
        await trio.sleep(50)
        assert [record.run_id for record in await client.runs()] == ["new", "active"]
        assert dispatcher.forgotten == ["old"]
        assert [stored.run.run_id for stored in trainer._database.runs()] == ["new", "active"]
        async with fails(StatusCode.NOT_FOUND, "there is no run 'old'"):
            await client.all_of("old")
        assert await client.submit("old", run_name="old") == "old"
        await trio.sleep(1000)
        assert [record.run_id for record in await client.runs()] == ["active", "old"]


async def test_a_stream_of_a_run_that_is_forgotten_meanwhile_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would have read next may be gone already."""
    async with serving(recent_rows=1, page_rows=2) as (client, trainer):
        await client.submit("a")
        await client.register("a")
        await client.publish(steps("a", 9))
        await client.cancel("a")
        read, pages = MemoryDatabase.rows, list[int]()

        def rows(self: MemoryDatabase, kind: Kind, number: int, **options: Any) -> list[Row]:
            pages.append(options["after"])
            if len(pages) == 2:
                trainer.board.forget(trainer.board.entry("a"))
                self.forget_run(number)
            return read(self, kind, number, **options)

        monkeypatch.setattr(MemoryDatabase, "rows", rows)
        async with client.stream("a") as call:
            seen = [(await next_of(call)).seq_id for _ in range(2)]
            async with fails(StatusCode.NOT_FOUND, "run a was forgotten"):
                await next_of(call)
        assert (seen, pages) == ([1, 2], [0, 2])


async def test_a_vanished_client_has_submitted_and_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    dispatcher = FakeDispatcher()
    dispatcher.stop_seconds = 5
    async with serving(dispatcher=dispatcher) as (client, _):
        await client.submit("a", entry_point="python")
        with trio.move_on_after(1):
            await client.ask("CancelRun", CancelRunRequest(run_id="a"))
        assert dispatcher.stopped == []
        await trio.sleep(5)
        assert dispatcher.stopped == ["a"]
        assert await client.status("a") == "TERM"


async def test_how_a_run_has_ended_is_stored(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path / 'runs.db'}"
    async with serving(storage, FakeDispatcher()) as (client, trainer):
        for run_id, cause in (("good", Cause.FINISHED), ("bad", Cause.FAILED)):
            await client.submit(run_id, run_name=run_id, entry_point="python")
            await trainer.reports.starting(run_id, [])
            await client.register(run_id)
            await trainer.reports.ended(run_id, cause, "" if run_id == "good" else "it fell")
        before = [(record.run_id, record.outcome, record.failure_reason) for record in await client.runs()]
    async with serving(storage, FakeDispatcher()) as (client, trainer):
        assert [(record.run_id, record.outcome, record.failure_reason) for record in await client.runs()] == before
        good, bad = (trainer.board.entry(run_id).latest for run_id in ("good", "bad"))
        assert good.outcome is not None
        assert bad.outcome is not None
        assert good.outcome is not bad.outcome


class _Leaving(FakeDispatcher):
    """Takes a while to close."""

    async def close(self) -> None:
        await trio.sleep(3)
        await super().close()


async def test_workers_are_ended_although_the_trainer_is_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    dispatcher = _Leaving()
    with trio.CancelScope() as scope:
        async with serving(dispatcher=dispatcher):
            scope.cancel()
    assert dispatcher.closed


# Tokens that were revoked


async def test_a_session_ends_with_the_token_that_has_registered(autojump_clock: trio.testing.MockClock) -> None:
    access = control()
    worker = access.verified(token_text(grant(Role.WORKER, name="runs")), local=False)
    other = access.verified(token_text(grant(Role.WORKER, name="other"), token_id="t2"), local=False)
    async with serving(access=access, heartbeat_timeout_seconds=0) as (client, trainer):
        await client.submit("a")
        channel = client.channel
        assert isinstance(channel, InProcessChannel)
        first, second = (Client(OnBehalf(channel, "ipv4:10.0.0.7:1", who)) for who in (worker, other))
        token = await first.register("a")
        # Whoever else may work for the run is not ended: it has registered by itself.
        kept = await second.register("a", worker_id="kept")
        async with second.control(token) as stream, second.control(kept) as going_on:
            await next_of(stream)
            access.adopt(Rules(keys=KEYS, revoked=Revoked.parse("t1")))
            with trio.fail_after(10):
                async for _ in stream:
                    pass
            async with fails(StatusCode.UNAUTHENTICATED, "not that of a worker"):
                await second.publish(steps("a", 1), token=token)
            assert not trainer.board.entry("a").workers["w"].token
            async with second.control(token) as again, fails(StatusCode.UNAUTHENTICATED):
                await next_of(again)
            assert (await second.publish(steps("a", 1, worker_id="kept"), token=kept)).accepted == 1
            assert trainer.board.entry("a").workers["kept"].stream is not None
            await going_on.done_sending()


async def test_a_worker_speaks_for_its_own_runs_only() -> None:
    access = control()
    worker = access.verified(token_text(grant(Role.WORKER, name="runs", trials=("=a",))), local=False)
    async with serving(access=access) as (client, _):
        for run_id in "ab":
            await client.submit(run_id)
            await client.register(run_id)
        channel = client.channel
        assert isinstance(channel, InProcessChannel)
        mine = Client(OnBehalf(channel, "ipv4:10.0.0.7:1", worker))
        await mine.ask("Heartbeat", HeartbeatRequest(run_id="a"))
        assert (await mine.publish(steps("a", 1))).accepted == 1
        refused: list[Callable[[], Awaitable[Any]]] = [
            lambda: mine.ask("Heartbeat", HeartbeatRequest(run_id="b")),
            lambda: mine.register("b"),
            lambda: mine.publish(steps("b", 1)),
        ]
        for attempt in refused:
            async with fails(StatusCode.PERMISSION_DENIED, "run 'b': not for this caller"):
                await attempt()


async def test_what_a_workers_token_is_derived_from_survives_the_trainer(tmp_path: Path) -> None:
    access = control()
    ann = access.verified(token_text(grant(Role.ADMIN), expires_at=NOW + 60), local=False)
    storage, dispatcher = f"sqlite:{tmp_path / 'runs.db'}", FakeDispatcher()
    async with serving(storage, dispatcher) as (client, _):
        channel = client.channel
        assert isinstance(channel, InProcessChannel)
        await Client(OnBehalf(channel, "ipv4:10.0.0.7:1", ann)).submit("a", entry_point="python")
        (order,) = dispatcher.orders
        # A run goes on when the time of the token is over by which it was submitted.
        assert order.sources == (Source("t1", "alice", ann.key_name, NEVER),)
    async with serving(storage, dispatcher) as (_, trainer):
        assert trainer.board.entry("a").latest.sources == order.sources


async def test_all_streams_end_when_the_trainer_stops() -> None:
    """A server that drains waits for them."""
    async with serving() as (client, trainer):
        run_id = await client.submit()
        async with client.watch() as first, client.watch() as second, client.stream(run_id) as third:
            for call in (first, second):
                assert (await next_of(call)).run_id == run_id
            trainer.stop()
            for call in (first, second, third):
                with trio.fail_after(5), suppress(RpcError):
                    while await call.receive() is not None:
                        pass
