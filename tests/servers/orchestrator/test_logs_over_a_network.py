"""Data logs on another host: what arrives, and what is known of the rest, when connections or the host go."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
import trio

from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.rpc import RunningServer, serve
from trio_cogment.sdk import Controller, actor_params, trial_params
from trio_cogment.testing import (
    Behaviour,
    FakeActor,
    FakeDatalog,
    FakeEnvironment,
    Link,
    Misbehaviour,
    World,
    check_history,
    simulate,
)

TICKS = 200
#: What they take when nothing is in their way.
SECONDS = 99
#: The log has had some of them by then.
TROUBLE_AT = 5.0
FEW = OrchestratorConfig(max_queued_samples=4)


pytestmark = pytest.mark.usefixtures("quiet")


class Kept(NamedTuple):
    """What became of a trial's samples."""

    ticks: list[int]
    told: int
    counted: int
    seconds: float

    @property
    def missing(self) -> list[int]:
        return sorted(set(range(TICKS + 1)) - set(self.ticks))


class LogHost:
    """The host that the data log runs on."""

    def __init__(self, world: World, behaviour: Behaviour) -> None:
        self.network = world.network
        self.host = world.network.host("log")
        self._log = FakeDatalog(world, behaviour)

    async def run(self, task_status: trio.TaskStatus[RunningServer] = trio.TASK_STATUS_IGNORED) -> None:
        with self.host.running():
            await serve([self._log.service()], [self.host.listen(9003)], task_status=task_status)

    async def lose_connection(self) -> None:
        """Leave the connection half-open; a new one would be a good one."""
        (connection,) = self.network.connections("log")
        connection.go_dark()

    async def be_away(self, seconds: float) -> None:
        self.host.crash()
        await trio.sleep(seconds)
        self.host.restart()
        await self.run()


def play(
    trouble: Callable[[LogHost], Awaitable[None]],
    *,
    answers: bool = True,
    config: OrchestratorConfig | None = None,
) -> Kept:
    """Play a trial, with trouble for its data log."""

    async def scenario(world: World) -> tuple[int, float]:
        network, there = world.network, "grpc://fakes:9001"
        network.set_default_link(Link(latency_seconds=0.02, jitter_seconds=0))
        quick = Behaviour(think_seconds=(0.2, 0.21))
        log = LogHost(world, quick if answers else Behaviour(misbehaviour=Misbehaviour.NEVER_ACK, from_tick=-1))
        fakes = [FakeActor(world, quick).service(), FakeEnvironment(world, quick, ticks=TICKS).service()]
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, fakes, [network.host("fakes").listen(9001)])
            await nursery.start(log.run)
            async with (
                world.serve_orchestrator(config=config) as orchestrator,
                network.host("desk").channel("orchestrator", 9000) as channel,
            ):
                controller = Controller(channel)
                params = trial_params(
                    [actor_params("ann", "player", endpoint=there)],
                    environment_endpoint=there,
                    datalog_endpoint="grpc://log:9003",
                )
                trial_id = await controller.start_trial(params)
                await trio.sleep(TROUBLE_AT)
                nursery.start_soon(trouble, log)
                await controller.wait_trial_state(trial_id)
                seconds = trio.current_time()
                await trio.sleep(60)
                counted = orchestrator.lost_samples
            nursery.cancel_scope.cancel()
        check_history(world.history)
        return counted, seconds

    outcome = simulate(1, scenario)
    samples = [event.details for event in outcome.history if event.what == "sample"]
    ticks, told = [], 0
    for sample in samples:
        ticks.append(sample["tick"])
        told += sample["lost"]
    return Kept(ticks, told, *outcome.value)


async def nothing(_log: LogHost) -> None:
    pass


def away_for(seconds: float) -> Callable[[LogHost], Awaitable[None]]:
    return functools.partial(LogHost.be_away, seconds=seconds)


@pytest.mark.parametrize("answers", [True, False])
def test_without_trouble_every_sample_arrives_once(answers: bool) -> None:
    """What the others are to be compared with."""
    kept = play(nothing, answers=answers, config=FEW)
    assert kept.ticks == list(range(TICKS + 1))
    assert kept.told == kept.counted == 0
    assert kept.seconds == pytest.approx(SECONDS, abs=1)


def test_a_log_that_answers_and_is_back_in_time_gets_everything() -> None:
    kept = play(away_for(6), config=FEW)
    assert kept.missing == []
    assert kept.told == kept.counted == 0
    # The trial has waited for it.
    assert SECONDS + 4 < kept.seconds < SECONDS + 7


def test_a_log_that_answers_and_is_away_for_long_is_told_how_many_are_lost() -> None:
    kept = play(away_for(60), config=FEW)
    check_one_gap(kept, least=90)
    # One may have got through whose answer did not.
    assert kept.told == kept.counted
    assert 0 <= kept.counted - len(kept.missing) <= 1
    # The trial has waited for as long as it is to.
    assert kept.seconds < SECONDS + FEW.datalog_grace_seconds + 1


@pytest.mark.parametrize("config", [FEW, OrchestratorConfig()], ids=["few", "default"])
def test_a_log_that_answers_is_told_what_a_half_open_connection_has_cost(config: OrchestratorConfig) -> None:
    kept = play(LogHost.lose_connection, config=config)
    assert kept.told == kept.counted
    if config is FEW:  # more than it keeps were written before anybody noticed
        check_one_gap(kept, least=30)
        assert 0 <= kept.counted - len(kept.missing) <= 1
    else:
        assert kept.missing == []
        assert kept.counted == 0


def test_what_was_under_way_to_a_log_that_never_answers_is_lost_unseen() -> None:
    kept = play(LogHost.lose_connection, answers=False)
    check_one_gap(kept, least=30)
    assert len(set(kept.ticks)) == len(kept.ticks)
    assert kept.told == kept.counted == 0


def check_one_gap(kept: Kept, *, least: int) -> None:
    first, last = kept.missing[0], kept.missing[-1]
    assert kept.missing == list(range(first, last + 1))
    assert len(kept.missing) >= least
    assert 0 < first < last < TICKS
