"""Old clients: `cogment.Trial` on the services of a platform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.gateways.legacy.clients import TRIAL, OldClient, theatre, with_clients
from tests.gateways.legacy.playing import ACTORS, Field, Newcomer
from tests.gateways.legacy.servers import PROFILE
from trio_cogment.access import anonymous
from trio_cogment.api.common_pb2 import SerializedMessage
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.api.legacy import orchestrator_pb2 as pb
from trio_cogment.base.errors import RpcError
from trio_cogment.base.outcome import EndCause
from trio_cogment.gateways.callers import Caller
from trio_cogment.gateways.legacy.client_seat import ClientSeat
from trio_cogment.gateways.legacy.client_trials import TOMBSTONE_SECONDS, ClientTrials
from trio_cogment.gateways.legacy.trials import within
from trio_cogment.rpc import open_channel, open_listeners, serve
from trio_cogment.sdk import ActorSession, EnvironmentSession, PreTrialSession


async def ended(coming: Any, trial_id: str) -> Any:
    with trio.fail_after(60):
        return await coming.platform.controller.wait_trial(trial_id, check=False)


# 3.2, row by row


async def test_get_trial_params_are_those_of_the_profile() -> None:
    params = with_clients("p", max_steps=7)
    params.trial_config.content = b"trial"
    params.environment.endpoint = "legacy://env:9000"
    params.environment.config.content = b"env"
    params.actors[0].endpoint = "legacy://[::1]:9001"
    params.actors[0].config.content = b"d1"
    async with theatre(params) as here:
        reply = await here.client().call("GetTrialParams", pb.GetTrialParamsRequest())
    told = reply.params
    assert (told.trial_config.content, told.max_steps) == (b"trial", 7)
    assert (told.environment.endpoint, told.environment.config.content) == ("env:9000", b"env")
    assert [(each.actor_class, each.endpoint) for each in told.actors] == [
        ("drone", "[::1]:9001"),
        ("plane", "human"),
        ("drone", "cogment://discover"),
    ]
    assert [each.HasField("config") for each in told.actors] == [True, False, False]


async def test_get_trial_params_are_otherwise_those_of_the_platform() -> None:
    async with theatre(default_params=with_clients("p", max_steps=9)) as here:
        reply = await here.client().call("GetTrialParams", pb.GetTrialParamsRequest())
    assert reply.params.max_steps == 9


async def test_start_tells_the_actor_the_counts_its_config_and_the_first_observation() -> None:
    params = with_clients("d2")
    params.actors[2].config.content = b"mine"
    async with theatre(params) as here:
        client = here.client()
        with trio.fail_after(60):
            reply = await client.start()
            assert (reply.actor_id, list(reply.actor_counts)) == (2, [1, 2])
            assert reply.human_config.content == b"mine"
            assert (reply.observation.tick_id, reply.observation.data.content) == (0, b"see 0")
            assert reply.observation.data.snapshot
            assert reply.observation.timestamp
            await client.end()
        await ended(here, client.trial_id)


async def test_start_carries_the_config_and_the_user() -> None:
    seen: list[Any] = []

    async def hook(session: PreTrialSession) -> None:
        seen.append((session.user_id, session.params.trial_config.content))

    async with theatre(default_params=with_clients("p"), hooks=[hook]) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start(b"given")
            await client.end()
    assert seen == [("ann", b"given")]


async def test_the_parameters_of_the_profile_get_the_config() -> None:
    async with theatre(with_clients("p")) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start(b"given")
        trial = here.platform.orchestrator.trials.get(client.trial_id)
        assert trial is not None
        assert trial.user_id == "ann"
        assert trial.machine.params is not None
        assert trial.machine.params.trial_config == SerializedMessage(content=b"given")


async def test_implementations_are_those_of_the_profile() -> None:
    """Neither the start of an old client nor the parameters that it is told have a field for them."""
    params = with_clients("p")
    params.actors[0].implementation = "another"
    another = Newcomer()
    async with theatre(params) as here:
        here.platform.participants.register_actor(another.play, "another")
        client = here.client()
        with trio.fail_after(60):
            told = await client.call("GetTrialParams", pb.GetTrialParamsRequest())
            await client.start()
            await client.end()
        await ended(here, client.trial_id)
    assert (list(another.events), list(here.newcomer.events)) == (["d1"], ["d2"])
    assert b"another" not in told.SerializeToString()


async def test_without_a_client_a_trial_runs_by_itself() -> None:
    async with theatre(with_clients()) as here:
        client = here.client()
        with trio.fail_after(60):
            reply = await client.start()
        assert (reply.actor_id, list(reply.actor_counts)) == (-1, [1, 2])
        assert not reply.HasField("observation")
        assert not reply.HasField("human_config")
        assert (await ended(here, reply.trial_id)).cause is EndCause.ENVIRONMENT


async def test_action_brings_the_next_observation_until_the_trial_is_over() -> None:
    async with theatre(with_clients("p")) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start()
            replies = [await client.act(b"act %d" % number) for number in range(3)]
            await client.end()
        assert (await ended(here, client.trial_id)).cause is EndCause.ENVIRONMENT
        assert [(each.observation.tick_id, each.observation.data.content) for each in replies] == [
            (1, b"see 1"),
            (2, b"see 2"),
            (3, b"see 3"),
        ]
        assert [each.trial_is_over for each in replies] == [False, False, True]
        assert [row[1] for row in await here.actions()] == [b"act 0", b"act 1", b"act 2"]


async def test_an_action_is_refused_as_busy_while_one_is_answered() -> None:
    async with theatre(with_clients("p", "d1")) as here, trio.open_nursery() as nursery:
        client, other = here.client(), here.client()
        with trio.fail_after(60):
            await client.start()
            await other.join(client.trial_id, 1)
            nursery.start_soon(client.act, b"first")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(RpcError, match="busy") as caught:
                await client.act(b"second")
            assert caught.value.code.name == "UNAVAILABLE"
            # By actor, not by trial.
            await other.act(b"other")
        assert (await here.actions())[0][:2] == [b"other", b"first"]
        await client.end()


async def test_an_action_stream_answers_in_order_and_ends_with_the_trial() -> None:
    async with theatre(with_clients("p")) as here:
        client = here.client()
        replies: list[pb.TrialActionReply] = []
        with trio.fail_after(60):
            await client.start()
            async with here.platform.channel.call(TRIAL["ActionStream"]) as call:
                for number in range(3):
                    await call.send(client.action(b"act %d" % number))
                async for reply in call:
                    replies.append(reply)
        assert [each.observation.tick_id for each in replies] == [1, 2, 3]
        assert [each.trial_is_over for each in replies] == [False, False, True]


async def test_end_is_orderly_and_answered_at_once() -> None:
    async with theatre(with_clients("p"), ends_at=100) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start()
            await client.act(b"once")
            await client.end()
            outcome = await ended(here, client.trial_id)
            assert outcome.cause is EndCause.SOFT_TERMINATION
            final = await client.act(b"late")
        assert final.trial_is_over
        assert (final.observation.tick_id, final.observation.data.content) == (2, b"see 2")
        # The final tick has no action of the client.
        assert [row[1] for row in await here.actions()] == [b"once", b""]


async def test_end_after_the_end_is_accepted_and_later_unknown(autojump_clock: trio.testing.MockClock) -> None:
    async with theatre(with_clients("p"), ends_at=1) as here:
        client = here.client()
        await client.start()
        assert (await client.act(b"only")).trial_is_over
        await ended(here, client.trial_id)
        await client.end()
        await client.end()
        await client.heartbeat()
        await here.platform.orchestrator.stop()
        here.platform.orchestrator.trials.remove(here.platform.orchestrator.trials.get(client.trial_id))  # type: ignore[arg-type]  # there is one
        await client.end()
        await trio.sleep(TOMBSTONE_SECONDS + 1)
        with pytest.raises(RpcError, match=f"there is no trial '{client.trial_id}'") as caught:
            await client.end()
        assert caught.value.code.name == "NOT_FOUND"


async def test_of_trials_that_are_over_the_oldest_are_forgotten_first(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr("trio_cogment.gateways.legacy.client_trials.MAX_TOMBSTONES", 2)
    given: Any = SimpleNamespace()
    trials = ClientTrials(given, given, given, given)
    for trial_id in ("first", "second", "third"):
        trials._tombstones[trial_id] = (given, trio.current_time())
        await trio.sleep(TOMBSTONE_SECONDS / 10)
    assert [trials._known(trial_id) for trial_id in ("first", "second", "third")] == [None, given, given]
    await trio.sleep(TOMBSTONE_SECONDS * 0.85)
    assert [trials._known(trial_id) for trial_id in ("second", "third")] == [None, given]


async def test_heartbeats_keep_a_trial_alive(autojump_clock: trio.testing.MockClock) -> None:
    async with theatre(with_clients("p", max_inactivity_seconds=10), ends_at=100) as here:
        client = here.client()
        await client.start()
        for _ in range(5):
            await trio.sleep(8)
            await client.heartbeat()
        assert not (await client.act(b"still there")).trial_is_over
        await trio.sleep(11)
        outcome = await ended(here, client.trial_id)
        assert outcome.cause is EndCause.HARD_TERMINATION
        final = await client.act(b"late")
        assert (final.trial_is_over, final.observation.data.content) == (True, b"see 1")


@pytest.mark.parametrize("method", ["_watch_activity", "_on_begun"])
async def test_what_fails_in_one_trial_ends_no_other(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted where the gateway watches over a trial, and where it has the part of a client."""

    def planted(self: object, _of: object) -> Any:
        raise RuntimeError("planted")

    async with theatre(with_clients("p", max_inactivity_seconds=1000), ends_at=100) as here:
        other, bad = here.client(), here.client()
        with trio.fail_after(60):
            await other.start()
            with monkeypatch.context() as patched:
                patched.setattr(ClientTrials if method == "_watch_activity" else ClientSeat, method, planted)
                if method == "_on_begun":
                    with pytest.raises(RpcError, match="the gateway failed; its log has the details") as caught:
                        await bad.start()
                    assert caught.value.code.name == "UNAVAILABLE"
                else:
                    await bad.start()
            assert not (await other.act(b"still there")).trial_is_over
            third = here.client()
            await third.start()
            for client in (other, third):
                await client.end()
    assert "RuntimeError: planted" in caplog.text


