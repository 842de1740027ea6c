"""Observations as JSON: a large one is made once, counts for as long as it is kept, and arrives whole."""

from __future__ import annotations

import base64
import gc
import json

import pytest
import trio

from tests.gateways.rest.playing import ME, Field, act_body, opened_proxy, spec, start_body
from tests.gateways.rest.test_routes import SEAT, opened
from trio_cogment.api.spaces_pb2 import Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import TrialFailedError
from trio_cogment.budget.made_once import LARGE_BYTES, Made
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.gateways.rest import observations, routes
from trio_cogment.gateways.rest.observations import ObservationTexts, UnreadableError
from trio_cogment.sdk import EnvironmentSession

MIB = 1024 * 1024


def large(byte: int, size: int = MIB) -> bytes:
    observation = Observation()
    observation.value.raw_data = bytes([byte]) * size
    return observation.SerializeToString()


async def test_a_small_one_is_its_json() -> None:
    texts = ObservationTexts()
    player = spec().actor_class("player").observation
    assert player is not None
    assert await texts.as_json(player(step=3).SerializeToString(), player) == {"step": 3}
    assert await texts.as_json(b"abc", None) == base64.b64encode(b"abc").decode()


async def test_a_large_one_is_made_once_for_all_who_see_it() -> None:
    texts = ObservationTexts()
    content, other = large(1), large(1)
    found: list[Made] = []

    async def see() -> None:
        found.append(await texts.as_json(content, Observation))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(see)
    assert found[0] is found[1] is found[2]
    assert base64.b64decode(json.loads(found[0].data)["value"]["raw_data"]) == bytes([1]) * MIB
    assert await texts.as_json(other, Observation) is not found[0]
    assert json.loads((await texts.as_json(content, None)).data) == base64.b64encode(content).decode()


async def test_a_large_one_counts_while_it_is_kept() -> None:
    memory = memory_of_run().messages
    with memory_of_run().lent_by(RpcConfig()):
        texts = ObservationTexts()
        found = await texts.as_json(large(1), Observation)
        assert memory.used == len(found.data)
        del found
        gc.collect()
        assert not memory.used


async def test_it_is_not_made_before_there_is_memory_for_it(autojump_clock: object) -> None:
    memory = memory_of_run().messages
    with memory_of_run().lent_by(RpcConfig()):
        texts = ObservationTexts()
        others = memory.loan()
        others.set(round(memory.total))
        with trio.move_on_after(1) as waiting:
            await texts.as_json(large(1), Observation)
        assert waiting.cancelled_caught
        assert memory.used == others.size
        assert not memory.short
        others.close()
        found = await texts.as_json(large(1), Observation)
        assert memory.used == len(found.data)


async def test_bytes_that_are_none_of_its_type() -> None:
    texts = ObservationTexts()
    memory = memory_of_run().messages
    for size in (1, LARGE_BYTES):
        with pytest.raises(UnreadableError, match="not a valid Observation"):
            await texts.as_json(b"\xff" * size, Observation)
    assert not memory.used


async def test_a_large_one_arrives_whole(autojump_clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "LARGE_BYTES", 1)
    monkeypatch.setattr(routes, "_PIECE_BYTES", 3)
    async with opened(Field(2).run) as (client, _, _):
        await client.start_and_join()
        field = {"cogment_actor_trial_token": client.token}
        answer = await client.there.ask("POST", f"{SEAT}/0", act_body(5), **field)
        assert int(answer.headers["content-length"]) == len(answer.body)
        reply = json.loads(answer.body)
        assert (reply["message"], reply["tick_id"], reply["observation"]) == ("acted", "1", {"step": 1})
        assert reply["action"] == {"number": 5}
        answer = await client.there.ask("POST", f"{SEAT}/1", act_body(5), **field)
        assert json.loads(answer.body)["observation"] == {"step": 2}


async def test_an_actor_whose_observations_cannot_be_read_leaves(autojump_clock: object) -> None:
    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"\xff")])
        async for _ in session.all_events():
            pass

    async with opened_proxy(environment) as (proxy, platform):
        await proxy.start_trial(ME, start_body(trial_id="lab-1"))
        with pytest.raises(UnreadableError, match="not a valid PlayerObservation"):
            await proxy.join(ME, "lab-1", "ann")
        with pytest.raises(TrialFailedError, match="ann"):
            await platform.controller.wait_trial("lab-1")
