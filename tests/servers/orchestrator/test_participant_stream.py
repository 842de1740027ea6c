"""One participant's stream: what waits for it, when it is given up, and how it is told the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from trio_cogment.api.common_pb2 import ActorRunTrialInput
from trio_cogment.base.errors import RemoteProtocolError, RpcError, StatusCode
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.services import TRIAL_ID
from trio_cogment.rpc import Metadata, SharedMessage
from trio_cogment.servers.orchestrator._outboxes import Outboxes, outbox_memory
from trio_cogment.servers.orchestrator._participant_stream import ParticipantStream, post_batch
from trio_cogment.trial import Event, Lost, Received


class Full:
    """A call that takes nothing at once, and one message when it is told to."""

    def __init__(self) -> None:
        self.room = trio.Event()
        self.sent: list[Any] = []

    def set_consumer(self, consumer: object) -> None: ...

    def accept_shared(self) -> None: ...

    def hand_over_nowait(self, message: object) -> None:
        raise trio.WouldBlock

    send_shared_nowait = hand_over_nowait

    def put_shared(self, message: SharedMessage) -> None: ...

    async def hand_over(self, message: object) -> None:
        await self.room.wait()
        self.sent.append(message)


def overflow(stream: ParticipantStream, _call: Full) -> None:
    for _ in range(2):
        stream.post(ActorRunTrialInput(details="much"))


def make_room(_stream: ParticipantStream, call: Full) -> None:
    call.room.set()


@pytest.mark.parametrize("steps", [(overflow, make_room), (make_room, overflow)], ids=["given up first", "room first"])
async def test_who_is_given_up_and_reads_again_breaks_nothing(
    steps: tuple[Callable[[ParticipantStream, Full], None], ...],
) -> None:
    fed: list[Event] = []
    call = Full()
    async with trio.open_nursery() as nursery:

        def spawn(function: Callable[..., Any], name: str, *arguments: Any) -> None:
            nursery.start_soon(function, *arguments, name=name)

        stream = ParticipantStream(0, "ann", fed.append, spawn, Outboxes(2, 1 << 20, outbox_memory()))
        stream.attach(call)  # type: ignore[arg-type]  # all that is asked of it here
        stream.post(ActorRunTrialInput(details="first"))
        await trio.testing.wait_all_tasks_blocked()
        for step in steps:
            step(stream, call)
        await trio.testing.wait_all_tasks_blocked()
    assert fed == [Lost(0, "it does not read what it is sent", EndCause.PARTICIPANT_REFUSED)]
    assert len(call.sent) <= 1
    assert stream.queued_messages == 0


class Paused(Full):
    """One that says whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = True

    def pause(self) -> None:
        self.read = False

    def resume(self) -> None:
        self.read = True


async def test_who_comes_while_nobody_is_read_is_not_read_either() -> None:
    call = Paused()
    stream = ParticipantStream(0, "ann", lambda _: None, lambda *_: None, Outboxes(2, 1 << 20, outbox_memory()))
    stream.pause()
    stream.attach(call)  # type: ignore[arg-type]  # all that is asked of it here
    assert not call.read
    stream.resume()
    assert call.read


class Slow:
    """A call that takes a message whenever it is told to, and what it is opened by."""

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.more = trio.Event()
        self.sent: list[str] = []
        self.log: list[str] = []
        self.refusal: RpcError | None = None
        self.consumer: Any = None
        self.metadata: Any = None

    def give_room(self, count: int = 1) -> None:
        self.room += count
        self.more.set()
        self.more = trio.Event()

    def accept_shared(self) -> None: ...

    def set_consumer(self, consumer: object) -> None:
        self.consumer = consumer

    def hand_over_nowait(self, message: Any) -> None:
        if isinstance(message, SharedMessage):
            message = ActorRunTrialInput.FromString(message.payload())
        if self.refusal is not None:
            raise self.refusal
        if not self.room:
            raise trio.WouldBlock
        self.room -= 1
        self.sent.append(message.details)

    send_shared_nowait = hand_over_nowait

    def put_shared(self, message: SharedMessage) -> None: ...

    async def hand_over(self, message: Any) -> None:
        while not self.room:
            await self.more.wait()
        self.hand_over_nowait(message)

    async def done_sending(self) -> None:
        self.log.append(f"done after {len(self.sent)}")

    def done_sending_nowait(self) -> None:
        self.log.append(f"done at once after {len(self.sent)}")

    def cancel(self) -> None:
        self.log.append("cancelled")

    def finish(self, status: RpcError | None) -> None:
        self.log.append(f"finished with {status}")

    def pause(self) -> None:
        self.log.append("pause")

    def resume(self) -> None:
        self.log.append("resume")

    @asynccontextmanager
    async def call(self, _method: object, *, metadata: object) -> AsyncIterator[Slow]:
        self.metadata = metadata
        try:
            yield self
        finally:
            self.log.append("left")


