"""Trials of a platform whose samples are in a PostgreSQL that goes away and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from google.protobuf.wrappers_pb2 import StringValue

from tests.stores.postgresql_server import PostgresqlServer, postgresql_server
from trio_cogment import ActorClass, Participants, Spec, actor_params, open_platform, trial_params
from trio_cogment.sdk import ActorSession, EnvironmentSession
from trio_cogment.servers.datastore import open_store
from trio_cogment.servers.datastore.storage import TrialEnd
from trio_cogment.testing.conformance.trial_store import get, read

pytestmark = [pytest.mark.stores, pytest.mark.postgresql]

SPEC = Spec.of(ActorClass("player", observation=StringValue, action=StringValue))
TRIALS = 16


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    """A server of this test's own, which it may stop."""
    with postgresql_server() as server:
        yield server


def cast(ticks: dict[str, int], over: trio.Event) -> Participants:
    """Return an environment that goes on until it is over, noting the ticks of each trial, and an actor."""
    participants = Participants(SPEC)

    async def world(session: EnvironmentSession) -> None:
        await session.start([("*", StringValue(value="hello"))])
        async for event in session.all_events():
            if event.actions is not None:
                ticks[session.trial_id] = session.tick_id
                await trio.sleep(0.02)
                send = session.end if over.is_set() else session.produce_observations
                await send([("*", StringValue(value="more"))])

    async def echo(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(event.observation.payload)

    participants.register_environment(world)
    participants.register_actor(echo, "echo")
    return participants


async def check_trials_go_on(server: PostgresqlServer, seconds: float) -> None:
    ticks: dict[str, int] = {}
    over = trio.Event()
    names = [f"trial-{number}" for number in range(TRIALS)]
    address = server.database()

    async def all_at(tick: int) -> None:
        while len(ticks) < TRIALS or min(ticks.values()) < tick:  # noqa: ASYNC110  sixteen of them
            await trio.sleep(0.02)

    async with open_platform(cast(ticks, over), store=address) as platform:
        for name in names:
            params = trial_params([actor_params("ann", "player")], datalog_endpoint="cogment://discover")
            await platform.controller.start_trial(params, trial_id=name)
        await all_at(5)
        await trio.to_thread.run_sync(server.stop, "immediate")
        away = min(ticks.values())
        await trio.sleep(seconds)
        await all_at(away + 10)
        await trio.to_thread.run_sync(server.start)
        over.set()
        for name in names:
            await platform.controller.wait_trial(name)
    async with open_store(address) as store:
        for name in names:
            trial = await get(store, name)
            assert (trial.end, trial.samples_count) == (TrialEnd.ENDED, ticks[name] + 2)
            assert [one.tick_id for one in await read(store, name)] == list(range(ticks[name] + 2))


async def test_trials_go_on_while_the_server_is_away(server: PostgresqlServer) -> None:
    with trio.fail_after(100):
        await check_trials_go_on(server, 1.0)


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_trials_go_on_while_the_server_is_away_for_twenty_seconds(server: PostgresqlServer) -> None:
    await check_trials_go_on(server, 20.0)
