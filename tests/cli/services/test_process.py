"""Time of a stop, in virtual time: the server runs in this process, where no other work can hold it up.

The sockets are real: time passes when everybody has waited for a moment, in which what was sent has surely arrived.
"""

from __future__ import annotations

import signal
from functools import partial

import pytest
import trio
import trio.testing

from tests.cli.process import NOTHING_ELSE, Endless, listening
from tests.cli.test_configuration import settings
from tests.ports import free_port
from trio_cogment.cli.serve import serve
from trio_cogment.cli.services.orchestrator import orchestrator_application
from trio_cogment.cli.services.process import run_until_signal
from trio_cogment.cli.services.server import _serve
from trio_cogment.cli.services.start import Start
from trio_cogment.rpc import Channel
from trio_cogment.sdk import ActorSession, Controller, Participants, actor_params, trial_params
from trio_cogment.testing.fakes.directory import FakeDirectory

#: What docs/wire.md promises.
STOP_SECONDS = 5

#: Who is in the way -> what the directory does not answer.
HANGING = {
    "nobody": set[str](),
    "an actor that stays": set[str](),
    "a connection that says nothing": set[str](),
    "a directory that hangs": {"Deregister", "Inquire"},
    "a directory that never answered": {"Register"},
}


async def say_nothing(port: int, task_status: trio.TaskStatus[None]) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", port):
        task_status.started()
        await trio.sleep_forever()


@pytest.mark.parametrize("in_the_way", HANGING)
async def test_a_stop_is_over_in_time(
    in_the_way: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.1
    for name, value in NOTHING_ELSE.items():  # threads would work while virtual time passes
        monkeypatch.setenv(name, value)
    endless, told, over = Endless(), trio.Event(), trio.Event()

    async def actor(session: ActorSession) -> None:
        await endless.actor(session)
        told.set()
        if in_the_way == "an actor that stays":
            await trio.sleep_forever()

    participants = Participants()
    participants.register_environment(endless.environment)
    participants.register_actor(actor, "actor")
    fake, port = FakeDirectory(), free_port()
    fake.hanging = HANGING[in_the_way] - {"Deregister"}
    async with (
        listening(*participants.services()) as endpoint,
        listening(fake.service()) as directory,
        trio.open_nursery() as nursery,
    ):
        flags = ("--host=127.0.0.1", f"--port={port}", f"--directory_endpoint={directory}")
        found = settings(monkeypatch, serve, *flags)

        start = Start(found, orchestrator_application(found))
        start.prepare()

        async def run() -> None:
            assert await run_until_signal(partial(_serve, start)) is None
            over.set()

        nursery.start_soon(run)
        await fake.wait_until(lambda: bool(fake.requests) and ("Register" in fake.hanging or len(fake.entries) == 2))
        fake.hanging = HANGING[in_the_way]
        async with Channel("127.0.0.1", port) as channel:
            params = trial_params([actor_params("a", "c", endpoint=endpoint)], environment_endpoint=endpoint)
            await endless.wait_running([await Controller(channel).start_trial(params)])
        if in_the_way == "a connection that says nothing":
            await nursery.start(say_nothing, port)
        began = trio.current_time()
        signal.raise_signal(signal.SIGTERM)
        await over.wait()
        assert trio.current_time() - began < STOP_SECONDS
        nursery.cancel_scope.cancel()
    assert told.is_set()
