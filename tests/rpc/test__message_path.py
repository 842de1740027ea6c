"""The usual way of messages alone: which go it, and which are left to the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from google.protobuf.message import DecodeError, Message

from tests.rpc.raw_peer import settings
from trio_cogment.api.common_pb2 import Action, ActorRunTrialInput, CommunicationState, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError
from trio_cogment.base.shared_message import LOCATED_BYTES, SharedMessage, SharedObservation
from trio_cogment.budget.turns import LARGE_BYTES
from trio_cogment.rpc._compressed_message import CompressedMessage
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._inbox import Inbox
from trio_cogment.rpc._message_path import SHORT_BYTES, MessagePath
from trio_cogment.rpc._streams import PREFIX_BYTES, Stream

WINDOW = 1 << 20
#: What a message's DATA frame has before it.
HEADER_BYTES = 9
#: The peer's setting (RFC 9113, 6.5.2): as it is, a frame has no room for the longest short message.
MAX_FRAME_SIZE = 5


class Call:
    """Notes what is left to it, and is the inbox's owner."""

    def __init__(self) -> None:
        self.left: list[object] = []
        self.failed: list[RpcError] = []

    def on_undecodable(self, bad: Exception) -> None:
        assert isinstance(bad, DecodeError)
        self.left.append(bad)

    def send_unusual(self, message: Message) -> None:
        self.left.append(message)

    def send_payload(self, payload: bytes) -> None:
        self.left.append(payload)

    def send_unusual_shared(self, message: SharedMessage) -> None:
        self.left.append(message.payload())

    def take(self, item: bytes) -> Action:
        return Action.FromString(item)

    def defers(self, item: bytes) -> bool:
        return False

    def turn_is_over(self) -> bool:
        return False

    def on_consumer_failed(self, error: RpcError) -> None:
        self.failed.append(error)


class Noting:
    """A consumer that notes what it gets."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def on_message(self, message: Any) -> None:
        if isinstance(message, Action) and message.content == b"fail":
            raise KeyError
        self.messages.append(message)

    def on_end(self, error: RpcError | None) -> None:
        """It says nothing here."""


class Path:
    """A path on an engine of its own, or on that of another one, and what it has brought about."""

    def __init__(
        self, config: RpcConfig | None = None, send_type: type[Message] = Action, beside: Path | None = None
    ) -> None:
        self.call = Call()
        self.inbox = Inbox(self.call, "a call")
        self.path = MessagePath(self.call, self.inbox, Action)
        engine = Engine(client_side=True, config=config or RpcConfig()) if beside is None else beside.engine
        self.engine: Engine = engine
        self.engine.take_output()
        number = 1 if beside is None else beside.stream.id + 2
        self.stream: Stream = Stream(number, recv_window=WINDOW, send_window=WINDOW, max_message=WINDOW)
        self.wakes = 0
        self.path.connect(self.stream, self.engine, self._wake)
        self.path.sends = send_type

    def _wake(self) -> None:
        self.wakes += 1

    def consume(self) -> Noting:
        consumer = Noting()
        self.inbox.set_consumer(consumer)
        return consumer


def action(size: int) -> Action:
    """Return an action that takes this many bytes: a field's number and length take a few of them."""
    actions = (Action(content=bytes(size - more)) for more in range(2, 6))
    return next(action for action in actions if action.ByteSize() == size)


def test_the_stream_knows_where_its_messages_go() -> None:
    one = Path()
    assert one.stream.path is one.path


# --- what comes ---


def observation(size: int) -> bytes:
    message = ActorRunTrialInput(state=CommunicationState.NORMAL, observation=Observation(content=bytes(size)))
    return bytes(message.SerializeToString())


def shared_path() -> Path:
    """Return a path whose receiver takes shared messages."""
    one = Path()
    one.path = MessagePath(one.call, one.inbox, ActorRunTrialInput)
    one.path.accept_shared()
    one.path.connect(one.stream, one.engine, one._wake)
    return one


