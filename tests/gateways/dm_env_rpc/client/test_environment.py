"""Worlds as environments of dm_env, in a script's thread."""

from __future__ import annotations

import threading
import unittest
from typing import Any

import dm_env
import numpy as np
import pytest
from dm_env import specs as dm_specs
from dm_env import test_utils

from tests.gateways.dm_env_rpc.servers import Catch, serving
from trio_cogment.base.errors import FailedPreconditionError, UnavailableError
from trio_cogment.gateways.dm_env_rpc import DmEnvRpcEnvironment, DmEnvRpcError
from trio_cogment.gateways.dm_env_rpc.client.environment import spec_of
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensor_specs import TensorSpec


class TestConformance(test_utils.EnvironmentTestMixin, unittest.TestCase):  # type: ignore[misc]  # dm_env has no types
    """dm_env's own tests."""

    def make_object_under_test(self) -> Any:
        url, _ = self.enterContext(serving())
        return DmEnvRpcEnvironment(url)


def test_sequences() -> None:
    with serving() as (url, server):
        with DmEnvRpcEnvironment(url, create_settings={"seed": 3}) as environment:
            first = environment.reset()
            assert (first.step_type, first.reward, first.discount) == (dm_env.StepType.FIRST, None, None)
            assert list(first.observation) == ["board", "ball"]
            steps = [environment.step({"paddle": 1}) for _ in range(Catch.ROWS)]
            assert [step.step_type.name for step in steps] == ["MID"] * 4 + ["LAST", "FIRST"]
            assert [step.discount for step in steps] == [1.0] * 4 + [0.0, None]
            game = Catch(3)
            game.begin()
            assert steps[0].observation["board"].tolist() == game.advance([{"paddle": 1}])[1][0]["board"].tolist()
            assert abs(steps[4].reward) == 0.1
            assert environment.observation_spec()["ball"]["column"] == dm_specs.DiscreteArray(
                5, np.int32, "ball.column"
            )
            assert environment.action_spec() == {"paddle": dm_specs.BoundedArray((), np.int8, -1, 1, "paddle")}
            assert environment.reward_spec().dtype == np.float64
            with pytest.raises(DmEnvRpcError, match="step: INVALID_ARGUMENT: paddle: expected at most 1"):
                environment.step({"paddle": 2})
        assert server.worlds == {}
        environment.close()
        with pytest.raises(FailedPreconditionError, match="closed"):
            environment.reset()


def test_names_as_they_are() -> None:
    with serving() as (url, _):
        one = DmEnvRpcEnvironment(url, nested_names=False, observations=["ball.column", "reward"])
        assert list(one.reset().observation) == list(one.observation_spec()) == ["ball.column", "reward"]
        one.close()
        with pytest.raises(SpaceError, match="observation 'score': expected one of"):
            DmEnvRpcEnvironment(url, observations=["score"])


def test_a_world_of_others_with_a_discount() -> None:
    with serving() as (url, server):
        with DmEnvRpcEnvironment(url, create_settings={"game": "duel"}) as one:
            with DmEnvRpcEnvironment(url, world_name=one.world, join_settings={"slot": 1}) as other:
                thread = threading.Thread(
                    target=other.reset, daemon=True
                )  # a game of two begins when both have stepped
                thread.start()
                first = one.reset()
                thread.join(10)
            assert (first.reward, first.discount, list(first.observation)) == (None, 1.0, ["last"])
            assert one.discount_spec() == dm_specs.Array((), np.float32, "discount")
            assert list(server.worlds) == [one.world]
        assert server.worlds == {}


def test_what_is_refused_leaves_nothing() -> None:
    with serving() as (url, server):
        with pytest.raises(DmEnvRpcError, match="join_world: INVALID_ARGUMENT"):
            DmEnvRpcEnvironment(url, join_settings={"depth": 1})
        assert server.worlds == {}
        environment = DmEnvRpcEnvironment(url)
    with pytest.raises(UnavailableError, match="the connection was lost"):
        environment.reset()
    environment.close()
    assert not [thread for thread in threading.enumerate() if "dm_env_rpc" in thread.name]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (TensorSpec.of("a", "str"), dm_specs.StringArray((), name="a")),
        (TensorSpec.of("a", "bool", (2,)), dm_specs.Array((2,), np.bool_, "a")),
        (TensorSpec.of("a", "uint8", (), 0, 3), dm_specs.DiscreteArray(4, np.uint8, "a")),
        (TensorSpec.of("a", "int32", (), 1, 3), dm_specs.BoundedArray((), np.int32, 1, 3, "a")),
        (TensorSpec.of("a", "int8", (2,), 0), dm_specs.BoundedArray((2,), np.int8, 0, 127, "a")),
        (TensorSpec.of("a", "float32", (), None, 1), dm_specs.BoundedArray((), np.float32, -np.inf, 1, "a")),
    ],
)
def test_specs(spec: TensorSpec, expected: Any) -> None:
    found = spec_of(spec)
    assert type(found) is type(expected)
    assert found == expected


def test_a_dimension_of_any_length() -> None:
    with pytest.raises(SpaceError, match="a: expected a fixed shape"):
        spec_of(TensorSpec.of("a", "float32", (-1,)))
