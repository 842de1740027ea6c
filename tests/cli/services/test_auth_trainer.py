"""A server that asks for tokens, with a trainer: its workers have tokens of their own, for their runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Endless, server
from tests.cli.services.test_auth import HERE, asked, token, with_tokens
from tests.trainer.bench import Client, steps
from tests.trainer.dispatch.programs import program, until
from trio_cogment.api.trainer.trainer_pb2 import HeartbeatRequest
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel
from trio_cogment.sdk import Controller, actor_params, connect, trial_params

#: Stores a model, looks at trials, registers itself, and tries to work for another run; says what came of it.
WORKER = """
import json, os
import trio
from tests.trainer.bench import Client
from trio_cogment.base.errors import RpcError
from trio_cogment.rpc import Channel
from trio_cogment.sdk import connect

async def code_of(doing, *args, **options):
    try:
        await doing(*args, **options)
    except RpcError as error:
        return error.code.name
    return "OK"

async def main():
    found = {}
    async with connect(os.environ["COGMENT_ORCHESTRATOR"]) as client:
        registry = await client.model_registry()
        found["store"] = await code_of(registry.store, "walker", b"weights")
        found["infos"] = await code_of((await client.controller()).trial_infos)
    host, _, port = os.environ["TRAINER_TARGET"].rpartition(":")
    async with Channel(host, int(port), token=os.environ["COGMENT_TOKEN"]) as channel:
        client = Client(channel)
        found["own"] = await code_of(client.register, os.environ["RUN_ID"])
        found["other"] = await code_of(client.register, "other")
        found["submit"] = await code_of(client.submit, "third")
        found["cancel"] = await code_of(client.cancel, "other")
    found["token"] = os.environ["COGMENT_TOKEN"]
    print(json.dumps({"type": "episode", "metadata": found}))

trio.run(main)
"""


@asynccontextmanager
async def admins(port: int, text: str) -> AsyncIterator[Client]:
    async with Channel("127.0.0.1", port, token=text) as channel:
        yield Client(channel)


async def found_by_worker(client: Client, run_id: str) -> Any:
    await until(client, run_id, "TERM")
    async with client.stream(run_id, kind="Episodes") as call:
        episode = await call.receive()
    return json.loads(episode.metadata_json)


async def test_workers_have_tokens_for_their_runs(secret: Path, tmp_path: Path) -> None:
    admin = token(secret, "root", "--role=admin")
    everything = ("serve", HERE, "--port=0", f"--trainer={tmp_path / 'runs'}", f"--archive_dir={tmp_path / 'models'}")
    root = str(Path(__file__).parents[3])
    with trio.fail_after(2 * PATIENCE_SECONDS):
        async with (
            server(*everything, "--storage=memory:", *with_tokens(secret), variables={"PYTHONPATH": root}) as running,
            admins(running.port, admin) as client,
        ):
            await client.submit("other")
            await client.submit("mine", **program(WORKER))
            found = await found_by_worker(client, "mine")
            own = found.pop("token")
            assert found == {
                "store": "OK",
                "infos": "OK",
                "own": "OK",
                "other": "PERMISSION_DENIED",
                "submit": "PERMISSION_DENIED",
                "cancel": "PERMISSION_DENIED",
            }
            # Its run is over.
            assert await asked(running.port, own) is StatusCode.UNAUTHENTICATED
            async with connect(f"grpc://127.0.0.1:{running.port}", access_token=admin, variables={}) as connected:
                assert (await (await connected.model_registry()).retrieve("walker"))[1] == b"weights"
            assert await running.stop() == 0


#: Starts a trial of its own run, and one in the name of the run "mine"; waits for their ends.
STARTER = """
import os
import trio
from trio_cogment.sdk import actor_params, connect, trial_params

async def main():
    endpoint = os.environ["PARTICIPANTS"]
    params = trial_params(
        [actor_params("a", "endless", endpoint=endpoint)], environment_endpoint=endpoint, max_steps=3,
        datalog_endpoint="cogment://discover",
    )
    async with connect(os.environ["COGMENT_ORCHESTRATOR"]) as client:
        controller = await client.controller()
        for trial_id in (os.environ["RUN_ID"] + "-ep000000", "mine-ep000005"):
            await controller.start_trial(params, trial_id=trial_id)
            await controller.wait_trial(trial_id)

