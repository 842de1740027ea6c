"""The probe: what is seen of an orchestrator from inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.helpers import Everything, params_of
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.rpc import InProcessChannel
from trio_cogment.sdk import Controller
from trio_cogment.servers.orchestrator import orchestrator_services
from trio_cogment.servers.orchestrator._participant_streams import ParticipantStreams
from trio_cogment.testing import (
    FakeActor,
    FakeEnvironment,
    InvariantError,
    Probe,
    World,
    check_history,
    record_states,
    simulate,
)


async def shielded(world: World, deadline: float) -> None:
    async with world.serve_orchestrator() as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(Probe(orchestrator, world.history).run)
        with trio.move_on_after(2), trio.CancelScope(shield=True, deadline=trio.current_time() + deadline):
            await trio.sleep(6)
        nursery.cancel_scope.cancel()


def test_a_shield_without_a_deadline_is_found_while_it_holds() -> None:
    history = simulate(1, shielded, float("inf")).history
    with pytest.raises(InvariantError, match=r"shields-have-deadlines: \S*main: was shielded at 4.0"):
        check_history(history)


@pytest.mark.parametrize("deadline", [5.0, 1.0])
def test_a_shield_with_a_deadline_may_hold(deadline: float) -> None:
    history = simulate(1, shielded, deadline).history
    check_history(history)
    assert [event for event in history if event.what == "shield"] or deadline < 2


async def probed_trial(world: World, spoil: Callable[[Any], None]) -> None:
    """A trial whose actor does not read for a while, in process."""
    services = [FakeActor(world).service(), FakeEnvironment(world, ticks=5).service()]
    async with world.in_process(services) as inside:
        local = Everything(inside)
        config = OrchestratorConfig(max_queued_samples=2)
        async with world.serve_orchestrator(local=local, config=config) as orchestrator:
            probe = Probe(orchestrator, world.history)
            async with InProcessChannel(orchestrator_services(orchestrator)) as near, trio.open_nursery() as nursery:
                nursery.start_soon(record_states, Controller(near), world.history)
                nursery.start_soon(probe.run)
                await Controller(near).start_trial(params_of("ann"), trial_id="t")
                spoil(orchestrator)
                await Controller(near).wait_trial_state("t")
                await trio.sleep(10)
                nursery.cancel_scope.cancel()


def test_tasks_of_a_trial_are_gone_soon_after_its_end() -> None:
    history = simulate(1, probed_trial, lambda _: None).history
    check_history(history)
    assert [event.details["names"] for event in history if event.what == "tasks"][-1] == []


def test_a_task_that_stays_is_found() -> None:
    def spoil(orchestrator: Any) -> None:
        async def stay() -> None:
            await trio.sleep(8)

        (run,) = orchestrator.runs
        run.spawn(stay, "somebody")

    history = simulate(1, probed_trial, spoil).history
    with pytest.raises(InvariantError, match=r"tasks-end-with-their-trial: t: \S+ s after .*somebody"):
        check_history(history)


def test_queues_are_looked_at_whenever_something_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(_: Any) -> None:
        for name, count in (("queued_messages", 10**6), ("longest_queue", 10**6), ("max_queued_messages", 1)):
            monkeypatch.setattr(ParticipantStreams, name, count)

    history = simulate(1, probed_trial, spoil).history
    with pytest.raises(InvariantError, match="queues-stay-within-limits: t: 1000000 messages"):
        check_history(history)
