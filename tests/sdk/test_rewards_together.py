"""Rewards that leave together with an observation set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from google.protobuf.wrappers_pb2 import StringValue

from tests.cli.process import listening
from tests.rpc.noted_sends import noted_sends
from trio_cogment import (
    ActorSession,
    EnvironmentSession,
    Event,
    Participants,
    actor_params,
    open_platform,
    trial_params,
)
from trio_cogment.api.common_pb2 import CommunicationState
from trio_cogment.api.environment_pb2 import EnvInitialInput
from trio_cogment.base.shared_message import SharedMessage
from trio_cogment.platform import Platform
from trio_cogment.sdk import Reward

TICKS = 5


def rewards_of(tick: int) -> list[Reward]:
    return [
        Reward("ann", tick),
        Reward(["ann", "bob"], 10 * tick, confidence=3, user_data=StringValue(value=f"tick {tick}")),
    ]


def scoring(*, inline: bool) -> tuple[Participants, dict[str, list[Any]]]:
    """An environment that rewards each tick, and the final one, and actors that note what they get."""
    participants, seen = Participants(), dict[str, list[Any]](ann=[], bob=[])

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"0")], [Reward("*", 0.5)])
        if inline:

            def on_event(event: Event) -> None:
                if event.actions:
                    tick = event.tick_id + 1
                    produce = session.end_nowait if tick == TICKS else session.produce_observations_nowait
                    produce([("*", b"%d" % tick)], rewards_of(tick))

            await session.handle(on_event)
            return
        async for event in session.all_events():
            if event.actions:
                tick = event.tick_id + 1
                produce = session.end if tick == TICKS else session.produce_observations
                await produce([("*", b"%d" % tick)], rewards_of(tick))

    async def actor(session: ActorSession) -> None:
        saw = seen[session.name]
        async for event in session.all_events():
            if event.observation is not None:
                saw.append(event.observation.payload)
                await session.do_action(b"")
            elif event.reward is not None:
                sources = [(source.value, source.confidence, source.user_data.value) for source in event.reward.sources]
                saw.append((event.reward.tick_id, event.reward.value, sources))

    participants.register_environment(environment, "scores")
    participants.register_actor(actor, "player")
    return participants, seen


async def play(platform: Platform, endpoint: str) -> None:
    actors = [actor_params(name, "player", endpoint=endpoint) for name in ("ann", "bob")]
    params = trial_params(actors, environment="scores", environment_endpoint=endpoint)
    trial_id = await platform.controller.start_trial(params)
    await platform.controller.wait_trial(trial_id)


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("sockets", [False, True])
async def test_rewards_come_before_the_observation_they_were_sent_with(inline: bool, sockets: bool) -> None:
    participants, seen = scoring(inline=inline)
    with trio.fail_after(30):
        async with open_platform(None if sockets else participants) as platform:
            if sockets:
                async with listening(*participants.services()) as endpoint:
                    await play(platform, endpoint)
            else:
                await play(platform, "cogment://discover")
    before: list[Any] = [(0, 0.5, [(0.5, 1, b"")]), b"0"]
    ann, bob = list(before), list(before)
    for tick in range(1, TICKS + 1):
        text = StringValue(value=f"tick {tick}").SerializeToString()
        ann += [(tick - 1, (tick + 30 * tick) / 4, [(tick, 1, b""), (10 * tick, 3, text)]), b"%d" % tick]
        bob += [(tick - 1, 10 * tick, [(10 * tick, 3, text)]), b"%d" % tick]
    assert seen == {"ann": ann, "bob": bob}


class Calls:
    """A call that notes what is sent, and in how many goes."""

    def __init__(self) -> None:
        self.goes: list[list[str]] = []

    def accept_shared(self) -> None:
        pass

    async def receive(self) -> Any:
        await trio.sleep_forever()

    async def hand_over(self, message: Any) -> None:
        await self.send_together([message])

    async def send_together(self, messages: Sequence[Any]) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        whole: list[Any] = [message.whole() if isinstance(message, SharedMessage) else message for message in messages]
        self.goes.append([message.WhichOneof("data") or CommunicationState.Name(message.state) for message in whole])


def session_over(call: Any) -> EnvironmentSession:
    init = EnvInitialInput(name="env")
    init.actors_in_trial.add(name="ann", actor_class="player")
    return EnvironmentSession(call, "t", init, spec=Participants().spec, wall_clock=lambda: 1)


async def test_after_a_cancellation_all_has_been_sent_or_nothing() -> None:
    call = Calls()
    session = session_over(call)
    await session.start([("*", b"")])
    for send in (session.produce_observations, session.end):
        with trio.CancelScope() as scope:
            scope.cancel()
            await send([("*", b"")], rewards_of(1)[:1])
        await send([("*", b"")], rewards_of(1)[:1])
    # What comes after the final observations is too late, rewards included.
    await session.produce_observations([("*", b"")], rewards_of(1))
    together = ["reward", "observation_set"]
    assert call.goes == [["init_output"], ["observation_set"], together, ["LAST"], together]


async def test_they_leave_in_one_piece_over_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each answer goes out at once, rewards do not go ahead of the observations."""
    sent = noted_sends(monkeypatch)
    pieces: list[int] = []

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"0")])
        async for event in session.all_events():
            if event.actions:
                before = len(sent)
                await session.produce_observations([("*", bytes(1000))], [Reward("*", 1)])
                pieces.extend(sent[before:])
                await session.end([("*", b"")])

    async def actor(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"")

    participants = Participants()
    participants.register_environment(environment, "scores")
    here = Participants()
    here.register_actor(actor, "player")
    with trio.fail_after(30):
        async with open_platform(here) as platform, listening(*participants.services()) as endpoint:
            params = trial_params([actor_params("ann", "player")], environment="scores", environment_endpoint=endpoint)
            await platform.controller.wait_trial(await platform.controller.start_trial(params))
    assert len(pieces) == 1
    assert pieces[0] > 1000  # and it has the observations
