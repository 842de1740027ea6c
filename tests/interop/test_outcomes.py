"""Outcomes of trials with participants on the published SDK, as a controller of ours is told."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import trio

from tests.interop.scenes import CLIENT, Scene, actor, field
from trio_cogment import Controller, TrialOutcome
from trio_cogment.base.outcome import EndCause
from trio_cogment.rpc import Channel

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


def outcomes_of(lifecycle: str, trials: list[str]) -> dict[str, TrialOutcome]:
    async def ask() -> dict[str, TrialOutcome]:
        async with Channel("127.0.0.1", int(lifecycle.rpartition(":")[2])) as channel:
            with trio.fail_after(60):
                return {trial: await Controller(channel).wait_trial(trial, check=False) for trial in trials}

    return trio.run(ask)


def test_each_failure_is_named(scene: Scene) -> None:
    orchestrator = scene.orchestrator()
    cast, doomed = scene.participants(), scene.participants("doomed")
    remote = scene.remote(orchestrator)

    def start(trial: str, *actors: Any, **environment: Any) -> None:
        everybody = [actor("ann", cast), *actors]
        remote.ask("start", trial=trial, parameters={**field(cast, **environment), "actors": everybody})

    start("raises", actor("bob", cast, raises=1))
    start("leaves", actor("bob", cast, leaves=1))
    start("environment raises", raises=1)
    start("environment leaves", leaves=1)
    start("absent", actor("bob", cast, absent=True, initial_connection_timeout=0.3))
    start("silent", actor("bob", cast, silent=[1], response_timeout=0.3))
    start("client raises", actor("bob", CLIENT, raises=1))
    remote.refusal("join", trial="client raises", actor_name="bob")
    start("killed", actor("bob", doomed, silent=[1]))
    scene.wait_tick(remote, "killed", 1)
    [process] = [process for process in scene.processes if process.name == "doomed"]
    process.send(signal.SIGKILL)

    expected = {
        "raises": (EndCause.PARTICIPANT_FAILED, "bob"),
        "leaves": (EndCause.PARTICIPANT_LEFT, "bob"),
        "environment raises": (EndCause.PARTICIPANT_FAILED, "field"),
        "environment leaves": (EndCause.PARTICIPANT_LEFT, "field"),
        "absent": (EndCause.PARTICIPANT_MISSING, "bob"),
        "silent": (EndCause.ACTION_MISSING, "bob"),
        "killed": (EndCause.PARTICIPANT_LOST, "bob"),
    }
    found = outcomes_of(orchestrator.lifecycle, [*expected, "client raises"])
    named = {trial: (outcome.cause, outcome.participant) for trial, outcome in found.items()}
    # It ends its stream as one that leaves does, or resets it, whichever comes first in its process.
    cause, client = named.pop("client raises")
    assert cause in {EndCause.PARTICIPANT_LEFT, EndCause.PARTICIPANT_LOST}
    assert client == "bob"
    assert named == expected
    assert all(outcome.failed for outcome in found.values())
    assert found["raises"].reason == "actor 'bob' failed: Unexpected <class 'RuntimeError'>: as the script says"
    remote.leave()
