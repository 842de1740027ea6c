"""A datastore's client against the datastore of a platform: in process, and over sockets."""

from __future__ import annotations

import gc
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value
from trio.testing import MockClock

from tests.servers.datastore.harness import open_harness, whole
from trio_cogment import (
    ActorClass,
    ActorSession,
    EnvironmentSession,
    Participants,
    Platform,
    RpcError,
    Spec,
    actor_params,
    open_platform,
    trial_params,
)
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.trial_datastore_pb2 import (
    RetrieveTrialsReply,
    RetrieveTrialsRequest,
    StoredTrialInfo,
    StoredTrialSample,
    StoredTrialSampleField,
)
from trio_cogment.base.config import DatastoreConfig, PlatformConfig
from trio_cogment.base.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    StatusCode,
    TrialIncompleteError,
)
from trio_cogment.base.outcome import EndCause
from trio_cogment.rpc import CallOpener, Channel, open_listeners, serve
from trio_cogment.sdk import DatastoreClient, StoredSample, export_trials, import_samples
from trio_cogment.sdk._datastore import FIELDS, SampleAdder, _check_complete
from trio_cogment.sdk._export_import import encode_header, encode_sample

TICKS = 5
SPEC = Spec.of(ActorClass("number", observation=UInt32Value, action=UInt32Value), ActorClass("raw"))


class Game:
    """A game whose next tick comes when it is let."""

    def __init__(self) -> None:
        self.go = trio.Event()
        self.held_tick: int | None = None

    async def environment(self, session: EnvironmentSession) -> None:
        await session.start([("ann", UInt32Value(value=0)), ("bob", b"zero")])
        tick = 0
        async for event in session.all_events():
            if event.actions is None:
                continue
            await session.add_reward(tick, 1.0, "number.*", user_data=StringValue(value=f"for {tick}"))
            await session.send_message(StringValue(value=f"tick {tick}"), "bob")
            tick += 1
            if tick == self.held_tick:
                await self.go.wait()
            observations: list[tuple[str | int, Any]] = [("ann", UInt32Value(value=tick)), ("bob", f"{tick}".encode())]
            if tick == TICKS:
                await session.end(observations)
            else:
                await session.produce_observations(observations)

    async def actor(self, session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None and session.name == "ann":
                await session.do_action(UInt32Value(value=10 + event.tick_id))
                await session.send_message(StringValue(value="from ann"), "*")
            elif event.observation is not None:
                await session.do_action(b"bob's")


def params(**properties: str) -> TrialParams:
    return trial_params(
        [actor_params("ann", "number", implementation="player"), actor_params("bob", "raw", implementation="player")],
        datalog_endpoint="cogment://discover",
        properties=properties,
    )


@asynccontextmanager
async def platform_with(game: Game) -> AsyncIterator[Platform]:
    participants = Participants(SPEC)
    participants.register_environment(game.environment)
    participants.register_actor(game.actor, "player", ["number", "raw"])
    async with open_platform(participants=participants, store="memory:") as platform:
        yield platform


@asynccontextmanager
async def channel_of(platform: Platform, how: str) -> AsyncIterator[CallOpener]:
    if how == "in process":
        yield platform.channel
        return
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, platform.services, await open_listeners(["127.0.0.1"], 0))
        async with Channel("127.0.0.1", serving.port) as channel:
            yield channel
        nursery.cancel_scope.cancel()


WAYS = pytest.mark.parametrize("how", ["in process", "over sockets"])


@WAYS
async def test_a_trial_is_read_back_with_names_and_types(how: str) -> None:
    async with platform_with(Game()) as platform, channel_of(platform, how) as channel:
        trial_id = await platform.controller.start_trial(params(map="small"), trial_id="one")
        store = DatastoreClient(channel, spec=SPEC)
        samples = [sample async for sample in store.samples(trial_id, follow=True)]
        trial = await store.trial("one")
        assert trial is not None
        assert (trial.state, trial.ended, trial.samples_count) == (TrialState.ENDED, True, TICKS + 1)
        assert trial.actor_names == ["ann", "bob"]
        assert not trial.ended_abnormally
        assert [sample.tick_id for sample in samples] == list(range(TICKS + 1))
        assert samples[-1].state == TrialState.ENDED
        assert any("end" in event for event in samples[-1].special_events)
        for sample in samples[:TICKS]:
            check_sample(sample)


