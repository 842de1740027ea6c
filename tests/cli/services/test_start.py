"""A server's port is open and announced before anything slow, and who comes meanwhile is served."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, environment_variables, server
from trio_cogment.api.common_pb2 import VersionRequest
from trio_cogment.cli.opening import EarlySignals
from trio_cogment.rpc import Channel, methods_of
from trio_cogment.services import SERVICES, ServiceKind

#: What takes longer to import than everything that a server needs to listen.
HEAVY = {
    *("trio", "purerpc", "anyio", "h2", "hpack", "google.protobuf", "prometheus_client", "h11", "yaml", "rich"),
    *("asyncio", "ssl", "sqlite3", "logging", "multiprocessing", "concurrent.futures", "email", "tempfile", "json"),
}
OURS = {
    *("cli.client", "config", "host._host", "host.tcp", "rpc", "trial", "orchestrator", "datastore", "directory"),
    *("discovery", "model_registry", "platform", "spec", "sdk", "api", "metrics", "plugins"),
}


PLAIN = [("serve", "--port=0"), ("services", "directory", "--port=0"), ("services", "datastore", "--port=0")]


def modules_when(announcing: str, arguments: tuple[str, ...]) -> set[str]:
    """Return what a server has imported when it is about to call this function, beyond what it had at its start."""
    module, _, name = announcing.partition(":")
    code = (
        "import os, sys; before = set(sys.modules)\n"
        "def announce(*_):\n"
        "    print(*set(sys.modules) - before, flush=True)\n"
        "    os._exit(0)\n"
        f"import {module} as module\n"
        f"module.{name} = announce\n"
        "from trio_cogment.cli import main\n"
        f"main({arguments!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment_variables(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("arguments", PLAIN)
def test_sockets_and_signals_are_imported_before_it_listens_and_little_else(arguments: tuple[str, ...]) -> None:
    found = modules_when("trio_cogment.cli.opening:say", arguments)
    ours = (
        "",
        "._version",
        ".cli",
        ".cli.announced",
        ".cli.commands",
        ".cli.opening",
        ".cli.plain",
        ".cli.quick",
        ".cli.terminal",
        ".service_names",
    )
    theirs = {name for name in found if name.startswith("trio_cogment")}
    assert theirs == {f"trio_cogment{name}" for name in (*ours, ".host", ".host.binding", ".host.lock_probe")}
    assert {"socket", "signal"} <= found
    more = {"click", "typing", "re", "dataclasses", "pathlib", "contextlib", "inspect", "encodings.idna"}
    assert not found & (more | HEAVY)


@pytest.mark.parametrize("arguments", [("services", "--log_level=info", *line[-2:]) for line in PLAIN[1:]])
def test_click_is_imported_before_it_listens_if_need_be_but_nothing_heavy(arguments: tuple[str, ...]) -> None:
    found = modules_when("trio_cogment.cli.services.start:Start.announce", arguments)
    assert "click" in found
    assert not found & (HEAVY | {f"trio_cogment.{name}" for name in OURS})


async def test_who_calls_when_it_is_announced_is_served() -> None:
    async with server("services", "directory", "--host=127.0.0.1", "--port=0", "--persistence_file=") as running:
        with trio.fail_after(PATIENCE_SECONDS):
            async with Channel("127.0.0.1", running.port) as channel:
                version = methods_of(SERVICES[ServiceKind.DIRECTORY].descriptor())["Version"]
                assert (await channel.unary(version, VersionRequest())).versions
        assert await running.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_a_signal_right_after_the_announcement_stops_it_in_order(number: signal.Signals) -> None:
    async with server("services", "directory", "--host=127.0.0.1", "--port=0", "--persistence_file=") as running:
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