trio.run(main)
"""


async def episodes_of(client: Client, run_id: str) -> list[str]:
    async with client.stream(run_id, kind="Episodes") as call:
        return [json.loads(episode.metadata_json)["trial_id"] async for episode in call]


async def test_nobody_feeds_the_run_of_somebody_else(secret: Path, tmp_path: Path) -> None:
    """By the id of a trial or its property, an operator and the worker of another run; nor do they end it."""
    admin, own = token(secret, "root", "--role=admin"), token(secret, "root", "--role=operator")
    bob = token(secret, "bob", "--role=operator")
    everything = ("serve", HERE, "--port=0", f"--trainer={tmp_path / 'runs'}", "--archive_dir=none")
    endless = Endless()
    with trio.fail_after(2 * PATIENCE_SECONDS):
        async with (
            endless.served() as endpoint,
            server(*everything, "--storage=memory:", *with_tokens(secret)) as running,
            admins(running.port, admin) as client,
        ):
            await client.submit("mine", entry_point="external", schedule={"max_steps": 14})

            async def play(text: str, trial_id: str, **properties: str) -> None:
                params = trial_params(
                    [actor_params("a", "endless", endpoint=endpoint)],
                    environment_endpoint=endpoint,
                    datalog_endpoint="cogment://discover",
                    max_steps=3,
                    properties=properties,
                )
                async with Channel("127.0.0.1", running.port, token=text) as channel:
                    controller = Controller(channel)
                    await controller.start_trial(params, trial_id=trial_id)
                    await controller.wait_trial(trial_id)

            await play(bob, "mine-ep000001")
            await play(bob, "hers", run_id="mine")
            await client.submit("other", **program(STARTER), environment={"PARTICIPANTS": endpoint})
            await until(client, "other", "TERM")
            assert await episodes_of(client, "other") == ["other-ep000000"]
            # What its owner starts comes last.
            await play(own, "mine-ep000002")
            await play(own, "more", run_id="mine")
            async with client.stream("mine", kind="Episodes") as call:
                first, second = await call.receive(), await call.receive()
            found = {json.loads(each.metadata_json)["trial_id"] for each in (first, second)}
            assert found == {"mine-ep000002", "more"}
            assert await client.status("mine") == "EXEC"
            assert await running.stop() == 0
    assert "run mine: trial mine-ep000001 is none of its trials: somebody else started it" in running.err


async def test_a_run_may_bring_a_token_of_its_own(secret: Path, tmp_path: Path) -> None:
    admin = token(secret, "root", "--role=admin")
    text = 'import json, os; print(json.dumps({"type": "episode", "metadata": [os.environ.get("COGMENT_TOKEN")]}))'
    everything = ("serve", HERE, "--port=0", f"--trainer={tmp_path / 'runs'}", "--archive_dir=none")
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            # Her own token, exported where she starts the server, is not a worker's.
            server(
                *everything, "--storage=memory:", *with_tokens(secret), variables={"COGMENT_TOKEN": "hers"}
            ) as running,
            admins(running.port, admin) as client,
        ):
            for run_id, environment, expected in (
                ("a", {"COGMENT_TOKEN": "mine"}, ["mine"]),
                ("b", {"COGMENT_TOKEN_FILE": "/there"}, [None]),
            ):
                await client.submit(run_id, **program(text), environment=environment)
                assert await found_by_worker(client, run_id) == expected
            assert await running.stop() == 0


async def test_a_worker_reports_for_no_other_run(secret: Path, tmp_path: Path) -> None:
    """Nor does it control runs: that is the administrator's."""
    admin = token(secret, "root", "--role=admin")
    worker = token(secret, "w", "--role=worker", "--trial==mine")
    everything = ("serve", HERE, "--port=0", f"--trainer={tmp_path / 'runs'}", "--archive_dir=none")
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            server(*everything, "--storage=memory:", *with_tokens(secret)) as running,
            admins(running.port, admin) as client,
            admins(running.port, worker) as works,
        ):
            for run_id in ("mine", "other"):
                await client.submit(run_id)
            session = await works.register("mine")
            others = await client.register("other")
            await works.publish(steps("mine", 1), token=session)
            for refused in (
                works.register("other"),
                works.publish(steps("other", 1)),
                works.publish(steps("other", 1), token=others),
                works.ask("Heartbeat", HeartbeatRequest(run_id="other")),
            ):
                with pytest.raises(RpcError) as caught:
                    await refused
                assert caught.value.code is StatusCode.PERMISSION_DENIED
            for metadata in ({}, {"session-token": others}):
                async with works.open("ControlStream", metadata=metadata) as call:
                    with pytest.raises(RpcError) as caught:
                        await call.receive()
                assert caught.value.code is StatusCode.PERMISSION_DENIED
            for run_id in ("mine", "other"):
                await client.cancel(run_id)
            assert await client.all_of("mine") == [1]
            assert await client.all_of("other") == []
            assert await running.stop() == 0
