"""The host cancels: everybody is posted an END, nothing is left, and only `Cancelled` comes out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.helpers import END, Everything, Script, actor_that_acts, environment_of, params_of, wire_channel
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.rpc import InProcessChannel
from trio_cogment.sdk import Controller
from trio_cogment.servers.orchestrator import Orchestrator, SampleStream, orchestrator_services

HOST = Host(wall_clock=lambda: 1, new_id=lambda: "t")


@pytest.mark.parametrize("wire", [False, True])
async def test_host_cancels_and_participants_elsewhere_are_told(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    seen: list[Any] = []
    environment_seen: list[Any] = []
    services = Script(environment_of(None, environment_seen)).environment(), Script(actor_that_acts(seen)).actor()
    # The participants live outside of what is cancelled.
    async with (wire_channel if wire else InProcessChannel)(services) as participants:
        with trio.CancelScope() as host:
            orchestrator = Orchestrator(host=HOST, local=Everything(participants))
            async with orchestrator, InProcessChannel(orchestrator_services(orchestrator)) as channel:
                controller = Controller(channel)
                await controller.start_trial(params_of("a"))
                await controller.wait_trial_state("t", TrialState.RUNNING)
                host.cancel()
                await trio.sleep_forever()
        assert host.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
        for messages in (seen, environment_seen):
            assert messages[-1].state == END
            assert "stopping" in messages[-1].details


async def test_farewell_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    async def deaf(call: Any) -> None:
        with trio.CancelScope(shield=True):
            await call.receive()
            await trio.sleep(100)

    async with InProcessChannel([Script(deaf).actor(), Script(deaf).environment()]) as participants:
        config = OrchestratorConfig(farewell_seconds=3)
        with trio.CancelScope() as host:
            orchestrator = Orchestrator(host=HOST, local=Everything(participants), config=config)
            async with orchestrator, InProcessChannel(orchestrator_services(orchestrator)) as channel:
                await Controller(channel).start_trial(params_of("a"))
                await trio.sleep(1)
                host.cancel()
                await trio.sleep_forever()
        assert trio.current_time() <= 1 + 3.1


async def test_farewell_is_bounded_for_what_is_no_participant_too(autojump_clock: trio.testing.MockClock) -> None:
    """A data log may take its time when a trial ends by itself, but not when the host wants to leave."""

    class Stuck(SampleStream):
        async def write(self, _sample: DatalogSample) -> None:
            await trio.sleep_forever()

        async def complete(self) -> None:
            pass

    class Sink:
        @asynccontextmanager
        async def open(self, _trial_id: str, _user_id: str, _params: TrialParams) -> AsyncIterator[SampleStream]:
            yield Stuck()

    config = OrchestratorConfig(farewell_seconds=3, datalog_flush_seconds=100)
    async with InProcessChannel([Script(actor_that_acts()).actor()]) as participants:
        with trio.CancelScope() as host:
            orchestrator = Orchestrator(
                host=HOST,
                local=Everything(participants, Sink()),
                config=config,
            )
            async with orchestrator, InProcessChannel(orchestrator_services(orchestrator)) as channel:
                await Controller(channel).start_trial(params_of("a", datalog_endpoint="cogment://discover"))
                await trio.sleep(1)
                host.cancel()
                await trio.sleep_forever()
        assert trio.current_time() == pytest.approx(1 + 3)


async def test_user_exception_comes_out_of_the_block_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Orchestrator(host=HOST):
            raise ZeroDivisionError


async def test_nothing_starts_while_the_host_cancels(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(1)).environment(), Script(actor_that_acts()).actor()
    with trio.CancelScope() as host:
        async with (
            InProcessChannel(services) as local,
            Orchestrator(host=HOST, local=Everything(local)) as orchestrator,
        ):
            with trio.CancelScope(shield=True):
                assert await orchestrator.start_trial(params=params_of("a")) == "t"
                host.cancel()
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(UnavailableError, match="the orchestrator is stopping"):
                    await orchestrator.start_trial(trial_id="late", params=params_of("a"))
    assert host.cancelled_caught
