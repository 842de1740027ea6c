"""The sharpest cases of the reference's datastore, each with the better outcome."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.servers.datastore.harness import (
    DATA_LOG,
    ENDED,
    RUNNING,
    TRIALS,
    Harness,
    late_sample,
    open_harness,
    params_with,
    sample_of,
    send_log,
    whole,
)
from trio_cogment.api.common_pb2 import Message, Observation, Reward, RewardSource
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.trial_datastore_pb2 import AddSampleRequest, StoredTrialSample
from trio_cogment.base.errors import RpcError, StatusCode

Clock = trio.testing.MockClock
OpenDesk = Callable[[], AbstractAsyncContextManager[Harness]]


@pytest.fixture(params=["memory, in process", "memory, over HTTP/2", "sqlite, in process"])
def open_desk(request: pytest.FixtureRequest, tmp_path: Path) -> OpenDesk:
    """Return what opens a datastore of each kind, called in either way."""
    store, way = request.param.split(", ")
    address = "memory:" if store == "memory" else f"sqlite:{tmp_path / 'trials.db'}"

    def opened() -> AbstractAsyncContextManager[Harness]:
        return open_harness(address, wire=way == "over HTTP/2")

    return opened


def packed(content: bytes) -> AnyMessage:
    payload = AnyMessage()
    payload.Pack(Observation(content=content))
    return payload


def reward_of(receiver: str, *sources: RewardSource, tick_id: int = 0) -> Reward:
    return Reward(tick_id=tick_id, receiver_name=receiver, sources=sources)


async def refusal(harness: Harness, *trial_ids: str) -> tuple[StatusCode, str]:
    with pytest.raises(RpcError) as caught:
        await harness.samples(*trial_ids)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize("wire", [False, True])
async def test_case_01_evicted_samples_are_an_error_and_no_silence(wire: bool) -> None:
    fat = sample_of(0, ENDED, observations=ObservationSet(observations=[bytes(30_000)], actors_map=[0, 0]))
    async with open_harness(memory_bytes=100_000, wire=wire) as harness:
        await harness.log("old", whole(4))
        for number in range(4):
            await harness.log(f"new-{number}", [fat])
        (old,) = (await harness.trials(trial_ids=["old"])).trial_infos
        assert (old.samples_count, old.last_state) == (4, ENDED)
        with trio.fail_after(30):
            code, text = await refusal(harness, "old")
        assert code is StatusCode.DATA_LOSS
        assert "'old'" in text


async def test_case_02_a_late_reward_is_merged_into_its_tick(open_desk: OpenDesk) -> None:
    late = late_sample(0, rewards=[reward_of("ann", RewardSource(sender_name="env", value=2, confidence=1))])
    async with open_desk() as harness:
        await harness.log("t", [sample_of(0), sample_of(1), late, sample_of(2, ENDED)])
        first, *rest = await harness.samples("t")
        (info,) = (await harness.trials()).trial_infos
    assert (first.tick_id, first.state, first.timestamp) == (0, RUNNING, 1000)
    ann, bob = first.actor_samples
    assert [first.payloads[index] for index in (ann.observation, ann.action, bob.action)] == [b"o0", b"a0", b"a1"]
    assert (ann.reward, ann.received_rewards[0].sender) == (2, -1)
    assert not bob.HasField("reward")
    assert [sample.tick_id for sample in rest] == [1, 2]
    assert info.samples_count == 3


async def test_case_03_an_out_of_sync_sample_does_not_undo_the_end(open_desk: OpenDesk) -> None:
    late = late_sample(0, rewards=[reward_of("bob", RewardSource(sender_name="ann", value=-1, confidence=1))])
    async with open_desk() as harness:
        await harness.log("t", [*whole(2), late])
        with trio.fail_after(30):
            samples = await harness.samples("t")
        (info,) = (await harness.trials()).trial_infos
    assert (info.last_state, info.samples_count) == (ENDED, 2)
    assert [sample.state for sample in samples] == [RUNNING, ENDED]
    assert samples[0].actor_samples[1].reward == -1


async def test_case_04_who_has_what_it_asked_for_does_not_wait(autojump_clock: Clock) -> None:
    async with open_harness() as harness:
        await harness.add_trial("a")
        await harness.add_trial("b")
        began = trio.current_time()
        reply = await harness.trials(trial_ids=["a", "b"], timeout=700)
        assert [info.trial_id for info in reply.trial_infos] == ["a", "b"]
        assert trio.current_time() == began
        # The second page of them is the last: there is nothing to wait for either.
        first = await harness.trials(trial_ids=["a", "b"], timeout=700, trials_count=1)
        rest = await harness.trials(
            trial_ids=["a", "b"], timeout=700, trials_count=2, trial_handle=first.next_trial_handle
        )
        assert [info.trial_id for info in rest.trial_infos] == ["b"]
        assert trio.current_time() == began
        missing = await harness.trials(trial_ids=["a", "c"], timeout=700)
        assert [info.trial_id for info in missing.trial_infos] == ["a"]
        assert trio.current_time() == pytest.approx(began + 0.7)


async def test_case_05_the_handle_of_the_end_stays_there(open_desk: OpenDesk) -> None:
    async with open_desk() as harness:
        handle = ""
        assert (await harness.trials()).next_trial_handle
        for name in "abc":
            await harness.add_trial(name)
        for name in "abc":
            page = await harness.trials(trials_count=1, trial_handle=handle)
            assert [info.trial_id for info in page.trial_infos] == [name]
            handle = page.next_trial_handle
        for _ in range(2):
            page = await harness.trials(trials_count=1, trial_handle=handle)
            assert not page.trial_infos
            assert page.next_trial_handle == handle
        await harness.delete("a", "c")
        await harness.add_trial("d")
        await harness.add_trial("a")
        page = await harness.trials(trials_count=5, trial_handle=handle)
        assert [info.trial_id for info in page.trial_infos] == ["d", "a"]


async def test_case_06_a_huge_count_is_a_count(open_desk: OpenDesk) -> None:
    async with open_desk() as harness:
        await harness.add_trial("a")
        reply = await harness.trials(trials_count=2**32 - 1)
        assert [info.trial_id for info in reply.trial_infos] == ["a"]


async def test_case_07_bad_input_is_refused_and_nobody_else_notices(open_desk: OpenDesk) -> None:
    async with open_desk() as harness:
        await harness.log("t", whole(2))
        with pytest.raises(RpcError) as caught:
            await harness.samples("t", selected_sample_fields=[99])
        assert caught.value.code is StatusCode.INVALID_ARGUMENT
        assert "selected_sample_fields" in caught.value.message
        async with harness.channel.call(TRIALS["AddSample"], metadata=(("trial-id", "t"),)) as call:
            await call.send(AddSampleRequest())
            with pytest.raises(RpcError) as caught:
                await call.receive()
        assert caught.value.code is StatusCode.INVALID_ARGUMENT
        assert "trial_sample" in caught.value.message
        bare = [sample_of(0), DatalogSample(rewards=[reward_of("ann", RewardSource(value=1, confidence=1))])]
        for sample in bare:
            sample.ClearField("info")
        await harness.log("without-info", bare)
        assert [sample.tick_id for sample in await harness.samples("without-info")] == [0]
        assert len(await harness.samples("t")) == 2


async def test_case_08_filters_that_fit_nobody_leave_samples_without_actors(open_desk: OpenDesk) -> None:
    params = params_with("c1.ann.x", "c2.bob.y")
    async with open_desk() as harness:
        await harness.log("t", whole(2), params)
        samples = await harness.samples("t", actor_classes=["c1"], actor_implementations=["y"])
    assert [(sample.tick_id, len(sample.actor_samples)) for sample in samples] == [(0, 0), (1, 0)]
    assert [list(sample.payloads) for sample in samples] == [[b""] * 3] * 2


async def test_case_09_rewards_of_no_confidence_are_listed_and_do_not_count(open_desk: OpenDesk) -> None:
    sources = [
        RewardSource(sender_name="bob", value=4, confidence=1, user_data=packed(b"why")),
        RewardSource(sender_name="env", value=100, confidence=0),
    ]
    worthless = [RewardSource(sender_name="env", value=100, confidence=0)]
    params = params_with("c0.ann", "c0.ada", "c1.bob")
    rewards = [reward_of("c0.*", *sources), reward_of("bob", *worthless)]
    async with open_desk() as harness:
        await harness.log("t", [sample_of(0, ENDED, actors=3, rewards=rewards)], params)
        (sample,) = await harness.samples("t")
    for actor in sample.actor_samples[:2]:
        assert actor.reward == 4
        assert [(got.sender, got.reward, got.confidence) for got in actor.received_rewards] == [(2, 4, 1), (-1, 100, 0)]
        # The whole `Any`, which is what the published SDK reads.
        data = AnyMessage.FromString(sample.payloads[actor.received_rewards[0].user_data])
        assert data == packed(b"why")
        assert not actor.received_rewards[1].HasField("user_data")
    bob = sample.actor_samples[2]
    assert [sent.receiver for sent in bob.sent_rewards] == [0, 1]
    assert bob.HasField("reward")
    assert bob.reward == 0


async def test_case_10_messages_to_everybody_reach_everybody(open_desk: OpenDesk) -> None:
    messages = [
        Message(sender_name="ann", receiver_name="*", payload=packed(b"all")),
        Message(sender_name="ann", receiver_name="env", payload=packed(b"world")),
        Message(sender_name="env", receiver_name="player.*", payload=packed(b"echo")),
    ]
    async with open_desk() as harness:
        await harness.log("t", [sample_of(0, ENDED, messages=messages)])
        (sample,) = await harness.samples("t")
    ann, bob = sample.actor_samples

    def told(content: bytes) -> int:
        return list(sample.payloads).index(packed(content).SerializeToString())

    assert [(sent.receiver, sent.payload) for sent in ann.sent_messages] == [
        (0, told(b"all")),
        (1, told(b"all")),
        (-1, told(b"world")),
    ]
    for actor in (ann, bob):
        received = [(got.sender, got.payload) for got in actor.received_messages]
        assert received == [(0, told(b"all")), (-1, told(b"echo"))]


async def test_case_11_a_deletion_ends_the_streams_of_its_readers(open_desk: OpenDesk) -> None:
    async with open_desk() as harness:
        await harness.log("t", [sample_of(0)])
        reading = harness.follow("t")
        assert (await anext(reading)).tick_id == 0
        await harness.delete("t")
        with trio.fail_after(30), pytest.raises(RpcError) as caught:
            await anext(reading)
        assert caught.value.code is StatusCode.NOT_FOUND
        assert "'t'" in caught.value.message
        assert not (await harness.trials()).trial_infos
        await harness.add_trial("t")
        await harness.add_samples("t", [StoredTrialSample(tick_id=7, state=ENDED)])
        assert [info.samples_count for info in (await harness.trials()).trial_infos] == [1]
        assert [sample.tick_id for sample in await harness.samples("t")] == [7]


async def test_case_12_what_is_ok_is_durable(open_desk: OpenDesk) -> None:
    async with open_desk() as harness:
        for number in range(3):
            async with harness.channel.call(DATA_LOG, metadata=(("trial-id", f"t{number}"),)) as call:
                await send_log(call, whole(5))
                await call.done_sending()
                replies = [reply async for reply in call]
            assert len(replies) == 6
            (info,) = (await harness.trials(trial_ids=[f"t{number}"])).trial_infos
            assert info.samples_count == 5
