"""Trials and samples, as readers get them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.servers.datastore.harness import (
    ENDED,
    RUNNING,
    TRIALS,
    GateStore,
    Harness,
    open_harness,
    params_with,
    sample_of,
    send_log,
    whole,
)
from trio_cogment.api.common_pb2 import ActorParams, StatusRequest, TrialParams, VersionRequest
from trio_cogment.api.datalog_pb2 import RunTrialDatalogInput
from trio_cogment.api.trial_datastore_pb2 import (
    AddSampleRequest,
    AddTrialRequest,
    RetrieveSampleReply,
    RetrieveSamplesRequest,
    StoredTrialActorSample,
    StoredTrialActorSampleMessage,
    StoredTrialActorSampleReward,
    StoredTrialSample,
)
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode, UnavailableError
from trio_cogment.servers.datastore._following import SampleReader
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore.storage import StoredSample, StoredTrial
from trio_cogment.testing.conformance.trial_store import new_trial

Clock = trio.testing.MockClock
both = pytest.mark.parametrize("wire", [False, True])


def names(reply: Any) -> list[str]:
    return [info.trial_id for info in reply.trial_infos]


# Trials


@both
async def test_filters_narrow_together_and_the_order_is_that_of_creation(wire: bool) -> None:
    async with open_harness(wire=wire) as harness:
        for name, properties in (("c", {"x": "1", "y": ""}), ("a", {"x": "2"}), ("b", {"x": "1"}), ("d", {})):
            await harness.add_trial(name, params_with("ann", properties=properties))
        await harness.add_trial("c", params_with("bob", properties={"x": "1", "y": ""}), "other")
        assert names(await harness.trials()) == ["c", "a", "b", "d"]
        assert names(await harness.trials(trial_ids=["d", "b", "nobody"])) == ["b", "d"]
        assert names(await harness.trials(properties={"x": "1"})) == ["c", "b"]
        assert names(await harness.trials(properties={"x": "1", "y": ""})) == ["c"]
        assert names(await harness.trials(properties={"z": ""})) == []
        assert names(await harness.trials(trial_ids=["a", "b"], properties={"x": "1"})) == ["b"]
        first = (await harness.trials(trials_count=1)).trial_infos[0]
        assert (first.user_id, first.params.actors[0].name, first.samples_count) == ("other", "bob", 0)


HANDLES = {"": "abc", "0": "abc", "-1": "abc", "-99999999999999999999999": "abc", "+1": "bc", "01": "bc", "9" * 100: ""}


@pytest.mark.parametrize("handle", HANDLES)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_handles(handle: str, kind: str, tmp_path: Path) -> None:
    async with open_harness("memory:" if kind == "memory" else f"sqlite:{tmp_path / 'trials'}") as harness:
        for name in "abc":
            await harness.add_trial(name)
        page = await harness.trials(trial_handle=handle)
        assert "".join(names(page)) == HANDLES[handle]
        assert not (await harness.trials(trial_handle=page.next_trial_handle)).trial_infos


@pytest.mark.parametrize("handle", ["x", "1.5", " 1", "1_0", "0x1", "--1", "\u0661", "9" * 5000])
async def test_handles_that_are_none(handle: str) -> None:
    async with open_harness() as harness:
        with pytest.raises(RpcError, match="trial_handle") as caught:
            await harness.trials(trial_handle=handle)
        assert caught.value.code is StatusCode.INVALID_ARGUMENT


async def test_paging_meets_every_trial_once_whatever_is_deleted_and_added() -> None:
    async with open_harness() as harness:
        for number in range(600):
            await harness.add_trial(f"t{number}")
        seen: list[str] = []
        handle = ""
        while True:
            page = await harness.trials(trials_count=70, trial_handle=handle)
            seen += names(page)
            handle = page.next_trial_handle
            if len(page.trial_infos) < 70:
                break
            await harness.delete(*names(page)[::2])
            await harness.add_trial(f"new-{handle}")
        assert len(set(seen)) == len(seen)
        assert seen[:600] == [f"t{number}" for number in range(600)]
        assert len(names(await harness.trials())) == len(names(await harness.trials(trials_count=2**32 - 1)))


async def test_a_request_names_so_many_trials() -> None:
    async with open_harness(max_request_trials=2) as harness:
        await harness.add_trial("a")
        assert names(await harness.trials(trial_ids=["a", "b"])) == ["a"]
        for request in (
            partial(harness.trials, trial_ids=["a", "b", "c"]),
            partial(harness.samples, "a", "b", "c"),
            partial(harness.delete, "a", "b", "c"),
        ):
            with pytest.raises(RpcError, match="trial_ids: 3; max_request_trials is 2") as caught:
                await request()
            assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        assert names(await harness.trials()) == ["a"]


async def test_a_trial_has_so_many_actors() -> None:
    few, many = (TrialParams(actors=[ActorParams(name=f"a{n}") for n in range(count)]) for count in (2, 3))
    storing: list[Callable[[], Awaitable[None]]]
    text = "trial_params.actors: expected at most 2, got 3; max_trial_actors is 2"
    async with open_harness(max_trial_actors=2) as harness:
        await harness.add_trial("a", few)
        await harness.log("b", [], few)
        storing = [partial(harness.add_trial, "c", many), partial(harness.log, "d", [], many)]
        for store in storing:
            with pytest.raises(RpcError, match=text) as caught:
                await store()
            assert caught.value.code is StatusCode.INVALID_ARGUMENT
        assert names(await harness.trials()) == ["a", "b"]


async def test_a_reply_that_would_be_too_long_is_refused_and_says_what_fits() -> None:
    """A page that is shorter than asked for ends the published SDK's paging: trials would be missed in silence."""
    params = params_with(*[f"actor-with-a-long-name-{number}" for number in range(50)])
    async with open_harness(max_reply_bytes=20_000) as harness:
        for number in range(20):
            await harness.add_trial(f"t{number}", params)
        for count in (0, 20, 2**32 - 1):
            with pytest.raises(RpcError) as caught:
                await harness.trials(trials_count=count)
            assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        fitting = int(caught.value.message.split("first ")[1].split()[0])
        reply = await harness.trials(trials_count=fitting)
        assert len(reply.trial_infos) == fitting
        assert reply.ByteSize() <= 20_000
        with pytest.raises(RpcError):
            await harness.trials(trials_count=fitting + 1)
    async with open_harness(max_reply_bytes=100) as harness:
        await harness.add_trial("t", params)
        assert names(await harness.trials(trials_count=1)) == ["t"]