class Side:
    """A participant's stream, as the trial has it.

    Attributes:
        fed: what the trial's machine is told.
        tasks: the names of those that were started.
    """

    def __init__(self, nursery: trio.Nursery, **limits: Any) -> None:
        self.fed: list[Event] = []
        self.tasks: list[str] = []
        self.call = Slow()
        self._nursery = nursery
        most = {"max_messages": 100, "max_bytes": 1 << 20} | limits
        self.outboxes = Outboxes(most["max_messages"], most["max_bytes"], outbox_memory())
        self.stream = ParticipantStream(7, "ann", self.fed.append, self.spawn, self.outboxes)

    def spawn(self, function: Callable[..., Any], name: str, *arguments: Any) -> None:
        self.tasks.append(name)
        self._nursery.start_soon(function, *arguments, name=name)

    def attach(self) -> None:
        self.stream.attach(self.call)  # type: ignore[arg-type]  # all that is asked of it here

    def post(self, *texts: str) -> None:
        for text in texts:
            self.stream.post(ActorRunTrialInput(details=text))

    def post_shared(self, text: str) -> None:
        self.stream.post(shared(text))

    def counts(self) -> tuple[int, int, int]:
        """How many messages wait, their bytes, and the bytes that are counted for the whole trial."""
        (count,) = self.stream.recount()
        assert count.kept == count.counted
        return self.stream.queued_messages, int(count.kept), self.outboxes.size


def shared(text: str) -> SharedMessage:
    whole = ActorRunTrialInput(details=text).SerializeToString()
    return SharedMessage(ActorRunTrialInput, whole[:2], whole[2:])


@asynccontextmanager
async def side(**limits: Any) -> AsyncIterator[Side]:
    async with trio.open_nursery() as nursery:
        one = Side(nursery, **limits)
        yield one
        nursery.cancel_scope.cancel()


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


SIZE = ActorRunTrialInput(details="x").ByteSize()
UNREAD = Lost(7, "it does not read what it is sent", EndCause.PARTICIPANT_REFUSED)


async def test_what_is_posted_goes_out_at_once_or_in_its_turn() -> None:
    async with side() as one:
        one.post("a", "b")
        one.post_shared("c")
        assert one.counts() == (3, 3 * SIZE, 3 * SIZE)
        assert one.tasks == []  # there is no call yet
        one.call.room = 1
        one.attach()
        assert one.call.consumer is one.stream
        assert (one.call.sent, one.tasks) == (["a"], ["outbox of ann"])
        one.post_shared("d")
        one.post("e")
        assert one.counts() == (4, 4 * SIZE, 4 * SIZE)
        await settle()
        one.call.give_room(2)
        await settle()
        assert one.call.sent == ["a", "b", "c"]
        assert one.counts() == (2, 2 * SIZE, 2 * SIZE)
        one.call.give_room(100)
        await settle()
        assert one.call.sent == ["a", "b", "c", "d", "e"]
        assert one.counts() == (0, 0, 0)
        one.post("f")
        one.post_shared("g")
        assert one.call.sent[5:] == ["f", "g"]
        assert one.tasks == ["outbox of ann"]
        one.call.room = 0
        one.post("h")
        assert one.tasks == ["outbox of ann"] * 2
    assert one.fed == []


async def test_a_batch_is_in_order_for_who_has_to_wait_and_reaches_the_others() -> None:
    """One that is there twice, for a reward and an observation, gets both in this order, though the first waits."""
    async with side() as slow, side() as quick, side() as away:
        slow.attach()
        quick.call.room = 100
        quick.attach()
        streams = {0: slow.stream, 1: quick.stream, 2: away.stream}
        post_batch(streams, [2, 0, 0, 1, 1], [shared(text) for text in "abcde"])
        assert quick.call.sent == ["d", "e"]
        assert (slow.counts()[0], away.counts()[0]) == (2, 1)  # who has not come yet finds its message
        slow.call.give_room(100)
        away.call.room = 100
        away.attach()
        await settle()
        assert (slow.call.sent, away.call.sent) == (["b", "c"], ["a"])