async def test_a_gateway_that_closes_before_its_platform_leaves_the_trials_of_its_clients() -> None:
    async with theatre(with_clients("p"), ends_at=100) as here:
        channel = here.platform.channel
        trial_id = await here.platform.controller.start_trial(with_clients("p"))
        async with trio.open_nursery() as nursery:
            trials = ClientTrials(nursery, PROFILE, within(here.platform), here.platform.participants.host)
            caller = Caller(anonymous("somebody"), lambda: channel)
            with trio.fail_after(60):
                trial = await trials.watch(trial_id, caller)
                (seat,) = trial.seats.values()
                await seat.join("session")
            nursery.cancel_scope.cancel()
        outcome = await ended(here, trial_id)
        assert (outcome.cause, outcome.participant) == (EndCause.PARTICIPANT_LOST, "p")


async def test_feedback_of_a_client_is_a_reward() -> None:
    async with theatre(with_clients("p"), ends_at=2) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start()
            await client.feed_back(
                legacy.Feedback(actor_id=1, tick_id=-1, value=3, confidence=1, content=b"why"),
                legacy.Feedback(actor_id=1, tick_id=0, value=1, confidence=1),
            )
            await client.act(b"1")
            await client.act(b"2")
        rewards = [event.reward for event in here.newcomer.events["d1"] if event.reward is not None]
        assert [(each.tick_id, each.value) for each in rewards] == [(0, 2.0)]
        assert [source.sender_name for source in rewards[0].sources] == ["p", "p"]


