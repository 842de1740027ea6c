"""The shell around one machine: failures stay inside."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.helpers import Script, actor_that_acts, bench, environment_of, params_of
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.orchestrator._trial import Trial
from trio_cogment.trial import Received, TrialMachine


async def test_machine_that_fails_ends_its_trial_and_no_other(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle = TrialMachine.handle

    def fails_in_one(self: TrialMachine, event: Any, now: float, wall_ns: int) -> Any:
        if self.trial_id == "bad" and isinstance(event, Received) and self.tick_id == 1:
            raise ZeroDivisionError
        return handle(self, event, now, wall_ns)

    monkeypatch.setattr(TrialMachine, "handle", fails_in_one)
    seen: list[Any] = []
    services = Script(environment_of(3)).environment(), Script(actor_that_acts(seen)).actor()
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("a"), trial_id="bad")
        await table.controller.start_trial(params_of("a"), trial_id="good")
        bad = await table.controller.wait_trial("bad")
        good = await table.controller.wait_trial("good")
        await trio.testing.wait_all_tasks_blocked()
    assert bad is not None
    assert good is not None
    assert (bad.state, bad.tick_id) == (TrialState.ENDED, 1)
    assert good.tick_id == 3
    assert any("failed to run this trial" in message.details for message in seen)
    assert "ZeroDivisionError" in caplog.text


async def test_task_that_fails_ends_its_trial_and_no_other(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hold = Trial._hold

    async def fails_in_one(self: Trial, link: Any, target: Any) -> None:
        if self.trial_id == "bad":
            raise ZeroDivisionError
        await hold(self, link, target)

    monkeypatch.setattr(Trial, "_hold", fails_in_one)
    services = Script(environment_of(3)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("a"), trial_id="bad")
        await table.controller.start_trial(params_of("a"), trial_id="good")
        bad = await table.controller.wait_trial("bad")
        good = await table.controller.wait_trial("good")
    assert bad is not None
    assert good is not None
    assert bad.state == TrialState.ENDED
    assert good.tick_id == 3
    assert "ZeroDivisionError" in caplog.text


async def test_many_trials_leave_nothing(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(2)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(100):
            trial_id = await table.controller.start_trial(params_of("a"))
            await table.controller.wait_trial(trial_id)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert table.orchestrator.running_trials == 0