class Put(Slow):
    """Puts messages into the output of a connection."""

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self.wake = wake

    def put_shared(self, message: SharedMessage) -> Any:
        self.hand_over_nowait(message)
        return self.wake


async def test_the_writer_of_a_connection_is_woken_once_for_what_a_batch_has_for_it() -> None:
    woken: list[str] = []
    here, there = (lambda: woken.append("here")), (lambda: woken.append("there"))
    async with side() as first, side() as second, side() as third:
        sides = [first, second, third]
        for one, wake in zip(sides, (here, here, there), strict=True):
            one.call = Put(wake)
            one.call.room = 100
            one.attach()
        post_batch(dict(enumerate(one.stream for one in sides)), [0, 0, 1, 2], [shared(text) for text in "abcd"])
        assert [one.call.sent for one in sides] == [["a", "b"], ["c"], ["d"]]
        assert woken == ["here", "there"]


@pytest.mark.parametrize(("limits", "most"), [({"max_messages": 3}, 3), ({"max_bytes": 4 * SIZE}, 4)])
async def test_so_much_may_wait_and_who_has_more_is_given_up(limits: dict[str, int], most: int) -> None:
    async with side(**limits) as one:
        one.attach()
        one.post(*"x" * most)
        assert (one.fed, one.counts()) == ([], (most, most * SIZE, most * SIZE))
        await settle()
        one.post("x")
        assert (one.fed, one.counts()) == ([UNREAD], (0, 0, 0))
        assert one.stream.is_closing
        await settle()  # the task is over, though its call takes nothing
        one.call.give_room(100)
        await settle()
    assert one.call.sent == []


async def test_one_message_of_any_size_may_wait() -> None:
    async with side(max_bytes=10) as one:
        one.attach()
        one.post("x" * 100)
        assert one.fed == []
        one.post("")
        assert one.fed == [UNREAD]


async def test_what_cannot_be_sent_at_all_is_the_end_of_it() -> None:
    async with side() as one:
        one.attach()
        one.call.refusal = RpcError(StatusCode.RESOURCE_EXHAUSTED, "too large")
        one.post_shared("a")
        text = "it cannot be sent what it should be: too large"
        assert one.fed == [Lost(7, text, EndCause.PARTICIPANT_REFUSED)]
        one.post("b")
    assert len(one.fed) == 2  # the machine takes the first


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_call_that_is_over_says_so_itself(waiting: bool) -> None:
    async with side() as one:
        one.attach()
        if waiting:
            one.post("a", "b")
            await settle()
        one.call.refusal = RpcError(StatusCode.UNAVAILABLE, "gone")
        one.call.give_room()
        one.post("c")
        await settle()
        assert one.fed == []
        one.stream.on_end(one.call.refusal)
        assert one.fed == [Lost(7, "its stream failed: UNAVAILABLE: gone", EndCause.PARTICIPANT_LOST)]
        assert one.stream.is_closing
        assert one.counts()[0] == 0
        one.call.refusal = RpcError(StatusCode.RESOURCE_EXHAUSTED, "too large")
        one.post("d")  # to one that has gone
        assert len(one.fed) == 1


async def test_reading_stops_and_goes_on_with_the_trial() -> None:
    async with side() as one:
        one.stream.pause()
        one.attach()
        one.stream.resume()
        one.stream.pause()
        assert one.call.log == ["pause", "resume", "pause"]


async def test_a_message_goes_to_the_machine() -> None:
    async with side() as one:
        one.stream.on_message("hello")
        assert one.fed == [Received(7, "hello")]


# The end of who reads slowly


@pytest.mark.parametrize("after", [0.0, 1.0, 1.9])
async def test_a_client_that_reads_slowly_is_told_its_end(after: float, autojump_clock: trio.testing.MockClock) -> None:
    async with side() as one:
        one.attach()
        one.post("last")
        one.stream.post(ActorRunTrialInput(details="END"))
        ended: list[float] = []

        async def serve() -> None:
            await one.stream.serve(farewell_seconds=2)
            ended.append(trio.current_time())

        one.spawn(serve, "served")
        await trio.sleep(10)
        assert not ended
        one.stream.close(None)
        await trio.sleep(after)
        assert not ended
        one.call.give_room()
        await settle()
        assert not ended
        one.call.give_room()
        await settle()
        assert (one.call.sent, ended) == (["last", "END"], [10 + after])