def check_sample(sample: StoredSample) -> None:
    tick = sample.tick_id
    ann, bob = sample.actors["ann"], sample.actors["bob"]
    assert ann.observation == UInt32Value(value=tick)
    assert ann.action == UInt32Value(value=10 + tick)
    assert bob.observation == (b"zero" if tick == 0 else f"{tick}".encode())
    assert bob.action == b"bob's"
    (reward,) = ann.received_rewards
    assert (reward.sender, reward.receiver, reward.value, reward.confidence) == ("", "ann", tick, 1.0)
    assert ann.reward == tick
    assert bob.reward is None
    text = StringValue()
    assert reward.user_data is not None
    assert reward.user_data.Unpack(text)
    assert text.value == f"for {tick}"
    received = {}
    for message in bob.received_messages:
        assert message.receiver == "bob"
        assert message.payload.Unpack(text)
        received[message.sender] = text.value
    assert received == {"": f"tick {tick}", "ann": "from ann"}
    assert {message.receiver for message in ann.sent_messages} == {"ann", "bob"}


@WAYS
async def test_following_and_not_following_a_running_trial(how: str) -> None:
    game = Game()
    game.held_tick = 4
    async with platform_with(game) as platform, channel_of(platform, how) as channel:
        await platform.controller.start_trial(params(), trial_id="one")
        store = DatastoreClient(channel, spec=SPEC)
        followed: list[int] = []
        async with store.samples("one", follow=True) as samples:
            async for sample in samples:
                followed.append(sample.tick_id)
                if sample.tick_id == 2:
                    break
            # Held: tick 3 is still open, and what there is comes without waiting for more.
            now = [sample.tick_id async for sample in store.samples("one", partial=True)]
            assert now == [0, 1, 2]
            game.go.set()
            followed += [sample.tick_id async for sample in samples]
        assert followed == list(range(TICKS + 1))


@WAYS
async def test_what_is_selected(how: str) -> None:
    async with platform_with(Game()) as platform, channel_of(platform, how) as channel:
        await platform.controller.start_trial(params(), trial_id="one")
        store = DatastoreClient(channel, spec=SPEC)
        chosen = store.samples("one", follow=True, actor_classes=["raw"], fields=["action"])
        async for sample in chosen:
            assert list(sample.actors) == ["bob"]
            bob = sample.actors["bob"]
            assert bob.observation is None
            assert bob.reward is None
            assert bob.received_messages == []
            if sample.tick_id < TICKS:
                assert bob.action == b"bob's"
        with pytest.raises(InvalidArgumentError, match=r"fields: expected some of observation, .*, got 'actions'"):
            store.samples("one", fields=["actions"])


@WAYS
async def test_trials_are_found_by_id_and_property_and_waited_for(how: str) -> None:
    async with platform_with(Game()) as platform, channel_of(platform, how) as channel:
        store = DatastoreClient(channel)
        assert await store.trials() == []
        found: list[list[str]] = []

        async def wait() -> None:
            found.append([trial.trial_id for trial in await store.trials(["b", "a"], wait_seconds=60)])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            for trial_id in ("a", "b", "c"):
                await platform.controller.start_trial(params(name=trial_id, kind="test"), trial_id=trial_id)
        assert found == [["a", "b"]]
        assert [trial.trial_id async for trial in store.all_trials(page=2)] == ["a", "b", "c"]
        assert [trial.trial_id for trial in await store.trials(properties={"kind": "test", "name": "b"})] == ["b"]
        assert await store.trials(properties={"kind": "other"}) == []
        assert await store.trial("d") is None
        await store.delete_trials(["b", "nobody"])
        assert [trial.trial_id for trial in await store.trials()] == ["a", "c"]
        with pytest.raises(NotFoundError, match="trial_ids: 'b': not in the datastore"):
            await anext(store.samples(["a", "b"]))


