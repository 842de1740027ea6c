"""Publishing steps and episodes, and streaming them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.trainer.bench import Client, FakeDispatcher, fails, serving, steps
from trio_cogment.api.trainer.trainer_pb2 import HealthCheckRequest, RunEpisode, RunStep
from trio_cogment.base.errors import FailedPreconditionError, ResourceExhaustedError, RpcError, StatusCode
from trio_cogment.trainer.runs import Cause, RunState
from trio_cogment.trainer.storage import Batch, Kind


async def ready(client: Client, run_id: str = "a", **changes: Any) -> str:
    await client.submit(run_id, run_name=run_id, **changes)
    return await client.register(run_id)


# Publish


async def test_publish_needs_the_id_of_a_run() -> None:
    async with serving() as (client, _), fails(StatusCode.INVALID_ARGUMENT, "run_id: expected the id of a run"):
        await client.publish([RunStep()])


async def test_publish_to_an_unknown_run() -> None:
    async with serving() as (client, _), fails(StatusCode.NOT_FOUND, "there is no run 'x'"):
        await client.publish(steps("x", 1))


async def test_publish_to_another_run_within_a_stream() -> None:
    async with serving() as (client, _):
        await ready(client)
        await ready(client, "b")
        async with fails(StatusCode.INVALID_ARGUMENT, "run_id: expected 'a' for the whole stream") as caught:
            await client.publish([*steps("a", 2), *steps("b", 1)])
        assert dict(caught.value.trailing_metadata) == {"accepted": "2", "last-seq": "0"}
        assert await client.status("b") == "RDY"


async def test_publish_without_a_registered_worker() -> None:
    async with serving(dispatcher=FakeDispatcher()) as (client, trainer):
        await client.submit("a")
        await client.submit("b", entry_point="python")
        await trainer.reports.starting("b")
        for run_id in "ab":
            async with fails(StatusCode.FAILED_PRECONDITION, "no worker has registered"):
                await client.publish(steps(run_id, 1))


async def test_publish_to_a_run_that_has_ended() -> None:
    async with serving() as (client, _):
        await ready(client)
        await client.cancel("a")
        async with fails(StatusCode.FAILED_PRECONDITION, "has ended"):
            await client.publish(steps("a", 1))


@pytest.mark.parametrize("kind", ["Steps", "Episodes"])
async def test_the_first_message_makes_the_run_execute(kind: str) -> None:
    async with serving() as (client, _):
        await ready(client)
        messages = steps("a", 1) if kind == "Steps" else [RunEpisode(run_id="a")]
        reply = await client.publish(messages, kind=kind)
        assert (reply.accepted, reply.dropped) == (1, 0)
        assert await client.status("a") == "EXEC"


async def test_a_stream_without_messages_changes_nothing() -> None:
    async with serving() as (client, _):
        await ready(client)
        assert (await client.publish([])).accepted == 0
        assert await client.status("a") == "RDY"


async def test_what_was_published_comes_back_as_it_was() -> None:
    step = RunStep(
        run_id="a",
        episode_index=2**64 - 1,
        step_index=7,
        action_json='{"a": [1, 2]}  ',
        observation_json='"text"',
        reward=-0.5,
        truncated=True,
        policy_label="p",
        backend="b",
        agent_id="x",
        render_hint_json="{}",
        frame_ref="f",
        payload_version=3,
        render_payload_json="[]",
        episode_seed=2**63,
        worker_id="w",
    )
    step.timestamp.FromNanoseconds(1_700_000_000_000_000_001)
    episode = RunEpisode(run_id="a", total_reward=1.5, steps=3, terminated=True, metadata_json=" {}")
    async with serving() as (client, _):
        await ready(client)
        await client.publish([step])
        await client.publish([episode], kind="Episodes")
        await client.cancel("a")
        async with client.stream("a") as call:
            step.seq_id = 1
            assert [message async for message in call] == [step]
        async with client.stream("a", kind="Episodes") as call:
            episode.seq_id = 1
            assert [message async for message in call] == [episode]


async def test_what_was_sent_before_is_not_stored_again() -> None:
    async with serving() as (client, _):
        await ready(client)
        await client.register("a", "other")
        assert (await client.publish(steps("a", 5, numbered=True))).accepted == 5
        reply = await client.publish(steps("a", 7, numbered=True))
        assert (reply.accepted, reply.dropped) == (2, 5)
        assert (await client.publish(steps("a", 2, numbered=True, worker_id="other"))).accepted == 2
        assert (await client.publish(steps("a", 2))).accepted == 2
        episodes = [RunEpisode(run_id="a", worker_id="w", seq_id=1)]
        assert (await client.publish(episodes, kind="Episodes")).accepted == 1
        await client.cancel("a")
        assert await client.all_of("a") == list(range(1, 12))


async def test_a_token_says_which_worker_it_is() -> None:
    async with serving() as (client, _):
        token = await ready(client)
        await client.publish([RunStep(run_id="a")], token=token)
        async with fails(StatusCode.INVALID_ARGUMENT, "worker_id: expected 'w', as registered, got 'x'"):
            await client.publish(steps("a", 1, worker_id="x"), token=token)
        async with fails(StatusCode.UNAUTHENTICATED, "it is not that of a worker of run 'a'"):
            await client.publish(steps("a", 1), token="0" * 32)
        await client.cancel("a")
        async with client.stream("a") as call:
            assert [message.worker_id async for message in call] == ["w"]


async def test_a_token_that_was_replaced_ends_the_streams_that_have_it() -> None:
    async with serving() as (client, trainer):
        token = await ready(client)
        async with client.open("PublishRunSteps", metadata={"session-token": token}) as call:
            await call.send(RunStep(run_id="a"))
            while trainer.board.entry("a").latest.state is not RunState.EXECUTING:
                await trio.testing.wait_all_tasks_blocked()
            await client.register("a")
            async with fails(StatusCode.UNAUTHENTICATED, "session-token"):
                await call.send(RunStep(run_id="a"))
                await call.done_sending()
                await call.receive()
                await call.receive()


async def test_a_stream_names_its_run_in_each_message() -> None:
    async with serving() as (client, _):
        await ready(client)
        async with fails(StatusCode.INVALID_ARGUMENT, "run_id: expected 'a' for the whole stream, got ''"):
            await client.publish([*steps("a", 1), RunStep()])


async def test_a_token_can_be_required() -> None:
    async with serving(token_required=True) as (client, _):
        token = await ready(client)
        async with fails(StatusCode.UNAUTHENTICATED, "expected the token of a registration"):
            await client.publish(steps("a", 1))
        assert (await client.publish(steps("a", 1), token=token)).accepted == 1


async def test_workers_that_nobody_registered_are_limited() -> None:
    async with serving(max_workers=3) as (client, _):
        await ready(client)
        async with fails(StatusCode.RESOURCE_EXHAUSTED, "has 3 workers"):
            await client.publish([RunStep(run_id="a", worker_id=f"{n}") for n in range(5)])


async def test_a_refused_stream_says_what_was_stored() -> None:
    async with serving() as (client, _):
        await ready(client)
        with pytest.raises(RpcError) as caught:
            await client.publish([*steps("a", 3, numbered=True), RunStep(run_id="b")])
        assert dict(caught.value.trailing_metadata) == {"accepted": "3", "last-seq": "3"}
        assert caught.value.message.endswith("; accepted=3 last_seq=3")


# Stream


@pytest.mark.parametrize(("run_id", "code"), [("", StatusCode.INVALID_ARGUMENT), ("x", StatusCode.NOT_FOUND)])
@pytest.mark.parametrize("kind", ["Steps", "Episodes"])
async def test_stream_needs_a_run(run_id: str, code: StatusCode, kind: str) -> None:
    async with serving() as (client, _), fails(code):
        await client.all_of(run_id, kind=kind)


@pytest.mark.parametrize("storage", ["memory:", "sqlite:"])
@pytest.mark.parametrize("recent_rows", [1, 4, 1000])
async def test_streams_go_from_the_stored_to_the_live_without_gap_or_double(
    storage: str, recent_rows: int, tmp_path: Path
) -> None:
    if storage == "sqlite:":
        storage += str(tmp_path / "runs.db")
    async with serving(storage, recent_rows=recent_rows, page_rows=3) as (client, _), trio.open_nursery() as nursery:
        await ready(client)
        await client.publish(steps("a", 10))
        found: dict[int, list[int]] = {}

        async def read(since: int) -> None:
            found[since] = await client.all_of("a", since)

        for since in (0, 1, 9, 10, 15, 99):
            nursery.start_soon(read, since)
        for first in range(10, 30, 4):
            await client.publish(steps("a", 4, first=first))
        await client.cancel("a")
    assert found == {since: list(range(since + 1, 31)) for since in (0, 1, 9, 10, 15, 99)}


async def test_streams_of_an_ended_run_end() -> None:
    async with serving() as (client, _):
        await ready(client)
        await client.cancel("a")
        assert await client.all_of("a") == []
        assert await client.all_of("a", kind="Episodes") == []


async def test_a_slow_reader_gets_everything() -> None:
    async with serving(recent_rows=1, page_rows=2) as (client, _):
        await ready(client)
        async with client.stream("a") as call:
            await call.wait_initial_metadata()
            for first in range(0, 2000, 100):
                await client.publish(steps("a", 100, first=first))
            await client.cancel("a")
            assert [message.step_index async for message in call] == list(range(2000))


async def test_streams_end_when_the_trainer_stops() -> None:
    async with serving() as (client, trainer):
        await ready(client)
        async with client.stream("a") as call:
            await call.wait_initial_metadata()
            trainer.stop()
            async with fails(StatusCode.UNAVAILABLE, "stopping"):
                await call.receive()


# The dispatcher's side


async def test_a_dispatcher_publishes_for_its_worker() -> None:
    async with serving(dispatcher=FakeDispatcher()) as (client, trainer):
        await client.submit("a", entry_point="python")
        with pytest.raises(FailedPreconditionError):
            await trainer.reports.attach("a", "w", "telemetry_proxy")
        await trainer.reports.starting("a")
        await trainer.reports.attach("a", "w", "telemetry_proxy")
        for step in steps("a", 3):
            await trainer.reports.publish("a", step)
        await trainer.reports.publish("a", RunEpisode(run_id="a", worker_id="w"))
        run = await trainer.reports.ended("a", Cause.FINISHED)
        assert (run.ended, run.outcome is not None and run.outcome.value) == (True, "succeeded")
        assert await client.all_of("a") == [1, 2, 3]
        assert await client.all_of("a", kind="Episodes") == [1]
        with pytest.raises(FailedPreconditionError, match="has ended"):
            await trainer.reports.publish("a", RunStep(run_id="a"))


async def test_a_dispatchers_worker_waits_while_the_run_is_paused(autojump_clock: trio.testing.MockClock) -> None:
    async with serving(dispatcher=FakeDispatcher()) as (client, trainer), trio.open_nursery() as nursery:
        await client.submit("a", entry_point="python")
        await trainer.reports.starting("a")
        await trainer.reports.attach("a", "w", "telemetry_proxy")
        before = trainer.reports.control("a")
        await client.command("a", pause=True)
        assert (await trainer.reports.control_changed("a", before)).paused
        nursery.start_soon(trainer.reports.publish, "a", RunStep(run_id="a"))
        await trio.sleep(100)
        await client.command("a", resume=True)
        await trainer.reports.ended("a", Cause.FINISHED)
        assert await client.all_of("a") == [1]


async def test_what_is_published_after_a_cancellation_is_not_taken() -> None:
    async with serving(dispatcher=FakeDispatcher()) as (client, trainer):
        await client.submit("a", entry_point="python")
        await trainer.reports.starting("a")
        await trainer.reports.attach("a", "w", "telemetry_proxy")
        with trio.CancelScope() as scope:
            scope.cancel()
            await trainer.reports.publish("a", RunStep(run_id="a"))
        assert scope.cancelled_caught
        await trainer.reports.ended("a", Cause.FINISHED)
        assert await client.all_of("a") == []


async def test_a_worker_that_lies_about_its_numbers_loses_its_own_steps_only() -> None:
    async with serving() as (client, _):
        await ready(client)
        await client.register("a", "honest")
        for numbers, taken in (((3, 2, 3), 1), ((2**64 - 1, 1, 2**64 - 1), 1), ((5, 4), 0)):
            lies = [RunStep(run_id="a", worker_id="w", seq_id=number) for number in numbers]
            reply = await client.publish(lies)
            assert (reply.accepted, reply.dropped) == (taken, len(numbers) - taken)
        reply = await client.publish(steps("a", 3, worker_id="honest", numbered=True))
        assert (reply.accepted, reply.dropped) == (3, 0)
        await client.cancel("a")
        assert await client.all_of("a") == [1, 2, 3, 4, 5]


async def test_a_worker_that_floods_does_not_hold_back_other_runs(autojump_clock: trio.testing.MockClock) -> None:
    sent = 0

    async def flood() -> None:
        nonlocal sent
        async with fails(StatusCode.FAILED_PRECONDITION, "has ended"), client.open("PublishRunSteps") as call:
            while True:
                await call.send(RunStep(run_id="a", worker_id="w"))
                sent += 1

    async with serving(max_pending_rows=64) as (client, _), trio.open_nursery() as nursery:
        await ready(client)
        await ready(client, "b")
        nursery.start_soon(flood)
        with trio.fail_after(5):
            for first in range(0, 50, 5):
                reply = await client.publish(steps("b", 5, first=first, numbered=True))
                assert (reply.accepted, reply.dropped) == (5, 0)
                assert [record.run_id for record in await client.runs()] == ["a", "b"]
            await client.cancel("b")
        assert sent > 50
        await client.cancel("a")
        stored = len(await client.all_of("a"))
    assert 0 < stored <= sent


# The storage fails


class Failing:
    """Fails when it is told to."""

    def __init__(self, write: Any) -> None:
        self.write = write
        self.broken = False

    def __call__(self, batch: Batch) -> None:
        if self.broken:
            raise ResourceExhaustedError("no room is left")
        self.write(batch)


async def test_nothing_is_accepted_that_could_not_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as (client, trainer):
        disk = Failing(trainer._database.write)
        monkeypatch.setattr(trainer._database, "write", disk)
        token = await ready(client)
        async with client.control(token) as control:
            assert (await control.receive()).grant_steps == 500
            await client.publish(steps("a", 2, numbered=True), token=token)
            disk.broken = True
            async with fails(StatusCode.RESOURCE_EXHAUSTED, "no room is left"):
                await client.publish(steps("a", 4, numbered=True), token=token)
            async with fails(StatusCode.RESOURCE_EXHAUSTED, "no room is left"):
                await client.submit("b", run_name="b")
            assert not (await client.ask("GetHealth", HealthCheckRequest())).healthy
            assert [record.run_id for record in await client.runs()] == ["a"]
            disk.broken = False
            reply = await client.publish(steps("a", 4, numbered=True), token=token)
            assert (reply.accepted, reply.dropped) == (2, 2)
            assert (await client.ask("GetHealth", HealthCheckRequest())).healthy
            assert await client.submit("b", run_name="b") == "b"
        ledger = trainer.board.entry("a").workers["w"].ledger
        assert ledger.consumed == 4
        await client.cancel("a")
        assert await client.all_of("a") == [1, 2, 3, 4]


async def test_a_stream_does_not_go_on_behind_what_was_lost_of_it(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving() as (client, trainer):
        disk = Failing(trainer._database.write)
        monkeypatch.setattr(trainer._database, "write", disk)
        await ready(client)
        all_of_it = steps("a", 6, numbered=True)
        async with client.open("PublishRunSteps") as call:
            for step in all_of_it[:2]:
                await call.send(step)
            await trio.sleep(1)
            disk.broken = True
            for step in all_of_it[2:4]:
                await call.send(step)
            await trio.sleep(1)
            disk.broken = False
            for step in all_of_it[4:]:
                await call.send(step)
            await call.done_sending()
            async with fails(StatusCode.RESOURCE_EXHAUSTED, "no room is left"):
                await call.receive()
        reply = await client.publish(all_of_it)
        assert (reply.accepted, reply.dropped) == (4, 2)
        await client.cancel("a")
        async with client.stream("a") as stream:
            assert [step.step_index async for step in stream] == list(range(6))


async def test_what_is_repeated_is_acknowledged_when_it_is_stored(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving(commit_delay_seconds=10) as (client, trainer):
        disk = Failing(trainer._database.write)
        monkeypatch.setattr(trainer._database, "write", disk)
        await ready(client)
        with trio.move_on_after(1):  # it vanishes before anything is stored
            async with client.open("PublishRunSteps") as call:
                for step in steps("a", 3, numbered=True):
                    await call.send(step)
                await trio.sleep_forever()
        assert trainer.board.entry("a").logs[Kind.STEPS].accepted == 3
        disk.broken = True
        async with fails(StatusCode.RESOURCE_EXHAUSTED, "no room is left"):
            await client.publish(steps("a", 3, numbered=True))
        disk.broken = False
        assert (await client.publish(steps("a", 3, numbered=True))).accepted == 3


async def test_what_has_happened_is_stored_when_there_is_room_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving(dispatcher=FakeDispatcher()) as (client, trainer):
        disk = Failing(trainer._database.write)
        monkeypatch.setattr(trainer._database, "write", disk)
        await client.submit("a", entry_point="python")
        await trainer.reports.starting("a")
        disk.broken = True

        async def repair() -> None:
            await trio.sleep(10)
            assert await client.status("a") == "HSHK"
            disk.broken = False

        async with trio.open_nursery() as nursery:
            nursery.start_soon(repair)
            run = await trainer.reports.ended("a", Cause.FAILED, "exit_code_1", "the last lines")
        assert (run.failure_reason, run.detail) == ("exit_code_1", "the last lines")
        await trio.sleep(1)
        assert await client.status("a") == "TERM"


async def test_cancel_ends_the_worker_of_a_run_although_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    dispatcher = FakeDispatcher()
    async with serving(dispatcher=dispatcher) as (client, trainer):
        disk = Failing(trainer._database.write)
        monkeypatch.setattr(trainer._database, "write", disk)
        await client.submit("a", entry_point="python")
        await trainer.reports.starting("a")
        disk.broken = True
        async with fails(StatusCode.RESOURCE_EXHAUSTED, "no room is left"):
            await client.cancel("a")
        assert dispatcher.stopped == ["a"]
        assert await client.status("a") == "HSHK"
        disk.broken = False
        await trio.sleep(2)
        assert await client.status("a") == "TERM"


async def test_what_a_dispatcher_has_published_is_stored_when_there_is_room_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving(dispatcher=FakeDispatcher()) as (client, trainer):
        disk = Failing(trainer._database.write)
        monkeypatch.setattr(trainer._database, "write", disk)
        await client.submit("a", entry_point="python")
        await trainer.reports.starting("a")
        await trainer.reports.attach("a", "w", "jsonl")
        disk.broken = True
        for step in steps("a", 5):
            await trainer.reports.publish("a", step)
            await trio.sleep(1)
        await trainer.reports.publish("a", RunEpisode(run_id="a", worker_id="w", total_reward=5))

        async def repair() -> None:
            await trio.sleep(10)
            disk.broken = False

        async with trio.open_nursery() as nursery:
            nursery.start_soon(repair)
            await trainer.reports.ended("a", Cause.FINISHED)
        async with client.stream("a") as stream:
            assert [(step.seq_id, step.step_index) async for step in stream] == [(n + 1, n) for n in range(5)]
        assert await client.all_of("a", kind="Episodes") == [1]
        assert trainer.board.entry("a").workers["w"].ledger.consumed == 6


async def test_a_full_queue_holds_publishers_back(tmp_path: Path) -> None:
    async with serving(f"sqlite:{tmp_path / 'runs.db'}", max_pending_rows=2, commit_rows=1) as (client, _):
        await ready(client)
        assert (await client.publish(steps("a", 50))).accepted == 50
