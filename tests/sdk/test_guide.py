"""The programs of `docs/sdk.md` run as they are printed, with free ports in place of the page's."""

from __future__ import annotations

import sys
from functools import partial

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, server
from tests.ports import free_port
from tests.test_examples import programs, wait_listening


@pytest.mark.parametrize("inline", [False, True])
async def test_participants_and_clients(inline: bool) -> None:
    """The second program is another player for the first."""
    participants_port = free_port()
    async with server("serve", "--port=0", "--storage=memory:") as serving, trio.open_nursery() as nursery:
        participants, player, client = (
            text.replace("9000", str(serving.port)).replace("9001", str(participants_port))
            for text in programs("docs/sdk.md")[:3]
        )
        if inline:
            before, _, after = participants.partition("async def player")
            participants = f"{before}{player}\n\nasync def main{after.partition('async def main')[2]}"
        process = await nursery.start(partial(trio.run_process, [sys.executable, "-c", participants], check=False))
        with trio.fail_after(PATIENCE_SECONDS):
            await wait_listening(participants_port)
            done = await trio.run_process([sys.executable, "-c", client], capture_stdout=True)
        process.kill()
    rewards = [f"{tick} {2.0 * tick}" for tick in range(4)]
    assert done.stdout.decode().splitlines() == [*rewards, "4 None"]


async def test_hooks_data_logs_and_watching() -> None:
    program = programs("docs/sdk.md")[3]
    with trio.fail_after(PATIENCE_SECONDS):
        done = await trio.run_process([sys.executable, "-c", program], capture_stdout=True)
    printed = done.stdout.decode().splitlines()
    states = ["INITIALIZING", "PENDING", "RUNNING", "TERMINATING", "ENDED"]
    ticks = ["tick 0 RUNNING", "tick 1 RUNNING", "tick 2 TERMINATING", "tick 3 ENDED"]
    assert [line for line in printed if line in states] == states
    assert [line for line in printed if line not in states] == ticks