async def test_a_reply_is_filled_to_the_last_byte() -> None:
    """Six bytes count for each trial beside it: its tag and its length."""
    params = params_with(*[f"actor-{number}" for number in range(20)])
    async with open_harness() as harness:
        for name in "abc":
            await harness.add_trial(name, params)
        room = sum(info.ByteSize() + 6 for info in (await harness.trials()).trial_infos)
        store = harness.datastore.store
        async with open_harness(store, max_reply_bytes=room) as exact:
            assert names(await exact.trials()) == ["a", "b", "c"]
        async with open_harness(store, max_reply_bytes=room - 1) as less:
            with pytest.raises(RpcError, match=f"more than {room - 1} bytes; the first 2 of them fit"):
                await less.trials()


async def test_trials_are_read_from_the_storage_by_256() -> None:
    limits: list[int] = []

    class Noting(MemoryStore):
        async def trials(self, *, limit: int, **options: Any) -> list[StoredTrial]:
            limits.append(limit)
            return await super().trials(limit=limit, **options)

    store = Noting(1 << 30)
    await store.apply([new_trial(f"t{number}") for number in range(600)])
    async with open_harness(store) as harness:
        assert len(names(await harness.trials())) == 600
        assert limits == [256] * 3
        limits.clear()
        assert len(names(await harness.trials(trials_count=300))) == 300
        assert limits == [256, 44]


async def test_a_request_has_so_many_properties() -> None:
    async with open_harness() as harness:
        properties = {f"p{number}": "x" for number in range(500)}
        await harness.add_trial("t", params_with("ann", properties=properties))
        assert names(await harness.trials(properties=properties)) == ["t"]
        with pytest.raises(RpcError, match="properties: expected at most 500, got 501") as caught:
            await harness.trials(properties={**properties, "one": "more"})
        assert caught.value.code is StatusCode.INVALID_ARGUMENT


