"""`trio-cogment client trial`, against an orchestrator in this process."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Endless, Output, environment_variables, listening, run_here
from tests.servers.datastore.harness import GateStore
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfo
from trio_cogment.base.endpoints import parse_server_endpoint
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.client.trial import _described
from trio_cogment.platform import Platform, open_platform
from trio_cogment.sdk import ActorSession, EnvironmentSession, actor_params, trial_params
from trio_cogment.servers.datastore.storage import SampleWrite, Write
from trio_cogment.servers.directory import DirectoryServer
from trio_cogment.servers.discovery import DirectoryClient

PARAMS = """
trial_params:
  max_steps: {steps}
  properties: {{kind: small}}
  environment: {{name: world}}
  actors:
    - {{name: ann, actor_class: talker, implementation: {implementation}, endpoint: "cogment://discover"}}
"""


async def world(session: EnvironmentSession) -> None:
    session.take_up()  # it has no state
    await session.start([("*", b"")])
    async for event in session.all_events():
        if event.actions is not None:
            await session.produce_observations([("*", b"")])


async def talker(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"")


async def broken(session: ActorSession) -> None:
    async for event in session.all_events():
        raise RuntimeError(f"a bug at {event.tick_id}")


class Scene:
    def __init__(self, platform: Platform, endpoint: str, folder: Path) -> None:
        self.platform = platform
        self.endpoint = endpoint
        self._folder = folder

    def params(self, steps: int = 3, implementation: str = "talker") -> str:
        file = self._folder / f"{steps}-{implementation}.yaml"
        file.write_text(PARAMS.format(steps=steps, implementation=implementation))
        return f"--params={file}"

    async def ask(self, *arguments: str) -> Output:
        return await run_here("client", "trial", *arguments, f"--endpoint={self.endpoint}")

    async def said(self, *arguments: str) -> str:
        output = await self.ask(*arguments)
        assert (output.code, output.err) == (0, "")
        return output.out


@asynccontextmanager
async def scene(folder: Path, **options: Any) -> AsyncIterator[Scene]:
    async with open_platform(**options) as platform:
        platform.participants.register_environment(world)
        platform.participants.register_actor(talker, "talker")
        platform.participants.register_actor(broken, "broken")
        async with listening(*platform.services) as endpoint:
            yield Scene(platform, endpoint, folder)


@asynccontextmanager
async def endless(found: Scene, *trial_ids: str) -> AsyncIterator[None]:
    """Have trials that go on until somebody ends them."""
    participants = Endless()
    async with participants.served() as served:
        actors = [actor_params("bob", "c", endpoint=served)]
        params = trial_params(actors, environment_endpoint=served)
        for trial_id in trial_ids:
            await found.platform.controller.start_trial(params, trial_id=trial_id)
        with trio.fail_after(PATIENCE_SECONDS):
            await participants.wait_running(trial_ids)
        yield


async def test_a_trial_is_started_and_waited_for(tmp_path: Path) -> None:
    async with scene(tmp_path) as found:
        text = await found.said("start", found.params(), "--trial_id=one", "--wait")
        assert text == "one\nended after 5 ticks: step_limit\n"
        data = json.loads(await found.said("start", found.params(), "--trial_id=two", "--wait", "--json"))
        expected = {
            "trialId": "two",
            "ticks": 5,
            "cause": "step_limit",
            "failed": False,
            "reason": "",
            "samplesLost": 0,
        }
        assert data == expected
        taken = await found.ask("start", found.params(), "--trial_id=one")
        assert (taken.code, taken.err) == (1, "trio-cogment: --trial_id: one: there is such a trial already\n")
        started = (await found.said("start", found.params())).strip()
        assert started in [trial.trial_id for trial in found.platform.orchestrator.trials]


async def test_a_trial_that_fails_is_an_error(tmp_path: Path) -> None:
    async with scene(tmp_path) as found:
        output = await found.ask("start", found.params(implementation="broken"), "--trial_id=one", "--wait")
        assert output.code == 1
        assert output.out == "one\nended after 1 tick: participant_failed\n"
        assert output.err.count("\n") == 1
        assert "ann" in output.err
        described = (await found.said("info", "one")).splitlines()
        assert "end          participant_failed (ann)" in described
        [reason] = [line for line in described if line.startswith("reason       ")]
        assert "ann" in reason
        [lost] = [line for line in described if line.startswith("lost         ann: ")]
        assert len(lost) > len("lost         ann: ")
        bad = tmp_path / "bad.yaml"
        bad.write_text("trial_params: {max_step: 3}")
        output = await found.ask("start", f"--params={bad}")
        assert output.code == 1
        assert output.err.startswith(f"trio-cogment: --params: {bad}: ")


async def test_a_branch_of_a_stored_trial_is_started_and_waited_for(tmp_path: Path) -> None:
    """As docs/branching.md shows it."""
    async with scene(tmp_path, store="memory:") as found:
        await found.said("start", found.params(), "--trial_id=one", "--wait")
        text = await found.said("branch", "one", "--tick=3", "--trial_id=two", "--wait")
        assert text == "two\nended after 2 ticks: step_limit\n"
        properties = "properties   branch.tick=3, branch.trial=one, kind=small"
        assert properties in (await found.said("info", "two")).splitlines()
        taken = await found.ask("branch", "one", "--tick=3", "--trial_id=two")
        assert (taken.code, taken.err) == (1, "trio-cogment: --trial_id: two: there is such a trial already\n")
        missing = await found.ask("branch", "one", "--tick=7")
        assert missing.code == 1
        assert "trial 'one': tick 7: expected one that is stored, got ticks up to 4" in missing.err


async def test_a_start_without_parameters_says_whose_were_wrong(tmp_path: Path) -> None:
    async with scene(tmp_path) as found:
        output = await found.ask("start")
        assert output.code == 1
        assert output.err.endswith("; these are the orchestrator's default parameters; --params names others\n")


def test_a_rate_is_described() -> None:
    info = TrialInfo(trial_id="t")
    assert "tick rate" not in _described(info)
    info.tick_rate.hz, info.tick_rate.late_actions = 59.94, 2
    assert "tick rate    59.94 a second; missed: 0; late actions: 2; made up: 0" in _described(info).splitlines()


async def test_trials_are_listed_and_described(tmp_path: Path) -> None:
    async with scene(tmp_path) as found, endless(found, "going"):
        await found.said("start", found.params(), "--trial_id=over", "--wait")
        lines = [line.split() for line in (await found.said("list")).splitlines()]
        assert [line[:2] for line in lines] == [["TRIAL", "STATE"], ["going", "RUNNING"], ["over", "ENDED"]]
        assert lines[2][-1] == "step_limit"
        assert "over" not in await found.said("list", "--state=running")
        assert "going" not in await found.said("list", "--properties=kind=small")
        trials = json.loads(await found.said("list", "--json"))["trials"]
        assert [(one["trialId"], one["state"]) for one in trials] == [("going", "RUNNING"), ("over", "ENDED")]
        assert trials[1]["awaited"] == []
        described = (await found.said("info", "over")).splitlines()
        expected = [
            "environment  world",
            "actors       ann (talker)",
            "properties   kind=small",
            "end          step_limit",
        ]
        assert {*expected, "end          step_limit"} <= set(described)
        output = await found.ask("info", "over", "nobody", "--json")
        assert (output.code, [one["trialId"] for one in json.loads(output.out)["trials"]]) == (1, ["over"])
        assert output.err.startswith("trio-cogment: no such trial: nobody; ")
        assert (await found.ask("info", "nobody")).out == ""
        assert json.loads((await found.ask("info", "nobody", "--json")).out) == {"trials": []}


def test_a_trial_that_waits_for_its_data_log_waits_for_nobody_else() -> None:
    info = TrialInfo(trial_id="one", state=TrialState.RUNNING, awaited=["ann"])
    assert "waiting for  ann" in _described(info).splitlines()
    info = TrialInfo(trial_id="one", state=TrialState.RUNNING, waits_for_datalog=True, datalog_trouble="no room left")
    assert {"waiting for  the data log", "data log     no room left"} <= set(_described(info).splitlines())


async def test_the_orchestrator_of_a_trial_is_found(tmp_path: Path) -> None:
    async with DirectoryServer() as directory, scene(tmp_path, directory=directory) as found:
        found.platform.reached_at(found.endpoint)
        client = DirectoryClient(found.platform.channel)
        await client.register(ServiceKind.LIFECYCLE, parse_server_endpoint(found.endpoint))
        async with endless(found, "one"):
            assert await found.said("find", "one") == "one  -  RUNNING\n"
            place = f"--directory_endpoint={found.endpoint}"
            assert await found.said("find", "one", place) == f"one  {found.endpoint}  RUNNING\n"
            data = json.loads(await found.said("find", "one", place, "--json"))
            assert data == {"trialId": "one", "endpoint": found.endpoint, "state": "RUNNING", "stored": False}
            unknown = await found.ask("find", "two", place)
            assert (unknown.code, unknown.out) == (1, "")
            assert "'two': no datastore and no orchestrator knows it" in unknown.err


@pytest.mark.parametrize("hard", [True, False])
async def test_trials_are_ended_and_unknown_ones_named(tmp_path: Path, hard: bool) -> None:
    async with scene(tmp_path) as found, endless(found, "a", "b"):
        await found.said("start", found.params(), "--trial_id=over", "--wait")
        output = await found.ask("terminate", "a", "over", "nonexist", "b", *(["--hard"] if hard else []))
        assert output.out == "asked to end: a, b\nhad ended: over\n"
        assert (output.code, output.err.partition(";")[0]) == (1, "trio-cogment: no such trial: nonexist")
        with trio.fail_after(PATIENCE_SECONDS):
            outcome = await found.platform.controller.wait_trial("a", check=False)
        assert outcome.cause.label == ("hard_termination" if hard else "soft_termination")
        assert json.loads(await found.said("terminate", "over", "--json")) == {"trialIds": [], "hadEnded": ["over"]}
        alone = await found.ask("terminate", "nonexist")
        assert (alone.code, alone.out) == (1, "")


async def test_named_trials_are_watched_until_they_have_ended(tmp_path: Path) -> None:
    async with scene(tmp_path) as found, endless(found, "a", "b"):
        said = ""

        async def follow() -> None:
            nonlocal said
            said = await found.said("watch", "a")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await found.platform.controller.terminate_trial("a", hard=True)
        lines = said.splitlines()
        assert lines[-1].startswith("ENDED  a  after ")
        assert lines[-1].endswith(" ticks  hard_termination")
        assert {line.split()[1] for line in lines} == {"a"}
        unknown = await found.ask("watch", "nobody")
        assert (unknown.code, unknown.err.partition(";")[0]) == (1, "trio-cogment: no such trial: nobody")
        last = json.loads((await found.said("watch", "a", "--state=ended", "--json")).splitlines()[-1])
        assert (last["trialId"], last["end"]["cause"]) == ("a", "END_CAUSE_HARD_TERMINATION")


async def test_a_table_on_a_terminal_until_control_c(tmp_path: Path) -> None:
    async with scene(tmp_path) as found, endless(found, "going"):
        leader, follower = os.openpty()
        command = [sys.executable, "-m", "trio_cogment", "client", "trial", "watch", f"--endpoint={found.endpoint}"]
        process = await trio.lowlevel.open_process(
            command,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            env=environment_variables(TERM="xterm"),
        )
        os.close(follower)
        written = b""
        try:
            with trio.fail_after(PATIENCE_SECONDS):
                while b"1 running, 0 ended" not in written or b"going  RUNNING" not in written:
                    written += await trio.to_thread.run_sync(os.read, leader, 4096, abandon_on_cancel=True)
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 130
        finally:
            if process.returncode is None:
                process.kill()
            os.close(leader)
        assert b"Traceback" not in written


class Full(GateStore):
    """A storage without room for samples, until there is."""

    full = True

    async def apply(self, writes: Sequence[Write]) -> Mapping[int, str]:
        """See `TrialStore.apply`."""
        if self.full and any(type(write) is SampleWrite for write in writes):
            raise ResourceExhaustedError("no room left")
        return await super().apply(writes)


@pytest.mark.parametrize("steps", [3, 3000])
async def test_whoever_waits_for_a_trial_is_told_that_its_samples_wait(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it has ended, and is to be stored only."""
    monkeypatch.setattr("trio_cogment.cli.client.trial._LOOK_SECONDS", 0.01)
    store, outputs, told = Full(), list[Output](), trio.Event()
    echo, here = click.echo, trio.lowlevel.current_trio_token()

    def say(text: str, **options: Any) -> None:
        echo(text, **options)
        if "wait for the data log" in text:
            here.run_sync_soon(told.set)

    monkeypatch.setattr("click.echo", say)
    async with scene(tmp_path, store=store) as found, trio.open_nursery() as nursery:

        async def start() -> None:
            outputs.append(await found.ask("start", found.params(steps), "--trial_id=t", "--wait"))

        nursery.start_soon(start)
        with trio.fail_after(PATIENCE_SECONDS):
            await told.wait()
        store.full = False
    [output] = outputs
    said = "trio-cogment: trial t: its samples wait for the data log: no room left"
    back = "trio-cogment: trial t: the data log takes its samples again"
    assert (output.code, output.err.splitlines()) in [(0, [said]), (0, [said, back])]  # it may be stored at once
    assert output.out.splitlines() == ["t", f"ended after {steps + 2} ticks: step_limit"]
