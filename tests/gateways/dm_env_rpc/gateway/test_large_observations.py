"""Large observations: made once for all who see them, when there is memory, and whole for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.gateways.dm_env_rpc.gateway.games import DONE, Game, joined, playing
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import StatusCode
from trio_cogment.budget.made_once import LARGE_BYTES
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.environments.spec import PLAYER
from trio_cogment.gateways.dm_env_rpc import ClassMapping, DmEnvRpcError, State
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.envelopes import ArrayReader, ParsedObservations
from trio_cogment.sdk import EnvironmentSession, Reward
from trio_cogment.spaces import Box, Observation, encode_observation

SIZE = 2 * LARGE_BYTES
SPACE = Box(0, 255, (SIZE,), "uint8")
BOTH = ("ann", "ben")


def content(step: int, space: Box = SPACE, **flags: Any) -> bytes:
    spaces: dict[str, Any] = {} if step else {"observation_space": space, "action_space": DONE}
    value = np.full(space.shape, step, space.dtype)
    return bytes(encode_observation(Observation(value, **spaces, **flags), space).SerializeToString())


async def crowd(session: EnvironmentSession) -> None:
    """Show everybody the same, and reward each with another number."""
    await session.start([("*", content(0))])
    step = 0
    async for event in session.all_events():
        if event.actions is not None:
            step += 1
            rewards = [Reward(receiver, float(number)) for number, receiver in enumerate(BOTH, 1)]
            if step == 2:
                await session.end([("*", content(step, terminated=True))], rewards)
            else:
                await session.produce_observations([("*", content(step))], rewards)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets a number for each time that an observation is made into a tensor."""
    made: list[int] = []
    read: Callable[..., bool] = ArrayReader.read

    def reading(self: ArrayReader, *args: Any) -> bool:
        made.append(1)
        return read(self, *args)

    monkeypatch.setattr(ArrayReader, "read", reading)
    return made


@pytest.mark.parametrize("seconds", [0, 30])
async def test_it_is_made_once_and_arrives_whole(
    seconds: float, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, memory = counted(monkeypatch), memory_of_run().messages
    async with (
        playing(crowd, BOTH, step_timeout_seconds=seconds) as platform,
        joined(platform, *BOTH) as agents,
    ):
        for number in range(3):
            found: dict[int, Any] = {}

            async def one(index: int, found: dict[int, Any] = found) -> None:
                found[index] = await agents[index].step({"action": 0})

            made.clear()
            with memory_of_run().lent_by(RpcConfig()):
                others = memory.loan()
                others.set(round(memory.total))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(one, 0)
                    nursery.start_soon(one, 1)
                    await wait_all_tasks_blocked()
                    others.close()
            for index, timestep in found.items():
                assert timestep.state is (State.TERMINATED if number == 2 else State.RUNNING)
                assert np.array_equal(timestep.observations["observation"], np.full(SIZE, number, "uint8"))
                assert timestep.observations["reward"] == (index + 1 if number else 0)
            assert len(made) == 1


async def test_bytes_are_too(autojump_clock: MockClock) -> None:
    raw = {PLAYER: ClassMapping(layer="raw")}
    async with playing(crowd, classes=raw) as platform, joined(platform, "ann") as (ann,):
        found = await ann.step({})
        assert found.observations["observation"].item().value == content(0)
        assert found.observations["reward"] == 0


async def test_it_waits_for_memory_and_what_is_small_does_not(autojump_clock: MockClock) -> None:
    memory = memory_of_run().messages
    async with playing(crowd) as platform, joined(platform, "ann") as (ann,):
        with memory_of_run().lent_by(RpcConfig()):
            others = memory.loan()
            others.set(round(memory.total))
            first = await ann.step({}, observations=["reward"])
            assert set(first.observations) == {"reward"}
            with trio.move_on_after(5) as waiting:
                await ann.step({"action": 1})
            assert waiting.cancelled_caught
            assert memory.used == others.size
            others.close()


async def test_the_memory_is_given_back(autojump_clock: MockClock) -> None:
    memory = memory_of_run().messages
    async with playing(crowd) as platform, joined(platform, "ann") as (ann,):
        with memory_of_run().lent_by(RpcConfig()):
            others = memory.loan()
            others.set(round(memory.total))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ann.step, {})
                await wait_all_tasks_blocked()
                others.close()
            assert not memory.used


async def test_one_of_another_shape_is_the_environments_fault(autojump_clock: MockClock) -> None:
    other = content(1, Box(0, 255, (SIZE + 1,), "uint8"))
    game = Game(length=0, seen=Box(0, 255, (SIZE,), "uint8"), content={0: content(0), 1: other})
    async with playing(game) as platform, joined(platform, "ann") as (ann,):
        await ann.step({})
        with pytest.raises(DmEnvRpcError, match="the environment's observation") as caught:
            await ann.step({"action": 1})
        assert caught.value.code is StatusCode.INTERNAL


def test_nothing_large_is_kept_of_what_was_looked_at() -> None:
    parsed, seen = ParsedObservations(), content(0)
    said = parsed.but_value(seen)
    assert said is parsed.but_value(seen)
    assert not said.HasField("value")
    assert said.HasField("observation_space")
    assert said.HasField("action_space")
    assert len(parsed.whole(seen).value.raw_data) == SIZE
    small = content(1, Box(0, 255, (3,), "uint8"), terminated=True)
    assert parsed.whole(small) is parsed.but_value(small)
    assert parsed.but_value(content(1, truncated=True)).truncated
    assert parsed.but_value(content(1, terminated=True)).terminated


def test_the_digest_of_spaces_tells_them_apart() -> None:
    parsed = ParsedObservations()
    wide, narrow = content(0), content(0, Box(0, 255, (3,), "uint8"))
    assert parsed.spaces(wide) == parsed.spaces(content(0))
    assert parsed.spaces(wide) != parsed.spaces(narrow)