async def test_a_client_is_rewarded_with_its_reply() -> None:
    class Generous(Field):
        async def play(self, session: EnvironmentSession[Any, Any, Any]) -> None:
            await session.start([("*", b"0")])
            async for event in session.all_events():
                if event.actions is not None:
                    await session.add_reward(event.tick_id + 1, 1, "p")
                    await session.send_message(AnyMessage(type_url="x/y", value=b"hello"), "p")
                    await session.produce_observations([("*", b"next")])

    async with theatre(with_clients("p", environment="generous")) as here:
        here.platform.participants.register_environment(Generous().play, "generous")
        client = here.client()
        with trio.fail_after(60):
            await client.start()
            first, second = await client.act(b"1"), await client.act(b"2")
            await client.end()
        assert (first.reward.value, second.reward.value) == (1, 2)
        (feedback,) = first.reward.feedbacks
        assert (feedback.actor_id, feedback.agent_id, feedback.tick_id, feedback.value) == (0, 0, 0, 1)
        assert [(each.sender_id, each.receiver_id, each.payload.value) for each in first.messages.messages] == [
            (-1, 0, b"hello")
        ]
        assert len(second.messages.messages) == 1


async def test_without_a_reward_the_field_is_not_there() -> None:
    async with theatre(with_clients("p")) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start()
            reply = await client.act(b"1")
            await client.end()
        assert not reply.HasField("reward")
        assert reply.HasField("messages")


