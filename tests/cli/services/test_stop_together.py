"""Services and their directory that are stopped at the same moment, as a launcher or a container host stops them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Server, run_here, server
from tests.ports import free_port

#: What the services below register, and of which types.
KINDS = sorted(["actservice", "lifecycle", "modelregistry", "datalog", "datastore", "environment"])


async def kinds_in(endpoint: str) -> list[str]:
    output = await run_here("client", "directory", "inquire", f"--directory_endpoint={endpoint}")
    assert output.code == 0, output.err
    return sorted(line.split("[")[1].rstrip("]") for line in output.out.splitlines() if line.startswith("\tType"))


async def entries_in(endpoint: str) -> int:
    """Return how many registrations there are, those that are not shown included."""
    asking = ("status", "nb_entries", f"--endpoint={endpoint}", "--type=directory", "--console_output=json")
    output = await run_here(*asking)
    return int(json.loads(output.out)["statuses"]["nb_entries"])


async def until(look: Callable[[str], Awaitable[object]], endpoint: str, expected: object) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            if await look(endpoint) == expected:
                return
            await trio.sleep(0.05)


@pytest.mark.parametrize("directory_of", ["its own", "serve"])
async def test_everything_stopped_at_the_same_moment_leaves_no_registration(directory_of: str, tmp_path: Path) -> None:
    where = f"grpc://127.0.0.1:{free_port()}"
    file = f"--persistence_file={tmp_path}/registrations"
    at = ("--host=127.0.0.1", f"--port={where.rpartition(':')[2]}")
    told = (f"--directory_endpoint={where}", "--directory_registration_host=127.0.0.1", "--host=127.0.0.1")
    archive = f"--archive_dir={tmp_path}/archive"
    if directory_of == "serve":
        directory: tuple[str, ...] = ("serve", *at, file, archive, "--storage=memory:")
        others: list[tuple[str, ...]] = []
    else:
        directory = ("services", "directory", *at, file)
        others = [
            ("services", "orchestrator", "--lifecycle_port=0", "--actor_port=0", *told),
            ("services", "model_registry", "--port=0", archive, *told),
            ("services", "trial_datastore", "--port=0", *told),
        ]
    async with AsyncExitStack() as stack:
        # The directory comes last: whoever registers waits for it.
        running: list[Server] = [await stack.enter_async_context(server(*command)) for command in others]
        participants = await trio.lowlevel.open_process([sys.executable, "-m", "tests.cli.worlds", where, "world"])
        running.append(await stack.enter_async_context(server(*directory)))
        try:
            await until(kinds_in, where, KINDS)
            for one in running:
                one.process.send_signal(signal.SIGTERM)
            participants.send_signal(signal.SIGINT)
            with trio.fail_after(PATIENCE_SECONDS):
                assert [await one.process.wait() for one in running] == [0] * len(running)
                await participants.wait()
        finally:
            participants.kill()
    # `serve` would register itself again.
    async with server("services", "directory", *at, file, "--registration_lag=0"):
        assert await entries_in(where) == 0
        assert await kinds_in(where) == []


async def test_services_that_were_killed_with_their_directory_are_not_found_after_its_restart(tmp_path: Path) -> None:
    where = f"grpc://127.0.0.1:{free_port()}"
    directory = ("services", "directory", "--host=127.0.0.1", f"--port={where.rpartition(':')[2]}")
    told = (f"--directory_endpoint={where}", "--directory_registration_host=127.0.0.1", "--host=127.0.0.1")
    config = tmp_path / "directory.yaml"
    config.write_text(
        "directory_server: {forget_seconds: 1, recheck_initial_seconds: 0.1, scan_interval_seconds: 0.1}\n"
    )
    flags = (f"--persistence_file={tmp_path}/registrations", f"--config={config}")
    async with (
        server(*directory, *flags) as first,
        server("services", "trial_datastore", "--port=0", *told) as datastore,
    ):
        await until(kinds_in, where, ["datalog", "datastore"])
        for one in (datastore, first):
            one.process.kill()
            await one.process.wait()
    async with server(*directory, *flags, "--registration_lag=0"):
        assert await kinds_in(where) == []
        await until(entries_in, where, 0)  # and they are forgotten
