"""Servers as processes: they say where they listen, run trials, and stop as promised."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.cli.process import (
    PATIENCE_SECONDS,
    Endless,
    Server,
    environment_variables,
    run,
    served,
    server,
)
from tests.ports import free_port
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialListEntry
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel
from trio_cogment.sdk import (
    ActorSession,
    Controller,
    Participants,
    PreTrialSession,
    actor_params,
    join_trial,
    trial_params,
)

BOTH_ON_ONE = ("services", "orchestrator", "--lifecycle_port=0", "--actor_port=0")
SERVE = ("serve", "--host=127.0.0.1", "--port=0")


@asynccontextmanager
async def controlled(running: Server) -> AsyncIterator[tuple[Controller, Channel]]:
    async with Channel("127.0.0.1", running.port) as channel:
        yield Controller(channel), channel


async def watch(controller: Controller, entries: list[TrialListEntry], task_status: trio.TaskStatus[None]) -> None:
    async def keep() -> None:
        async with controller.watch_trials() as call:
            task_status.started()
            async for entry in call:
                entries.append(entry)

    with pytest.raises(RpcError) as caught:
        await keep()
    assert caught.value.code is StatusCode.UNAVAILABLE
    assert caught.value.message == "the orchestrator is stopping"


@pytest.mark.parametrize("arguments", [SERVE, BOTH_ON_ONE], ids=["serve", "services orchestrator"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_a_signal_ends_trials_and_watches(
    arguments: tuple[str, ...], number: signal.Signals, tmp_path: Path
) -> None:
    status = tmp_path / "status"
    status.write_text("of the last time")
    endless = Endless()
    entries: list[TrialListEntry] = []
    async with server(*arguments, f"--status_file={status}") as running, endless.served() as endpoint:
        await running.wait_serving()
        async with controlled(running) as (controller, channel), trio.open_nursery() as nursery:
            with trio.fail_after(PATIENCE_SECONDS):
                actors = [actor_params("here", "c", endpoint=endpoint), actor_params("joined", "c", endpoint=CLIENT)]
                params = trial_params(actors, environment_endpoint=endpoint)
                trials = [await controller.start_trial(params) for _ in range(3)]
                await nursery.start(watch, controller, entries)
                for trial_id in trials:
                    join = partial(join_trial, actor_name="joined")
                    nursery.start_soon(join, channel, trial_id, endless.actor)
                await endless.wait_running(trials)
                assert status.read_text() == "IR"
                assert await running.stop(number) == 0, running.err
    told = dict.fromkeys(["env", "here", "joined"], "the orchestrator is stopping")
    for trial_id in trials:
        assert endless.details[trial_id] == told
        assert [entry.state for entry in entries if entry.trial_id == trial_id][-1] == TrialState.ENDED
    assert status.read_text() == "IRT"
    assert "Traceback" not in running.err


async def test_a_participant_that_does_not_listen_cannot_hold_up_a_stop() -> None:
    async with (
        stubborn_trial() as (running, _ended),
        await trio.open_tcp_stream("127.0.0.1", running.port),  # who says nothing
    ):
        assert await running.stop() == 0, running.err
    assert "Traceback" not in running.err


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    status = tmp_path / "status"
    async with stubborn_trial(f"--status_file={status}") as (running, ended):
        running.process.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE_SECONDS):
            await ended.wait()
        assert await running.stop(signal.SIGINT) == 128 + signal.SIGINT
    assert status.read_text() == "IRT"


@asynccontextmanager
async def stubborn_trial(*arguments: str) -> AsyncIterator[tuple[Server, trio.Event]]:
    """Run a trial whose actor stays when it has ended; gives what is set when it was told."""
    endless, ended = Endless(), trio.Event()

    async def stubborn(session: ActorSession) -> None:
        await endless.actor(session)
        ended.set()
        await trio.sleep_forever()

    participants = Participants()
    participants.register_environment(endless.environment)
    participants.register_actor(stubborn, "stubborn")
    async with (
        server(*SERVE, *arguments) as running,
        served(participants) as endpoint,
        controlled(running) as (controller, _),
    ):
        with trio.fail_after(PATIENCE_SECONDS):
            params = trial_params([actor_params("a", "c", endpoint=endpoint)], environment_endpoint=endpoint)
            await endless.wait_running([await controller.start_trial(params)])
        yield running, ended


async def test_two_ports_have_a_service_each() -> None:
    port = free_port()
    arguments = ("services", "orchestrator", "--lifecycle_port=0", f"--actor_port={port}")
    async with server(*arguments, addresses=2) as running:
        assert [names for _, _, names in running.addresses] == ["TrialLifecycleSP", "ClientActorSP"]
        assert running.addresses[1][:2] == ("0.0.0.0", port)
        with trio.fail_after(PATIENCE_SECONDS):
            async with controlled(running) as (controller, channel):
                assert list(await controller.trial_infos()) == []
                with pytest.raises(RpcError) as caught:
                    await join_trial(channel, "t", Endless().actor, actor_name="a")
                assert caught.value.code is StatusCode.UNIMPLEMENTED
            async with Channel("127.0.0.1", port) as channel:
                with pytest.raises(RpcError) as caught:
                    await Controller(channel).trial_infos()
                assert caught.value.code is StatusCode.UNIMPLEMENTED
                with pytest.raises(RpcError) as caught:
                    await join_trial(channel, "t", Endless().actor, actor_name="a")
                assert caught.value.code is not StatusCode.UNIMPLEMENTED
        assert await running.stop() == 0


async def test_a_port_can_be_used_again_at_once_but_not_twice() -> None:
    async with server(*SERVE) as first:
        port = first.port
        async with controlled(first) as (controller, _):
            with trio.fail_after(PATIENCE_SECONDS):
                await controller.trial_infos()
                refused = await run("serve", "--host=127.0.0.1", f"--port={port}")
                assert refused.code == 1
                [line] = refused.err.splitlines()
                assert line.startswith(
                    f"trio-cogment: cannot listen on ipv4:127.0.0.1:{port}: Address already in use; name another port"
                )
                await first.stop()
    async with server("serve", "--host=127.0.0.1", f"--port={port}") as second:
        assert second.port == port
        async with controlled(second) as (controller, _):
            with trio.fail_after(PATIENCE_SECONDS):
                assert list(await controller.trial_infos()) == []


async def test_a_fifo_gets_the_letters_and_the_end_of_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    letters: list[bytes] = []

    async def read() -> None:
        async with await trio.open_file(fifo, "rb", buffering=0) as file:
            while letter := await file.read(1):
                letters.append(letter)

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            async with server(*SERVE, variables={"COGMENT_STATUS_FILE": str(fifo)}) as running:
                await running.stop()
    assert letters == [b"I", b"R", b"T"]


async def test_a_signal_ends_the_wait_for_the_reader_of_a_fifo(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "trio_cogment", *SERVE, f"--status_file={fifo}"]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(partial(trio.run_process, command, check=False, env=environment_variables()))
        with trio.fail_after(PATIENCE_SECONDS):
            await wait_catching(process.pid, signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0


async def wait_catching(pid: int, number: signal.Signals) -> None:
    """Wait until a process has a handler for a signal: nothing else shows that from the outside."""
    status = trio.Path(f"/proc/{pid}/status")
    if not await status.exists():
        pytest.skip("needs /proc")
    while True:
        lines = (await status.read_text()).splitlines()
        (caught,) = (line.split()[1] for line in lines if line.startswith("SigCgt"))
        if int(caught, 16) >> (number - 1) & 1:
            return
        await trio.sleep(0.01)


async def test_flags_and_their_environment_twins(tmp_path: Path) -> None:
    port = free_port()
    status = tmp_path / "status"
    variables = {
        "COGMENT_LIFECYCLE_PORT": str(port),
        "TRIAL_LIFECYCLE_PORT": "1",
        "COGMENT_ACTOR_PORT": "",
        "TRIAL_ACTOR_PORT": str(port),
        "COGMENT_STATUS_FILE": str(status),
        "COGMENT_DIRECTORY_ENDPOINT": "",
        "COGMENT_GC_FREQUENCY": "10",
        "COGMENT_LOG_LEVEL": "off",
    }
    async with server("services", "orchestrator", variables=variables) as running:
        assert running.addresses == [("0.0.0.0", port, "TrialLifecycleSP, ClientActorSP")]
        await running.wait_serving()
        assert status.read_text() == "IR"
    other = tmp_path / "other"
    flags = ("--lifecycle_port=0", "--actor_port", "0", f"--status_file={other}")
    async with server("services", "orchestrator", *flags, variables=variables) as running:
        assert running.port != port
        await running.wait_serving()
        assert other.read_text() == "IR"
        await running.stop()
        assert running.err == ""


@pytest.mark.parametrize("where", ["flag", "environment"])
async def test_default_params_and_hooks(tmp_path: Path, where: str) -> None:
    endless = Endless()
    calls: list[str] = []

    def hook(name: str) -> Participants:
        async def run_hook(session: PreTrialSession) -> None:
            calls.append(name)
            session.params.properties[name] = str(len(calls))

        participants = Participants()
        participants.register_pre_trial_hook(run_hook)
        return participants

    params = tmp_path / "params.yaml"
    async with endless.served() as endpoint, served(hook("one")) as one, served(hook("two")) as two:
        params.write_text(
            "trial_params:\n"
            f"  environment: {{endpoint: '{endpoint}'}}\n"
            f"  actors: [{{name: a, actor_class: c, endpoint: '{endpoint}'}}]\n"
            "  properties: {from: file}\n"
        )
        arguments: tuple[str, ...] = (*SERVE, f"--params={params}", f"--pre_trial_hooks={two},{one}")
        variables: dict[str, str] = {}
        if where == "environment":
            arguments = SERVE
            variables = {"COGMENT_DEFAULT_PARAMS_FILE": str(params), "COGMENT_PRE_TRIAL_HOOKS": f"{two} {one}"}
        async with server(*arguments, variables=variables) as running, controlled(running) as (controller, _):
            with trio.fail_after(PATIENCE_SECONDS):
                trial_id = await controller.start_trial()
                await endless.wait_running([trial_id])
                (info,) = await controller.trial_infos([trial_id])
                assert dict(info.properties) == {"from": "file", "two": "1", "one": "2"}
                await running.stop()
                assert running.process.returncode == 0
    assert calls == ["two", "one"]
