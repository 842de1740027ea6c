"""A full datastore on another host: a trial that starts meanwhile waits for it, and loses nothing."""

from __future__ import annotations

import logging

import pytest
import trio

from tests.servers.datastore.harness import GateStore
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.rpc import serve
from trio_cogment.sdk import Controller, actor_params, trial_params
from trio_cogment.servers.datastore import Datastore, datastore_services
from trio_cogment.testing import Behaviour, FakeActor, FakeEnvironment, World, simulate

pytestmark = pytest.mark.usefixtures("quiet")
FULL_SECONDS = 60


@pytest.mark.parametrize("ticks", [5, 200])
@pytest.mark.parametrize("queued", [4, 1024])
def test_a_trial_that_starts_while_the_store_is_full_loses_nothing(
    ticks: int, queued: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is over before there is room, or waits."""
    caplog.set_level(logging.INFO)
    store = GateStore()

    async def scenario(world: World) -> tuple[int, int]:
        there = "grpc://fakes:9001"
        quick = Behaviour(think_seconds=(0.2, 0.21))
        fakes = [FakeActor(world, quick).service(), FakeEnvironment(world, quick, ticks=ticks).service()]
        config = OrchestratorConfig(max_queued_samples=queued)
        async with Datastore(store) as datastore, trio.open_nursery() as nursery:
            await nursery.start(serve, fakes, [world.network.host("fakes").listen(9001)])
            await nursery.start(serve, datastore_services(datastore), [world.network.host("log").listen(9003)])
            async with (
                world.serve_orchestrator(config=config) as orchestrator,
                world.network.host("desk").channel("orchestrator", 9000) as channel,
            ):
                controller = Controller(channel)
                params = trial_params(
                    [actor_params("ann", "player", endpoint=there)],
                    environment_endpoint=there,
                    datalog_endpoint="grpc://log:9003",
                )
                store.failure = ResourceExhaustedError("no room left")
                await controller.start_trial(params, trial_id="t")
                await trio.sleep(FULL_SECONDS)
                store.failure = None
                outcome = await controller.wait_trial("t")
                assert outcome.samples_lost == 0
                lost = orchestrator.lost_samples
            nursery.cancel_scope.cancel()
        trial = await store.trial("t")
        assert trial is not None
        rows = await store.samples(trial.number, after=0, limit=10_000, max_bytes=1 << 30)
        return len(rows), lost

    assert simulate(1, scenario).value == (ticks + 1, 0)
    told = [record.getMessage() for record in caplog.records if record.name.endswith("orchestrator._datalog")]
    assert [text.partition(";")[0] for text in told] == [
        "trial t: the data log cannot store samples",
        "trial t: the data log is back",
    ]
