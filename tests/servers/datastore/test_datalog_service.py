"""Answers to data logs, and their times."""

from __future__ import annotations

from unittest import mock
from urllib.parse import quote

import pytest
import trio

from tests.servers.datastore.harness import (
    DATA_LOG,
    ENDED,
    LOG_EXPORTER,
    GateStore,
    Harness,
    open_harness,
    params_with,
    sample_of,
    send_log,
    whole,
)
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import LogExporterSampleRequest, RunTrialDatalogInput
from trio_cogment.api.trial_datastore_pb2 import StoredTrialInfo
from trio_cogment.base.errors import ResourceExhaustedError, RpcError, StatusCode, UnavailableError, is_storage_failure
from trio_cogment.base.shared_message import SharedMessage
from trio_cogment.rpc import ClientCall
from trio_cogment.servers.datastore import Datastore, _services
from trio_cogment.servers.datastore._conversion import TrialConverter
from trio_cogment.servers.datastore._memory import MemoryStore

Clock = trio.testing.MockClock
both = pytest.mark.parametrize("wire", [False, True])


async def info_of(harness: Harness, trial_id: str) -> StoredTrialInfo:
    (info,) = (await harness.trials(trial_ids=[trial_id])).trial_infos
    return info


async def outcome(call: ClientCall) -> tuple[int, RpcError | None]:
    """Return how many replies came, and how it ended."""
    replies = 0
    try:
        while await call.receive() is not None:
            replies += 1
    except RpcError as error:
        return replies, error
    return replies, None


@both
async def test_a_reply_means_durable(wire: bool, autojump_clock: Clock) -> None:
    store = GateStore()
    async with open_harness(store, wire=wire) as harness, harness.data_log("t") as call:
        await send_log(call, [sample_of(0)])
        await call.receive()
        await call.receive()
        store.gate = trio.Event()
        for tick in range(1, 4):
            await call.send(RunTrialDatalogInput(sample=sample_of(tick, ENDED if tick == 3 else 3)))
        await call.done_sending()
        with trio.move_on_after(5) as waiting:
            await call.receive()
        assert waiting.cancelled_caught
        assert (await info_of(harness, "t")).samples_count == 1
        store.gate.set()
        assert await outcome(call) == (3, None)
        assert (await info_of(harness, "t")).samples_count == 4


@both
async def test_the_documented_name_answers_once(wire: bool) -> None:
    async with open_harness(wire=wire) as harness:
        metadata = (("trial-id", "t"), ("user-id", "ann"))
        async with harness.channel.call(LOG_EXPORTER, metadata=metadata) as call:
            await call.send(LogExporterSampleRequest(trial_params=params_with("ann", "bob")))
            for sample in whole(3):
                await call.send(LogExporterSampleRequest(sample=sample))
            await call.done_sending()
            assert await outcome(call) == (1, None)
        info = await info_of(harness, "t")
        assert (info.samples_count, info.user_id, info.last_state) == (3, "ann", ENDED)


async def test_who_started_a_trial_is_kept() -> None:
    async with open_harness() as harness:
        async with harness.channel.call(DATA_LOG, metadata=(("trial-id", "nobodys"),)) as call:
            await send_log(call, whole(1))
            await call.done_sending()
            await outcome(call)
        await harness.log("somebodys", whole(1))
        assert [info.user_id for info in (await harness.trials()).trial_infos] == ["", "somebody"]


ERRORS: list[Exception] = [UnavailableError("away"), ResourceExhaustedError("disk full"), RuntimeError("a bug")]