async def test_messages_of_a_client() -> None:
    async with theatre(with_clients("p"), ends_at=1) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start()
            payload = {"type_url": "x/y", "value": b"hi"}
            await client.send(
                legacy.Message(sender_id=0, receiver_id=2, payload=payload),
                legacy.Message(sender_id=0, receiver_id=-1, payload=payload),
            )
            await client.act(b"1")
        got = [event.message for event in here.newcomer.events["d2"] if event.message is not None]
        assert [(each.sender_name, each.payload.value) for each in got] == [("p", b"hi")]
        told = [event.message for event in here.ground.events if event.message is not None]
        assert [(each.sender_name, each.payload.value) for each in told] == [("p", b"hi")]


async def test_version_is_of_the_0_3_family() -> None:
    async with theatre() as here:
        reply = await here.client().call("Version", legacy.VersionRequest())
    found = {each.name: each.version for each in reply.versions}
    assert found["cogment-api"] == "0.3"
    assert set(found) == {"cogment-api", "grpc", "orchestrator"}


# Several clients


async def test_two_clients_in_one_trial() -> None:
    async with theatre(with_clients("p", "d2"), ends_at=2) as here, trio.open_nursery() as nursery:
        first, second = here.client("one"), here.client("two")
        with trio.fail_after(60):
            reply = await first.start()
            # The trial begins when both have joined: the starter would wait for somebody that it has to tell the id.
            assert reply.actor_id == 0
            assert not reply.HasField("observation")
            joined = await second.join(first.trial_id, 2)
            assert joined.observation.data.content == b"see 0"
            results: dict[str, list[pb.TrialActionReply]] = {}

            async def play(client: OldClient, name: str) -> None:
                results[name] = [await client.act(b"%s %d" % (name.encode(), number)) for number in range(2)]

            nursery.start_soon(play, first, "one")
            nursery.start_soon(play, second, "two")
            await ended(here, first.trial_id)
    for name in ("one", "two"):
        assert [each.observation.tick_id for each in results[name]] == [1, 2]
        assert [each.trial_is_over for each in results[name]] == [False, True]
    assert [(row[1], row[2]) for row in await here.actions()] == [(b"one 0", b"two 0"), (b"one 1", b"two 1")]


