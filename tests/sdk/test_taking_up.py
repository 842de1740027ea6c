"""Environments of the SDK in trials that go on with a stored one: what they are given, and what they save.

docs/branching.md shows such an environment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from trio_cogment import Participants, Platform, open_platform
from trio_cogment.api.common_pb2 import TakenUp, TrialParams
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.base.errors import CogmentError, NotFoundError, RpcError, StatusCode, TrialFailedError
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.taking_up import without_reserved
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.sdk import ActorSession, Controller, EnvironmentSession, StoredSample, actor_params, trial_params

LAST_TICK = 9


class Sum:
    """An environment that adds what its actor says up, and saves the sum.

    Attributes:
        taken: with what its trials went on.
        saved: the ticks that it saved.
    """

    def __init__(self, *, takes_up: bool = True) -> None:
        self.takes_up = takes_up
        self.taken: list[TakenUp | None] = []
        self.saved: list[int] = []

    async def __call__(self, session: EnvironmentSession) -> None:
        taken = session.take_up() if self.takes_up else None
        self.taken.append(taken)
        total = 0
        if taken is not None:
            total = int(taken.checkpoint.content or b"0")
            for tick in taken.past[:-1]:
                total += int(tick.actions[0])
        await session.start([("*", b"%d" % total)])
        async for event in session.all_events():
            if event.actions is None:
                continue
            total += int(event.actions[0].payload)
            if session.wants_checkpoint:
                session.checkpoint(b"%d" % total)
                self.saved.append(session.tick_id + 1)
            if session.tick_id + 1 == LAST_TICK:
                await session.end([("*", b"%d" % total)])
            else:
                await session.produce_observations([("*", b"%d" % total)])


async def adds_its_tick(session: ActorSession) -> None:
    await session.start()
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"%d" % event.observation.tick_id)


PARAMS = trial_params([actor_params("a", "cls", implementation="adds")], environment="sum")
TOTALS = [b"%d" % sum(range(tick)) for tick in range(LAST_TICK + 1)]


@asynccontextmanager
async def table(environment: Sum, **settings: Any) -> AsyncIterator[Platform]:
    participants = Participants()
    participants.register_environment(environment, "sum")
    participants.register_actor(adds_its_tick, "adds")
    config = PlatformConfig(orchestrator=OrchestratorConfig(**settings))
    async with open_platform(participants, store="memory:", config=config) as platform:
        yield platform


async def played(platform: Platform, trial_id: str) -> list[StoredSample]:
    await platform.controller.wait_trial(trial_id, check=True)
    return [sample async for sample in platform.datastore_client().samples([trial_id])]


def seen(samples: list[StoredSample]) -> list[Any]:
    return [sample.actors["a"].observation for sample in samples]


@pytest.mark.parametrize("ticks", [0, 1, 4])
async def test_it_comes_to_the_tick_from_its_checkpoint_or_from_the_beginning(ticks: int) -> None:
    environment = Sum()
    async with table(environment, checkpoint_ticks=ticks) as platform:
        first = await platform.controller.start_trial(PARAMS, trial_id="first")
        assert seen(await played(platform, first)) == TOTALS
        assert environment.saved == (list(range(ticks, LAST_TICK + 1, ticks)) if ticks else [])
        for tick in (0, 3, 4, 7):
            branch = await platform.controller.start_branch(first, tick)
            samples = await played(platform, branch)
            assert seen(samples) == TOTALS[tick:]
            assert [sample.tick_id for sample in samples] == list(range(tick, LAST_TICK + 1))
            taken = environment.taken[-1]
            assert taken is not None
            assert (taken.trial_id, taken.tick_id) == (first, tick)
            saved = tick // ticks * ticks if ticks else 0
            assert taken.HasField("checkpoint") == (saved > 0)
            assert [list(one.observations) for one in taken.past] == [[TOTALS[one]] for one in range(saved, tick + 1)]
            (info,) = await platform.datastore_client().trials([branch])
            assert dict(info.params.properties) == {"branch.trial": first, "branch.tick": str(tick)}


@pytest.mark.parametrize("checkpoint_ticks", [0, 2, 5])
async def test_a_branch_of_a_branch_has_its_past_from_both(checkpoint_ticks: int) -> None:
    async with table(Sum(), checkpoint_ticks=checkpoint_ticks) as platform:
        first = await platform.controller.start_trial(PARAMS)
        await played(platform, first)
        second = await platform.controller.start_branch(first, 3)
        await played(platform, second)
        # Of a branch that has no checkpoint of its own yet, what is before it is read of the other trial.
        for tick in (3, 4, 8):
            third = await platform.controller.start_branch(second, tick)
            assert seen(await played(platform, third)) == TOTALS[tick:]
            last = min(tick + 1, LAST_TICK - 1)
            fourth = await platform.controller.start_branch(third, last)
            assert seen(await played(platform, fourth)) == TOTALS[last:]
        await platform.datastore_client().delete_trials([first])
        if not checkpoint_ticks:
            with pytest.raises(CogmentError, match=f"there is no trial '{first}'"):
                await platform.controller.start_branch(second, 4)


@pytest.mark.parametrize(
    "name",
    [
        *("branch.trial", "branch.tick", "resume.attempt", "resume.tick"),
        *("resume.released", "resume.owner", "resume.reach", "resume.quotas", "resume.run"),
    ],
)
async def test_properties_of_trials_that_go_on_cannot_be_said_by_who_starts_one(name: str) -> None:
    """Who could say them would be given the past of other people's trials when the orchestrator is started again."""
    params = without_reserved(PARAMS)
    params.properties[name] = "3"
    async with table(Sum()) as platform, trio.open_nursery() as nursery:
        running = await nursery.start(partial(serve, platform.services, await open_listeners("127.0.0.1")))
        async with Channel("127.0.0.1", running.port) as channel:
            controller = Controller(channel)
            with pytest.raises(RpcError, match=f"params.properties: '{name}' is set by the orchestrator") as refused:
                await controller.start_trial(params)
            assert refused.value.code is StatusCode.INVALID_ARGUMENT
            first = await controller.start_trial(PARAMS)
            await played(platform, first)
            # The stored parameters of one that has gone on are a branch's all the same.
            branch = await controller.start_branch(first, 3, params=params)
            await played(platform, branch)
        (info,) = await platform.datastore_client().trials([branch])
        assert dict(info.params.properties) == {"branch.trial": first, "branch.tick": "3"}
        assert dict(params.properties) == {name: "3"}
        nursery.cancel_scope.cancel()


