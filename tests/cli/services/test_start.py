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
from trio_cogment.cli.services.start import EarlySignals
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


@pytest.mark.parametrize(
    "arguments", [("serve", "--port=0"), ("services", "directory", "--port=0"), ("services", "datastore", "--port=0")]
)
def test_nothing_heavy_is_imported_before_it_listens(arguments: tuple[str, ...]) -> None:
    code = (
        "import os, sys; before = set(sys.modules)\n"
        "from trio_cogment.cli import main\n"
        "from trio_cogment.cli.services.start import Start\n"
        "def announce(self):\n"
        "    print(*set(sys.modules) - before, flush=True)\n"
        "    os._exit(0)\n"
        "Start.announce = announce\n"
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
    found = set(done.stdout.split())
    assert "click" in found
    too_much = found & (HEAVY | {f"trio_cogment.{name}" for name in OURS})
    assert not too_much


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
