"""Trials are recorded with their inputs, effects and states."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.sim.histories import CASES, record
from trio_cogment.api.common_pb2 import (
    ActorParams,
    ActorRunTrialOutput,
    CommunicationState,
    Message,
    RewardSource,
    TrialParams,
)
from trio_cogment.api.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput
from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.base.shared_message import SharedAction, SharedObservationSet, SharedReward, SharedSample
from trio_cogment.trial import (
    ENVIRONMENT,
    Begin,
    EmitSample,
    HardEnd,
    Joined,
    ParametersComplete,
    Received,
    TrialRules,
    validate_params,
)
from trio_cogment.trial.recording import TrialRecorder, replay
from trio_cogment.trial.recording import _trial_recorder as module


@pytest.mark.parametrize("name", ["soft-end-by-environment", "optional-actor-lost", "failed-start"])
def test_a_simulated_trial_is_recorded_and_replayed(name: str) -> None:
    text = record(name)
    assert replay(text) == text
    assert json.loads(text.splitlines()[-1]).get("phase", "ENDED") == "ENDED"
    assert name in CASES


def test_what_a_machine_refuses_is_recorded_and_so_are_packed_messages() -> None:
    recorder = TrialRecorder()
    machine = recorder.machine("x\n\x1b é", rules=TrialRules(heartbeat_seconds=0))
    machine.handle(Begin(), 0.1, 5)
    with pytest.raises(LocalProtocolError):
        machine.handle(Begin(), 0.2, 6)
    actor = ActorParams(name="a", actor_class="c", endpoint="cogment://client")
    params = validate_params(TrialParams(actors=[actor, ActorParams(name="b", actor_class="c")]))
    machine.handle(ParametersComplete(params), 0.3, 7)
    machine.handle(Joined(0), 0.3, 7)
    packed = AnyMessage()
    packed.Pack(TrialParams(max_steps=3))  # of a type that is known here
    said = Message(tick_id=-1, receiver_name="b", payload=packed)
    machine.handle(Received(0, ActorRunTrialOutput(state=CommunicationState.NORMAL, message=said)), 0.4, 8)
    machine.handle(HardEnd("enough"), 0.5, 9)
    text = recorder.trials["x\n\x1b é"].text()
    assert '{"out": "refused", "error": "a trial cannot get BEGIN while INITIALIZING"}' in text
    assert "type_url" in text
    assert replay(text) == text


def test_a_record_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 2)
    recorder = TrialRecorder()
    recorder.machine("t", rules=TrialRules()).handle(Begin(), 0.1, 5)
    assert len(recorder.trials["t"].lines) == 2
    assert recorder.trials["t"].dropped == 1


def test_rules_that_came_later_are_written_where_they_are_not_the_defaults() -> None:
    def first_line(rules: TrialRules) -> dict[str, Any]:
        recorder = TrialRecorder()
        recorder.machine("t", rules=rules).handle(Begin(), 0.1, 5)
        text = recorder.trials["t"].text()
        assert replay(text) == text
        line: dict[str, Any] = json.loads(text.splitlines()[0])
        return line

    assert "max_held_back_bytes" not in first_line(TrialRules())["rules"]
    assert first_line(TrialRules(max_held_back_bytes=7))["rules"]["max_held_back_bytes"] == 7


def test_rewards_for_the_sample_alone_are_recorded_as_rewards() -> None:
    recorder = TrialRecorder()
    machine = recorder.machine("t", rules=TrialRules(heartbeat_seconds=0))
    machine.shares_samples = True
    machine.handle(Begin(), 0.1, 5)
    actor = ActorParams(name="a", actor_class="c", endpoint="cogment://client")
    machine.handle(ParametersComplete(validate_params(TrialParams(actors=[actor]))), 0.2, 6)
    ready = EnvRunTrialOutput(state=CommunicationState.NORMAL, init_output=EnvInitialOutput())
    machine.handle(Joined(0), 0.3, 7)
    machine.handle(Received(ENVIRONMENT, ready), 0.3, 7)
    samples = []
    for tick in range(3):
        observed = SharedObservationSet(-1, 7, [b"o"], [0])
        if tick:
            source = RewardSource(value=0.5, confidence=1)
            observed.told = [SharedReward(EnvRunTrialOutput, -1, "a", 0.5, [source])]
        effects = machine.handle(Received(ENVIRONMENT, observed), 0.4 + tick, 8)
        samples += [effect.sample for effect in effects if isinstance(effect, EmitSample)]
        machine.handle(Received(0, SharedAction(tick, 8, b"x")), 0.5 + tick, 9)
    text = recorder.trials["t"].text()
    assert replay(text) == text
    sample = samples[0]
    assert isinstance(sample, SharedSample)
    (reward,) = sample.whole().rewards
    assert (reward.receiver_name, reward.value, reward.sources[0].value) == ("a", 0.5, 0.5)