async def test_the_starter_of_several_may_wait_for_the_first_observation() -> None:
    async with theatre(with_clients("p", "d2")) as here, trio.open_nursery() as nursery:
        first, second = here.client(), here.client()
        with trio.fail_after(60):
            await first.start()
            nursery.start_soon(second.join, first.trial_id, 2)
            reply = await first.join(first.trial_id, 0)
            assert reply.observation.data.content == b"see 0"
            await first.end()


async def test_an_early_action_waits_for_the_others() -> None:
    async with theatre(with_clients("p", "d2"), ends_at=1) as here, trio.open_nursery() as nursery:
        first, second = here.client(), here.client()
        with trio.fail_after(60):
            await first.start()
            nursery.start_soon(first.act, b"early")
            await trio.testing.wait_all_tasks_blocked()
            await second.join(first.trial_id, 2)
            assert (await second.act(b"second")).trial_is_over
    assert [(row[1], row[2]) for row in await here.actions()] == [(b"early", b"second")]


async def test_feedback_is_the_session_s() -> None:
    async with theatre(with_clients("p", "d2"), ends_at=1) as here, trio.open_nursery() as nursery:
        first, second = here.client("one"), here.client("two")
        with trio.fail_after(60):
            await first.start()
            await second.join(first.trial_id, 2)
            for client in (first, second):
                await client.feed_back(legacy.Feedback(actor_id=1, tick_id=-1, value=1, confidence=1))
            nursery.start_soon(first.act, b"1")
            await second.act(b"2")
        (reward,) = [event.reward for event in here.newcomer.events["d1"] if event.reward is not None]
        assert [source.sender_name for source in reward.sources] == ["p", "d2"]


async def test_an_end_before_everybody_has_joined() -> None:
    async with theatre(with_clients("p", "d2")) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start()
            await client.end()
            assert (await ended(here, client.trial_id)).cause is EndCause.HARD_TERMINATION
            assert (await client.act(b"late")).trial_is_over


async def test_a_trial_of_somebody_else_can_be_joined() -> None:
    async with theatre(ends_at=1) as here:
        await here.platform.controller.start_trial(with_clients("p"), trial_id="theirs")
        client = here.client()
        with trio.fail_after(60):
            reply = await client.join("theirs", 0)
            assert (reply.actor_id, reply.observation.data.content) == (0, b"see 0")
            assert (await client.act(b"1")).trial_is_over


async def test_old_clients_and_those_of_today_in_one_trial() -> None:
    profile = PROFILE.__class__(classes=PROFILE.classes, clients=("p",))
    async with theatre(with_clients("p", "d1"), profile, ends_at=2) as here, trio.open_nursery() as nursery:
        client = here.client()

        async def start() -> None:
            await client.start()
            await client.act(b"old 0")
            await client.act(b"old 1")

        nursery.start_soon(start)
        with trio.fail_after(60):
            async with here.platform.controller.watch_trials() as watch:
                entry = await watch.receive()
            newcomer = Newcomer()
            await here.platform.join_trial(entry.trial_id, newcomer.play, actor_name="d1")
    assert [row[:2] for row in await here.actions()] == [[b"d1 at 0", b"old 0"], [b"d1 at 1", b"old 1"]]


# Calls that go away


async def test_a_repeated_action_counts_once(autojump_clock: trio.testing.MockClock) -> None:
    """Its first call has gone with a deadline, before and after the observation has come."""

    class Slow(Newcomer):
        async def play(self, session: ActorSession[Any, Any, Any]) -> None:
            async for event in session.all_events():
                if event.observation is not None and event.type.name == "ACTIVE":
                    await trio.sleep(5)
                    await session.do_action(b"slow")

    async with theatre(with_clients("p"), ends_at=3) as here:
        here.platform.participants.register_actor(Slow().play, "slow")
        params = with_clients("p", environment="today")
        for actor in params.actors:
            if actor.name != "p":
                actor.implementation = "slow"
        await here.platform.controller.start_trial(params, trial_id="trial")
        client = here.client()
        await client.join("trial", 0)
        with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
            await client.act(b"first", timeout=2)
        # The observation has not come: the call waits for it.
        assert (await client.act(b"first, again")).observation.tick_id == 1
        with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
            await client.act(b"second", timeout=2)
        await trio.sleep(60)
        # It has come: the call gets it.
        assert (await client.act(b"second, again")).observation.tick_id == 2
        final = await client.act(b"third")
        assert (final.observation.tick_id, final.trial_is_over) == (3, True)
        assert [row[1] for row in await here.actions()] == [b"first", b"second", b"third"]