@pytest.mark.parametrize("size", [LOCATED_BYTES, LARGE_BYTES])
def test_a_large_payload_is_located_for_who_takes_shared_messages(size: int) -> None:
    one = shared_path()
    assert one.stream.views
    consumer = one.consume()
    payload = observation(size)
    one.stream.held = held = 2 * len(payload)
    one.path.on_payload(memoryview(payload))
    (message,) = consumer.messages
    assert isinstance(message, SharedObservation)
    assert message.content == bytes(size)
    assert one.stream.held == held - len(payload) - PREFIX_BYTES
    assert not one.inbox.items


def test_others_get_messages_and_the_parser_makes_no_views_for_them() -> None:
    one = Path()
    assert not one.stream.views
    one.path.accept_shared()
    one.path.connect(one.stream, one.engine, one._wake)
    assert not one.stream.views, "an action alone has no place where its payload is looked for"


@pytest.mark.parametrize("size", [100, LOCATED_BYTES, LARGE_BYTES])
def test_what_waits_is_no_view_of_what_was_received(size: int) -> None:
    one = shared_path()
    payload = observation(size)
    one.path.on_payload(memoryview(payload))
    assert list(one.inbox.items) == [payload]
    assert type(one.inbox.items[0]) is bytes


def test_a_large_one_that_is_unusual_is_parsed() -> None:
    one = shared_path()
    consumer = one.consume()
    told = ActorRunTrialInput(state=CommunicationState.NORMAL, details="x" * LOCATED_BYTES)
    one.path.on_payload(memoryview(told.SerializeToString()))
    one.path.on_payload(memoryview(b"\xff" * LOCATED_BYTES))
    assert consumer.messages == [told]
    assert len(one.call.left) == 1


def test_what_may_be_compressed_is_not_looked_into() -> None:
    one = shared_path()
    one.path.packs = True
    one.path.on_payload(CompressedMessage(observation(LOCATED_BYTES)))
    assert type(one.inbox.items[0]) is CompressedMessage


def test_a_message_goes_to_the_consumer_and_its_credit_back() -> None:
    one = Path()
    consumer = one.consume()
    payload = Action(content=b"x").SerializeToString()
    one.stream.held = 100
    one.path.on_payload(payload)
    assert consumer.messages == [Action(content=b"x")]
    assert one.stream.held == 100 - len(payload) - PREFIX_BYTES


def test_a_message_waits_where_nobody_takes_it_at_once() -> None:
    one = Path()
    payload = Action(content=b"x").SerializeToString()
    one.stream.held = 100
    one.path.on_payload(payload)
    assert list(one.inbox.items) == [payload]
    assert one.stream.held == 100  # the credit waits with it


@pytest.mark.parametrize("change", ["packed", "large"])
def test_what_may_need_a_turn_goes_through_the_inbox(change: str) -> None:
    one = Path()
    consumer = one.consume()
    one.path.packs = change == "packed"
    message = action(LARGE_BYTES if change == "large" else 1000)
    one.stream.held = WINDOW
    one.path.on_payload(message.SerializeToString())
    assert consumer.messages == [message]
    assert one.stream.held == WINDOW  # giving credit is the affair of the inbox's owner


def test_what_does_not_decode_is_left_to_the_call() -> None:
    one = Path()
    consumer = one.consume()
    one.path.on_payload(b"\xff")
    assert len(one.call.left) == 1
    assert consumer.messages == []


def test_a_consumer_that_fails_ends_the_call(caplog: pytest.LogCaptureFixture) -> None:
    one = Path()
    one.consume()
    one.path.on_payload(Action(content=b"fail").SerializeToString())
    assert [error.code.name for error in one.call.failed] == ["INTERNAL"]
    assert "KeyError" in caplog.text


# --- what is sent ---


def test_a_message_goes_into_the_output() -> None:
    one = Path()
    one.path.send_nowait(Action(content=b"x"))
    assert one.call.left == []
    assert one.wakes == 1
    assert Action(content=b"x").SerializeToString() in one.engine.take_output()


def answering(one: Path) -> None:
    one.path.answering = True


def no_window(one: Path) -> None:
    one.stream.send_window = 0