@WAYS
async def test_trials_that_do_not_fit_into_one_reply(how: str) -> None:
    config = PlatformConfig(datastore=DatastoreConfig(max_reply_bytes=3000))
    async with (
        open_platform(store="memory:", config=config) as platform,
        channel_of(platform, how) as channel,
    ):
        store = DatastoreClient(channel)
        ids = [f"{number:02}" for number in range(20)]
        for trial_id in ids:
            await store.add_trial(trial_id, params(text="x" * 800))
        assert [trial.trial_id for trial in await store.trials()] == ids
        assert [trial.trial_id for trial in await store.trials(ids, wait_seconds=60)] == ids
        assert [trial.trial_id for trial in await store.trials(wait_seconds=60)] == ids
        await store.add_trial("huge", params(text="x" * 9000))
        assert [trial.trial_id for trial in await store.trials()] == [*ids, "huge"]


@WAYS
async def test_an_iteration_that_is_left_ends_its_call(how: str) -> None:
    game = Game()
    game.held_tick = 4
    async with platform_with(game) as platform, channel_of(platform, how) as channel:
        await platform.controller.start_trial(params(), trial_id="one")
        store = DatastoreClient(channel)
        async with store.samples("one", follow=True) as samples:
            assert (await anext(samples)).tick_id == 0
        with pytest.raises(StopAsyncIteration):
            await anext(samples)
        abandoned = store.samples("one", follow=True)
        await anext(abandoned)
        call = abandoned._call
        assert call is not None
        del abandoned
        gc.collect()
        with pytest.raises(RpcError) as caught:
            await call.receive()
        assert caught.value.code is StatusCode.CANCELLED
        game.go.set()