async def test_what_came_for_a_call_that_has_gone_is_in_the_next_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Generous(Field):
        async def play(self, session: EnvironmentSession[Any, Any, Any]) -> None:
            await session.start([("*", b"0")])
            async for event in session.all_events():
                if event.actions is not None:
                    await trio.sleep(5)
                    await session.add_reward(event.tick_id + 1, 1, "p")
                    await session.send_message(AnyMessage(type_url="x/y", value=b"%d" % event.tick_id), "p")
                    await session.produce_observations([("*", b"next")])

    async with theatre(with_clients("p", environment="generous")) as here:
        here.platform.participants.register_environment(Generous().play, "generous")
        client = here.client()
        await client.start()
        with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
            await client.act(b"1", timeout=1)
        await trio.sleep(10)
        reply = await client.act(b"1")
        assert (reply.reward.value, reply.messages.messages[0].payload.value) == (1, b"0")
        reply = await client.act(b"2")
        assert (reply.reward.value, len(reply.messages.messages)) == (2, 1)
        await client.end()


async def test_a_start_that_its_client_leaves_ends_the_trial(autojump_clock: trio.testing.MockClock) -> None:
    class Late(Field):
        async def play(self, session: EnvironmentSession[Any, Any, Any]) -> None:
            await trio.sleep(20)
            await super().play(session)

    async with theatre(with_clients("p", environment="late")) as here:
        here.platform.participants.register_environment(Late().play, "late")
        with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
            await here.client().start(timeout=5)
        await trio.sleep(1)
        (trial,) = here.platform.orchestrator.trials
        assert trial.over


async def test_a_join_that_has_gone_may_be_repeated(autojump_clock: trio.testing.MockClock) -> None:
    async with theatre(with_clients("p", "d2")) as here, trio.open_nursery() as nursery:
        first, second = here.client(), here.client()
        await first.start()
        with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
            await first.join(first.trial_id, 0, timeout=2)
        nursery.start_soon(second.join, first.trial_id, 2)
        assert (await first.join(first.trial_id, 0)).observation.data.content == b"see 0"
        with pytest.raises(RpcError, match="ALREADY_EXISTS"):
            await here.client().join(first.trial_id, 0)
        await first.end()


# Ends


@pytest.mark.parametrize("waiting", [True, False])
async def test_a_hard_end_answers_with_the_last_observation(waiting: bool) -> None:
    async with theatre(with_clients("p", "d2"), ends_at=100) as here, trio.open_nursery() as nursery:
        client, other = here.client(), here.client()
        replies: list[pb.TrialActionReply] = []

        async def act() -> None:
            replies.append(await client.act(b"act"))

        with trio.fail_after(60):
            await client.start()
            await other.join(client.trial_id, 2)
            await client.join(client.trial_id, 0)
            if waiting:
                nursery.start_soon(act)
                await trio.testing.wait_all_tasks_blocked()
            await here.platform.controller.terminate_trial(client.trial_id, hard=True)
            if not waiting:
                await act()
            else:
                await trio.testing.wait_all_tasks_blocked()
    assert [(each.trial_is_over, each.observation.data.content) for each in replies] == [(True, b"see 0")]


async def test_max_steps_give_the_waiting_client_its_final_observation() -> None:
    async with theatre(with_clients("p", max_steps=2), ends_at=100) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start()
            replies = [await client.act(b"1")]
            while not replies[-1].trial_is_over:
                replies.append(await client.act(b"2"))
        assert [each.observation.tick_id for each in replies] == list(range(1, len(replies) + 1))
        assert replies[-1].observation.data.content == b"see %d" % len(replies)
        assert (await ended(here, client.trial_id)).cause is EndCause.STEP_LIMIT