@pytest.mark.parametrize("change", [answering, no_window])
def test_what_cannot_go_at_once_is_left_to_the_call_serialised(change: Callable[[Path], None]) -> None:
    one = Path()
    change(one)
    one.path.send_nowait(Action(content=b"x"))
    assert one.call.left == [Action(content=b"x").SerializeToString()]
    assert (one.wakes, one.engine.out_size) == (0, 0)


def test_a_message_that_is_not_sent_as_it_is_is_left_to_the_call() -> None:
    one = Path()
    one.path.sends = None
    one.path.send_nowait(Action(content=b"x"))
    one.path.sends = Action
    one.path.send_nowait(Observation())  # of another type: the call says so
    assert one.call.left == [Action(content=b"x"), Observation()]
    assert (one.wakes, one.engine.out_size) == (0, 0)


@pytest.mark.parametrize(("limit", "longest"), [(None, SHORT_BYTES), (1000, 1000), (1 << 20, SHORT_BYTES)])
def test_the_longest_message_that_asks_for_no_room(limit: int | None, longest: int) -> None:
    one = Path(RpcConfig(max_send_message_bytes=limit))
    one.engine.receive_data(settings({MAX_FRAME_SIZE: 1 << 20}))
    one.engine.take_output()
    one.path.send_nowait(action(longest))
    assert one.engine.out_size == HEADER_BYTES + PREFIX_BYTES + longest
    one.path.send_nowait(action(longest + 1))
    assert one.call.left == [action(longest + 1).SerializeToString()]


def test_an_answer_may_be_put_into_the_output_too() -> None:
    """Whoever puts it there sees to it that it leaves at once."""
    one = Path()
    one.path.answering = True
    assert one.path.put(b"x")
    one.path.sends = None
    assert not one.path.put(b"x")
    assert one.engine.out_size == HEADER_BYTES + PREFIX_BYTES + 1


def test_a_short_message_that_several_get_goes_into_the_output() -> None:
    one, other = Path(), Path()
    for path in (one, other):
        path.path.send_nowait(Action(content=b"x"))
        path.engine.take_output()
    shared = SharedMessage(Action, b"", Action(content=b"shared").SerializeToString())
    one.path.send_shared_nowait(shared)
    other.path.send_nowait(Action(content=b"shared"))
    assert one.engine.take_output() == other.engine.take_output()
    assert one.wakes == 2
    assert one.call.left == []


def test_what_several_get_is_put_together_for_the_first_of_them_alone() -> None:
    paths = [Path(send_type=ActorRunTrialInput) for _ in range(3)]
    shared = SharedObservation(1, 2, b"seen")
    paths[0].path.send_shared_nowait(shared)
    shared.content = b"not looked at again"
    for path in paths[1:]:
        path.path.send_shared_nowait(shared)
    assert {path.engine.take_output() for path in paths[1:]} == {paths[0].engine.take_output()}
    assert not any(path.call.left for path in paths)


@pytest.mark.parametrize("limit", [None, 100])
def test_a_large_message_that_several_get_goes_into_the_output(limit: int | None) -> None:
    path = Path(RpcConfig(max_send_message_bytes=limit), ActorRunTrialInput)
    path.engine.output.apply_settings(WINDOW, WINDOW, [path.stream])
    shared = SharedObservation(1, 2, bytes(SHORT_BYTES + PREFIX_BYTES))
    path.path.send_shared_nowait(shared)
    whole = shared.payload()
    if limit is None:
        assert path.engine.take_output().endswith(b"\0" + len(whole).to_bytes(4, "big") + whole)
        assert (path.wakes, path.call.left) == (1, [])
    else:
        assert (path.wakes, path.call.left) == (0, [whole])


def test_what_is_encoded_and_longer_than_may_be_sent_is_left_to_the_call() -> None:
    path = Path(RpcConfig(max_send_message_bytes=64), ActorRunTrialInput)
    shared = SharedObservation(1, 2, bytes(64))
    whole = shared.payload()
    path.path.send_shared_nowait(shared)
    assert path.call.left == [whole]
    assert not path.wakes


