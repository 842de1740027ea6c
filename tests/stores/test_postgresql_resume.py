"""Two `serve --resume` at one PostgreSQL: what one of them leaves, by a stop or by kill -9, the other goes on with."""

from __future__ import annotations

import signal

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, served, server
from tests.cli.services.test_resume import LAST_TICK, Party, check, params, stored, wait_over
from trio_cogment.sdk import connect

pytestmark = [pytest.mark.stores, pytest.mark.postgresql]


async def moved(address: str, trials: int, number: signal.Signals) -> None:
    party = Party()
    flags = ["serve", "--port=0", "--resume", f"--storage={address}"]
    names = [f"t{number}" for number in range(trials)]
    async with (
        served(party.participants()) as endpoint,
        server(*flags) as other,
        connect(f"grpc://127.0.0.1:{other.port}") as client,
    ):
        await other.wait_serving()
        async with server(*flags) as first:
            await first.wait_serving()
            async with connect(f"grpc://127.0.0.1:{first.port}") as starter:
                controller = await starter.controller()
                for name in names:
                    await controller.start_trial(params(endpoint, endpoint), trial_id=name)
                await party.wait_ticks(trials, 10)
            first.process.send_signal(number)
            await first.process.wait()
        await wait_over(client, names)
        found, samples = await stored(client, names)
    for trial in found:
        check(trial, samples[trial.trial_id])
        seen = party.seen[trial.trial_id]
        assert sorted(set(seen)) == list(range(LAST_TICK + 1))


async def test_a_stop_of_one_moves_its_trials_to_the_other(database: str) -> None:
    with trio.fail_after(4 * PATIENCE_SECONDS):
        await moved(database, 4, signal.SIGTERM)


@pytest.mark.soak
async def test_the_trials_of_one_that_is_killed_go_on_at_the_other(database: str) -> None:
    """It counts as gone five seconds after its session is, but not in the first 45 seconds of the database."""
    with trio.fail_after(180):
        await moved(database, 10, signal.SIGKILL)


@pytest.mark.soak
async def test_fifty_trials_move(database: str) -> None:
    with trio.fail_after(300):
        await moved(database, 50, signal.SIGTERM)