async def test_the_final_answer_is_given_as_often_as_it_is_asked_for() -> None:
    async with theatre(with_clients("p"), ends_at=1) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start()
            first = await client.act(b"1")
            await ended(here, client.trial_id)
            assert await client.act(b"again") == first


async def test_a_stop_answers_the_calls_that_wait() -> None:
    async with theatre(with_clients("p", "d2")) as here, trio.open_nursery() as nursery:
        client, other = here.client(), here.client()
        replies: list[pb.TrialActionReply] = []

        async def act() -> None:
            replies.append(await client.act(b"act"))

        with trio.fail_after(60):
            await client.start()
            await other.join(client.trial_id, 2)
            nursery.start_soon(act)
            await trio.testing.wait_all_tasks_blocked()
            await here.platform.stop()
            with pytest.raises(RpcError, match="UNAVAILABLE"):
                await other.start()
    assert [each.trial_is_over for each in replies] == [True]


async def test_an_environment_that_fails_before_it_begins() -> None:
    async def fail(session: EnvironmentSession[Any, Any, Any]) -> None:
        raise ValueError("no board")

    async with theatre(with_clients("p", environment="failing")) as here:
        here.platform.participants.register_environment(fail, "failing")
        with trio.fail_after(60), pytest.raises(RpcError, match=r"ended before it began.*no board") as caught:
            await here.client().start()
        assert caught.value.code.name == "UNAVAILABLE"


# Bad input


Ask = Callable[[OldClient], Awaitable[Any]]


def to(receiver_id: int, sender_id: int = 0) -> legacy.Message:
    return legacy.Message(sender_id=sender_id, receiver_id=receiver_id)


def fb(**fields: Any) -> legacy.Feedback:
    return legacy.Feedback(**{"actor_id": 1, "tick_id": -1, "value": 1, "confidence": 1, **fields})


@pytest.mark.parametrize(
    ("ask", "code", "text"),
    [
        (lambda c: c.join("nowhere", 0), "NOT_FOUND", "there is no trial 'nowhere'"),
        (lambda c: c.join(c.trial_id, 0), "ALREADY_EXISTS", "a client has joined already"),
        (
            lambda c: c.join(c.trial_id, 1),
            "INVALID_ARGUMENT",
            "actor_id: expected an actor that clients play (0), got 1",
        ),
        (lambda c: c.join(c.trial_id, -1), "INVALID_ARGUMENT", "(0), got -1"),
        (
            lambda c: c.feed_back(fb(actor_id=7)),
            "INVALID_ARGUMENT",
            "feedbacks[0]: expected feedback for an actor of the trial, got actor_id 7",
        ),
        (
            lambda c: c.feed_back(fb(), fb(tick_id=-2)),
            "INVALID_ARGUMENT",
            "feedbacks[1]: expected feedback for a tick, or -1 for the latest one, got tick_id -2",
        ),
        (
            lambda c: c.feed_back(fb(value=float("nan"))),
            "INVALID_ARGUMENT",
            "feedbacks[0]: expected feedback with a finite value and confidence, got nan and 1.0",
        ),
        (lambda c: c.send(to(9)), "INVALID_ARGUMENT", "messages[0]: expected a message to somebody in the trial"),
        (
            lambda c: c.send(to(1), to(1, 1)),
            "INVALID_ARGUMENT",
            "messages[1].sender_id: expected an actor that clients",
        ),
    ],
)
async def test_nonsense_is_refused_and_the_trial_goes_on(ask: Ask, code: str, text: str) -> None:
    async with theatre(with_clients("p")) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start()
            kept = client.trial_id, client.actor_id
            with pytest.raises(RpcError) as caught:
                await ask(client)
            assert (client.trial_id, client.actor_id) == kept
            assert caught.value.code.name == code
            assert text in caught.value.message
            assert (await client.act(b"1")).observation.tick_id == 1
        assert not [event for event in here.newcomer.events["d1"] if event.reward or event.message]