@pytest.mark.parametrize(
    "change",
    [
        lambda one: setattr(one.path, "sends", None),
        lambda one: setattr(one.path, "answering", True),
        lambda one: setattr(one.stream, "send_window", 3),
    ],
    ids=["not as it is", "an answer", "no room"],
)
def test_one_that_several_get_is_left_to_the_call_where_it_cannot_go_at_once(change: Callable[[Path], None]) -> None:
    one = Path()
    change(one)
    one.path.send_shared_nowait(SharedMessage(Action, b"", b""))
    assert one.call.left == ([b""] if one.wakes == 0 else [])
    one.path.send_shared_nowait(SharedMessage(Action, b"", bytes(SHORT_BYTES + 1)))
    one.path.send_shared_nowait(SharedMessage(Observation, b"", b""))  # of another type: the call says so
    assert one.call.left[-2:] == [bytes(SHORT_BYTES + 1), b""]


@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 90, 95, 200, 16_300, SHORT_BYTES])), max_size=12),
    st.lists(st.sampled_from([-1, 5, 100, 500, 40_000]), min_size=3, max_size=3),
    st.sampled_from([100, 700, 40_000]),
    st.booleans(),
)
@hypothesis.example([(0, 90), (1, 90), (0, 90), (2, 1)], [500, 500, 500], 40_000, True)
@hypothesis.example([(0, 16_300), (1, 16_300), (2, 90)], [40_000] * 3, 40_000, False)
def test_what_is_put_is_counted_as_the_queue_counts_it(
    wanted: list[tuple[int, int]], windows: list[int], window: int, one_waits: bool
) -> None:
    """It goes where `SendQueue.send_at_once` would have it, and changes the same; nobody is woken."""
    sides: list[list[Path]] = []
    for _ in range(2):
        first = Path(RpcConfig(write_high_water_bytes=20_000))
        second = Path(beside=first)
        sides.append([first, second, Path(beside=second)])
        for one, each in zip(sides[-1], windows, strict=True):
            one.stream.send_window = each
        first.engine.output.window = window
        if one_waits:
            sides[-1][2].stream.outbox.append(b"before")
    queues, puts = sides
    mine, theirs = (side[0].engine.output for side in sides)
    for which, size in wanted:
        message = SharedMessage(Action, b"", bytes(size))
        went = mine.send_at_once(queues[which].stream, bytes(size))
        assert (puts[which].path.put_shared(message) is not None) == went
    assert not any(one.wakes or one.call.left for one in puts)
    assert (mine.window, mine.out_size) == (theirs.window, theirs.out_size)
    assert [one.stream.send_window for one in queues] == [one.stream.send_window for one in puts]
    assert mine.take_output() == theirs.take_output()


def test_who_puts_a_message_gets_what_has_it_sent() -> None:
    first = Path()
    second = Path(beside=first)
    message = SharedMessage(Action, b"", b"")
    wakes = [one.path.put_shared(message) for one in (first, first, second)]
    assert wakes[0] is wakes[1]
    assert first.wakes == 0
    for wake in wakes:
        assert wake is not None
        wake()
    assert (first.wakes, second.wakes) == (2, 1)


@pytest.mark.parametrize(
    "message",
    [SharedMessage(Action, b"", bytes(SHORT_BYTES + 1)), SharedMessage(Observation, b"", b"x")],
    ids=["long", "of another type"],
)
def test_what_is_unusual_is_not_put(message: SharedMessage) -> None:
    one = Path()
    one.engine.output.window = WINDOW
    assert one.path.put_shared(message) is None
    assert (one.engine.out_size, one.call.left) == (0, [])


class Broken(SharedMessage):
    """Cannot be put together."""

    def payload(self) -> bytes:
        raise KeyError


def test_a_message_that_cannot_be_put_together_changes_nothing() -> None:
    one = Path()
    output = one.engine.output
    before = output.window, output.out_size, one.stream.send_window
    with pytest.raises(KeyError):
        one.path.put_shared(Broken(Action, b"", b""))
    assert (output.window, output.out_size, one.stream.send_window) == before
    assert not one.engine.take_output()
