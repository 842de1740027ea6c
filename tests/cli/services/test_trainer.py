"""A trainer as a server process, and in the process of everything."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest
import trio
from google.protobuf.json_format import ParseDict

from tests.cli.process import PATIENCE_SECONDS, Server, listening, run, run_here, run_main, server
from tests.cli.services.test_operations import scrape
from tests.cli.test_configuration import settings_of
from tests.ports import free_port
from tests.rl.runner.worlds import countdown
from tests.trainer.bench import Client, steps
from tests.trainer.dispatch.programs import SLEEPS, WRITES, marked_by, program, until
from tests.trainer.trials.test_starter import people
from tests.trainer.trials.worlds import PARAMS, trials
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.trainer.trainer_pb2 import HealthCheckRequest
from trio_cogment.cli.serve import serve
from trio_cogment.cli.services.orchestrator import OrchestratorSettings
from trio_cogment.cli.services.trainer import TrainerSettings, trainer
from trio_cogment.platform import open_platform
from trio_cogment.rpc import Channel
from trio_cogment.trainer import this_machine

HERE = "--host=127.0.0.1"


def channel_to(of: Server) -> Channel:
    return Channel("127.0.0.1", of.port)


async def test_a_process_of_its_own(tmp_path: Path) -> None:
    mark = str(uuid.uuid4())
    async with server("services", "trainer", "--port=0", f"--folder={tmp_path}/new/t", "--gpus=2") as running:
        assert running.addresses[0][::2] == ("127.0.0.1", "TrainerService")
        assert running.out.startswith("trainer listening on ")
        with trio.fail_after(PATIENCE_SECONDS):
            async with channel_to(running) as channel:
                client = Client(channel)
                health = await client.ask("GetHealth", HealthCheckRequest())
                assert (health.pid, health.healthy) == (running.process.pid, True)
                assert health.listen_address == f"127.0.0.1:{running.port}"
                await client.submit("a", **program(WRITES))
                await until(client, "a", "TERM")
                assert await client.all_of("a") == [1, 2]
                await client.submit("b", **program(SLEEPS, mark))
                await until(client, "b", "RDY")
                assert len(marked_by(mark)) == 1
        assert await running.stop() == 0
        assert marked_by(mark) == []
        assert "Traceback" not in running.err


async def test_metrics_of_runs(tmp_path: Path) -> None:
    port = free_port()
    arguments = ("services", "trainer", "--port=0", f"--folder={tmp_path}", f"--prometheus_port={port}")
    async with server(*arguments) as running, channel_to(running) as channel:
        client = Client(channel)
        with trio.fail_after(PATIENCE_SECONDS):
            await client.submit("a", entry_point="external")
            await client.register("a")
            await client.publish(steps("a", 3))
            found = await scrape(port)
        assert (found["trainer_runs EXEC"], found["trainer_credits_consumed_total a"]) == (1, 3)
        assert await running.stop() == 0


async def test_a_server_that_is_killed_leaves_nothing_behind_its_next_start(tmp_path: Path) -> None:
    mark = str(uuid.uuid4())
    arguments = ("services", "trainer", "--port=0", f"--folder={tmp_path}")
    async with server(*arguments) as running:
        with trio.fail_after(PATIENCE_SECONDS):
            async with channel_to(running) as channel:
                client = Client(channel)
                await client.submit("a", **program(f'print(\'{{"type": "step"}}\'); {SLEEPS}', mark))
                await until(client, "a", "EXEC")
        assert await running.stop(signal.SIGKILL) == -signal.SIGKILL
    assert len(marked_by(mark)) == 1
    async with server(*arguments) as running:
        with trio.fail_after(PATIENCE_SECONDS):
            async with channel_to(running) as channel:
                client = Client(channel)
                await until(client, "a", "TERM")
                assert (await client.record("a")).failure_reason == "daemon restarted"
                assert await client.all_of("a") == [1]
                assert marked_by(mark) == []
        assert await running.stop() == 0


ENVIRONMENT = """
import json, os
names = ("COGMENT_ORCHESTRATOR", "COGMENT_DATASTORE", "COGMENT_MODEL_REGISTRY", "COGMENT_DIRECTORY", "TRAINER_TARGET")
print(json.dumps({"type": "episode", "metadata": [os.environ.get(name) for name in names]}))
"""


async def test_everything_in_one_process(tmp_path: Path) -> None:
    variables = {"COGMENT_DIRECTORY_PERSISTENCE_FILE": ""}
    arguments = ("serve", HERE, "--port=0", f"--trainer={tmp_path}", "--storage=memory:", "--archive_dir=none")
    async with server(*arguments, variables=variables) as everything:
        assert await everything.parts() == "orchestrator, trial_datastore, trainer, directory"
        with trio.fail_after(PATIENCE_SECONDS):
            assert "[__protocol] = [trainer]" in await registered(everything.port)
            async with channel_to(everything) as channel:
                client = Client(channel)
                await client.submit("a", **program(ENVIRONMENT))
                await until(client, "a", "TERM")
                async with client.stream("a", kind="Episodes") as call:
                    episode = await call.receive()
                here = f"127.0.0.1:{everything.port}"
                url = f"grpc://{here}"
                expected = f'["{url}","{url}",null,"{url}","{here}"]'
                assert episode.metadata_json == expected
        assert await everything.stop() == 0
        assert "Traceback" not in everything.err


async def test_workers_are_told_where_the_model_registry_is(tmp_path: Path) -> None:
    url = "grpc://127.0.0.1:1"
    async with server("services", "trainer", "--port=0", f"--folder={tmp_path}", f"--model_registry={url}") as running:
        with trio.fail_after(PATIENCE_SECONDS):
            async with channel_to(running) as channel:
                client = Client(channel)
                await client.submit("a", **program(ENVIRONMENT))
                await until(client, "a", "TERM")
                async with client.stream("a", kind="Episodes") as call:
                    episode = await call.receive()
        assert episode.metadata_json == f'[null,null,"{url}",null,"127.0.0.1:{running.port}"]'
        assert await running.stop() == 0


async def registered(port: int) -> str:
    """Wait until the directory has a trainer; return what is printed about it."""
    inquire = ("client", "directory", "inquire", "--type=other", f"--endpoint=grpc://127.0.0.1:{port}")
    while True:
        output = await run_here(*inquire)
        if "[0] Services" not in output.out:
            return output.out


async def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    arguments = ("services", "trainer", "--port=0", f"--folder={tmp_path}")
    async with server(*arguments) as first:
        await first.wait_serving()
        second = await run(*arguments)
    assert (second.code, second.out) == (1, "")
    assert "is in use by another trainer" in second.err
    assert "Traceback" not in second.err


# Settings


def settings(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> TrainerSettings:
    found = settings_of(monkeypatch, "run_trainer", trainer, *arguments)
    assert isinstance(found, TrainerSettings)
    return found


def test_flags_variables_and_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = settings(monkeypatch)
    assert (found.hosts, found.port, found.folder) == (["127.0.0.1"], 50055, Path(".cogment/trainer"))
    assert (found.cpus, found.memory_mb, found.gpus, found.max_runs) == (None, None, None, 1000)
    assert found.configuration.trainer.credits_enforced
    monkeypatch.setenv("COGMENT_TRAINER_CREDITS", "advisory")
    monkeypatch.setenv("COGMENT_TRAINER_FOLDER", "there")
    file = tmp_path / "config.yaml"
    file.write_text("trainer: {credit_high: 700}\nworkers: {term_seconds: 1}\n")
    found = settings(monkeypatch, f"--config={file}", "--cpus=3", "--memory_mb=500", "--max_runs=2")
    assert (found.cpus, found.memory_mb, found.max_runs, found.folder) == (3, 500, 2, Path("there"))
    configuration = found.configuration
    assert (configuration.trainer.credits_enforced, configuration.trainer.credit_high) == (False, 700)
    assert configuration.workers.term_seconds == 1


@pytest.mark.parametrize(
    ("text", "gpus"), [("auto", None), ("0", ()), ("2", (0, 1)), ("0,2", (0, 2)), ("3,", (3,)), ("5,1,5", (1, 5))]
)
def test_gpus(monkeypatch: pytest.MonkeyPatch, text: str, gpus: Any) -> None:
    assert settings(monkeypatch, f"--gpus={text}").gpus == gpus


def test_the_trainer_of_a_server_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGMENT_TRAINER_FOLDER", "there")
    found = settings_of(monkeypatch, "run_orchestrator", serve)
    assert isinstance(found, OrchestratorSettings)
    assert found.trainer == Path("there")
    found = settings_of(monkeypatch, "run_orchestrator", serve, "--trainer_spec=rl")
    assert isinstance(found, OrchestratorSettings)
    assert found.trainer_spec == "rl"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--gpus=some",), "--gpus: expected auto, how many, or their ids with commas, such as 0,2 or 3, got 'some'"),
        (("--gpus=99",), "--gpus: expected auto"),
        (("--folder=",), "--folder: expected a path, got ''"),
        (("--cpus=0",), "--cpus: 0 is not in the range"),
        (("--credits=some",), "--credits: 'some' is not one of"),
    ],
)
def test_values_that_cannot_be(arguments: tuple[str, ...], expected: str) -> None:
    output = run_main("services", "trainer", *arguments)
    assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
    assert output.err.startswith(f"trio-cogment: {expected}")


ELSEWHERE = ("--orchestrator=grpc://127.0.0.1:1", "--datastore=grpc://127.0.0.1:1")


@pytest.mark.parametrize(
    "arguments",
    [
        ("services", "trainer", *ELSEWHERE, "--spec={}/none.yaml"),
        ("serve", "--trainer={}/t", "--storage=memory:", "--archive_dir=none", "--trainer_spec={}/none.yaml"),
    ],
)
def test_types_that_are_not_there(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    output = run_main(*(argument.format(tmp_path) for argument in arguments))
    assert (output.code, output.out) == (1, "")
    flag = arguments[-1].partition("=")[0]
    assert output.err.startswith(f"trio-cogment: {flag}: {tmp_path}/none.yaml: ")
    assert not (tmp_path / "t").exists()


def test_this_machine() -> None:
    found = this_machine()
    assert found.cpus == os.cpu_count()
    assert found.memory_mb > 100
    assert (this_machine(cpus=3, memory_mb=5, gpus=(1,)).cpus, this_machine(gpus=(1,)).gpus) == (3, (1,))


@pytest.mark.parametrize(("flags", "actions"), [((), '""'), (("--spec=rl",), "{}")])
async def test_runs_of_trials_at_an_orchestrator_elsewhere(
    tmp_path: Path, flags: tuple[str, ...], actions: str
) -> None:
    async with (
        open_platform(people(), store="memory:") as platform,
        listening(*platform.services) as endpoint,
        server(
            *("services", "trainer", "--port=0", f"--folder={tmp_path}"),
            *(f"--orchestrator={endpoint}", f"--datastore={endpoint}", *flags),
        ) as running,
    ):
        with trio.fail_after(PATIENCE_SECONDS):
            async with channel_to(running) as channel:
                client = Client(channel)
                await client.submit("r", **trials(3, parallel=2, seeds=[4]))
                await until(client, "r", "TERM")
                async with client.stream("r") as call:
                    assert {step.action_json async for step in call if step.step_index < 3} == {actions}
                async with client.stream("r", kind="Episodes") as call:
                    returns = {episode.episode_index: episode.total_reward async for episode in call}
        assert returns == {0: 5.5, 1: 1.5, 2: 1.5}
        assert await running.stop() == 0


@pytest.mark.parametrize("stored", [True, False])
async def test_trials_that_a_killed_trainer_has_left_elsewhere_are_ended(tmp_path: Path, stored: bool) -> None:
    """With a datastore the run is seen to execute, so it has failed; without one it begins again."""
    async with (
        open_platform(people(countdown(10_000_000)), store="memory:") as platform,
        listening(*platform.services) as endpoint,
    ):
        arguments = ["services", "trainer", "--port=0", f"--folder={tmp_path}", f"--orchestrator={endpoint}"]
        if stored:
            arguments.append(f"--datastore={endpoint}")
        controller = platform.controller
        other = await controller.start_trial(ParseDict(PARAMS, TrialParams()), trial_id="other")
        with trio.fail_after(PATIENCE_SECONDS):
            async with server(*arguments) as running, channel_to(running) as channel:
                client = Client(channel)
                await client.submit("r", **trials(2))
                await until(client, "r", "EXEC" if stored else "RDY")
                async with controller.watch_trials([TrialState.RUNNING]) as watch:
                    while (await watch.receive()).trial_id != "r-ep000000":
                        pass
                assert await running.stop(signal.SIGKILL) == -signal.SIGKILL
            async with server(*arguments) as running, channel_to(running) as channel:
                client = Client(channel)
                await controller.wait_trial_state("r-ep000000")
                if stored:
                    await until(client, "r", "TERM")
                    assert (await client.record("r")).failure_reason == "daemon restarted"
                else:
                    async with controller.watch_trials([TrialState.RUNNING]) as watch:
                        while (await watch.receive()).trial_id != "r-ep000000-2":
                            pass
                    await client.cancel("r")
                assert await running.stop() == 0
        (info,) = [info for info in await controller.trial_infos() if info.state < TrialState.ENDED]
        assert info.trial_id == other


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--datastore=grpc://a:1",), "--datastore: expected --orchestrator, too"),
        (("--orchestrator=cogment://discover",), "--orchestrator: cogment://discover: discovery needs a directory"),
        (("--spec=rl",), "--spec: expected --datastore, too"),
        (("--orchestrator=here",), "--orchestrator: 'here': "),
    ],
)
def test_places_of_trials_that_cannot_be(arguments: tuple[str, ...], expected: str) -> None:
    output = run_main("services", "trainer", *arguments)
    assert (output.code, output.out) == (1, "")
    assert output.err.startswith(f"trio-cogment: {expected}")