@pytest.mark.parametrize("method", ["Action", "End", "Heartbeat", "GiveFeedback", "SendMessage"])
async def test_an_unknown_trial(method: str) -> None:
    async with theatre() as here:
        request = TRIAL[method].request_type(trial_id="nowhere")
        with pytest.raises(RpcError, match="there is no trial 'nowhere'") as caught:
            await here.client().call(method, request)
    assert caught.value.code.name == "NOT_FOUND"


async def test_who_has_not_joined_cannot_act_or_speak() -> None:
    async with theatre() as here:
        await here.platform.controller.start_trial(with_clients("p"), trial_id="theirs")
        client = OldClient(here.platform.channel, "", "theirs", 0)
        for ask in (client.act(b"1"), client.feed_back(fb()), client.send(to(1))):
            with pytest.raises(RpcError, match="no client has joined") as caught:
                await ask
            assert caught.value.code.name == "FAILED_PRECONDITION"


async def test_feedback_for_ticks_that_never_were_reaches_nobody() -> None:
    async with theatre(with_clients("p"), ends_at=1) as here:
        client = here.client()
        with trio.fail_after(60):
            await client.start()
            await client.feed_back(fb(tick_id=1000))
            assert (await client.act(b"1")).trial_is_over
            await client.feed_back(fb())
            await client.send(to(1))
        assert not [event for event in here.newcomer.events["d1"] if event.reward or event.message]


async def test_a_place_that_a_client_of_today_has_taken() -> None:
    async with theatre() as here, trio.open_nursery() as nursery:
        await here.platform.controller.start_trial(with_clients("p", "d1"), trial_id="theirs")

        async def sit(session: ActorSession[Any, Any, Any]) -> None:
            async for _ in session.all_events():
                pass

        async def take() -> None:
            await here.platform.join_trial("theirs", sit, actor_name="p")

        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        client = here.client()
        with trio.fail_after(60):
            with pytest.raises(RpcError, match="p") as caught:
                await client.join("theirs", 0)
            assert caught.value.code.name in ("ALREADY_EXISTS", "FAILED_PRECONDITION", "INVALID_ARGUMENT")
            await here.platform.controller.terminate_trial("theirs", hard=True)


async def test_a_class_that_the_project_does_not_have_ends_the_trial() -> None:
    async with theatre(with_clients("p", actors=[*ACTORS, ("s", "ship")])) as here:
        with trio.fail_after(60), pytest.raises(RpcError, match="got 'ship'") as caught:
            await here.client().start()
        assert caught.value.code.name == "INVALID_ARGUMENT"
        (trial,) = here.platform.orchestrator.trials
        assert trial.over


async def test_over_sockets() -> None:
    async with theatre(with_clients("p")) as here, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running: Any = await nursery.start(serve, here.platform.services, listeners)
        async with open_channel(here.platform.participants.host, "127.0.0.1", running.port) as channel:
            client = OldClient(channel, "session")
            with trio.fail_after(60):
                await client.start(b"config")
                replies = [await client.act(b"%d" % number) for number in range(3)]
                await client.end()
        assert [each.trial_is_over for each in replies] == [False, False, True]
        nursery.cancel_scope.cancel()


async def test_nothing_is_left_of_a_trial(autojump_clock: trio.testing.MockClock) -> None:
    async with theatre(with_clients("p", max_inactivity_seconds=1000), ends_at=1) as here:
        for _ in range(3):
            client = here.client()
            await client.start()
            assert client.trial_id in here.gateway.trials.running
            await client.act(b"1")
            await ended(here, client.trial_id)
        await trio.testing.wait_all_tasks_blocked()
        assert not here.gateway.trials.running
        assert here.platform.orchestrator.running_trials == 0
        # Watches have gone, too.
        assert here.platform.orchestrator.watchers.max_queued_entries == 0