async def test_how_a_trial_ended_is_told_until_it_is_run_again() -> None:
    async with open_harness() as harness:
        last = sample_of(1, ENDED)
        last.info.end.reason = "enough"
        await harness.log("t", [sample_of(0), last])
        (info,) = (await harness.trials()).trial_infos
        assert info.end.reason == "enough"
        await harness.log("t", [sample_of(0, timestamp=1 << 40)])
        (info,) = (await harness.trials()).trial_infos
        assert not info.HasField("end")
        await harness.log("t", [sample_of(1, ENDED, timestamp=1 << 41)])
        await harness.log("plain", whole(1))
        again, plain = (await harness.trials()).trial_infos
        assert again.end.reason == "enough"  # nothing else was said
        assert not plain.HasField("end")


@both
async def test_where_nobody_has_a_name_trials_are_nobodys(wire: bool) -> None:
    """With open access an address is all that is known of a caller, and the next may have it."""
    async with open_harness(wire=wire) as harness:
        await harness.add_trial("t")
        await harness.log("u", whole(1))
        found = await harness.datastore.store.trials(after=0, limit=9)
        assert [(trial.trial_id, trial.owner) for trial in found] == [("t", ""), ("u", "")]


async def test_samples_by_hand_may_be_about_every_actor_and_no_other() -> None:
    async with open_harness() as harness:
        await harness.add_trial("t", params_with("ann", "bob", "cid"))
        everybody = StoredTrialSample(
            tick_id=1, actor_samples=[{"actor": actor} for actor in range(3)], default_actors=[2]
        )
        await harness.add_samples("t", [everybody])
        with pytest.raises(RpcError, match=r"actor_samples\[0\]\.actor: expected 0 to 2, got 3"):
            await harness.add_samples("t", [StoredTrialSample(tick_id=2, actor_samples=[{"actor": 3}])])
        (info,) = (await harness.trials()).trial_infos
        assert info.samples_count == 1


@both
async def test_waiting_ends_when_the_request_is_met(wire: bool, autojump_clock: Clock) -> None:
    async with open_harness(wire=wire) as harness, trio.open_nursery() as nursery:

        async def add_later() -> None:
            for name in "abc":
                await trio.sleep(1)
                await harness.add_trial(name)

        nursery.start_soon(add_later)
        began = trio.current_time()
        reply = await harness.trials(trials_count=2, timeout=60_000)
        assert names(reply) == ["a", "b"]
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)
        reply = await harness.trials(trials_count=2, timeout=60_000, trial_handle=reply.next_trial_handle)
        assert names(reply) == ["c"]
        assert trio.current_time() - began == pytest.approx(62, abs=0.1)


async def test_waiting_for_a_trial_by_its_id(autojump_clock: Clock) -> None:
    async with open_harness() as harness, trio.open_nursery() as nursery:

        async def log_later() -> None:
            await trio.sleep(5)
            await harness.log("t", whole(1))

        nursery.start_soon(log_later)
        began = trio.current_time()
        assert names(await harness.trials(trial_ids=["t", "t"], timeout=60_000)) == ["t"]
        assert trio.current_time() - began == pytest.approx(5, abs=0.1)
        # Of "as many as there are" nobody knows when it is met.
        assert names(await harness.trials(timeout=1000)) == ["t"]
        assert trio.current_time() - began == pytest.approx(6, abs=0.1)


async def test_a_trial_that_comes_while_it_is_looked_for(autojump_clock: Clock) -> None:
    class Late(GateStore):
        looked = 0

        async def trials(self, **arguments: Any) -> Any:
            found = await super().trials(**arguments)
            self.looked += 1
            if self.looked <= 3:  # at every moment of the first two rounds
                await harness.add_trial(f"t{self.looked}")
            return found

    for wanted in ("t1", "t2", "t3"):
        async with open_harness(Late()) as harness:
            began = trio.current_time()
            assert names(await harness.trials(trial_ids=[wanted], timeout=60_000)) == [wanted]
            assert trio.current_time() - began < 1


@pytest.mark.parametrize("kind", ["memory:", "sqlite:"])
async def test_trials_by_many_properties(kind: str, tmp_path: Path) -> None:
    async with open_harness(kind if kind == "memory:" else f"sqlite:{tmp_path}/a.db") as harness:
        properties = {f"{number}": "x" for number in range(500)}
        await harness.add_trial("t", params_with("ann", properties=properties))
        assert names(await harness.trials(properties=properties)) == ["t"]
        with pytest.raises(RpcError, match="properties: expected at most 500, got 501") as caught:
            await harness.trials(properties={**properties, "more": "x"})
        assert caught.value.code is StatusCode.INVALID_ARGUMENT


