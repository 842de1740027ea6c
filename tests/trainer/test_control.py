"""Control streams: credits, pauses, rates; of workers and of controllers."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.trainer.bench import Client, FakeDispatcher, fails, serving, steps
from tests.trainer.configs import a_config
from trio_cogment.api.trainer.trainer_pb2 import ControlEvent, RunStatus
from trio_cogment.base.errors import ResourceExhaustedError, StatusCode
from trio_cogment.rpc import ClientCall
from trio_cogment.trainer.config_check import parse_config
from trio_cogment.trainer.storage import Batch, MemoryDatabase


async def ready(client: Client, run_id: str = "a", **options: Any) -> str:
    await client.submit(run_id, run_name=run_id)
    return await client.register(run_id, **options)


async def event_of(call: ClientCall) -> dict[str, Any]:
    with trio.fail_after(5):
        event = await call.receive()
    assert event is not None
    name = event.WhichOneof("event")
    return {name: getattr(event, name)}


# Who may


async def test_a_token_that_is_none() -> None:
    async with serving() as (client, _):
        await ready(client)
        for token in ("", "0" * 32):
            async with fails(StatusCode.UNAUTHENTICATED, "session-token"), client.control(token) as call:
                await call.receive()


async def test_a_token_of_a_run_that_has_ended() -> None:
    async with serving() as (client, _):
        token = await ready(client)
        await client.cancel("a")
        async with fails(StatusCode.UNAUTHENTICATED, "session-token"), client.control(token) as call:
            await call.receive()


async def test_controllers_can_be_asked_for_a_secret() -> None:
    async with serving(controller_secret="s3cret") as (client, _):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
        for metadata in ({}, {"controller-secret": "other"}):
            async with fails(StatusCode.UNAUTHENTICATED, "controller-secret"), client.control(**metadata) as call:
                await call.receive()
        async with client.control(**{"controller-secret": "s3cret"}) as call:
            await call.send(ControlEvent(run_id="a", max_rate_hz=5))
            assert await event_of(call) == {"max_rate_hz": 5}


@pytest.mark.parametrize(
    ("run_id", "code"), [("", StatusCode.INVALID_ARGUMENT), ("x", StatusCode.NOT_FOUND), ("b", StatusCode.NOT_FOUND)]
)
async def test_a_command_for_no_run(run_id: str, code: StatusCode) -> None:
    async with serving() as (client, _), fails(code):
        await client.command(run_id, pause=True)


@pytest.mark.parametrize("event", [{"pause": True}, {"resume": True}, {"max_rate_hz": 1}])
async def test_a_command_for_a_run_that_has_ended(event: dict[str, Any]) -> None:
    async with serving() as (client, _):
        await ready(client)
        await client.cancel("a")
        async with fails(StatusCode.FAILED_PRECONDITION):
            await client.command("a", **event)


async def test_a_pause_before_there_is_a_worker() -> None:
    async with serving() as (client, _):
        await client.submit("a")
        async with fails(StatusCode.FAILED_PRECONDITION, "no pause is possible in the state INIT"):
            await client.command("a", pause=True)


async def test_a_worker_speaks_of_its_own_run_only() -> None:
    async with serving() as (client, _):
        token = await ready(client)
        async with fails(StatusCode.INVALID_ARGUMENT, "run_id: expected 'a', got 'b'"), client.control(token) as call:
            await call.send(ControlEvent(run_id="b", pause=True))
            while await call.receive() is not None:
                pass


# Credits


async def test_the_first_grant_comes_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "trio_cogment.trainer")
    async with serving() as (client, _):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
            await client.publish(steps("a", 401), token=token)
            assert await event_of(call) == {"grant_steps": 401}
    grants = [record for record in caplog.records if "credits to worker" in record.getMessage()]
    assert [record.levelno for record in grants] == [logging.INFO, logging.DEBUG]


async def test_below_the_low_mark_there_is_a_grant_and_not_before() -> None:
    async with serving() as (client, trainer):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
            await client.publish(steps("a", 400), token=token)
            ledger = trainer.board.entry("a").workers["w"].ledger
            assert (ledger.granted, ledger.consumed) == (500, 400)
            await client.publish(steps("a", 1), token=token)
            assert await event_of(call) == {"grant_steps": 401}
            assert trainer.board.entry("a").figures.grants_sent == 2


async def test_without_credit_a_publisher_is_held_back_and_then_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(batch_rate_hz=0.001, credit_grace_seconds=2) as (client, trainer):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
            began = trio.current_time()
            async with fails(StatusCode.RESOURCE_EXHAUSTED, "has no credit left") as caught:
                await client.publish(steps("a", 501, numbered=True), token=token)
            assert trio.current_time() - began == pytest.approx(2.0, abs=0.2)
            assert dict(caught.value.trailing_metadata) == {"accepted": "500", "last-seq": "500"}
            assert trainer.board.entry("a").figures.drops_due_to_credit == 1


async def test_a_publisher_that_is_held_back_goes_on_with_the_next_grant(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(batch_rate_hz=100) as (client, _):
        token = await ready(client)
        async with client.control(token) as call, trio.open_nursery() as nursery:
            nursery.start_soon(drain, call)
            began = trio.current_time()
            assert (await client.publish(steps("a", 1000), token=token)).accepted == 1000
            assert trio.current_time() - began == pytest.approx(5.0, abs=1.1)
            nursery.cancel_scope.cancel()


async def drain(call: ClientCall) -> None:
    async for _ in call:
        pass


async def test_credits_are_not_enforced_in_advisory_mode() -> None:
    async with serving(credits_enforced=False, batch_rate_hz=0.001) as (client, trainer):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
            assert (await client.publish(steps("a", 700), token=token)).accepted == 700
        assert trainer.board.entry("a").workers["w"].ledger.consumed == 700


async def test_a_worker_without_a_control_stream_is_not_held_back() -> None:
    async with serving() as (client, _):
        await ready(client)
        assert (await client.publish(steps("a", 700))).accepted == 700


@pytest.mark.parametrize(("fail_open", "accepted"), [(True, 700), (False, 500)])
async def test_a_lost_control_stream(fail_open: bool, accepted: int, autojump_clock: trio.testing.MockClock) -> None:
    async with serving(credits_fail_open=fail_open) as (client, trainer):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
        if fail_open:
            await client.publish(steps("a", 700), token=token)
        else:
            async with fails(StatusCode.RESOURCE_EXHAUSTED, "accepted=500"):
                await client.publish(steps("a", 700), token=token)
        assert trainer.board.entry("a").workers["w"].ledger.consumed == accepted


async def test_a_reconnected_stream_keeps_the_ledger() -> None:
    async with serving() as (client, _):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
        await client.publish(steps("a", 50), token=token)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 50}
            async with client.control(token) as second:
                await second.wait_initial_metadata()
                await client.publish(steps("a", 401), token=token)
                assert await call.receive() is None
                assert await event_of(second) == {"grant_steps": 401}


async def test_a_worker_can_report_what_it_has_left() -> None:
    async with serving() as (client, trainer):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
            await call.send(ControlEvent(run_id="a", grant_steps=20))
            assert await event_of(call) == {"grant_steps": 480}
            assert trainer.board.entry("a").workers["w"].ledger.outstanding == 500


async def test_what_was_sent_before_uses_up_credits_all_the_same() -> None:
    async with serving() as (client, trainer):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
            await client.publish(steps("a", 250, numbered=True), token=token)
            assert (await client.publish(steps("a", 250, numbered=True), token=token)).dropped == 250
            ledger = trainer.board.entry("a").workers["w"].ledger
            assert (ledger.consumed, ledger.voided) == (250, 250)
            assert await event_of(call) == {"grant_steps": 401}


async def test_each_worker_has_its_own_ledger() -> None:
    async with serving() as (client, trainer):
        tokens = [await ready(client), await client.register("a", "other")]
        for token in tokens:
            async with client.control(token) as call:
                assert await event_of(call) == {"grant_steps": 500}
        figures = trainer.figures("a")
        assert (figures["credits_granted"], figures["grants_sent"], figures["current_outstanding"]) == (1000, 2, 1000)


# Pause, resume, rate


async def test_a_pause_is_relayed_and_changes_the_state() -> None:
    async with serving() as (client, _):
        token = await ready(client)
        async with client.control(token) as worker:
            assert await event_of(worker) == {"grant_steps": 500}
            await client.publish(steps("a", 1), token=token)
            assert [event.pause for event in await client.command("a", pause=True)] == [True]
            assert await event_of(worker) == {"pause": True}
            assert await client.status("a") == "PAUSE"
            assert [event.resume for event in await client.command("a", resume=True)] == [True]
            assert await event_of(worker) == {"resume": True}
            assert await client.status("a") == "EXEC"


async def test_a_run_that_never_published_is_ready_again() -> None:
    async with serving() as (client, _):
        await ready(client)
        await client.command("a", pause=True)
        await client.command("a", resume=True)
        assert await client.status("a") == "RDY"


async def test_a_worker_that_can_pause_has_time_to_do_so(autojump_clock: trio.testing.MockClock) -> None:
    async with serving(pause_ack_seconds=2) as (client, _), trio.open_nursery() as nursery:
        token = await ready(client, supports_pause=True)
        async with client.control(token) as worker:
            assert await event_of(worker) == {"grant_steps": 500}
            nursery.start_soon(lambda: client.command("a", pause=True))
            assert await event_of(worker) == {"pause": True}
            await trio.sleep(1)
            assert (await client.publish(steps("a", 5), token=token)).accepted == 5
            assert await client.status("a") == "EXEC"
            await worker.send(ControlEvent(run_id="a", pause=True))
            await trio.sleep(0.1)
            assert await client.status("a") == "PAUSE"
            await client.command("a", resume=True)
            nursery.start_soon(lambda: client.command("a", pause=True))
            await trio.sleep(2.1)
            assert await client.status("a") == "PAUSE"


async def test_a_worker_that_cannot_pause_is_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    async with serving(pause_ack_seconds=50) as (client, _):
        token = await ready(client)
        async with client.control(token):
            await client.command("a", pause=True)
            assert await client.status("a") == "PAUSE"
            assert trio.current_time() < 1


async def test_paused_nothing_is_accepted_even_with_credit(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as (client, trainer):
        token = await ready(client)
        async with client.control(token):
            await client.publish(steps("a", 1), token=token)
            await client.command("a", pause=True)
            async with fails(StatusCode.FAILED_PRECONDITION, "run 'a' is paused; accepted=0 last_seq=0"):
                await client.publish(steps("a", 3), token=token)
            assert trainer.board.entry("a").workers["w"].ledger.consumed == 1


async def test_a_short_pause_holds_a_stream_back(autojump_clock: trio.testing.MockClock) -> None:
    async with serving(pause_grace_seconds=5) as (client, _), trio.open_nursery() as nursery:
        token = await ready(client)
        await client.command("a", pause=True)

        async def publish() -> None:
            assert (await client.publish(steps("a", 3), token=token)).accepted == 3

        nursery.start_soon(publish)
        await trio.sleep(4)
        await client.command("a", resume=True)


async def test_a_worker_that_comes_later_learns_of_pause_and_rate() -> None:
    async with serving() as (client, _):
        token = await ready(client)
        await client.command("a", max_rate_hz=7)
        await client.command("a", pause=True)
        async with client.control(token) as call:
            assert [await event_of(call) for _ in range(3)] == [
                {"max_rate_hz": 7},
                {"pause": True},
                {"grant_steps": 500},
            ]


async def test_a_rate_is_relayed_to_all_workers() -> None:
    async with serving() as (client, trainer):
        tokens = [await ready(client), await client.register("a", "other")]
        async with client.control(tokens[0]) as one, client.control(tokens[1]) as other:
            for call in (one, other):
                assert await event_of(call) == {"grant_steps": 500}
            await client.command("a", max_rate_hz=20)
            for call in (one, other):
                assert await event_of(call) == {"max_rate_hz": 20}
        assert trainer.reports.control("a").max_rate_hz == 20


async def test_a_rate_outlives_the_server(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path / 'runs.db'}"
    async with serving(storage, FakeDispatcher()) as (client, _):
        await ready(client)
        await client.submit("b", run_name="b", entry_point="python")
        for run_id in "ab":
            assert await client.command(run_id, max_rate_hz=2**32 - 1)
    async with serving(storage, FakeDispatcher()) as (client, trainer):
        assert trainer.reports.control("b").max_rate_hz == 2**32 - 1, "of a run that is started again"
        async with client.control(await client.register("a")) as call:
            assert await event_of(call) == {"max_rate_hz": 2**32 - 1}
        await client.command("a", max_rate_hz=0)
    async with serving(storage, FakeDispatcher()) as (client, trainer):
        assert trainer.reports.control("a").max_rate_hz == 0
        async with client.watch(3) as changes:
            await client.cancel("a")
            record = await changes.receive()
            assert (record.status, record.seq_id) == (RunStatus.RUN_STATUS_TERM, 4), "rates are no changes to watch"


async def test_a_rate_holds_at_once_and_is_stored_when_there_is_room_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving() as (client, trainer):
        await ready(client)
        write, failures = MemoryDatabase.write, 3

        def failing(self: MemoryDatabase, batch: Batch) -> None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise ResourceExhaustedError("the disk is full")
            write(self, batch)

        monkeypatch.setattr(MemoryDatabase, "write", failing)
        async with client.control() as controller:
            await controller.send(ControlEvent(run_id="a", max_rate_hz=5))
            assert await event_of(controller) == {"max_rate_hz": 5}
            assert trainer.reports.control("a").max_rate_hz == 5
            entry = trainer.board.entry("a")
            assert entry.shown is not None
            assert entry.shown.max_rate_hz == 0
            await controller.done_sending()
            assert await controller.receive() is None
            assert entry.shown.max_rate_hz == 5, "its stream ends when the rate is stored"
        # A run that could not be stored takes its rate with it.
        failures = 1
        trainer.board.create("new", "", parse_config(a_config(entry_point="external"), max_characters=10_000))
        with trio.fail_after(5):
            await trainer.commanding.limit_rate("new", 5).wait()
        assert trainer.board.find("new") is None
        assert await ready(client, "b")


async def test_runs_of_a_file_from_before_rates_were_stored(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with serving(f"sqlite:{path}") as (client, _):
        await ready(client)
    with closing(sqlite3.connect(path)) as connection:
        for column in ("max_rate_hz", "run_name", "owner", "sources"):
            connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 2")
    for before in (0, 3):
        async with serving(f"sqlite:{path}") as (client, trainer):
            assert trainer.reports.control("a").max_rate_hz == before
            await client.command("a", max_rate_hz=3)


@pytest.mark.parametrize("event", [{"pause": False}, {"resume": False}, {"grant_steps": 0}, {"grant_steps": 9}, {}])
async def test_events_that_mean_nothing(event: dict[str, Any]) -> None:
    async with serving() as (client, trainer):
        await ready(client)
        assert await client.command("a", **event) == []
        assert await client.status("a") == "RDY"
        assert trainer.figures("a")["credits_granted"] == 0


async def test_a_controller_follows_the_runs_that_it_names() -> None:
    async with serving() as (client, _):
        token = await ready(client)
        await ready(client, "b")
        async with client.control() as controller:
            await controller.send(ControlEvent(run_id="a", max_rate_hz=1))
            assert await event_of(controller) == {"max_rate_hz": 1}
            async with client.control(token):
                await client.command("b", pause=True)
                assert await event_of(controller) == {"grant_steps": 500}
            await client.command("a", pause=True)
            assert await event_of(controller) == {"pause": True}


async def test_a_controller_that_reads_late_gets_the_latest_of_each_kind_and_all_grants() -> None:
    async with serving() as (client, trainer):
        await ready(client)
        async with client.control() as controller:
            await controller.send(ControlEvent(run_id="a", max_rate_hz=1))
            assert await event_of(controller) == {"max_rate_hz": 1}
            for rate in range(2, 6):  # before anything can be sent
                trainer.commanding.limit_rate("a", rate)
            for worker_id in ("w", "x", "y", "z"):
                async with client.control(await client.register("a", worker_id)) as worker:
                    assert await event_of(worker) == {"max_rate_hz": 5}
                    assert await event_of(worker) == {"grant_steps": 500}
            await controller.done_sending()
            events = [event async for event in controller]
    rates = [event.max_rate_hz for event in events if event.WhichOneof("event") == "max_rate_hz"]
    assert rates == [5]
    assert sum(event.grant_steps for event in events) == 4 * 500


async def test_a_controller_that_has_left_follows_nothing_any_more() -> None:
    async with serving() as (client, trainer):
        for run_id in "abc":
            await ready(client, run_id)
        async with client.control() as controller:
            for run_id in "abc":
                await controller.send(ControlEvent(run_id=run_id, max_rate_hz=1))
                assert await event_of(controller) == {"max_rate_hz": 1}
            assert [len(trainer.board.entry(run_id).controllers) for run_id in "abc"] == [1, 1, 1]
            await controller.done_sending()
            assert await controller.receive() is None
        assert [len(trainer.board.entry(run_id).controllers) for run_id in "abc"] == [0, 0, 0]


async def test_how_many_runs_there_are_of_each_status() -> None:
    async with serving() as (client, trainer):
        for run_id in "abcd":
            await client.submit(run_id)
        await client.register("a")
        for run_id in "bc":
            await client.cancel(run_id)
        gauges = trainer.gauges()
        assert {status: count for status, count in gauges.runs.items() if count} == {"INIT": 1, "RDY": 1, "TERM": 2}
        assert sorted(gauges.active) == ["a", "d"]


async def test_a_pause_outlives_its_controller(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as (client, _):
        token = await ready(client, supports_pause=True)
        async with client.control(token):
            async with client.control() as controller:
                await controller.send(ControlEvent(run_id="a", pause=True))
                await trio.sleep(0.1)
            assert await client.status("a") == "RDY"
            await trio.sleep(2.1)
            assert await client.status("a") == "PAUSE"


async def test_a_workers_stream_ends_with_its_run() -> None:
    async with serving() as (client, trainer):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
            await client.cancel("a")
            assert await call.receive() is None
        assert trainer.board.entry("a").workers["w"].stream is None


async def test_figures() -> None:
    async with serving() as (client, trainer):
        token = await ready(client)
        async with client.control(token) as call:
            await event_of(call)
            await client.publish(steps("a", 7), token=token)
            await client.command("a", pause=True)
            await client.command("a", pause=True)
            await client.command("a", resume=True)
            figures = trainer.figures("a")
        figures.pop("ingest_rate_hz")  # see below
        assert figures == {
            "credits_granted": 500,
            "credits_consumed": 7,
            "grants_sent": 1,
            "pauses": 1,
            "resumes": 1,
            "drops_due_to_credit": 0,
            "current_outstanding": 493,
        }


async def test_the_rate_is_that_of_late(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as (client, trainer):
        token = await ready(client)
        assert trainer.figures("a")["ingest_rate_hz"] == 0
        for _ in range(5):
            await client.publish(steps("a", 10), token=token)
            await trio.sleep(0.5)
        assert trainer.figures("a")["ingest_rate_hz"] == pytest.approx(20, rel=0.01)
        await trio.sleep(99.5)
        assert trainer.figures("a")["ingest_rate_hz"] == pytest.approx(0.1, rel=0.1)
