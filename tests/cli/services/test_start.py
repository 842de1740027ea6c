"""A server is announced when it serves: before that nobody can connect, and what prevents its start is told at once."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, environment_variables, run, server
from trio_cogment.api.common_pb2 import VersionRequest
from trio_cogment.base.host.files import SystemFiles
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.services.early_signals import EarlySignals
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings
from trio_cogment.cli.services.start import Application, Resources, Running
from trio_cogment.rpc import Channel, methods_of

HERE = "--host=127.0.0.1"
#: What takes longer to import than everything that is checked before a server opens what it serves.
HEAVY = {
    *("trio", "purerpc", "anyio", "h2", "hpack", "google.protobuf", "prometheus_client", "h11", "yaml", "rich"),
    *("asyncio", "ssl", "sqlite3", "multiprocessing", "concurrent.futures", "email", "tempfile"),
}
OURS = {
    *("cli.client", "config", "host._host", "host.tcp", "rpc", "trial", "orchestrator", "datastore", "directory"),
    *("discovery", "model_registry", "platform", "spec", "sdk", "api", "metrics", "plugins"),
}


@pytest.mark.parametrize("service", ["directory", "trial_datastore", "model_registry", "orchestrator"])
def test_a_port_in_use_is_found_before_anything_heavy_is_imported(service: str) -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from trio_cogment.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(*set(sys.modules) - before)"
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        flags = [f"--lifecycle_port={port}", "--actor_port=0"] if service == "orchestrator" else [f"--port={port}"]
        done = subprocess.run(
            [sys.executable, "-c", code, "services", service, HERE, *flags],
            env=environment_variables(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert done.returncode == 1
    assert os.strerror(errno.EADDRINUSE) in done.stderr
    found = set(done.stdout.split())
    assert "click" in found
    assert not found & (HEAVY | {f"trio_cogment.{name}" for name in OURS})


def test_nobody_can_connect_before_it_serves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    @asynccontextmanager
    async def opened(resources: Resources) -> AsyncIterator[Running]:
        with socket.socket() as one:
            seen.append(one.connect_ex(("127.0.0.1", resources.ports[0])))
        if seen:
            raise Failure("that is all")
        yield Running(services=[[]])

    monkeypatch.setattr(os, "umask", lambda _mask: 0)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        with pytest.raises(Failure, match="that is all"):
            run_server(ServerSettings(hosts=["127.0.0.1"]), Application(name="a", ports=[0], open=opened))
    finally:  # it has set up the log of the process
        root.handlers[:] = handlers
        root.setLevel(level)
    assert seen == [errno.ECONNREFUSED]
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "lock", "text"),
    [
        (("services", "directory", "--persistence_file=c"), "c.lock", "persistence file"),
        (("services", "trial_datastore", "--file_storage=a.db"), "a.db.lock", "another datastore"),
        (("services", "model_registry", "--archive_dir=a"), "a/.lock", "another model registry"),
        (("serve", "--storage=sqlite:a.db"), "a.db.lock", "another datastore"),
        (("serve", "--archive_dir=a", "--storage=none"), "a/.lock", "another model registry"),
        (("serve", "--persistence_file=b"), "b.lock", "another directory"),
    ],
)
async def test_a_server_whose_files_another_one_uses_is_not_announced(
    tmp_path: Path, arguments: tuple[str, ...], lock: str, text: str
) -> None:
    (tmp_path / "a").mkdir()
    held = SystemFiles().lock(str(tmp_path / lock))
    try:
        output = await run(*arguments, HERE, "--port=0", folder=tmp_path)
    finally:
        held.release()
    assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
    assert text in output.err


async def test_it_answers_when_it_is_announced() -> None:
    async with server("services", "directory", HERE, "--port=0", "--persistence_file=") as running:
        with trio.fail_after(PATIENCE_SECONDS):
            async with Channel("127.0.0.1", running.port) as channel:
                version = methods_of(SERVICES[ServiceKind.DIRECTORY].descriptor())["Version"]
                assert (await channel.unary(version, VersionRequest())).versions
        assert await running.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_a_signal_right_after_the_announcement_stops_it_in_order(number: signal.Signals) -> None:
    async with server("services", "directory", HERE, "--port=0", "--persistence_file=") as running:
        assert await running.stop(number) == 0
    assert "Traceback" not in running.err


def test_a_signal_is_remembered_until_trio_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with EarlySignals() as early:
        seen = [early.came]
        signal.raise_signal(signal.SIGINT)
        assert [*seen, early.came] == [False, True]
        codes: list[int] = []
        monkeypatch.setattr(os, "_exit", codes.append)
        signal.raise_signal(signal.SIGTERM)
        assert codes == [128 + signal.SIGTERM]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
