"""Runs of a trainer, as programs handle them by `TrainerClient`."""

from __future__ import annotations

import pytest

from tests.trainer.bench import STATUS, serving, steps
from tests.trainer.configs import a_config
from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunStatus
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode
from trio_cogment.trainer import TrainerClient


async def test_commands_of_one_who_knows_the_secret() -> None:
    async with serving(controller_secret="s3cret") as (bench, trainer):
        run_id = await bench.submit("a")
        await bench.register(run_id)
        for secret in ("", "other"):
            with pytest.raises(RpcError) as caught:
                await TrainerClient(bench.channel, secret=secret).pause(run_id)
            assert caught.value.code is StatusCode.UNAUTHENTICATED
        client = TrainerClient(bench.channel, secret="s3cret")
        await client.pause(run_id)
        assert STATUS[(await client.run(run_id)).status] == "PAUSE"
        await client.resume(run_id)
        assert STATUS[(await client.run(run_id)).status] == "RDY"
        await client.limit_rate(run_id, 20)
        assert trainer.reports.control(run_id).max_rate_hz == 20


async def test_runs_and_what_they_send() -> None:
    async with serving() as (bench, _):
        client = TrainerClient(bench.channel)
        run_id = await client.submit(a_config(entry_point="external"), run_id="a")
        assert run_id == "a"
        await bench.register(run_id)
        await bench.publish(steps(run_id, 3))
        await bench.submit("b")
        assert [record.run_id for record in await client.runs([1])] == ["b"]
        assert sorted(record.run_id for record in await client.runs()) == ["a", "b"]
        with pytest.raises(NotFoundError, match="run_id: there is no run 'c'"):
            await client.run("c")
        assert (await client.health()).healthy
        await client.cancel(run_id)
        for since, expected in ((0, [1, 2, 3]), (2, [3])):
            async with client.steps(run_id, since=since) as call:
                assert [step.seq_id async for step in call] == expected
        async with client.episodes(run_id) as call:
            assert [episode async for episode in call] == []


async def test_episodes_behind_those_that_are_known() -> None:
    async with serving() as (bench, _):
        client = TrainerClient(bench.channel)
        await bench.submit("a")
        await bench.register("a")
        await bench.publish([RunEpisode(run_id="a", worker_id="w") for _ in range(3)], kind="Episodes")
        await client.cancel("a")
        for since, expected in ((0, [1, 2, 3]), (2, [3])):
            async with client.episodes("a", since=since) as call:
                assert [episode.seq_id async for episode in call] == expected


async def test_watching_goes_on_behind_what_is_known() -> None:
    async with serving() as (bench, _):
        client = TrainerClient(bench.channel)
        await bench.submit("a")
        async with client.watch() as watch:
            assert (await watch.receive()).run_id == "a"
        await bench.submit("b")
        await bench.register("b")
        async with client.watch(since=1) as watch:
            found = [(record.run_id, STATUS[record.status]) for record in [await watch.receive() for _ in range(2)]]
        assert found == [("b", "INIT"), ("b", "RDY")]
        async with client.watch(statuses=[RunStatus.RUN_STATUS_RDY]) as watch:
            assert (await watch.receive()).run_id == "b"
