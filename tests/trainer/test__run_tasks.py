"""Unexpected errors in a task of a run end that run, and no other."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.trainer.bench import Client, FakeDispatcher, fails, serving
from trio_cogment.base.errors import StatusCode
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.trainer import RunOrder, RunSink
from trio_cogment.trainer._board import Board
from trio_cogment.trainer._entries import Entry
from trio_cogment.trainer.storage import MemoryDatabase

WORKER: dict[str, Any] = {"entry_point": "python"}


class Faulty(FakeDispatcher):
    """Fails in one method for the run "bad"."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def plant(self, method: str, *run_ids: str) -> None:
        if method == self.method and "bad" in run_ids:
            raise RuntimeError("planted")

    async def start(self, order: RunOrder, sink: RunSink) -> None:
        await super().start(order, sink)
        self.plant("start", order.run_id)

    async def stop(self, run_id: str) -> None:
        await super().stop(run_id)
        self.plant("stop", run_id)

    async def recover(self, orders: Sequence[RunOrder]) -> None:
        await super().recover(orders)
        self.plant("recover", *(order.run_id for order in orders))

    async def forget(self, run_id: str) -> None:
        await super().forget(run_id)
        self.plant("forget", run_id)


async def check_others(client: Client, dispatcher: FakeDispatcher) -> None:
    """The run that was there goes on, and another one can be started."""
    assert await client.status("good") == "INIT"
    with trio.fail_after(5):
        await client.submit("next", run_name="next", **WORKER)
        await client.cancel("next")
    assert dispatcher.started[-1] == "next"
    assert "next" in dispatcher.stopped


async def test_a_start(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = Faulty("start")
    async with serving(dispatcher=dispatcher) as (client, _):
        await client.submit("good", run_name="good", **WORKER)
        with trio.fail_after(5):
            async with fails(StatusCode.UNAVAILABLE, "run bad could not be started: internal error; the server's log"):
                await client.submit("bad", **WORKER)
            while await client.status("bad") != "TERM":
                await trio.lowlevel.checkpoint()
        assert (await client.record("bad")).failure_reason == "internal error; the server's log has the details"
        # What had been started of it is ended.
        assert set(dispatcher.stopped) == {"bad"}
        await check_others(client, dispatcher)
    assert "RuntimeError: planted" in caplog.text


async def test_a_cleanup(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = Faulty("stop")
    async with serving(dispatcher=dispatcher) as (client, _):
        await client.submit("good", run_name="good", **WORKER)
        await client.submit("bad", **WORKER)
        with trio.fail_after(5):
            await client.cancel("bad")
        assert await client.status("bad") == "TERM"
        await check_others(client, dispatcher)
    assert "run bad: what is left of it could not be ended" in caplog.text
    assert "RuntimeError: planted" in caplog.text


async def test_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = f"sqlite:{tmp_path / 'runs.db'}"
    async with serving(storage, FakeDispatcher()) as (client, _):
        for run_id in ("good", "bad"):
            await client.submit(run_id, run_name=run_id, **WORKER)
    dispatcher = Faulty("recover")
    async with serving(storage, dispatcher) as (client, _):
        with trio.fail_after(5):
            while len(dispatcher.started) < 2:
                await trio.lowlevel.checkpoint()
        await check_others(client, dispatcher)
    assert "RuntimeError: planted" in caplog.text


@pytest.mark.parametrize("event", [{"pause": True}, {"max_rate_hz": 5}])
async def test_a_command(
    event: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stored = Board._stored

    async def planted(self: Board, entry: Entry, cause: str) -> bool:
        if entry.run_id == "bad" and cause in ("pause", "rate"):
            raise RuntimeError("planted")
        return await stored(self, entry, cause)

    monkeypatch.setattr(Board, "_stored", planted)
    dispatcher = FakeDispatcher()
    async with serving(dispatcher=dispatcher) as (client, _):
        await client.submit("good", run_name="good", **WORKER)
        await client.submit("bad")
        await client.register("bad")
        with trio.fail_after(5):
            await client.command("bad", **event)
            while await client.status("bad") != "TERM":
                await trio.lowlevel.checkpoint()
        await check_others(client, dispatcher)
    assert "RuntimeError: planted" in caplog.text


async def test_nothing_of_a_run_can_be_stored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even that it has failed."""
    stored = Board._stored

    async def planted(self: Board, entry: Entry, cause: str) -> bool:
        if entry.run_id == "bad":
            raise RuntimeError("planted")
        return await stored(self, entry, cause)

    monkeypatch.setattr(Board, "_stored", planted)
    dispatcher = Faulty("start")
    async with serving(dispatcher=dispatcher) as (client, _):
        await client.submit("good", run_name="good", **WORKER)
        with trio.fail_after(5):
            async with fails(StatusCode.UNAVAILABLE, "internal error"):
                await client.submit("bad", **WORKER)
        await check_others(client, dispatcher)
    assert "run bad: its end could not be noted" in caplog.text


@pytest.mark.parametrize("method", ["forget", "forget_run"])
async def test_an_old_run(
    method: str,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def planted(self: MemoryDatabase, number: int) -> bool:
        raise RuntimeError("planted")

    if method == "forget_run":
        monkeypatch.setattr(MemoryDatabase, method, planted)
    dispatcher = Faulty(method)
    host = Host(runner=inline_runner, wall_clock=lambda: 10**18 + round(trio.current_time() * 1e9))
    async with serving("memory:", dispatcher, host, retention_seconds=100) as (client, _):
        await client.submit("bad", **WORKER)
        await client.cancel("bad")
        await client.submit("good", run_name="good", **WORKER)
        await trio.sleep(200)
        assert [record.run_id for record in await client.runs()] == ["good"]
        await check_others(client, dispatcher)
    assert "run bad is forgotten, and what is left of it was not removed" in caplog.text
    assert "RuntimeError: planted" in caplog.text


async def test_old_changes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)

    def planted(self: MemoryDatabase, before: int) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(MemoryDatabase, "forget_events", planted)
    monkeypatch.setattr("trio_cogment.trainer._watching._FORGOTTEN_AT_ONCE", 1)
    dispatcher = FakeDispatcher()
    async with serving(dispatcher=dispatcher, kept_events=1) as (client, _):
        await client.submit("good", run_name="good", **WORKER)
        for number in range(5):
            await client.submit(run_name=f"run {number}")
        await check_others(client, dispatcher)
    assert "old changes of runs could not be removed" in caplog.text
