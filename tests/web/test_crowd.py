"""Thousands of WebSockets come to the port of a server, and a trial of native gRPC there ticks on."""

from __future__ import annotations

import resource
from collections import Counter
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from tests.cli.process import PATIENCE_SECONDS, Endless, Server, server
from trio_cogment.rpc import Channel
from trio_cogment.sdk import Controller, actor_params, trial_params

PATH = "/cogmentAPI.ClientActorSP/RunTrial"
TRIAL = "native"
#: Connections that are being opened at a time; a full backlog costs seconds.
AT_A_TIME = 50


async def open_socket(port: int, held: list[trio.SocketStream]) -> str:
    """Ask for a WebSocket; keep it if it opens. Return the status of the answer."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    fields = {
        "host": f"127.0.0.1:{port}",
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-protocol": "grpc-websockets",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    await stream.send_all(f"GET {PATH} HTTP/1.1\r\n{head}\r\n".encode())
    answer = bytes(await stream.receive_some())
    status = answer[9:12].decode()
    if status == "101":
        held.append(stream)
    else:
        await stream.aclose()
    return status


async def crowd(port: int, attempts: int, endless: Endless) -> Counter[str]:
    """Attempt to open this many, all of which stay open that do; the trial must tick after each group."""
    found: Counter[str] = Counter()
    held: list[trio.SocketStream] = []

    async def attempt() -> None:
        found[await open_socket(port, held)] += 1

    try:
        while found.total() < attempts:
            before = endless.ticks[TRIAL]
            async with trio.open_nursery() as nursery:
                for _ in range(min(AT_A_TIME, attempts - found.total())):
                    nursery.start_soon(attempt)
            with trio.fail_after(PATIENCE_SECONDS):
                await endless.wait_tick(TRIAL, before + 3)
    finally:
        for stream in held:
            await trio.aclose_forcefully(stream)
    return found


async def new_one(of: Server) -> None:
    """Wait until there is room again: the server has to notice that the others have gone."""
    held: list[trio.SocketStream] = []
    with trio.fail_after(PATIENCE_SECONDS):
        while await open_socket(of.port, held) != "101":
            pass
    await held[0].aclose()


@pytest.mark.parametrize(
    ("attempts", "most"),
    [(300, 60), pytest.param(10_000, 2000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])],
)
async def test_a_crowd_of_websockets(attempts: int, most: int, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    config = tmp_path / "config.yaml"
    config.write_text(f"web: {{max_connections: {most}, head_timeout_seconds: 500}}\n")
    endless = Endless()
    try:
        async with (
            endless.served() as endpoint,
            server("serve", "--host=127.0.0.1", "--port=0", f"--config={config}") as there,
            Channel("127.0.0.1", there.port) as channel,
        ):
            controller = Controller(channel)
            actor = actor_params("ann", "player", endpoint=endpoint, implementation="endless")
            params = trial_params([actor], environment_endpoint=endpoint)
            assert await controller.start_trial(params, trial_id=TRIAL) == TRIAL
            await endless.wait_running([TRIAL])
            found = await crowd(there.port, attempts, endless)
            assert found.total() == attempts
            assert set(found) == {"101", "503"}
            assert found["101"] == most
            await new_one(there)
            assert [info.state for info in await controller.trial_infos([TRIAL])] == [3]
            with trio.fail_after(PATIENCE_SECONDS):
                await endless.wait_tick(TRIAL, endless.ticks[TRIAL] + 3)
            assert await there.stop() == 0
            assert "Traceback" not in there.err
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