async def test_a_client_that_does_not_read_has_so_much_time(autojump_clock: trio.testing.MockClock) -> None:
    async with side() as one:
        one.attach()
        one.post("last", "END")
        one.stream.close(None)
        await one.stream.serve(farewell_seconds=2)
        assert trio.current_time() == 2
        one.call.give_room(5)
        await settle()
        assert one.call.sent == []


async def test_a_client_that_has_read_everything_waits_for_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with side() as one:
        one.call.room = 5
        one.attach()
        one.post("END")
        one.stream.close(None)
        await one.stream.serve(farewell_seconds=2)
        assert trio.current_time() == 0


async def test_a_client_that_breaks_the_rules_gets_a_status() -> None:
    async with side() as one:
        one.attach()
        error = RemoteProtocolError("not that")
        one.stream.close(error)
        one.stream.close(None)  # the first counts
        with pytest.raises(RemoteProtocolError, match="not that"):
            await one.stream.serve(farewell_seconds=2)


class NoTurn:
    """A turn that nobody waits for."""

    def __init__(self) -> None:
        self.over_at: list[float] = []

    def end(self) -> None:
        self.over_at.append(trio.current_time())


async def held(one: Side) -> list[float]:
    """Hold the stream to a service; return when its turn and its task are over."""
    turn = NoTurn()
    metadata = Metadata(((TRIAL_ID, "t"),))
    arguments: Any = None, turn, one.call, None, metadata, 2.0
    await one.stream.hold(*arguments)
    assert one.call.metadata is metadata
    return [turn.over_at[0], trio.current_time()]


async def hold(one: Side) -> list[list[float]]:
    over: list[list[float]] = []

    async def run() -> None:
        over.append(await held(one))

    one.spawn(run, "held")
    await settle()
    return over


@pytest.mark.parametrize("after", [0.0, 1.9])
async def test_a_service_that_reads_slowly_is_told_its_end_and_then_waited_for(
    after: float, autojump_clock: trio.testing.MockClock
) -> None:
    async with side() as one:
        over = await hold(one)
        one.post("last", "END")
        await trio.sleep(10)
        one.stream.close(None)
        await trio.sleep(after)
        one.call.give_room()
        await settle()
        assert (one.call.log, over) == ([], [])
        one.call.give_room()
        await settle()
        assert one.call.sent == ["last", "END"]
        assert (one.call.log, over) == (["done after 2"], [])
        one.stream.on_end(None)
        await settle()
        assert one.call.log == ["done after 2", "left"]
        assert over == [[0, 10 + after]]