async def test_who_waits_can_leave(autojump_clock: Clock) -> None:
    async with open_harness() as harness:
        with trio.move_on_after(1) as waiting:
            await harness.trials(trials_count=1, timeout=2**32 - 1)
        assert waiting.cancelled_caught


# Samples


@both
async def test_a_running_trial_is_followed_to_its_end(wire: bool, autojump_clock: Clock) -> None:
    async with open_harness(wire=wire) as harness, trio.open_nursery() as nursery:
        seen: list[tuple[int, float]] = []

        async def log() -> None:
            async with harness.data_log("t") as call:
                await send_log(call, [])
                for sample in whole(20):
                    await call.send(RunTrialDatalogInput(sample=sample))
                    await trio.sleep(1)
                await call.done_sending()
                async for _ in call:
                    pass

        nursery.start_soon(log)
        await trio.sleep(5.5)
        async for sample in harness.follow("t"):
            seen.append((sample.tick_id, trio.current_time()))
    assert [tick for tick, _ in seen] == list(range(20))
    live = seen[7:]
    assert all(at == pytest.approx(tick, abs=0.1) for tick, at in live)


async def test_trials_are_read_in_turns(autojump_clock: Clock) -> None:
    async with open_harness(page_samples=10) as harness:
        for name in "ab":
            await harness.log(name, whole(50))
        order = [sample.trial_id for sample in await harness.samples("a", "b", "a")]
    assert order == (["a"] * 10 + ["b"] * 10) * 5


async def test_an_open_trial_does_not_hold_up_others(autojump_clock: Clock) -> None:
    async with open_harness() as harness, harness.data_log("open") as call:
        await send_log(call, [sample_of(0)])
        await harness.log("done", whole(3))
        await harness.add_trial("empty")
        seen = []
        with trio.move_on_after(100) as patience:
            async for sample in harness.follow("empty", "open", "done"):
                seen.append((sample.trial_id, sample.tick_id))
        assert patience.cancelled_caught
        assert sorted(seen) == [("done", 0), ("done", 1), ("done", 2), ("open", 0)]


@both
@pytest.mark.parametrize("selected", [False, True])
async def test_replies_have_several_samples_for_who_asks_for_that(
    wire: bool, selected: bool, autojump_clock: Clock
) -> None:
    chosen = {"actor_names": ["ann"]} if selected else {}
    async with open_harness(wire=wire, page_samples=10) as harness:
        await harness.log("a", whole(25))
        alone = await harness.samples("a", **chosen)
        assert [sample.tick_id for sample in alone] == list(range(25))
        for most, sizes in ((4, [4, 4, 2, 4, 4, 2, 4, 1]), (100, [10, 10, 5]), (1, [1] * 25)):
            replies = await all_replies(harness, trial_ids=["a"], max_reply_samples=most, **chosen)
            assert [1 + len(reply.further_samples) for reply in replies] == sizes
            assert [sample for reply in replies for sample in samples_in(reply)] == alone


async def test_replies_with_several_samples_are_no_larger_than_they_need_to_be(autojump_clock: Clock) -> None:
    async with open_harness() as harness:
        observations = [sample_of(tick).observations for tick in range(6)]
        for tick, size in enumerate((40_000, 30_000, 10, 200_000, 10, 10)):
            observations[tick].observations[0] = bytes(size)
        given = [sample_of(tick, observations=one) for tick, one in enumerate(observations)]
        await harness.log("a", [*given, sample_of(6, ENDED)])
        replies = await all_replies(harness, trial_ids=["a"], max_reply_samples=100)
        ticks = [[sample.tick_id for sample in samples_in(reply)] for reply in replies]
        assert ticks == [[0, 1], [2, 3], [4, 5, 6]]


async def all_replies(harness: Harness, **options: Any) -> list[RetrieveSampleReply]:
    async with harness.channel.call(TRIALS["RetrieveSamples"]) as call:
        await call.send(RetrieveSamplesRequest(**options))
        await call.done_sending()
        return [reply async for reply in call]


def samples_in(reply: RetrieveSampleReply) -> list[StoredTrialSample]:
    return [reply.trial_sample, *reply.further_samples]