@both
@pytest.mark.parametrize("failure", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_failed_storage_breaks_the_stream_and_the_next_one_goes_on(
    failure: Exception, wire: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = GateStore()
    async with open_harness(store, wire=wire) as harness:
        async with harness.data_log("t") as call:
            await send_log(call, whole(2)[:1])
            await call.receive()
            await call.receive()
            store.failure = failure
            await call.send(RunTrialDatalogInput(sample=sample_of(1)))
            replies, error = await outcome(call)
            assert replies == 0
            assert error is not None
            assert error.code is StatusCode.UNAVAILABLE  # so that nobody thinks the sample was at fault
            assert is_storage_failure(error)
        async with harness.data_log("t") as call:
            await send_log(call, [])
            _, error = await outcome(call)
            assert error is not None
            assert error.code is StatusCode.UNAVAILABLE
            assert is_storage_failure(error)
        store.failure = None
        await harness.log("t", whole(3))
        assert [sample.tick_id for sample in await harness.samples("t")] == [0, 1, 2]
    assert ("a bug" in caplog.text) is isinstance(failure, RuntimeError)


async def test_nothing_behind_a_failed_sample_is_stored_or_confirmed(autojump_clock: Clock) -> None:
    """Replies are counted by the orchestrator: one too many would be taken for another sample's."""
    store = GateStore()
    async with open_harness(store, commit_samples=2) as harness, harness.data_log("t") as call:
        await send_log(call, [])
        await call.receive()
        store.gate = trio.Event()
        for sample in whole(9):
            await call.send(RunTrialDatalogInput(sample=sample))
        await trio.testing.wait_all_tasks_blocked()
        store.failure = UnavailableError("for one batch")
        store.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        store.failure = None
        replies, error = await outcome(call)
        assert (replies, error and error.code) == (0, StatusCode.UNAVAILABLE)
        await trio.sleep(1)
        assert (await info_of(harness, "t")).samples_count == 0


BAD_LOGS: dict[str, tuple[list[RunTrialDatalogInput], int, str]] = {
    "nothing": ([], 0, "msg"),
    "a sample first": ([RunTrialDatalogInput(sample=sample_of(0))], 0, "msg"),
    "an empty message first": ([RunTrialDatalogInput()], 0, "msg"),
    "an empty message": (
        [
            RunTrialDatalogInput(trial_params=params_with("a", "b")),
            RunTrialDatalogInput(sample=sample_of(0)),
            RunTrialDatalogInput(),
        ],
        2,
        "msg",
    ),
    "parameters again": ([RunTrialDatalogInput(trial_params=params_with("a", "b"))] * 2, 1, "msg"),
    "a bad sample": (
        [
            RunTrialDatalogInput(trial_params=params_with("a", "b")),
            RunTrialDatalogInput(sample=sample_of(0)),
            RunTrialDatalogInput(sample=sample_of(1)),
            RunTrialDatalogInput(sample=sample_of(2, actors=3, observations=None)),
            RunTrialDatalogInput(sample=sample_of(3)),
        ],
        3,
        "sample.actions",
    ),
}


@both
@pytest.mark.parametrize("what", BAD_LOGS)
async def test_bad_logs_are_refused_at_their_place(what: str, wire: bool) -> None:
    messages, good, field = BAD_LOGS[what]
    async with open_harness(wire=wire) as harness:
        async with harness.data_log("t") as call:
            for message in messages:
                await call.send(message)
            await call.done_sending()
            replies, error = await outcome(call)
        assert error is not None
        assert error.code is StatusCode.INVALID_ARGUMENT
        assert error.message.startswith(field)
        # What came before is there, and confirmed: our orchestrator knows by that which sample it was.
        assert replies == good
        infos = (await harness.trials()).trial_infos
        assert [info.samples_count for info in infos] == ([good - 1] if good else [])


@pytest.mark.parametrize("metadata", [[], [("trial-id", "")], [("user-id", "t")]])
async def test_a_log_needs_the_id_of_its_trial(metadata: list[tuple[str, str]]) -> None:
    async with open_harness() as harness, harness.channel.call(DATA_LOG, metadata=metadata) as call:
        replies, error = await outcome(call)
        assert (replies, error and error.code) == (0, StatusCode.INVALID_ARGUMENT)
        assert error is not None
        assert "trial-id" in error.message


async def test_samples_that_come_twice_are_there_once() -> None:
    async with open_harness() as harness:
        async with harness.data_log("t") as call:
            await send_log(call, [sample_of(0), sample_of(1)])
            for _ in range(3):
                await call.receive()
        other = params_with("ann", "bob", max_steps=7)
        await harness.log("t", [sample_of(1), *whole(4)[2:]], other)
        assert [sample.tick_id for sample in await harness.samples("t")] == [0, 1, 2, 3]
        info = await info_of(harness, "t")
        assert (info.samples_count, info.params.max_steps) == (4, 7)
        # Also when the end itself was not confirmed: it stays ended.
        await harness.log("t", whole(4)[3:])
        assert (await info_of(harness, "t")).samples_count == 4
        assert (await info_of(harness, "t")).last_state == ENDED


async def test_a_trial_that_is_deleted_while_it_is_logged_begins_anew() -> None:
    async with open_harness() as harness:
        async with harness.data_log("t") as call:
            await send_log(call, [sample_of(0)])
            await call.receive()
            await call.receive()
            await harness.delete("t")
            await call.send(RunTrialDatalogInput(sample=sample_of(1)))
            replies, error = await outcome(call)
            assert (replies, error and error.code) == (0, StatusCode.NOT_FOUND)
        await harness.log("t", whole(3)[1:])
        assert [sample.tick_id for sample in await harness.samples("t")] == [1, 2]


@pytest.mark.parametrize("excluded", [["info"], [" Info "], []])
async def test_the_end_of_a_log_without_info_is_the_end_of_the_trial(excluded: list[str]) -> None:
    params = params_with("ann", "bob")
    params.datalog.exclude_fields.extend(excluded)
    samples = [sample_of(0), sample_of(0), sample_of(0)]
    for sample in samples:
        sample.ClearField("info")
    async with open_harness() as harness:
        await harness.log("t", samples, params)
        with trio.fail_after(30):
            assert [sample.tick_id for sample in await harness.samples("t")] == [0, 1, 2]
        assert not (await info_of(harness, "t")).ended_abnormally
        assert not harness.datastore._leases._deadlines  # nobody is waited for


async def test_a_log_without_info_that_breaks_goes_on_counting() -> None:
    params = params_with("ann", "bob")
    params.datalog.exclude_fields.append("info")
    sample = sample_of(0)
    sample.ClearField("info")
    async with open_harness() as harness:
        async with harness.data_log("t") as call:
            await send_log(call, [sample, sample], params)
            for _ in range(3):
                await call.receive()
        assert (await info_of(harness, "t")).last_state == TrialState.UNKNOWN
        await harness.log("t", [sample], params)
        assert [stored.tick_id for stored in await harness.samples("t")] == [0, 1, 2]


@both
async def test_who_reads_replies_only_at_the_end_gets_all_of_them(wire: bool) -> None:
    count = 14_000 if wire else 1_000  # more than fits into windows and outboxes
    async with open_harness(wire=wire) as harness, harness.data_log("t") as call:
        await send_log(call, (sample_of(tick, actors=0) for tick in range(count)), TrialParams())
        await call.done_sending()
        assert await outcome(call) == (count + 1, None)


# Trials that nobody ends


async def broken_log(harness: Harness, trial_id: str, count: int = 2) -> None:
    async with harness.data_log(trial_id) as call:
        await send_log(call, whole(10)[:count])
        for _ in range(count + 1):
            await call.receive()


async def test_a_trial_whose_log_is_gone_ends_within_a_minute(autojump_clock: Clock) -> None:
    async with open_harness() as harness:
        await broken_log(harness, "t")
        began = trio.current_time()
        assert [sample.tick_id for sample in await harness.samples("t")] == [0, 1]
        assert 20 < trio.current_time() - began <= 30
        info = await info_of(harness, "t")
        assert (info.ended_abnormally, info.last_state, info.samples_count) == (True, ENDED, 2)


async def test_a_log_that_comes_back_keeps_its_trial_open(autojump_clock: Clock) -> None:
    async with open_harness() as harness:
        for _ in range(3):
            await broken_log(harness, "t")
            await trio.sleep(20)
        async with harness.data_log("t") as call:
            await send_log(call, [])
            await trio.sleep(1000)
        assert not (await info_of(harness, "t")).ended_abnormally


async def test_a_log_that_comes_back_late_opens_its_trial_again(autojump_clock: Clock) -> None:
    async with open_harness() as harness:
        await broken_log(harness, "t")
        await trio.sleep(60)
        assert (await info_of(harness, "t")).ended_abnormally
        async with harness.data_log("t") as call:
            await send_log(call, [])
            await call.receive()
            info = await info_of(harness, "t")
            assert (info.ended_abnormally, info.last_state) == (False, 3)
        await harness.log("t", whole(4)[1:])
        info = await info_of(harness, "t")
        assert (info.ended_abnormally, info.last_state, info.samples_count) == (False, ENDED, 4)


async def test_two_streams_of_a_trial_are_two(autojump_clock: Clock) -> None:
    """The old one of a connection that died unseen may go long after the new one has come."""
    async with open_harness() as harness, harness.data_log("t") as new:
        async with harness.data_log("t") as old:
            await send_log(old, [sample_of(0)])
            await send_log(new, [sample_of(0), sample_of(1)])
            await trio.sleep(1)
        await trio.sleep(100)
        assert not (await info_of(harness, "t")).ended_abnormally
        assert (await info_of(harness, "t")).samples_count == 2


async def test_after_a_restart_logs_have_their_time_again(autojump_clock: Clock) -> None:
    store = GateStore()
    async with open_harness(store) as harness:
        await broken_log(harness, "gone")
        await broken_log(harness, "back")
        await harness.log("done", whole(1))
        await harness.add_trial("by hand")
        await trio.sleep(20)
    async with open_harness(store) as harness:
        await trio.sleep(40)
        await broken_log(harness, "late")
        async with harness.data_log("back") as call:
            await send_log(call, [])
            await trio.sleep(20)
            # The one that left last is waited for no longer than the others.
            open_still = {info.trial_id for info in (await harness.trials()).trial_infos if info.last_state != ENDED}
            assert open_still == {"back", "late", "by hand"}
            await trio.sleep(10)
        abnormal = {info.trial_id: info.ended_abnormally for info in (await harness.trials()).trial_infos}
    assert abnormal == {"gone": True, "back": False, "done": False, "by hand": False, "late": True}


async def test_a_storage_that_fails_is_told_of_the_end_later(autojump_clock: Clock) -> None:
    store = GateStore()
    async with open_harness(store) as harness:
        await broken_log(harness, "t")
        store.failure = UnavailableError("away")
        await trio.sleep(100)
        assert not (await info_of(harness, "t")).ended_abnormally
        store.failure = None
        await trio.sleep(10)
        assert (await info_of(harness, "t")).ended_abnormally


async def test_a_log_that_breaks_after_its_last_sample_is_not_missed(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_harness() as harness:
        async with harness.data_log("t") as call:
            await send_log(call, whole(2))
            for _ in range(3):
                await call.receive()
        await trio.sleep(60)
        (trial,) = (await harness.trials()).trial_infos
        assert (trial.last_state, trial.ended_abnormally) == (ENDED, False)
    assert "did not come back" not in caplog.text


async def test_a_deleted_trial_is_not_waited_for(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with open_harness() as harness:
        await broken_log(harness, "t")
        await harness.delete("t")
        await trio.sleep(100)
        assert not (await harness.trials()).trial_infos
    assert not caplog.records


@pytest.mark.parametrize("what", ["rewards", "messages"])
async def test_a_sample_with_very_much_in_it_leaves_others_their_turns(what: str) -> None:
    params = params_with(*(f"actor{number}" for number in range(100)))
    sample = sample_of(0, actors=100)
    for _ in range(300):
        if what == "rewards":
            sample.rewards.add(receiver_name="*").sources.add(sender_name="actor1", value=1, confidence=1)
        else:
            sample.messages.add(receiver_name="*", sender_name="actor1")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    store = MemoryStore(1 << 30)
    async with Datastore(store) as datastore, trio.open_nursery() as nursery:
        nursery.start_soon(count)
        async with datastore.sink().open("t", "", params) as stream:
            turns = 0
            await stream.write(sample)
            assert 25 <= turns <= 50
            # Who is cancelled has written nothing.
            with trio.CancelScope() as scope:
                scope.cancel()
                await stream.write(sample)
            assert scope.cancelled_caught
            await stream.complete()
        nursery.cancel_scope.cancel()
    trial = await store.trial("t")
    assert trial is not None
    assert trial.samples_count == 1
    (stored,) = await store.samples(trial.number, after=0, limit=9, max_bytes=1 << 30)
    assert stored.data == TrialConverter("t", params).write(sample).data


async def test_an_id_is_the_orchestrators_that_has_it_first() -> None:
    def said(endpoint: str) -> tuple[tuple[str, str], ...]:
        return (("trial-id", "t"), ("user-id", "ann"), ("trial-orchestrator", quote(endpoint)))

    async with open_harness() as harness:
        async with harness.channel.call(DATA_LOG, metadata=said("grpc://here:9000")) as call:
            await send_log(call, [sample_of(0)])
            await call.receive()
            async with harness.channel.call(DATA_LOG, metadata=said("grpc://there:9000")) as other:
                await send_log(other, [sample_of(0)])
                replies, error = await outcome(other)
            assert error is not None
            assert (replies, error.code) == (0, StatusCode.ALREADY_EXISTS)
            assert "grpc://here:9000" in str(error)
            for sample in whole(3)[1:]:
                await call.send(RunTrialDatalogInput(sample=sample))
            await call.done_sending()
            assert await outcome(call) == (3, None)
        trial = await harness.datastore.store.trial("t")
        assert trial is not None
        assert (trial.endpoint, trial.samples_count) == ("grpc://here:9000", 3)
        async with harness.channel.call(DATA_LOG, metadata=said("cogment://client")) as call:
            await send_log(call, [])
            _, error = await outcome(call)
            assert error is not None
            assert (error.code, "trial-orchestrator" in str(error)) == (StatusCode.INVALID_ARGUMENT, True)


@pytest.mark.parametrize("payload", [b"\x12\x03\xff\xff\xff", b"\x12\x04\x0a\x02\xff", b"\xff"])
async def test_bytes_that_are_no_message_end_the_log(payload: bytes) -> None:
    async with open_harness(wire=True) as harness, harness.data_log("t") as call:
        await send_log(call, [sample_of(tick) for tick in range(3)])
        for _ in range(4):
            await call.receive()
        await call.send_shared(SharedMessage(RunTrialDatalogInput, payload))
        replies, error = await outcome(call)
        assert error is not None
        assert (replies, error.code) == (0, StatusCode.INTERNAL)
        assert "undecodable message" in error.message
        assert (await info_of(harness, "t")).samples_count == 3


@pytest.mark.parametrize("compression", ["identity", "gzip"])
async def test_samples_of_all_kinds_come_over_the_wire_in_order(compression: str) -> None:
    """Those that look like others, those that do not, large ones, and compressed ones."""
    samples = whole(200)
    for tick, sample in enumerate(samples[:-1]):
        sample.observations.observations[:] = [b"o" * (1 + tick % 7)]
        if tick % 20 == 10:
            sample.messages.add(receiver_name="ann", sender_name="bob")
        if tick % 50 == 30:
            sample.observations.observations[:] = [b"large" * 100_000]
    async with open_harness(wire=True) as harness:
        metadata = (("trial-id", "t"), ("user-id", "somebody"))
        async with harness.channel.call(DATA_LOG, metadata=metadata, compression=compression) as call:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_log, call, samples)
                for _ in range(201):
                    assert await call.receive() is not None
            await call.done_sending()
            assert await call.receive() is None
        stored = await harness.samples("t")
    converter = TrialConverter("t", params_with("ann", "bob"))
    assert [sample.tick_id for sample in stored] == list(range(200))
    expected = [converter.convert(sample)[0] for sample in samples]
    for found, wanted in zip(stored, expected, strict=True):
        wanted.user_id = found.user_id
        assert found == wanted


def test_a_crowd_of_samples_leaves_others_their_turns() -> None:
    """After some that the reader's task has taken, one is left to the task of the call."""
    call, stream = mock.Mock(), mock.Mock()
    stream.write_encoded_nowait.return_value = True
    taking = _services._Taking(call, stream, RunTrialDatalogInput)
    payload = RunTrialDatalogInput(sample=sample_of(0)).SerializeToString()
    for _ in range(255):
        taking.on_message(payload)
    assert not call.pause.called
    taking.on_message(payload)
    assert call.pause.call_count == 1
    assert stream.write_encoded_nowait.call_count == 255
