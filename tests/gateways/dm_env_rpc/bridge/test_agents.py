"""An agent of a world as an actor: what it sees follows the specifications."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trio_cogment.api import spaces_pb2
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.gateways.dm_env_rpc.bridge.agents import Agent, View
from trio_cogment.gateways.dm_env_rpc.client.requests import Step
from trio_cogment.gateways.dm_env_rpc.client.specs import Specs
from trio_cogment.gateways.dm_env_rpc.client.states import State
from trio_cogment.spaces import decode_observation
from trio_cogment.spaces.tensor_specs import TensorSpec

SERVER, NAME = "grpc://there:1", "ann"


def view(name: str) -> View:
    message = pb.ActionObservationSpecs()
    message.observations[1].CopyFrom(TensorSpec.of(name, "float32", (2,)).message())
    message.actions[1].CopyFrom(TensorSpec.of("push", "float32", (), -1, 1).message())
    return View.of(SERVER, NAME, Specs.of(message), ())


def step(name: str) -> Step:
    return Step(State.RUNNING, {name: np.ones(2, np.float32)}, first=True, last=False)


def seen(agent: Agent, name: str) -> Any:
    message = spaces_pb2.Observation.FromString(bytes(agent.encode(agent.begin(step(name)))))
    return decode_observation(message).value[name].tolist()


def test_after_another_look_it_sees_what_the_world_shows_now() -> None:
    agent = Agent(server=SERVER, name=NAME, view=view("before"))
    assert seen(agent, "before") == [1, 1]
    later = view("after")
    agent.look(later)
    assert agent.view is later
    assert seen(agent, "after") == [1, 1]
    with pytest.raises(InvalidEnvironmentError, match="observation 'after': expected a value, got none"):
        agent.begin(step("before"))


def test_what_is_wrong_with_a_step_names_the_server_the_actor_and_the_field() -> None:
    message = pb.ActionObservationSpecs()
    message.observations[1].CopyFrom(TensorSpec.of("seen", "float32", (2,)).message())
    message.observations[2].CopyFrom(TensorSpec.of("reward", "float32", ()).message())
    agent = Agent(server=SERVER, name=NAME, view=View.of(SERVER, NAME, Specs.of(message), ()))
    seen, words = np.ones(2, np.float32), np.array("much")
    with pytest.raises(InvalidEnvironmentError, match="reward") as caught:
        agent.advance(Step(State.RUNNING, {"seen": seen, "reward": words}, first=False, last=False), "")
    assert (caught.value.environment, caught.value.actor) == (SERVER, NAME)
    observation = agent.begin(Step(State.RUNNING, {"seen": seen}, first=True, last=False))
    with pytest.raises(InvalidEnvironmentError) as caught:
        agent.encode(replace(observation, info={"why": object()}))
    assert (caught.value.environment, caught.value.actor) == (SERVER, NAME)