async def test_unknown_trials_are_refused_before_any_sample() -> None:
    async with open_harness() as harness:
        await harness.log("t", whole(2))
        reading = harness.follow("t", "nobody")
        with pytest.raises(RpcError, match="'nobody'") as caught:
            await anext(reading)
        assert caught.value.code is StatusCode.NOT_FOUND
        assert await harness.samples() == []


async def test_a_trial_deleted_and_added_again_is_another_one(autojump_clock: Clock) -> None:
    async with open_harness() as harness, trio.open_nursery() as nursery:
        await harness.add_trial("t")
        caught: list[RpcError] = []

        async def follow() -> None:
            try:
                await harness.samples("t")
            except RpcError as error:
                caught.append(error)

        nursery.start_soon(follow)
        await trio.sleep(1)
        await harness.delete("t")
        await harness.add_trial("t")
        await harness.add_samples("t", [StoredTrialSample(tick_id=0, state=ENDED)])
        await trio.sleep(1)
        assert [error.code for error in caught] == [StatusCode.NOT_FOUND]


async def test_a_hundred_readers_see_every_tick_once(autojump_clock: Clock) -> None:
    async with open_harness(page_samples=3) as harness, trio.open_nursery() as nursery:
        seen: list[list[int]] = [[] for _ in range(100)]

        async def follow(ticks: list[int], delay: float) -> None:
            await trio.sleep(delay)
            async for sample in harness.follow("t"):
                ticks.append(sample.tick_id)

        async with harness.data_log("t") as call:
            await send_log(call, [])
            await call.receive()
            for number, ticks in enumerate(seen):
                nursery.start_soon(follow, ticks, number / 25)
            for sample in whole(40):
                await call.send(RunTrialDatalogInput(sample=sample))
                await trio.sleep(0.1)
            await call.done_sending()
            async for _ in call:
                pass
    assert seen == [list(range(40))] * 100


class CountingStore(GateStore):
    """Knows how many bytes were read."""

    bytes_read = 0

    async def samples(self, number: int, *, after: int, limit: int, max_bytes: int) -> Any:
        """See `TrialStore.samples`."""
        found = await super().samples(number, after=after, limit=limit, max_bytes=max_bytes)
        self.bytes_read += sum(len(sample.data) for sample in found)
        return found


@both
async def test_a_reader_that_does_not_read_holds_a_page_and_what_its_call_takes(
    wire: bool, autojump_clock: Clock
) -> None:
    store = CountingStore()
    fat = StoredTrialSample(payloads=[bytes(100_000)])
    async with open_harness(store, wire=wire) as harness:
        await harness.add_trial("t")
        for tick in range(200):
            fat.tick_id = tick
            fat.state = ENDED if tick == 199 else RUNNING
            await harness.add_samples("t", [fat])
        reading = harness.follow("t")
        await anext(reading)
        await trio.sleep(100)
        assert store.bytes_read <= 4 * 1024 * 1024
        # Meanwhile another one, on the same connection, gets everything.
        assert len([sample async for sample in harness.follow("t")]) == 200
        both = store.bytes_read
        assert 20_000_000 <= both <= 24_000_000
        assert len([sample async for sample in reading]) == 199
        assert store.bytes_read >= 2 * 20_000_000


# By hand


@both
async def test_samples_by_hand(wire: bool) -> None:
    async with open_harness(wire=wire) as harness:
        await harness.add_trial("t", user_id="ann")
        samples = [StoredTrialSample(tick_id=tick, user_id="bob", payloads=[b"x"]) for tick in range(3)]
        samples[1].trial_id = "t"
        samples[2].state = ENDED
        await harness.add_samples("t", samples)
        await harness.add_samples("t", [])
        got = await harness.samples("t")
        assert [(sample.tick_id, sample.trial_id, sample.user_id) for sample in got] == [
            (n, "t", "bob") for n in range(3)
        ]
        await harness.add_samples("t", [StoredTrialSample(tick_id=1, payloads=[b"y"])])
        assert sorted((sample.tick_id, sample.payloads[0]) for sample in await harness.samples("t")) == [
            (0, b"x"),
            (1, b"y"),
            (2, b"x"),
        ]


