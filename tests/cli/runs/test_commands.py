"""`trio-cogment run submit` and its siblings, against a trainer."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Output, environment_variables, listening, run_here, run_main
from tests.cli.test_configuration import rows
from tests.ports import free_port
from tests.trainer.bench import Client, FakeDispatcher, serving, steps
from tests.trainer.configs import a_config, a_document
from trio_cogment.api.trainer.trainer_pb2 import RunEpisode
from trio_cogment.base.endpoints import parse_server_endpoint
from trio_cogment.cli.client.common import ClientSettings
from trio_cogment.cli.client.reaching import reached
from trio_cogment.cli.runs.common import trainer_question
from trio_cogment.rpc import InProcessChannel
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.trainer import Trainer, trainer_services
from trio_cogment.trainer.runs import Cause


class Here:
    """A trainer with a port, and its commands."""

    def __init__(self, client: Client, trainer: Trainer, endpoint: str) -> None:
        self.client = client
        self.trainer = trainer
        self.variables = {"COGMENT_TRAINER_ENDPOINT": endpoint}

    async def run(self, *arguments: str, data: str = "", code: int = 0) -> Output:
        output = await run_here("run", *arguments, variables=self.variables, data=data.encode())
        assert output.err == ""
        assert output.code == code
        return output

    async def json(self, *arguments: str, data: str = "", code: int = 0) -> list[Any]:
        lines = (await self.run(*arguments, "--json", data=data, code=code)).out.splitlines()
        return [json.loads(line) for line in lines]

    async def refused(self, *arguments: str) -> str:
        output = await run_here("run", *arguments, variables=self.variables)
        assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
        return output.err.removeprefix("trio-cogment: ").rstrip()


@asynccontextmanager
async def here(**settings: Any) -> AsyncIterator[Here]:
    async with (
        serving(**settings) as (client, trainer),
        listening(*trainer_services(trainer)) as endpoint,
    ):
        yield Here(client, trainer, endpoint)


async def ended_run(of: Here, run_id: str = "a") -> None:
    """Make a run of three steps and two episodes."""
    await of.client.submit(run_id, run_name=run_id)
    await of.client.register(run_id)
    await of.client.publish(steps(run_id, 3))
    episodes = [RunEpisode(run_id=run_id, worker_id="w", episode_index=n, total_reward=n + 0.5) for n in range(2)]
    await of.client.publish(episodes, kind="Episodes")
    await of.client.cancel(run_id)


async def test_submit(tmp_path: Path) -> None:
    async with here() as of:
        file = tmp_path / "run.json"
        file.write_text(a_config(entry_point="external"))
        output = await of.run("submit", str(file), "--run-id", "mine")
        assert output.out == "mine\n"
        (reply,) = await of.json("submit", "-", data=a_config(entry_point="external", run_name="other"))
        assert len(reply["run_id"]) == 26
        yaml = tmp_path / "run.yaml"
        yaml.write_text("\n".join(f"{key}: {json.dumps(value)}" for key, value in document().items()))
        assert (await of.run("submit", str(yaml), "--run-id", "third")).out == "third\n"
        assert [record.run_id for record in await of.client.runs()] == ["mine", reply["run_id"], "third"]


def document() -> dict[str, Any]:
    return a_document(entry_point="external", run_name="third")


async def test_submit_of_what_cannot_be(tmp_path: Path) -> None:
    async with here() as of:
        file = tmp_path / "run.json"
        file.write_text("{}")
        output = await run_here("run", "submit", str(file), variables=of.variables)
        assert (output.code, output.out) == (1, "")
        assert output.err.splitlines() == [
            f"trio-cogment: {file}: {name}: expected a value, got none"
            for name in ("run_name", "entry_point", "arguments", "environment", "resources", "artifacts")
        ]
        file.write_text("{")
        assert (await of.refused("submit", str(file))).startswith(f"{file}: expected JSON: ")
        assert await of.refused("submit", "/nowhere.json") == "/nowhere.json: No such file or directory"
        yaml = tmp_path / "run.yaml"
        yaml.write_text("a: [")
        assert "not YAML" in await of.refused("submit", str(yaml))


async def test_list() -> None:
    async with here() as of:
        assert (await of.run("list")).out.splitlines() == ["RUN  NAME  STATUS  OUTCOME  UPDATED  GPUS  REASON"]
        await of.client.submit("a")
        await ended_run(of, "b")
        lines = (await of.run("list")).out.splitlines()
        assert [line.split()[:3] for line in lines[1:]] == [["a", "cartpole", "INIT"], ["b", "b", "TERM"]]
        (found,) = await of.json("list", "--status", "term")
        assert (found["run_id"], found["status"], found["failure_reason"]) == ("b", "RUN_STATUS_TERM", "user_cancel")


async def test_cancel_pause_resume_and_rate() -> None:
    async with here() as of:
        await of.client.submit("a")
        await of.client.register("a")
        assert (await of.run("pause", "a")).out == "a: paused\n"
        assert await of.client.status("a") == "PAUSE"
        assert await of.json("resume", "a") == [{"run_id": "a", "done": "goes on"}]
        assert await of.client.status("a") == "RDY"
        assert (await of.run("rate", "a", "20")).out == "a: at most 20 a second\n"
        assert of.trainer.reports.control("a").max_rate_hz == 20
        assert (await of.run("rate", "a", "0")).out == "a: any number a second\n"
        await of.client.submit("b", run_name="b")
        assert (await of.run("cancel", "a", "b")).out == "a: cancelled\nb: cancelled\n"
        assert [await of.client.status(run_id) for run_id in "ab"] == ["TERM", "TERM"]


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "steps", "episodes", "watch"])
async def test_a_run_that_there_is_not(verb: str) -> None:
    async with here() as of:
        assert "there is no run 'nobody'" in await of.refused(verb, "nobody")


async def test_a_secret() -> None:
    async with here(controller_secret="hush") as of:
        await of.client.submit("a")
        await of.client.register("a")
        assert "controller-secret" in await of.refused("pause", "a")
        assert (await of.run("pause", "a", "--secret", "hush")).out == "a: paused\n"


async def test_steps_and_episodes() -> None:
    async with here() as of:
        await ended_run(of)
        assert [found["step_index"] for found in await of.json("steps", "a")] == [0, 1, 2]
        (found,) = await of.json("steps", "a", "--since", "2")
        assert (found["seq_id"], found["reward"]) == (3, 1.0)
        assert (await of.run("steps", "a", "--since=2")).out.split()[:5] == ["3", "episode", "0", "step", "2"]
        assert [found["total_reward"] for found in await of.json("episodes", "a")] == [0.5, 1.5]
        assert (await of.run("episodes", "a")).out.splitlines()[1].endswith("return 1.5 in 0 steps")


async def test_watch_of_a_run_ends_with_it() -> None:
    async with here() as of:
        await of.client.submit("a")
        await of.client.register("a")
        outputs: list[Output] = []

        async def watch() -> None:
            outputs.append(await of.run("watch", "a", code=1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await of.client.publish([RunEpisode(run_id="a", worker_id="w", total_reward=7)], kind="Episodes")
            await of.client.cancel("a")
        lines = outputs[0].out.splitlines()
        assert "       1  episode 0 -: return 7 in 0 steps" in lines
        assert lines[-1] == "a  TERM  episodes 1  steps 0  return 7  mean of 1 7  canceled: user_cancel"
        *episodes, last = await of.json("watch", "a", code=1)
        assert [episode["total_reward"] for episode in episodes] == [7]
        assert last["status"] == "RUN_STATUS_TERM"


async def test_watch_of_a_failed_run_shows_the_last_lines_of_its_errors() -> None:
    async with here(dispatcher=FakeDispatcher()) as of:
        await of.client.submit("a", entry_point="python")
        await of.trainer.reports.starting("a")
        await of.trainer.reports.ended("a", Cause.FAILED, "exit_code_1", "Traceback:\nno\x1bdata")
        lines = (await of.run("watch", "a", code=1)).out.splitlines()
        assert lines[-3:] == [
            "a  TERM  episodes 0  steps 0  return -  mean of 0 -  failed: exit_code_1",
            "  Traceback:",
            "  no\\x1bdata",
        ]
        (last,) = await of.json("watch", "a", code=1)
        assert (last["outcome"], last["detail"]) == ("failed", "Traceback:\nno\x1bdata")


async def test_the_exit_code_of_watch_is_0_if_the_run_has_succeeded() -> None:
    async with here(dispatcher=FakeDispatcher()) as of:
        await of.client.submit("a", entry_point="python")
        await of.trainer.reports.starting("a")
        await of.trainer.reports.ended("a", Cause.FINISHED)
        assert (await of.run("watch", "a", code=0)).out.endswith("  succeeded\n")
        (last,) = await of.json("watch", "a", code=0)
        assert last["outcome"] == "succeeded"


async def test_a_list_of_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with here() as of:
        await of.client.submit("a")
        record = await of.client.record("a")
        reason = "why " * 1000
        record.failure_reason = reason
        monkeypatch.setattr(of.trainer, "records", lambda *_: [record] * 2000)
        found = await of.json("list")
        assert [one["failure_reason"] for one in found] == [reason] * 2000, "8 MB"


async def test_watch_of_all_runs_ends_with_the_trainer() -> None:
    async with here(dispatcher=FakeDispatcher()) as of:
        await ended_run(of)

        outputs: list[Output] = []

        async def watch() -> None:
            outputs.append(await run_here("run", "watch", "--json", variables=of.variables))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            with trio.fail_after(20):
                while not of.trainer._streams:  # noqa: ASYNC110  nothing tells of it
                    await trio.sleep(0.01)
            of.trainer.stop()
    records = [json.loads(line) for line in outputs[0].out.splitlines()]
    assert [record["run_id"] for record in records] == ["a"]
    assert "is stopping" in outputs[0].err


class Screen:
    """A terminal with a command about runs."""

    def __init__(self, stream: trio.lowlevel.FdStream, process: trio.Process) -> None:
        self._stream = stream
        self._out = ""
        self.process = process

    async def until(self, *rows: tuple[str, ...]) -> None:
        """Read until the first words of the lines that were drawn last are these."""
        with trio.fail_after(PATIENCE_SECONDS):
            while not self._shows(rows):
                try:
                    self._out += (await self._stream.receive_some()).decode()
                except trio.BrokenResourceError:  # a terminal whose program has ended
                    assert self._shows(rows), self._out
                    return

    def _shows(self, rows: tuple[tuple[str, ...], ...]) -> bool:
        lines = self._out.rpartition("\x1b[H\x1b[J")[2].splitlines()
        words = [tuple(line.split()) for line in lines]
        if not self._out.endswith("\n"):
            return False
        return tuple(line[: len(row)] for line, row in zip(words, rows, strict=False)) == rows


@asynccontextmanager
async def on_terminal(of: Here, *arguments: str, columns: int = 80, lines: int = 24) -> AsyncIterator[Screen]:
    ours, theirs = pty.openpty()
    variables = environment_variables(**of.variables, COLUMNS=str(columns), LINES=str(lines))
    async with trio.lowlevel.FdStream(ours) as stream:
        try:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "trio_cogment", "run", *arguments],
                env=variables,
                stdin=theirs,
                stdout=theirs,
                stderr=subprocess.DEVNULL,
            )
        finally:
            os.close(theirs)
        try:
            yield Screen(stream, process)
            with trio.fail_after(PATIENCE_SECONDS):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()


async def test_list_and_watch_on_a_terminal() -> None:
    async with here(dispatcher=FakeDispatcher()) as of:
        await of.client.submit("a" * 26)
        await ended_run(of, "b" * 26)
        first, second = "a" * 26, "b" * 26
        narrow = ("RUN", "NAME", "STATUS", "OUTCOME", "UPDATED", "REASON")
        async with on_terminal(of, "list", columns=110) as screen:
            await screen.until(narrow, (first, "cartpole", "INIT"), (second, second, "TERM", "canceled"))
        assert screen.process.returncode == 0
        async with on_terminal(of, "watch", columns=40, lines=5) as screen:
            await screen.until((), (first,), (second,))
            await of.client.register(first)
            await screen.until(("RUN", "NAME"), (first, "cartpole"), (second,))
            for name in "cd":
                await of.client.submit(name, run_name=name)
            await screen.until((), ("c", "c", "INIT"), ("d", "d", "INIT"), ("and", "2", "that", "changed", "earlier"))
            await of.client.register("c")
            await screen.until((), ("c", "c", "RDY"), ("d", "d", "INIT"), ("and", "2"))
            of.trainer.stop()
        assert screen.process.returncode == 1


async def test_export(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    async with here() as of:
        await ended_run(of)
        await of.client.submit("b", run_name="b")
        folder = tmp_path / "new"
        assert (await of.run("export", "a", str(folder))).out == f"3 steps and 2 episodes written: {folder}\n"
        assert "run 'b' goes on" in await of.refused("export", "b", str(folder))
        (found,) = await of.json("export", "a", str(folder))
        assert (found["steps"], found["episodes"]) == (3, 2)
        rows = parquet.read_table(folder / "steps.parquet").to_pylist()
        assert [(row["seq_id"], row["step_index"], row["reward"], row["timestamp"]) for row in rows] == [
            (1, 0, 1.0, None),
            (2, 1, 1.0, None),
            (3, 2, 1.0, None),
        ]
        episodes = parquet.read_table(folder / "episodes.parquet").to_pylist()
        assert [row["total_reward"] for row in episodes] == [0.5, 1.5]
        (tmp_path / "file").write_text("")
        assert "file" in await of.refused("export", "a", str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("rate", "a", "fast"), "'fast' is not a valid integer range"),
        (("cancel",), "Missing argument 'RUN...'"),
        (("list", "--status", "gone"), "--status: 'gone' is not one of"),
        (("list", "--trainer=here"), "--trainer: 'here': "),
        (
            ("list", "--trainer=grpc://127.0.0.1:1", "--timeout=1s"),
            "the trainer at grpc://127.0.0.1:1 cannot be reached: ",
        ),
    ],
)
def test_values_that_cannot_be(arguments: tuple[str, ...], expected: str) -> None:
    output = run_main("run", *arguments)
    assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
    assert expected.lower() in output.err.lower()


async def test_a_trainer_is_told_from_other_servers() -> None:
    settings = ClientSettings(timeout_seconds=PATIENCE_SECONDS)
    async with here() as of, DirectoryServer() as directory, listening(*directory_services(directory)) as other:
        trainer = of.variables["COGMENT_TRAINER_ENDPOINT"]
        for endpoints in ((other, trainer), (trainer, other), (f"grpc://127.0.0.1:{free_port()}", trainer)):
            places = list(map(parse_server_endpoint, endpoints))
            async with reached(settings, None, places, name="trainer", question=trainer_question) as channel:
                assert f"grpc://{channel.authority}" == trainer
        of.variables = {"COGMENT_ENDPOINT": trainer}
        assert await of.json("list") == []


def test_where_trainers_are_looked_for() -> None:
    help_text = " ".join(run_main("run", "list", "--help").out.split())
    assert "COGMENT_TRAINER_ENDPOINT, COGMENT_ENDPOINT; default: (grpc://localhost:50055, then" in help_text
    documented = {name.partition("`")[0]: row for name, row in rows("Where clients look").items()}
    default = "grpc://localhost:50055, then grpc://localhost:9000"
    assert documented["run"] == ["`--trainer`", "`COGMENT_TRAINER_ENDPOINT`", default]


async def test_the_same_over_any_channel() -> None:
    from trio_cogment.trainer.client import TrainerClient

    async with serving() as (client, trainer), InProcessChannel(trainer_services(trainer)) as channel:
        mine = TrainerClient(channel)
        assert await mine.submit(a_config(entry_point="external"), run_id="a") == "a"
        assert (await mine.health()).healthy
        await client.register("a")
        await mine.limit_rate("a", 3)
        assert trainer.reports.control("a").max_rate_hz == 3