@pytest.mark.parametrize("most", [0, 1, 3, 256])
async def test_samples_come_one_by_one_however_many_a_reply_has(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A datastore of somebody else puts one into each, as with 0.
    monkeypatch.setattr("trio_cogment.sdk._datastore._REPLY_SAMPLES", most)
    async with open_harness() as harness:
        for name in ("one", "other"):
            await harness.log(name, whole(10))
        store = DatastoreClient(harness.channel)
        for follow in (False, True):
            ticks = [sample.tick_id async for sample in store.samples("one", follow=follow)]
            assert ticks == list(range(10))
        seen = [(sample.trial_id, sample.tick_id) async for sample in store.samples(["one", "other"])]
        assert sorted(seen) == [(name, tick) for name in ("one", "other") for tick in range(10)]
        async with store.samples("one", follow=True) as samples:
            assert [(await anext(samples)).tick_id for _ in range(5)] == list(range(5))
            with trio.CancelScope() as scope:
                scope.cancel()
                await anext(samples)
            assert scope.cancelled_caught
            assert (await anext(samples)).tick_id == 5
            samples.close()
            with pytest.raises(StopAsyncIteration):
                await anext(samples)


@WAYS
async def test_a_deleted_trial_ends_its_followers_with_a_reason(how: str) -> None:
    game = Game()
    game.held_tick = 4
    async with platform_with(game) as platform, channel_of(platform, how) as channel:
        await platform.controller.start_trial(params(), trial_id="one")
        store = DatastoreClient(channel)
        async with store.samples("one", follow=True) as samples:
            await anext(samples)
            await store.delete_trials(["one"])
            with pytest.raises(RpcError, match="one") as caught:
                async for _ in samples:
                    pass
            assert caught.value.code is StatusCode.NOT_FOUND
            assert [sample async for sample in samples] == []
        game.go.set()


@WAYS
async def test_samples_are_added_by_hand(how: str) -> None:
    async with platform_with(Game()) as platform, channel_of(platform, how) as channel:
        store = DatastoreClient(channel)
        await store.add_trial("one", params(), user_id="me")
        async with store.adding("one") as adder:
            for tick in range(3):
                await adder.add(
                    StoredTrialSample(tick_id=tick, state=TrialState.ENDED if tick == 2 else TrialState.RUNNING)
                )
        trial = await store.trial("one")
        assert trial is not None
        assert (trial.user_id, trial.samples_count, trial.ended) == ("me", 3, True)
        await store.add_trial("empty", params(), user_id="me")
        async with store.samples("empty", partial=True) as samples:
            assert [sample async for sample in samples] == []
        with pytest.raises(RpcError) as caught:
            async with store.adding("two") as adder:
                await adder.add(StoredTrialSample(tick_id=1))
        assert caught.value.code is StatusCode.NOT_FOUND


# Files


def reading(content: bytes, size: int) -> Callable[[], Awaitable[bytes]]:
    file = io.BytesIO(content)

    async def read() -> bytes:
        await trio.lowlevel.checkpoint()
        return file.read(size)

    return read


@asynccontextmanager
async def exported(platform: Platform, store: DatastoreClient) -> AsyncIterator[bytes]:
    for trial_id in ("a", "b"):
        await platform.controller.start_trial(params(), trial_id=trial_id)
        await platform.controller.wait_trial(trial_id)
    await store.add_trial("empty", params())
    async for _ in store.samples(["a", "b"], follow=True):
        pass
    export = await export_trials(store, ["b", "a", "empty", "b"], version="1", timestamp=5)
    assert (export.trial_ids, export.samples_count) == (["b", "a"], 2 * (TICKS + 1))
    content = b"".join([piece async for piece in export])
    assert export.done.samples == {"b": TICKS + 1, "a": TICKS + 1}
    assert export.done.size_bytes == len(content)
    yield content


@WAYS
async def test_what_is_exported_is_imported_as_it_was(how: str) -> None:
    async with platform_with(Game()) as platform, channel_of(platform, how) as channel:
        store = DatastoreClient(channel)
        async with exported(platform, store) as content:
            sizes: list[int] = []
            done = await import_samples(
                store,
                reading(content, 100),
                prefix="x-",
                user_id="me",
                on_progress=lambda so_far: sizes.append(so_far.size_bytes),
            )
        assert done.samples == {"x-a": TICKS + 1, "x-b": TICKS + 1}
        assert sizes[-1] == done.size_bytes == len(content)
        for trial_id in ("a", "b"):
            before = [sample.message async for sample in store.samples(trial_id)]
            after = [sample.message async for sample in store.samples(f"x-{trial_id}")]
            for message in after:
                assert message.trial_id == f"x-{trial_id}"
                message.trial_id = trial_id
            assert before == after
        original, copy = await store.trials(["a", "x-a"])
        assert (copy.user_id, copy.ended, copy.params) == ("me", True, original.params)
        assert original.outcome is not None
        assert copy.outcome == replace(original.outcome, trial_id="x-a")
        assert original.outcome.cause is EndCause.ENVIRONMENT


@WAYS
async def test_an_import_is_all_or_nothing(how: str) -> None:
    async with platform_with(Game()) as platform, channel_of(platform, how) as channel:
        store = DatastoreClient(channel)
        async with exported(platform, store) as content:
            with pytest.raises(AlreadyExistsError, match="in the datastore already: a, b"):
                await import_samples(store, reading(content, 1000))
            with pytest.raises(InvalidArgumentError, match="cut off"):
                await import_samples(store, reading(content[:-1], 1000), prefix="x-")
            with trio.CancelScope() as scope:
                await import_samples(store, reading(content, 100), prefix="x-", on_progress=lambda _: scope.cancel())
            assert scope.cancelled_caught
        assert [trial.trial_id for trial in await store.trials()] == ["a", "b", "empty"]


async def test_an_import_of_one_trial_that_fails_leaves_nothing() -> None:
    async with platform_with(Game()) as platform:
        store = DatastoreClient(platform.channel)
        header = encode_header({"a": params()}, version="1", timestamp=5)
        samples = [
            encode_sample(StoredTrialSample(trial_id="a", tick_id=tick, state=TrialState.RUNNING)) for tick in range(3)
        ]
        content = header + b"".join(samples)
        for cut in (len(content) - 1, len(header) + len(samples[0]) + 1):
            with pytest.raises(InvalidArgumentError, match="cut off"):
                await import_samples(store, reading(content[:cut], 1))
            assert await store.trials() == []
        assert (await import_samples(store, reading(content, 1))).samples == {"a": 3}
        assert [trial.trial_id for trial in await store.trials()] == ["a"]


class Deletions(DatastoreClient):
    """Notes what is deleted."""

    def __init__(self, opener: CallOpener) -> None:
        super().__init__(opener)
        self.deleted: list[list[str]] = []

    async def delete_trials(self, trial_ids: Iterable[str]) -> None:
        self.deleted.append(list(trial_ids))
        await super().delete_trials(trial_ids)


async def test_an_import_deletes_what_it_has_created_and_only_if_it_fails() -> None:
    async with platform_with(Game()) as platform:
        store = Deletions(platform.channel)
        content = encode_header({"a": params()}, version="1", timestamp=5)
        with pytest.raises(InvalidArgumentError, match="cut off"):
            await import_samples(store, reading(content[:-1], 100))  # before there is a trial
        await import_samples(store, reading(content, 100))
        with pytest.raises(AlreadyExistsError):
            await import_samples(store, reading(content, 100))
        assert store.deleted == []
        sample = encode_sample(StoredTrialSample(trial_id="a"))
        with pytest.raises(InvalidArgumentError, match="cut off"):
            await import_samples(store, reading(content + sample + sample[:-1], 100), prefix="x-")
        assert store.deleted == [["x-a"]]
        assert [trial.trial_id for trial in await store.trials()] == ["a"]


class Adders(DatastoreClient):
    """Counts the trials to which samples are being added."""

    open = most = 0

    async def open_adder(self, trial_id: str) -> SampleAdder:
        adder = await super().open_adder(trial_id)
        self.open += 1
        self.most = max(self.most, self.open)
        finish = adder.finish

        async def finished() -> None:
            self.open -= 1
            await finish()

        adder.finish = finished  # type: ignore[method-assign]  # it is counted
        return adder


async def test_an_import_adds_to_some_trials_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_cogment.sdk._export_import._OPEN_TRIALS", 2)
    names = [f"t{number}" for number in range(5)]
    async with platform_with(Game()) as platform:
        store = Adders(platform.channel)
        content = encode_header({name: params() for name in names}, version="1", timestamp=5)
        for tick in range(2):  # the samples of all trials come in turn
            content += b"".join(encode_sample(StoredTrialSample(trial_id=name, tick_id=tick)) for name in names)
        await import_samples(store, reading(content, 100))
        assert (store.most, store.open) == (2, 0)
        assert [trial.samples_count for trial in await store.trials(names)] == [2] * 5


@pytest.mark.parametrize(
    ("lost", "text"),
    [(0, "lost samples on the way: "), (1, "lost 1 sample on the way: "), (2, "lost 2 samples on the way: ")],
)
def test_how_many_samples_were_lost_is_told(lost: int, text: str) -> None:
    outcome = SimpleNamespace(ticks=4, samples_lost=lost)
    trial: Any = SimpleNamespace(
        trial_id="t",
        is_complete=False,
        samples_count=1,
        ended=True,
        ended_abnormally=False,
        outcome=outcome,
    )
    with pytest.raises(TrialIncompleteError, match=f"^trial 't' {text}1 sample is stored of 4 ticks, and partial=True"):
        _check_complete([trial])


@pytest.mark.parametrize("trial_id", ["\u00e9t\u00e9", " one", "one ", "o\ne", ""])
async def test_an_id_that_cannot_be_written_is_refused_before_anything_is(trial_id: str) -> None:
    content = encode_header({"a": params(), trial_id: params()}, version="1", timestamp=5)
    async with platform_with(Game()) as platform:
        store = DatastoreClient(platform.channel)
        with pytest.raises(InvalidArgumentError, match="id"):
            await import_samples(store, reading(content, 100))
        assert await store.trials() == []


@pytest.mark.parametrize(("count", "said"), [(9, "00, .*, 08"), (10, "00, .*, 09"), (15, "00, .*, 09 and 5 more")])
async def test_an_import_names_some_of_the_trials_that_are_there(count: int, said: str) -> None:
    ids = [f"{number:02}" for number in range(count)]
    content = encode_header({trial_id: params() for trial_id in ids}, version="1", timestamp=5)
    async with platform_with(Game()) as platform:
        store = DatastoreClient(platform.channel)
        assert (await import_samples(store, reading(content, 100))).samples == dict.fromkeys(ids, 0)
        with pytest.raises(AlreadyExistsError, match=f": {said}$"):
            await import_samples(store, reading(content, 100))


def test_fields_have_the_names_of_the_api() -> None:
    names = StoredTrialSampleField.keys()
    assert [f"STORED_TRIAL_SAMPLE_FIELD_{name.upper()}" for name in FIELDS] == names[1:]  # the first one is none
    assert list(FIELDS.values()) == StoredTrialSampleField.values()[1:]


async def test_an_export_of_what_goes_on_has_what_there_is_and_can_be_left() -> None:
    async with platform_with(Game()) as platform:
        store = DatastoreClient(platform.channel)
        await store.add_trial("open", params())
        async with store.adding("open") as adding:
            await adding.add(StoredTrialSample(trial_id="open", tick_id=0))
        export = await export_trials(store, ["open"], version="1", timestamp=5)
        content = b"".join([piece async for piece in export])
        assert (export.samples_count, export.done.samples, len(content)) == (1, {"open": 1}, export.done.size_bytes)
        async with await export_trials(store, ["open"], version="1", timestamp=5) as left:
            pass
        assert left.done.samples == {"open": 0}
        header = await anext(left)  # it was there before; nothing is asked for any more
        assert len(header) < len(content)
        with pytest.raises(StopAsyncIteration):
            await anext(left)


async def test_exports_that_have_nothing_to_say() -> None:
    async with platform_with(Game()) as platform:
        store = DatastoreClient(platform.channel)
        with pytest.raises(NotFoundError, match="not in the datastore: a"):
            await export_trials(store, ["a"], version="1", timestamp=5)
        await store.add_trial("empty", params())
        with pytest.raises(NotFoundError, match="none of the trials has samples"):
            await export_trials(store, ["empty"], version="1", timestamp=5)


class _Pages(DatastoreClient):
    """Has this many trials, and notes what it was asked."""

    def __init__(self, count: int) -> None:
        opener: Any = None
        super().__init__(opener)
        self._count = count
        self.asked: list[tuple[int, int, str]] = []

    async def page_of_trials(self, request: RetrieveTrialsRequest) -> RetrieveTrialsReply:
        await trio.lowlevel.checkpoint()
        self.asked.append((request.trials_count, request.timeout, request.trial_handle))
        first = int(request.trial_handle or 0)
        last = min(first + request.trials_count, self._count)
        infos = [StoredTrialInfo(trial_id=f"t{number}") for number in range(first, last)]
        return RetrieveTrialsReply(trial_infos=infos, next_trial_handle=str(last))


class _Refusing:
    """Refuses pages with a code, and notes how many trials were asked for."""

    def __init__(self, code: StatusCode) -> None:
        self._code = code
        self.asked: list[int] = []

    async def unary(self, _method: Any, request: RetrieveTrialsRequest) -> RetrieveTrialsReply:
        await trio.lowlevel.checkpoint()
        self.asked.append(request.trials_count)
        raise RpcError(self._code, "no")


@pytest.mark.parametrize(
    ("code", "asked"), [(StatusCode.RESOURCE_EXHAUSTED, [9, 4, 2, 1]), (StatusCode.PERMISSION_DENIED, [9])]
)
async def test_only_a_page_that_is_too_large_is_asked_for_again(code: StatusCode, asked: list[int]) -> None:
    opener: Any = _Refusing(code)
    with pytest.raises(RpcError) as caught:
        await DatastoreClient(opener).page_of_trials(RetrieveTrialsRequest(trials_count=9))
    assert (caught.value.code, opener.asked) == (code, asked)


@pytest.mark.parametrize(
    ("count", "wanted", "pages"),
    [
        (5, None, [(2, ""), (2, "2"), (2, "4")]),
        (4, None, [(2, ""), (2, "2"), (2, "4")]),
        (9, ["t0", "t1"], [(2, "")]),
        (9, ["t0", "t1", "t2", "t3"], [(2, ""), (2, "2")]),
        (9, ["t0", "t0", "t1"], [(2, "")]),
        (1, ["t0", "t1", "t2"], [(2, "")]),
        (9, [], []),
    ],
)
async def test_no_more_pages_are_asked_for_than_there_may_be(
    count: int, wanted: list[str] | None, pages: list[tuple[int, str]]
) -> None:
    store = _Pages(count)
    found = [trial.trial_id async for trial in store.all_trials(wanted, page=2)]
    assert store.asked == [(number, 0, handle) for number, handle in pages]
    assert found == [f"t{number}" for number in range(min(count, 2 * len(pages)))]


async def test_waiting_is_for_all_that_are_named_or_for_any(autojump_clock: MockClock) -> None:
    store = _Pages(3)
    assert len(await store.trials(["t0", "t1", "t2"], wait_seconds=5)) == 3
    assert store.asked == [(3, 5000, "")]
    store = _Pages(3)
    assert len([trial async for trial in store.all_trials(wait_seconds=5, page=2)]) == 3
    assert store.asked == [(1, 5000, ""), (2, 0, "1"), (2, 0, "3")]