ONE: Any = StoredTrialActorSample
BAD_SAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "another trial": ({"trial_id": "u"}, "trial_sample.trial_id"),
    "state": ({"state": 6}, "trial_sample.state"),
    "tick": ({"tick_id": 2**64 - 1}, "trial_sample"),
    "time": ({"timestamp": 2**63}, "trial_sample"),
    "actor": ({"actor_samples": [ONE(), ONE(actor=2)]}, "trial_sample.actor_samples[1].actor"),
    "observation": (
        {"actor_samples": [ONE(observation=1)], "payloads": [b""]},
        "trial_sample.actor_samples[0].observation",
    ),
    "action": ({"actor_samples": [ONE(action=0)]}, "trial_sample.actor_samples[0].action"),
    "default actors": ({"default_actors": [2]}, "trial_sample.default_actors"),
    "unavailable actors": ({"unavailable_actors": [0, 2]}, "trial_sample.unavailable_actors"),
    **{
        f"{side} reward: {field}": (
            {"actor_samples": [ONE(**{f"{side}_rewards": [StoredTrialActorSampleReward(**{field: value})]})]},
            "trial_sample.actor_samples[0]",
        )
        for side in ("received", "sent")
        for field, value in {"sender": 2, "receiver": -2, "user_data": 0}.items()
    },
    **{
        f"{side} message: {field}": (
            {
                "actor_samples": [ONE(**{f"{side}_messages": [StoredTrialActorSampleMessage(**{field: value})]})],
                "payloads": [b"p"],
            },
            "trial_sample.actor_samples[0]",
        )
        for side in ("received", "sent")
        for field, value in {"sender": -2, "receiver": 2, "payload": 1}.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_SAMPLES)
async def test_bad_samples_by_hand_are_refused_and_those_before_them_stay(what: str) -> None:
    fields, field = BAD_SAMPLES[what]
    async with open_harness() as harness:
        await harness.add_trial("t")
        with pytest.raises(RpcError) as caught:
            await harness.add_samples("t", [StoredTrialSample(tick_id=5), StoredTrialSample(**fields)])
        assert caught.value.code is StatusCode.INVALID_ARGUMENT
        assert caught.value.message.startswith(field)
        (info,) = (await harness.trials()).trial_infos
        assert info.samples_count == 1


async def status_of(
    harness: Harness, method: str, request: Any, metadata: list[tuple[str, str]]
) -> tuple[StatusCode, str]:
    with pytest.raises(RpcError) as caught:
        await harness.channel.unary(TRIALS[method], request, metadata=metadata)
    return caught.value.code, caught.value.message


ONE_ID = [("trial-id", "t")]
NEW_TRIAL = AddTrialRequest(trial_params=TrialParams())
BAD_CALLS: list[tuple[str, Any, list[tuple[str, str]], StatusCode, str]] = [
    ("AddTrial", NEW_TRIAL, [], StatusCode.INVALID_ARGUMENT, "trial-id"),
    ("AddTrial", NEW_TRIAL, ONE_ID * 2, StatusCode.INVALID_ARGUMENT, "trial-id"),
    ("AddTrial", NEW_TRIAL, [("trial-id", "")], StatusCode.INVALID_ARGUMENT, "trial-id"),
    ("AddTrial", AddTrialRequest(), ONE_ID, StatusCode.INVALID_ARGUMENT, "trial_params"),
    ("AddSample", AddSampleRequest(trial_sample=StoredTrialSample()), [], StatusCode.INVALID_ARGUMENT, "trial-id"),
    ("AddSample", AddSampleRequest(trial_sample=StoredTrialSample()), ONE_ID, StatusCode.NOT_FOUND, "'t'"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "request_", "metadata", "code", "word"), BAD_CALLS)
async def test_bad_calls(method: str, request_: Any, metadata: Any, code: StatusCode, word: str) -> None:
    async with open_harness() as harness:
        got, text = await status_of(harness, method, request_, metadata)
        assert got is code
        assert word in text
        assert not (await harness.trials()).trial_infos


async def test_deleting_passes_over_what_is_not_there() -> None:
    async with open_harness() as harness:
        await harness.log("a", whole(1))
        await harness.log("b", whole(1))
        await harness.delete()
        await harness.delete("b", "nobody", "b")
        assert names(await harness.trials()) == ["a"]


async def test_version_and_status() -> None:
    async with open_harness() as harness:
        version = await harness.channel.unary(TRIALS["Version"], VersionRequest())
        assert {entry.name for entry in version.versions} >= {"cogment-api", "grpc"}
        status = await harness.channel.unary(TRIALS["Status"], StatusRequest(names=["*"]))
        assert set(status.statuses) == {"overall_load"}


