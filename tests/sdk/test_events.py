"""Events of sessions, data logs and controllers: names, times, statuses, and who says that sending is done."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value

from trio_cogment import (
    ActorClass,
    ActorSession,
    DatalogSession,
    EnvironmentSession,
    EventType,
    Participants,
    Platform,
    PreTrialSession,
    Spec,
    actor_params,
    open_platform,
    trial_params,
)
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError
from trio_cogment.base.host import Host
from trio_cogment.sdk import ActorStatus, LogSample, RecvMessage, RecvReward

SPEC = Spec.of(ActorClass("number", observation=UInt32Value, action=UInt32Value, config=StringValue))
NOW = 1_700_000_000_000_000_000


class Game:
    """A trial of three ticks: nora acts, nick is silent and has a default action, rita is silent and has none."""

    def __init__(self) -> None:
        self.participants = Participants(SPEC, host=Host(wall_clock=lambda: NOW))
        self.participants.register_environment(self.environment)
        self.participants.register_actor(self.nora, "nora", ["number"])
        self.participants.register_actor(self.silent, "silent", ["number"])
        self.participants.register_datalog(self.log)
        self.events: dict[str, list[Any]] = {}
        self.samples: list[LogSample] = []
        self.logged = trio.Event()

    async def environment(self, session: EnvironmentSession) -> None:
        await session.start([("*", UInt32Value(value=0))], auto_done_sending=False)
        events = self.events["env"] = []
        async for event in session.all_events():
            events.append(event)
            if event.message is not None:
                await session.send_message(StringValue(value="answer"), "number.*")
            if event.actions is not None:
                await session.add_reward(1.0, 0.5, ["nora"], user_data=StringValue(value="well done"))
                if event.tick_id < 2:
                    await session.produce_observations([("*", UInt32Value(value=event.tick_id + 1))])
                else:
                    await session.end([("*", UInt32Value(value=9))])
                    # The trial goes on until this participant is done.
                    await session.send_message(StringValue(value="last words"), "nora")
                    await session.sending_done()

    async def nora(self, session: ActorSession) -> None:
        await session.start(auto_done_sending=False)
        events = self.events["nora"] = []
        async for event in session.all_events():
            events.append(event)
            if event.observation is not None:
                if event.type is EventType.ENDING:
                    await session.add_reward(3.0, 1.0, "nora", tick_id=2)
                    await session.sending_done()
                    await session.sending_done()  # once more does no harm
                else:
                    await session.do_action(UInt32Value(value=10 + event.tick_id))
                    if event.tick_id == 0:
                        await session.send_message(StringValue(value="hello"), session.environment_name)

    async def silent(self, session: ActorSession) -> None:
        async for _ in session.all_events():
            pass

    async def log(self, session: DatalogSession) -> None:
        async for sample in session:
            self.samples.append(sample)
        self.logged.set()

    async def play(self, platform: Platform) -> str:
        absent = {"implementation": "silent", "response_timeout_seconds": 0.02, "optional": True}
        params = trial_params(
            [
                actor_params("nora", "number", implementation="nora"),
                actor_params("nick", "number", default_action=UInt32Value(value=5), **absent),  # type: ignore[arg-type]  # some of each type
                actor_params("rita", "number", **absent),  # type: ignore[arg-type]  # some of each type
            ],
            datalog_endpoint="cogment://discover",
            nb_buffered_ticks=5,
        )
        trial_id = await platform.controller.start_trial(params)
        await platform.controller.wait_trial(trial_id)
        await self.logged.wait()
        return trial_id


@pytest.fixture
async def played() -> Game:
    game = Game()
    async with open_platform(game.participants, host=Host(wall_clock=lambda: NOW)) as platform:
        await game.play(platform)
    return game


async def test_action_has_a_status_a_tick_and_a_time(played: Game) -> None:
    (first, *_) = [event.actions for event in played.events["env"] if event.actions is not None]
    # A default action looks like any other to the environment.
    assert [action.status for action in first] == [ActorStatus.ACTIVE, ActorStatus.ACTIVE, ActorStatus.UNAVAILABLE]
    assert [action.available for action in first] == [True, True, False]
    assert [action.payload for action in first] == [UInt32Value(value=10), UInt32Value(value=5), None]
    assert [action.tick_id for action in first] == [0, 0, 0]
    assert [action.timestamp for action in first] == [NOW, NOW, 0]


async def test_rewards_and_messages_name_sender_and_receiver(played: Game) -> None:
    rewards = [event.reward for event in played.events["nora"] if event.reward is not None]
    assert rewards
    for reward in rewards:
        assert isinstance(reward, RecvReward)
        assert reward.receiver_name == "nora"
        assert [source.sender_name for source in reward.sources] == ["env"]
        text = StringValue()
        assert reward.sources[0].user_data.Unpack(text)
        assert text.value == "well done"
        assert (reward.sources[0].value, reward.sources[0].confidence) == (1.0, 0.5)
    messages = [event.message for event in played.events["nora"] if event.message is not None]
    assert [(message.sender_name, message.receiver_name) for message in messages] == [("env", "nora")] * 2
    (heard,) = [event.message for event in played.events["env"] if event.message is not None]
    assert isinstance(heard, RecvMessage)
    assert (heard.sender_name, heard.receiver_name) == ("nora", "env")


async def test_participants_say_when_they_have_sent_everything(played: Game) -> None:
    texts = []
    for event in played.events["nora"]:
        if event.message is not None:
            text = StringValue()
            assert event.message.payload.Unpack(text)
            texts.append(text.value)
    assert texts == ["answer", "last words"]
    assert played.events["nora"][-1].type is EventType.FINAL
    assert played.events["env"][-1].type is EventType.FINAL


async def test_sample_names_actors_and_decodes_payloads(played: Game) -> None:
    first, last = played.samples[0], played.samples[-1]
    assert (first.tick_id, first.timestamp, first.state, first.out_of_sync) == (0, NOW, TrialState.RUNNING, False)
    assert (last.state, list(last.special_events)) == (TrialState.ENDED, list(last.message.info.special_events))
    assert first.actor_names == ["nora", "nick", "rita"]
    observation = first.observation("nora")
    assert observation is not None
    assert (observation.tick_id, observation.timestamp, observation.payload) == (0, NOW, UInt32Value(value=0))
    actions = [first.action(name) for name in first.actor_names]
    assert actions == [first.action(index) for index in range(3)]
    assert [action and (action.status, action.payload) for action in actions] == [
        (ActorStatus.ACTIVE, UInt32Value(value=10)),
        (ActorStatus.DEFAULT, UInt32Value(value=5)),
        (ActorStatus.UNAVAILABLE, None),
    ]
    # As it was sent, with the wildcard.
    assert [(m.sender_name, m.receiver_name) for m in first.messages] == [("nora", "env"), ("env", "number.*")]
    assert [(r.receiver_name, r.value, len(r.sources)) for r in played.samples[1].rewards] == [("nora", 1.0, 1)]


async def test_sample_is_read_back_from_its_bytes(played: Game) -> None:
    for sample in played.samples:
        again = LogSample.deserialize(sample.serialize(), sample.params, SPEC)
        assert again.message == sample.message
    assert again.observation(0) == sample.observation("nora")
    with pytest.raises(InvalidArgumentError, match="expected a serialized DatalogSample, got 1 bytes"):
        LogSample.deserialize(b"\x08", sample.params)


async def test_sample_refuses_actors_that_do_not_exist(played: Game) -> None:
    for bad in (3, -1, "nobody"):
        with pytest.raises(InvalidArgumentError, match=r"actor: expected an index, or one of 'nora', 'nick', 'rita'"):
            played.samples[0].observation(bad)


async def test_sample_without_excluded_fields_is_empty_there() -> None:
    sample = LogSample.deserialize(b"", trial_params([actor_params("a", "c")]))
    assert sample.observation("a") is None
    assert sample.action("a") is None
    assert (sample.rewards, sample.messages, sample.tick_id, sample.state) == ([], [], 0, TrialState.UNKNOWN)


async def test_controller_tells_actors_and_versions() -> None:
    async def waits(session: Any) -> None:
        async for _ in session.all_events():
            pass

    async with open_platform() as platform:
        platform.participants.register_environment(waits)
        platform.participants.register_actor(waits, "a")
        params = trial_params([actor_params("nora", "number"), actor_params("nick", "word")])
        trial_id = await platform.controller.start_trial(params)
        actors = await platform.controller.actors(trial_id)
        assert [(a.index, a.name, a.actor_class) for a in actors] == [(0, "nora", "number"), (1, "nick", "word")]
        assert "trio-cogment" in " ".join(await platform.controller.versions())
        with pytest.raises(NotFoundError, match="trial 'other': the orchestrator does not know it"):
            await platform.controller.actors("other")


async def test_hooks_and_data_logs_are_found_by_their_properties() -> None:
    ran: list[str] = []

    def hook(name: str) -> Any:
        async def run(session: PreTrialSession) -> None:
            ran.append(name)

        return run

    participants = Participants()
    participants.register_pre_trial_hook(hook("slow"), "slow", properties={"speed": "low"})
    participants.register_pre_trial_hook(hook("fast"), "fast", properties={"speed": "high"})
    hooks = ("cogment://discover/prehook?speed=high",)
    async with open_platform(participants, config=PlatformConfig(pre_trial_hooks=hooks)) as platform:
        with pytest.raises(Exception, match="actors"):
            await platform.controller.start_trial()
    assert ran == ["fast"]
