"""Ends of sequences: TERMINATED where the task is over by its own rules, INTERRUPTED where it was cut."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue
from trio.testing import wait_all_tasks_blocked

from tests.gateways.dm_env_rpc.gateway.games import Game, begun, joined, params_of, playing, seat, step, together
from trio_cogment.base.outcome import EndCause
from trio_cogment.gateways.dm_env_rpc import Connection, State
from trio_cogment.gateways.dm_env_rpc.gateway.worlds import is_truncation
from trio_cogment.sdk import ActorSession, EnvironmentSession, actor_params

RUNNING, TERMINATED, INTERRUPTED = State.RUNNING, State.TERMINATED, State.INTERRUPTED
BOTH = ("ann", "ben")


async def play(connection: Connection) -> list[tuple[str, int]]:
    """Play a sequence; return its states and observations."""
    found = [await step(connection)]
    while found[-1][0] is RUNNING:
        found.append(await step(connection))
    return [(state.value, seen) for state, seen, _ in found]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"terminated": True}, "terminated"),
        ({"truncated": True}, "interrupted"),
        ({"terminated": True, "truncated": True}, "terminated"),
        ({}, "terminated"),  # the observation does not say, but the environment has ended the trial
    ],
)
async def test_the_environment_ends_it(flags: dict[str, bool], expected: str) -> None:
    async with playing(Game(length=2, flags=flags)) as platform, joined(platform, "ann") as (ann,):
        for _ in range(2):
            assert await play(ann) == [("running", 0), ("running", 1), (expected, 2)]
        assert (await platform.controller.wait_trial("w.1")).cause is EndCause.ENVIRONMENT
        assert (await ann.read_property("trial.last_error")).item() == ""


async def test_it_is_over_at_its_first_observation() -> None:
    """A sequence has at least one RUNNING: the same observation comes twice."""
    async with playing(Game(length=-1)) as platform, joined(platform, "ann") as (ann,):
        for _ in range(3):
            assert await play(ann) == [("running", 0), ("terminated", 0)]


async def test_it_is_over_at_its_first_observation_for_two() -> None:
    async with playing(Game(length=-1), BOTH) as platform, joined(platform, *BOTH) as (ann, ben):
        for _ in range(2):
            assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2
            assert await step(ann) == (TERMINATED, 0, 0.0)
            await ben.reset()
            assert ben.state is INTERRUPTED


async def test_an_agent_is_out_before_the_others() -> None:
    game = Game(length=4, out={"ann": (1, True), "ben": (2, False)})
    names = ("ann", "ben", "cleo")
    async with playing(game, names) as platform, joined(platform, *names) as (ann, ben, cleo):
        assert await together(ann, ben, cleo) == [(RUNNING, 0, 0.0)] * 3
        told = await together(ann, ben, cleo, numbers=[1, 2, 3])
        assert [state for state, _, _ in told] == [TERMINATED, RUNNING, RUNNING]
        told = await together(ben, cleo, numbers=[4, 5])
        assert [state for state, _, _ in told] == [INTERRUPTED, RUNNING]
        assert [(await step(cleo, 6))[0] for _ in range(2)] == [RUNNING, TERMINATED]
    assert game.actions == [[1, 2, 3], [0, 4, 5], [0, 0, 6], [0, 0, 6]]


async def test_the_limit_of_steps_cuts_it() -> None:
    async with playing(Game(length=0), params_of("ann", max_steps=1)) as platform, joined(platform, "ann") as (ann,):
        assert await play(ann) == [("running", 0), ("running", 1), ("interrupted", 2)]
        assert (await platform.controller.wait_trial("w.1")).cause is EndCause.STEP_LIMIT


@pytest.mark.parametrize("stepping", [True, False])
@pytest.mark.parametrize("hard", [True, False])
async def test_somebody_else_terminates_the_trial(hard: bool, stepping: bool) -> None:
    """Softly there is one more tick; otherwise the last observation comes again."""
    async with playing(Game(length=0), BOTH) as platform, joined(platform, *BOTH) as (ann, ben):
        await together(ann, ben)
        if stepping:
            async with trio.open_nursery() as nursery:
                waiting = await begun(nursery, ann)
                await platform.controller.terminate_trial("w.1", hard=hard)
                await wait_all_tasks_blocked()
                assert await step(ben) == (INTERRUPTED, 0 if hard else 1, 0.0)
                assert await waiting.wait() == (INTERRUPTED, 0 if hard else 1, 0.0)
        else:
            await platform.controller.terminate_trial("w.1", hard=hard)
            await wait_all_tasks_blocked()
            assert await together(ann, ben) == [(INTERRUPTED, 0 if hard else 1, 0.0)] * 2
        error = (await ann.read_property("trial.last_error")).item()
        assert bool(error) is hard
        assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2


async def test_the_environment_fails() -> None:
    async def turn(_: EnvironmentSession, number: int) -> None:
        if number == 2:
            raise ValueError("the dice fell off the table")

    async with playing(Game(length=0, turn=turn)) as platform, joined(platform, "ann") as (ann,):
        assert await play(ann) == [("running", 0), ("running", 1), ("interrupted", 1)]
        assert "the dice fell off the table" in (await ann.read_property("trial.last_error")).item()
        assert await play(ann) == [("running", 0), ("running", 1), ("interrupted", 1)]


@pytest.mark.parametrize("optional", [True, False])
async def test_another_participant_fails(optional: bool) -> None:
    async def bot(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                if event.observation.tick_id == 1:
                    raise ValueError("no idea what to do")
                await session.do_action(b"")

    params = params_of("ann", actor_params("bot", "player", implementation="bot", optional=optional))
    async with playing(Game(length=3), params) as platform:
        platform.participants.register_actor(bot, "bot")
        async with joined(platform, "ann") as (ann,):
            found = await play(ann)
            error = (await ann.read_property("trial.last_error")).item()
    if optional:
        assert found == [("running", 0), ("running", 1), ("running", 2), ("terminated", 3)]
        assert error == ""
    else:
        assert found == [("running", 0), ("running", 1), ("interrupted", 1)]
        assert "no idea what to do" in error


async def test_the_discount() -> None:
    """1 while there may be rewards to come, and where the sequence was cut; 0 where it is over."""

    async def discounts(connection: Connection) -> list[float]:
        steps = [await connection.step()]
        while not steps[-1].last:
            steps.append(await connection.step())
        return [float(each.observations["discount"]) for each in steps]

    for flag, last in (("terminated", 0.0), ("truncated", 1.0)):
        game = Game(length=2, flags={flag: True})
        async with playing(game, expose_discount=True) as platform, joined(platform, "ann") as (ann,):
            assert await discounts(ann) == [1.0, 1.0, last]


# Environments that say so in a message


def truncation(value: Any = True, **others: Any) -> Struct:
    found = Struct()
    found.update({"truncated": value, **others})
    return found


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (truncation(), "interrupted"),
        (truncation(reason="it is late"), "interrupted"),
        (truncation(False), "terminated"),
        (truncation("yes"), "terminated"),
        (StringValue(value="truncated"), "terminated"),
    ],
)
async def test_an_environment_that_says_in_a_message_that_it_cuts(sent: Any, expected: str) -> None:
    async def turn(session: EnvironmentSession, number: int) -> None:
        if number == 2:
            await session.send_message(sent, "*")

    async with playing(Game(length=2, turn=turn, flags={})) as platform, joined(platform, "ann") as (ann,):
        assert await play(ann) == [("running", 0), ("running", 1), (expected, 2)]
        assert len((await ann.read_property("messages.in")).tolist()) == 1


async def test_another_actor_cannot_say_it() -> None:
    async def bot(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.send_message(truncation(), "ann")
                await session.do_action(b"")

    params = params_of(seat("ann"), actor_params("bot", "player", implementation="bot"))
    async with playing(Game(length=2, flags={}), params) as platform:
        platform.participants.register_actor(bot, "bot")
        async with joined(platform, "ann") as (ann,):
            assert (await play(ann))[-1] == ("terminated", 2)


def test_what_says_it() -> None:
    packed = AnyMessage()
    packed.Pack(truncation())
    assert is_truncation(packed)
    assert not is_truncation(AnyMessage(type_url=packed.type_url, value=b"\xff"))
    assert not is_truncation(AnyMessage())
