"""The trials of runs that a killed trainer has left behind."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from google.protobuf.json_format import ParseDict

from tests.rl.runner.worlds import countdown, gated
from tests.trainer.trials.test_starter import people
from tests.trainer.trials.worlds import PARAMS
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.spaces_pb2 import Action
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.outcome import EndCause
from trio_cogment.platform import open_platform
from trio_cogment.rpc import CallOpener, ClientCall
from trio_cogment.sdk import ActorSession, EventType
from trio_cogment.trainer import Where
from trio_cogment.trainer.trials.leftovers import end_left_behind


async def slow(session: ActorSession[Any, Any, Any]) -> None:
    """Takes a tenth of a second for each answer."""
    async for event in session.all_events():
        if event.observation is not None and event.type is EventType.ACTIVE:
            await trio.sleep(0.1)
            await session.do_action(Action())


@pytest.mark.parametrize(
    ("actor", "seconds", "cause"),
    [(slow, 0.5, EndCause.SOFT_TERMINATION), (gated(trio.Event()), 5.0, EndCause.HARD_TERMINATION)],
    ids=["softly", "hard"],
)
async def test_trials_of_these_runs_end_and_no_others(
    autojump_clock: trio.testing.MockClock, actor: Any, seconds: float, cause: EndCause
) -> None:
    params = ParseDict(PARAMS, TrialParams())
    async with open_platform(people(countdown(10_000_000), actor)) as platform:
        controller = platform.controller
        named = ParseDict({**PARAMS, "properties": {"run_id": "r"}}, TrialParams())
        for trial_id, given in {"r-ep000000": params, "named": named, "r2-ep000000": params}.items():
            await controller.start_trial(given, trial_id=trial_id)
        before = trio.current_time()
        await end_left_behind({"r": ["token:ann"], "s": []}, Where(platform.channel))
        assert trio.current_time() - before <= seconds + 0.5
        for trial_id in ("r-ep000000", "named"):
            assert (await controller.wait_trial(trial_id)).cause is cause
        (other,) = await controller.trial_infos(["r2-ep000000"])
        assert other.state < TrialState.ENDED


class Elsewhere(CallOpener):
    """An orchestrator that is out of reach, or does not answer."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent

    def call(self, *_arguments: Any, **_options: Any) -> ClientCall:
        raise AssertionError("nothing but unary calls is expected")

    async def unary(self, *_arguments: Any, **_options: Any) -> Any:
        if self._silent:
            await trio.sleep_forever()
        raise RpcError(StatusCode.UNAVAILABLE, "out of reach")


@pytest.mark.parametrize("silent", [False, True])
async def test_an_orchestrator_that_does_not_answer_is_not_waited_for(
    silent: bool, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await end_left_behind({"r": []}, Where(Elsewhere(silent=silent)))
    assert trio.current_time() <= 10
    assert "trials of earlier runs may be left" in caplog.text
