"""A server without descriptors: strangers take the last of them, and honest trials, watchers and data logs go on.

Two seconds here, a minute under `soak`.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Endless, Server, served, server
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import RpcError
from trio_cogment.rpc import Channel
from trio_cogment.sdk import Controller, DatalogSession, Participants, actor_params, trial_params

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
#: What is left when the honest peers are there.
LEFT = 64
STRANGERS = 200

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of another process, and /proc")


class Log:
    """A data log that counts."""

    def __init__(self) -> None:
        self.samples = 0

    async def implementation(self, session: DatalogSession) -> None:
        async for _ in session:
            self.samples += 1


def leave_descriptors(running: Server, number: int) -> None:
    """Let the process have this many more descriptors than it has now."""
    used = len(list(Path(f"/proc/{running.process.pid}/fd").iterdir()))
    _, hard = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (used + number, hard))


async def connect_again_and_again(port: int) -> None:
    """Be a stranger: connect, say hello, and come back whenever the server hangs up."""
    while True:
        try:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(PREFACE)
                while await stream.receive_some():
                    pass
        except OSError:
            pass  # a reset: it was not let in
        except trio.BrokenResourceError:
            pass
        await trio.sleep(0.05)


async def trials_seen_from_elsewhere(port: int) -> list[str]:
    """Connect as soon as there is room for more."""
    while True:
        try:
            async with Channel("127.0.0.1", port) as channel:
                return [info.trial_id for info in await Controller(channel).trial_infos()]
        except RpcError as error:
            if "reserved_descriptors" not in error.message:
                raise
        await trio.sleep(0.05)  # the server has not noticed yet that all strangers have gone


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(2, id="small"),
        pytest.param(60, id="full", marks=[pytest.mark.soak, pytest.mark.timeout(200)]),
    ],
)
async def test_honest_peers_live_while_descriptors_are_exhausted(seconds: float) -> None:
    endless, log = Endless(), Log()
    participants = Participants()
    participants.register_environment(endless.environment)
    participants.register_actor(endless.actor, "endless")
    participants.register_datalog(log.implementation)
    states: list[tuple[str, int]] = []

    watching = trio.CancelScope()

    async def watch(controller: Controller, task_status: trio.TaskStatus[None]) -> None:
        with watching:
            async with controller.watch_trials() as call:
                task_status.started()
                async for entry in call:
                    states.append((entry.trial_id, entry.state))

    async with (
        served(participants) as endpoint,
        server("serve", "--host=127.0.0.1", "--port=0") as running,
        Channel("127.0.0.1", running.port) as channel,
        trio.open_nursery() as nursery,
    ):
        controller = Controller(channel)
        params = trial_params(
            [actor_params("a", "c", endpoint=endpoint)], environment_endpoint=endpoint, datalog_endpoint=endpoint
        )
        await nursery.start(watch, controller)
        with trio.fail_after(PATIENCE_SECONDS):
            first = await controller.start_trial(params)
            await endless.wait_running([first])
        leave_descriptors(running, LEFT)
        strangers = [trio.CancelScope() for _ in range(STRANGERS)]

        async def be_strange(scope: trio.CancelScope) -> None:
            with scope:
                await connect_again_and_again(running.port)

        for scope in strangers:
            nursery.start_soon(be_strange, scope)
        began = trio.current_time()
        while trio.current_time() < began + seconds:
            with trio.fail_after(PATIENCE_SECONDS):
                await endless.wait_tick(first, endless.ticks[first] + 5)
                second = await controller.start_trial(params)  # on connections that are there
                await endless.wait_running([second])
                await controller.terminate_trial(second)
                before = log.samples
                while log.samples == before or (second, TrialState.ENDED) not in states:
                    await endless.wait_tick(first, endless.ticks[first] + 1)
                await trio.sleep(0.2)
        for scope in strangers:
            scope.cancel()
        with trio.fail_after(PATIENCE_SECONDS):
            assert first in await trials_seen_from_elsewhere(running.port)
            watching.cancel()
            assert await running.stop() == 0
        nursery.cancel_scope.cancel()
    assert "Traceback" not in running.err
    assert "connection refused" in running.err
