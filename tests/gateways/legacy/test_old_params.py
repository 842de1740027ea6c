"""Parameters of old orchestrators as those of today, and back."""

from __future__ import annotations

from trio_cogment.api.common_pb2 import ActorParams, EnvironmentParams, SerializedMessage, TrialParams
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.gateways.legacy.old_params import old_params, params_of_old


def config(text: str) -> SerializedMessage:
    return SerializedMessage(content=text.encode())


TODAY = TrialParams(
    max_steps=7,
    max_inactivity=9,
    trial_config=config("of the trial"),
    environment=EnvironmentParams(name="env", endpoint="grpc://worlds:1", config=config("of the environment")),
    actors=[
        ActorParams(actor_class="plane", endpoint="grpc://planes:1", config=config("of a plane")),
        ActorParams(actor_class="drone", endpoint="grpc://drones:1"),
    ],
)


def test_what_both_have_goes_and_comes_back() -> None:
    assert params_of_old(old_params(TODAY)) == TODAY


def test_configurations_that_are_not_there_are_not_made() -> None:
    found = params_of_old(legacy.TrialParams(max_steps=7))
    assert found == TrialParams(max_steps=7, environment=EnvironmentParams(name="env"))
    assert not found.HasField("trial_config")
    assert not found.environment.HasField("config")
