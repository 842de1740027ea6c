"""Glances at a trial at a moment."""

from __future__ import annotations

import logging
from functools import partial

import pytest
import trio

from trio_cogment import ActorSession, EnvironmentSession, actor_params, open_platform, trial_params
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.servers.orchestrator import Glance


async def environment(session: EnvironmentSession) -> None:
    await session.start([("*", b"")])
    async for event in session.all_events():
        if event.actions is not None:
            await trio.sleep(1)
            await session.produce_observations([("*", b"")])


async def actor(session: ActorSession) -> None:
    await session.start()
    async for event in session.all_events():
        if event.observation is not None:
            await trio.sleep(3)
            await session.do_action(b"")


async def test_whom_a_trial_waits_for(autojump_clock: object) -> None:
    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "thinker")
        actors = [actor_params("ann", "player", implementation="thinker")]

        def look(*, participants: bool = False) -> Glance:
            trial = platform.orchestrator.trials.get("one")
            assert trial is not None
            return trial.glance(participants=True) if participants else trial.glance()

        await platform.controller.start_trial(trial_params(actors), trial_id="one")
        await trio.sleep(2)
        seen = look(participants=True)
        assert (seen.state, seen.tick, seen.awaited) == (TrialState.RUNNING, 0, ("ann",))
        assert (seen.trial_id, seen.seconds, seen.actors) == ("one", 2, 1)
        assert (seen.owner, seen.user_id) == ("", "trio-cogment")
        assert (seen.queued_messages, seen.queued_samples) == (0, 0)
        env, ann = seen.participants
        assert (env.name, env.actor_class, env.awaited) == (seen.environment, "", False)
        assert (ann.actor_class, ann.implementation, ann.present, ann.awaited) == ("player", "thinker", True, True)
        assert env.silent_seconds == 2
        assert [one.stream for one in seen.participants] == ["ACTIVE", "ACTIVE"]
        assert [one.gone for one in seen.participants] == [False, False]
        assert [one.unanswered_heartbeats for one in seen.participants] == [0, 0]
        assert [one.queued_messages for one in seen.participants] == [0, 0]
        assert [one.endpoint for one in seen.participants] == ["cogment://discover", "cogment://discover"]
        await trio.sleep(1.5)
        assert [one.silent_seconds for one in look(participants=True).participants] == [3.5, 0.5]
        assert look().awaited == (seen.environment,)
        assert look().participants == ()
        await platform.controller.terminate_trial("one", hard=True)
        await platform.controller.wait_trial_state("one")
        seen = look(participants=True)
        assert (seen.state, seen.awaited) == (TrialState.ENDED, ())
        assert [one.name for one in seen.participants] == [seen.environment, "ann"]
        assert all(one.silent_seconds == 0 for one in seen.participants)
        # Of an ended trial less is remembered.
        assert (seen.participants[1].endpoint, seen.participants[1].implementation) == ("", "")


async def test_client_actors_that_have_not_joined(autojump_clock: object, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so once, and descriptions of the trial who is missing still."""
    caplog.set_level(logging.INFO, "trio_cogment.servers.orchestrator")
    async with open_platform() as platform, trio.open_nursery() as nursery:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "thinker")
        actors = [
            actor_params("ann", "player", endpoint="cogment://client"),
            actor_params("ben", "player", implementation="thinker"),
            actor_params("cem", "player", endpoint="cogment://client"),
        ]
        await platform.controller.start_trial(trial_params(actors), trial_id="one")
        trial = platform.orchestrator.trials.get("one")
        assert trial is not None

        async def awaited() -> list[str]:
            (info,) = await platform.controller.trial_infos(["one"], actors=True)
            return list(info.awaited)

        await trio.sleep(1)
        assert trial.glance(participants=False).awaited == ("ann", "cem")
        found = [(one.name, one.present, one.silent_seconds) for one in trial.glance(participants=True).participants]
        # Who has not come is not silent.
        assert found[1:] == [("ann", False, 0), ("ben", True, 1), ("cem", False, 0)]
        assert found[0][1:] == (False, 0)
        assert await awaited() == ["ann", "cem"]
        nursery.start_soon(partial(platform.join_trial, "one", actor, actor_name="ann"))
        await trio.sleep(1)
        assert await awaited() == ["cem"]
        nursery.start_soon(partial(platform.join_trial, "one", actor, actor_name="cem"))
        await trio.sleep(1)
        assert set(await awaited()) == {"ann", "ben", "cem"}  # they think
        await platform.controller.terminate_trial("one", hard=True)
        await platform.controller.wait_trial_state("one")
        assert await awaited() == []
    said = [record.getMessage() for record in caplog.records if "to join" in record.getMessage()]
    assert said == ["trial one: waiting for client actors 'ann', 'cem' to join"]