# Coming and going


async def test_what_was_handed_over_is_written_when_everything_is_cancelled(autojump_clock: Clock) -> None:
    store = GateStore()
    with trio.CancelScope() as scope:
        async with open_harness(store) as harness, harness.data_log("t") as call:
            await send_log(call, [sample_of(0)])
            await call.receive()
            await call.receive()
            await call.send(RunTrialDatalogInput(sample=sample_of(1)))
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep(1)
    async with open_harness(store) as harness:
        assert (await harness.trials()).trial_infos[0].samples_count == 2


async def test_a_storage_that_hangs_is_left_in_time(autojump_clock: Clock) -> None:
    store = GateStore()
    async with open_harness(store, farewell_seconds=3) as harness, harness.data_log("t") as call:
        store.gate = trio.Event()
        await send_log(call, [sample_of(0)])
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
    assert trio.current_time() - began == pytest.approx(3, abs=0.1)


# In this process


async def test_reading_without_a_call(autojump_clock: Clock) -> None:
    async with open_harness(page_samples=10) as harness, harness.data_log("open") as call:
        await send_log(call, [sample_of(0)])
        await harness.log("a", whole(25), params_with("c0.ann", "c1.bob"))
        request = RetrieveSamplesRequest(trial_ids=["a"], actor_classes=["c1"])
        async with harness.datastore.reading(request) as reader:
            pages = [samples async for samples in reader]
        assert [len(samples) for samples in pages] == [10, 10, 5]
        assert [sample.tick_id for samples in pages for sample in samples] == list(range(25))
        assert {actor.actor for samples in pages for sample in samples for actor in sample.actor_samples} == {1}
        async with harness.datastore.reading(RetrieveSamplesRequest(trial_ids=["open"])) as reader:
            assert [sample.tick_id for sample in await anext(reader)] == [0]
            await call.send(RunTrialDatalogInput(sample=sample_of(1, ENDED)))
            assert [sample.tick_id for sample in await anext(reader)] == [1]
            with pytest.raises(StopAsyncIteration):
                await anext(reader)


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_turn_that_does_not_come_to_an_end_is_made_up_for(cancelled: bool, autojump_clock: Clock) -> None:
    class Hindered(MemoryStore):
        def __init__(self) -> None:
            super().__init__(1 << 30)
            self.hindrance: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

        async def samples(self, number: int, *, after: int, limit: int, max_bytes: int) -> list[StoredSample]:
            await self.hindrance()
            return await super().samples(number, after=after, limit=limit, max_bytes=max_bytes)

        async def trial(self, trial_id: str) -> StoredTrial | None:
            await self.hindrance()
            return await super().trial(trial_id)

    async def fail() -> None:
        raise UnavailableError("away")

    async def hindered(reader: SampleReader) -> None:
        store.hindrance = trio.sleep_forever if cancelled else fail
        try:
            with trio.move_on_after(1) as scope:
                await anext(reader)
            assert scope.cancelled_caught
        except UnavailableError:
            assert not cancelled
        store.hindrance = trio.lowlevel.checkpoint

    store = Hindered()
    async with open_harness(store) as harness, harness.data_log("a") as call:
        await send_log(call, [sample_of(0)])
        await call.receive()
        await call.receive()
        async with harness.datastore.reading(RetrieveSamplesRequest(trial_ids=["a"])) as reader:
            await hindered(reader)
            assert [sample.tick_id for sample in await anext(reader)] == [0]
            await hindered(reader)
            await call.send(RunTrialDatalogInput(sample=sample_of(1, ENDED)))
            assert [sample.tick_id for sample in await anext(reader)] == [1]
            await hindered(reader)
            with pytest.raises(StopAsyncIteration):
                await anext(reader)


async def test_reading_what_is_not_there() -> None:
    async with open_harness() as harness:
        with pytest.raises(NotFoundError, match="'t'"):
            async with harness.datastore.reading(RetrieveSamplesRequest(trial_ids=["t"])):
                pass
        await harness.add_trial("t")
        async with harness.datastore.reading(RetrieveSamplesRequest(trial_ids=["t"])) as reader:
            await harness.delete("t")
            with pytest.raises(NotFoundError, match="'t' was deleted"):
                await anext(reader)
        async with harness.datastore.reading(RetrieveSamplesRequest()) as reader:
            assert [samples async for samples in reader] == []