async def test_with_its_past_a_branch_is_whole() -> None:
    async with table(Sum(), checkpoint_ticks=2) as platform:
        store = platform.datastore_client()
        first = await platform.controller.start_trial(PARAMS)
        await played(platform, first)
        second = await platform.controller.start_branch(first, 3)
        await played(platform, second)
        third = await platform.controller.start_branch(second, 8)
        await played(platform, third)
        found = [sample async for sample in store.samples_with_past(third)]
        assert [sample.tick_id for sample in found] == list(range(LAST_TICK + 1))
        assert seen(found) == TOTALS
        assert [sample.trial.trial_id for sample in found] == [first] * 3 + [second] * 5 + [third] * 2
        assert [sample.tick_id async for sample in store.samples_with_past(first)] == list(range(LAST_TICK + 1))
        await store.delete_trials([first])
        with pytest.raises(NotFoundError, match=first):
            _ = [sample async for sample in store.samples_with_past(third)]


async def test_one_that_does_not_say_that_it_can_ends_the_trial_with_a_sentence() -> None:
    async with table(Sum(takes_up=False)) as platform:
        first = await platform.controller.start_trial(PARAMS)
        assert seen(await played(platform, first)) == TOTALS
        branch = await platform.controller.start_branch(first, 2)
        with pytest.raises(TrialFailedError, match="'env' cannot be taken up at a tick: it neither saves itself nor"):
            await platform.controller.wait_trial(branch)
        outcome = await platform.controller.wait_trial(branch, check=False)
        assert outcome.cause is EndCause.PARTICIPANT_REFUSED


async def test_seconds_count_as_well(autojump_clock: trio.testing.MockClock) -> None:
    environment = Sum()

    async def slow(session: ActorSession) -> None:
        await session.start()
        async for event in session.all_events():
            if event.observation is not None:
                await trio.sleep(1)
                await session.do_action(b"%d" % event.observation.tick_id)

    participants = Participants()
    participants.register_environment(environment, "sum")
    participants.register_actor(slow, "adds")
    config = PlatformConfig(orchestrator=OrchestratorConfig(checkpoint_seconds=2.5))
    async with open_platform(participants, store="memory:", config=config) as platform:
        await played(platform, await platform.controller.start_trial(PARAMS))
    # From the first time that it is asked on, which is after the first second.
    assert environment.saved == [4, 7]


async def test_what_is_not_stored_cannot_be_gone_on_with() -> None:
    async with table(Sum()) as platform:
        first = await platform.controller.start_trial(PARAMS)
        await played(platform, first)
        with pytest.raises(CogmentError, match="there is no trial 'nowhere'"):
            await platform.controller.start_branch("nowhere", 0)
        with pytest.raises(CogmentError, match="tick 10: expected one that is stored, got ticks up to 9"):
            await platform.controller.start_branch(first, 10)
        unstored = TrialParams()
        unstored.CopyFrom(PARAMS)
        unstored.datalog.endpoint = ""
        second = await platform.controller.start_trial(unstored)
        await platform.controller.wait_trial(second)
        with pytest.raises(CogmentError, match=f"there is no trial '{second}'"):
            await platform.controller.start_branch(second, 0)
    participants = Participants()
    async with open_platform(participants) as platform:
        with pytest.raises(CogmentError, match="no trials are stored here: expected a datastore"):
            await platform.controller.start_branch("t", 0)