@pytest.mark.parametrize("room", [0, 5])
async def test_a_service_that_stays_is_left_after_the_farewell(
    room: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with side() as one:
        one.call.room = room
        over = await hold(one)
        one.post("END")
        await trio.sleep(10)
        one.stream.close(None)
        await trio.sleep(1.9)
        assert not over
        await trio.sleep(0.2)
        assert over == [[0, 12]]
        assert one.call.log == (["done after 1", "left"] if room else ["left"])


async def test_a_service_that_breaks_the_rules_is_left_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with side() as one:
        over = await hold(one)
        one.stream.close(RemoteProtocolError("not that"))
        await settle()
        assert (one.call.log, over) == (["left"], [[0, 0]])


async def test_a_service_that_has_gone_is_left_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with side() as one:
        over = await hold(one)
        one.stream.on_end(None)
        await settle()
        assert (one.call.log, over) == (["left"], [[0, 0]])
        assert one.fed == [Lost(7, "it closed its stream", EndCause.PARTICIPANT_LEFT)]


async def test_a_service_whose_stream_opens_after_the_end_is_told_it_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with side() as one:
        one.call.room = 5
        one.post("END")
        one.stream.close(None)
        await trio.sleep(1.5)
        over = await hold(one)
        assert one.call.log == ["done after 1"]
        await trio.sleep(1)
        assert over == [[1.5, 2]]


async def test_a_service_that_does_not_answer_after_the_end_is_not_waited_for_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Silent(Slow):
        @asynccontextmanager
        async def call(self, _method: object, *, metadata: object) -> AsyncIterator[Slow]:
            self.metadata = metadata
            await trio.Event().wait()
            yield self

    async with side() as one:
        one.call = Silent()
        one.post("END")
        one.stream.close(None)
        await trio.sleep(1.5)
        over = await hold(one)
        await trio.sleep(1)
        assert over == [[2, 2]]


# Calls that no task holds


class Opener(Slow):
    """A call that is open at once, or not."""

    def __init__(self, *, opens: bool) -> None:
        super().__init__(room=1)
        self._opens = opens

    def call_nowait(self, method: object, *, metadata: object) -> Opener | None:
        assert (method, metadata) == ("method", "metadata")
        return self if self._opens else None


def open_at_once(one: Side, *, opens: bool = True) -> bool:
    one.call = Opener(opens=opens)
    opener: Any = one.call
    arguments: Any = "method", "metadata"
    return one.stream.open_nowait(opener, *arguments)


async def test_a_call_that_is_open_at_once_ends_when_all_is_sent(autojump_clock: trio.testing.MockClock) -> None:
    async with side() as one:
        assert not open_at_once(one, opens=False)
        opened = [one.stream.is_open]
        assert open_at_once(one)
        opened.append(one.stream.is_open)
        assert opened == [False, True]
        one.post("last", "END")
        await settle()
        one.stream.close(None)
        assert one.call.log == []
        one.call.give_room()
        await settle()
        assert one.call.log == ["done at once after 2"]
        waiting: list[float] = []

        async def wait() -> None:
            await one.stream.wait_left()
            waiting.append(trio.current_time())

        one.spawn(wait, "waiting")
        await trio.sleep(1)
        assert not waiting
        one.stream.on_end(None)
        await settle()
        assert (waiting, one.stream.is_open) == ([1], False)
        await one.stream.wait_left()  # it is over
        one.stream.leave()
        assert one.call.log == ["done at once after 2"]


async def test_a_call_that_is_open_at_once_is_left_after_an_error() -> None:
    async with side() as one:
        assert open_at_once(one)
        one.stream.close(RemoteProtocolError("not that"))
        assert (one.call.log, one.stream.is_open) == (["cancelled"], False)


async def test_a_call_that_was_served_at_once_ends_when_all_is_posted() -> None:
    async with side() as one:
        one.attach()
        served: Any = one.call
        one.stream.serve_without_task(served)
        assert one.stream.is_open
        one.post("last")
        await settle()
        one.stream.close(None)
        assert one.call.log == []
        one.call.give_room()
        await settle()
        assert (one.call.sent, one.call.log, one.stream.is_open) == (["last"], ["finished with None"], False)
        one.stream.leave()
        assert one.call.log == ["finished with None"]


@pytest.mark.parametrize("before", [False, True])
async def test_a_call_that_was_served_at_once_gets_its_status(before: bool) -> None:
    async with side() as one:
        one.attach()
        served: Any = one.call
        steps: list[Callable[[], None]] = [
            lambda: one.stream.serve_without_task(served),
            lambda: one.stream.close(RemoteProtocolError("not that")),
        ]
        for step in reversed(steps) if before else steps:
            step()
        (told,) = one.call.log
        assert told.startswith("finished with ")
        assert "not that" in told
        assert not one.stream.is_open


# Memory


async def test_without_memory_the_one_for_whom_most_waits_is_given_up() -> None:
    async with side(max_bytes=1 << 24) as one, side(max_bytes=1 << 24) as other:
        pool = outbox_memory().pool
        before, pool.total = pool.total, 2 << 20
        try:
            one.attach()
            other.attach()
            one.post("x" * 500_000)
            one.post("x" * 300_000)
            other.post("y" * 100_000)
            assert one.fed == []
            taken = pool.loan()
            taken.set(2 << 20)
            other.post("y" * 150_000)
            text = "server_memory_bytes: it does not read, and others need the memory"
            assert one.fed == [Lost(7, text, EndCause.PARTICIPANT_REFUSED)]
            assert one.counts() == (0, 0, 0)
            taken.set(8 << 20)
            other.post("y" * 700_000)
            assert other.fed == [Lost(7, text, EndCause.PARTICIPANT_REFUSED)]
            assert other.counts() == (0, 0, 0)
            assert len(one.fed) == 1
            taken.close()
        finally:
            pool.total = before
