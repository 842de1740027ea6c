"""Cases of `check_channel`: limits on messages and metadata, and everything that comes with a status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
import trio.testing

from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.rpc import detailed_error, find_detail
from trio_cogment.rpc.calls import CallOpener
from trio_cogment.testing.conformance.channel_service import (
    COUNT,
    ECHO,
    ECHO_ONE,
    FAIL,
    FLOOD,
    PUSHED,
    SIZED,
    SUM,
    WAIT,
    CheckService,
    expect,
)

#: The kit holds channels to the limits of `RpcConfig`'s defaults.
_MAX_BYTES = RpcConfig().max_receive_message_bytes
_MAX_METADATA_BYTES = RpcConfig().max_header_list_bytes
_LARGE_BYTES = 50_000
#: What may wait in one direction of a call until `send_nowait` refuses: what its window lets through, and its outbox.
_MAX_UNREAD_BYTES = RpcConfig().stream_window_bytes + RpcConfig().call_outbox_bytes + _LARGE_BYTES


async def request_too_large(channel: CallOpener, service: CheckService) -> None:
    """A request above the limit ends its call with RESOURCE_EXHAUSTED, and one just below passes; so does the next."""
    fits = Action(content=bytes(_MAX_BYTES - 100))
    assert len((await channel.unary(ECHO_ONE, fits)).content) == _MAX_BYTES - 100
    too_large = Action(content=bytes(_MAX_BYTES + 1))
    await expect(StatusCode.RESOURCE_EXHAUSTED, channel.unary(ECHO_ONE, too_large))
    async with channel.call(ECHO) as call, channel.call(ECHO) as neighbour:
        await call.send(Action(tick_id=1))
        assert (await call.receive()).tick_id == 1
        try:
            await call.send(too_large)
        except RpcError:
            pass  # it may be told at once, or when the message has arrived
        await expect(StatusCode.RESOURCE_EXHAUSTED, call.receive())
        await neighbour.send(Action(tick_id=2))
        assert (await neighbour.receive()).tick_id == 2


async def response_too_large(channel: CallOpener, service: CheckService) -> None:
    """A response above the limit ends its call with RESOURCE_EXHAUSTED, and the handler is cancelled."""
    fits = await channel.unary(SIZED, Action(tick_id=_MAX_BYTES - 100))
    assert len(fits.content) == _MAX_BYTES - 100
    service.cancelled = trio.Event()
    await expect(StatusCode.RESOURCE_EXHAUSTED, channel.unary(SIZED, Action(tick_id=_MAX_BYTES + 1)))
    await service.cancelled.wait()
    assert await channel.unary(ECHO_ONE, Action(tick_id=1)) == Observation(tick_id=1)


async def metadata_too_large(channel: CallOpener, service: CheckService) -> None:
    """Metadata above the limit is refused, each entry counted with 32 bytes more."""
    many = [("x", "")] * (_MAX_METADATA_BYTES // 32)
    await expect(StatusCode.RESOURCE_EXHAUSTED, channel.unary(ECHO_ONE, Action(), metadata=many))
    long = [("x", "y" * _MAX_METADATA_BYTES)]
    await expect(StatusCode.RESOURCE_EXHAUSTED, channel.unary(ECHO_ONE, Action(), metadata=long))
    assert await channel.unary(ECHO_ONE, Action(), metadata=long[:0]) == Observation()


async def response_metadata_too_large(channel: CallOpener, service: CheckService) -> None:
    """The same for what comes back, before and with the status."""
    for kind in (b"bulky start", b"bulky end"):
        error = await expect(StatusCode.RESOURCE_EXHAUSTED, channel.unary(FAIL, Action(content=kind)))
        assert error.trailing_metadata == ()
    assert await channel.unary(ECHO_ONE, Action(tick_id=1)) == Observation(tick_id=1)


async def unread_bytes_are_bounded(channel: CallOpener, service: CheckService) -> None:
    """What waits in one direction of a call is bounded by its size, however few messages it is; nothing is lost."""
    async with channel.call(FLOOD) as call:
        await call.send(Action(tick_id=_LARGE_BYTES))
        await call.done_sending()
        await service.flood_full.wait()
        assert 0 < service.flooded * _LARGE_BYTES <= _MAX_UNREAD_BYTES
        assert len([message async for message in call]) == service.flooded + 1
    sent = 0
    async with channel.call(WAIT) as call:
        await service.entered.wait()
        try:
            while sent < _MAX_UNREAD_BYTES:
                call.send_nowait(Action(content=bytes(_LARGE_BYTES)))
                sent += _LARGE_BYTES
        except trio.WouldBlock:
            pass
        assert 0 < sent <= _MAX_UNREAD_BYTES
    # One that is larger than all that passes alone.
    assert len((await channel.unary(ECHO_ONE, Action(content=bytes(_MAX_UNREAD_BYTES)))).content) == _MAX_UNREAD_BYTES


async def messages_sent_together(channel: CallOpener, service: CheckService) -> None:
    """They arrive in order, and all of them or none: after a refusal, a cancellation or a mistake there is none."""

    def pair(number: int, size: int = 0) -> list[Action]:
        return [Action(tick_id=number, content=bytes(size)), Action(tick_id=number + 1, content=bytes(size))]

    async with channel.call(ECHO) as call:
        await call.send_together(pair(1))
        call.send_together_nowait(pair(3))
        with trio.CancelScope() as scope:
            scope.cancel()
            await call.send_together(pair(100))
        for wrong in ([*pair(200), Observation()], [Observation(), *pair(200)]):
            for function in (call.send_together, call.send_together_nowait):
                try:
                    waiting = function(wrong)
                    if waiting is not None:
                        await waiting
                except LocalProtocolError:
                    pass
                else:
                    raise AssertionError("a message of the wrong type was taken")
        await call.send_together(pair(5))
        await call.done_sending()
        assert [message.tick_id async for message in call] == [1, 2, 3, 4, 5, 6]
    async with channel.call(WAIT) as call:
        await service.entered.wait()
        sent = 0
        try:
            while sent < _MAX_UNREAD_BYTES:
                call.send_together_nowait(pair(1, _LARGE_BYTES))
                sent += 2 * _LARGE_BYTES
        except trio.WouldBlock:
            pass
        assert 0 < sent <= _MAX_UNREAD_BYTES + _LARGE_BYTES
        with trio.move_on_after(0.2) as late:
            while True:
                await call.send_together(pair(1, _LARGE_BYTES))
        assert late.cancelled_caught


async def senders_of_one_call_get_their_turns(channel: CallOpener, service: CheckService) -> None:
    """Several tasks send large and small messages on one call: each waits for room, and none indefinitely."""

    async def send(size: int) -> None:
        for _ in range(20):
            await call.send(Action(tick_id=1, content=bytes(size)))

    async with channel.call(SUM) as call:
        async with trio.open_nursery() as nursery:
            for size in (0, 100, _LARGE_BYTES, 10 * _LARGE_BYTES, 100, 0):
                nursery.start_soon(send, size)
        await call.done_sending()
        assert (await call.receive()).tick_id == 6 * 20


async def waiting_senders_can_be_cancelled(channel: CallOpener, service: CheckService) -> None:
    """Who waits for room in `send` is cancelled alone: by a deadline, by another task, or with the call."""
    large = Action(content=bytes(_LARGE_BYTES))

    async def fill(scope: trio.CancelScope) -> None:
        with scope:
            while True:
                await call.send(large)

    async with channel.call(WAIT) as call:
        await service.entered.wait()
        late = trio.CancelScope(deadline=trio.current_time() + 0.2)
        await fill(late)
        assert late.cancelled_caught
        scopes = [trio.CancelScope(), trio.CancelScope()]
        async with trio.open_nursery() as nursery:
            for scope in scopes:
                nursery.start_soon(fill, scope)
            await trio.sleep(0.01)
            scopes[1].cancel()
            await trio.sleep(0.01)
            assert [scope.cancelled_caught for scope in scopes] == [False, True]
            scopes[0].cancel()
    assert await channel.unary(ECHO_ONE, Action(tick_id=1)) == Observation(tick_id=1)


async def more_calls_than_a_connection_takes(channel: CallOpener, service: CheckService) -> None:
    """Beyond the limit of one connection calls go on another one, or on as before where there is none."""
    number = RpcConfig().max_concurrent_streams + 20
    open_calls = 0
    all_open = trio.Event()

    async def one() -> None:
        nonlocal open_calls
        async with channel.call(ECHO) as call:
            await call.send(Action(tick_id=5))
            assert (await call.receive()).tick_id == 5
            open_calls += 1
            if open_calls == number:
                all_open.set()
            await all_open.wait()

    async with trio.open_nursery() as nursery:
        for _ in range(number):
            nursery.start_soon(one)


async def unread_messages_end_with_the_block(channel: CallOpener, service: CheckService) -> None:
    """What has not been read when the block is left is gone, also when the call had ended well."""
    async with channel.call(COUNT) as call:
        await call.send(Action(tick_id=3))
        await call.done_sending()
        assert (await call.receive()).tick_id == 0
        while call.trailing_metadata is None:
            await trio.testing.wait_all_tasks_blocked(0.001)
    await expect(StatusCode.CANCELLED, call.receive())


async def nearest_deadline(channel: CallOpener, service: CheckService) -> None:
    """The handler is told the nearer of the call's timeout and the caller's own scope."""
    for timeout, outer in ((3.0, 5.0), (5.0, 3.0)):
        before = trio.current_time()
        with trio.fail_after(outer):
            await channel.unary(ECHO_ONE, Action(), timeout=timeout)
        assert before + 2 < service.deadline < trio.current_time() + 3.1


async def after_the_deadline(channel: CallOpener, service: CheckService) -> None:
    """Every later operation says DEADLINE_EXCEEDED, also when the handler will not end."""
    await channel.unary(ECHO_ONE, Action())  # connecting may take longer than that
    async with channel.call(WAIT, timeout=0.05) as call:
        await expect(StatusCode.DEADLINE_EXCEEDED, call.receive())
        await expect(StatusCode.DEADLINE_EXCEEDED, call.receive())
        await expect(StatusCode.DEADLINE_EXCEEDED, call.send(Action()))
        assert call.trailing_metadata == ()


async def passed_deadline(channel: CallOpener, service: CheckService) -> None:
    """A call whose deadline has passed before it began fails like any other."""
    await expect(StatusCode.DEADLINE_EXCEEDED, channel.unary(ECHO_ONE, Action(), timeout=-1.0))


async def after_cancel(channel: CallOpener, service: CheckService) -> None:
    """Both ends of a cancelled call know it as CANCELLED."""
    async with channel.call(PUSHED) as call:
        await call.send(Action(tick_id=1))
        await call.receive()
        call.cancel()
        call.cancel()
        await expect(StatusCode.CANCELLED, call.receive())
        assert call.trailing_metadata == ()
        await service.ended.wait()
    [end] = service.ends
    assert end is not None
    assert end.code is StatusCode.CANCELLED


async def cancel_before_the_headers(channel: CallOpener, service: CheckService) -> None:
    """There is no initial metadata of a call that ended without."""
    async with channel.call(ECHO) as call:
        call.cancel()
        await expect(StatusCode.CANCELLED, call.wait_initial_metadata())
        assert call.initial_metadata is None


async def metadata_of_a_failure(channel: CallOpener, service: CheckService) -> None:
    """Initial and trailing metadata come with a failure as well; trailing ones of the call before the error's."""
    async with channel.call(FAIL) as call:
        await call.send(Action(content=b"custom"))
        await call.done_sending()
        assert (await call.wait_initial_metadata()).all("i-first") == ["here"]
        error = await expect(StatusCode.DATA_LOSS, call.receive())
        assert [name for name, _ in error.trailing_metadata] == ["t-why", "t-extra"]
        assert call.trailing_metadata == error.trailing_metadata
        assert (await call.wait_initial_metadata()).all("i-first") == ["here"]


async def status_only(channel: CallOpener, service: CheckService) -> None:
    """A server that answers with a status alone sends no initial metadata: they are empty."""
    async with channel.call(FAIL) as call:
        await call.send(Action(content=b"bare"))
        await call.done_sending()
        await expect(StatusCode.ABORTED, call.receive())
        assert await call.wait_initial_metadata() == ()
        assert call.initial_metadata == ()


async def expect_echo(channel: CallOpener) -> None:
    """Another call is served."""
    assert (await channel.unary(ECHO_ONE, Action(tick_id=3))).tick_id == 3


async def details_of_a_failure(channel: CallOpener, service: CheckService) -> None:
    """Messages travel with a status."""
    error = await expect(StatusCode.FAILED_PRECONDITION, channel.unary(FAIL, Action(content=b"detailed")))
    assert error.message == "with details"
    assert find_detail(error, Action) == Action(tick_id=7)
    assert find_detail(error, Observation) is None
    expected = detailed_error(StatusCode.FAILED_PRECONDITION, "with details", [Action(tick_id=7)])
    assert error.details == expected.details


async def unsendable_metadata_of_a_failure(channel: CallOpener, service: CheckService) -> None:
    """What cannot travel is left out; the status arrives, and other calls do not notice."""
    async with channel.call(ECHO) as neighbour:
        error = await expect(StatusCode.ABORTED, channel.unary(FAIL, Action(content=b"unsendable")))
        assert error.message == "unsendable"
        assert [name for name, _ in error.trailing_metadata] == ["t-why"]
        await neighbour.send(Action(tick_id=1))
        assert (await neighbour.receive()).tick_id == 1


async def compression_is_an_option(channel: CallOpener, service: CheckService) -> None:
    """Asking for compression changes nothing that can be seen; asking for what does not exist is a mistake."""
    for name in ("gzip", "deflate", "identity"):
        reply = await channel.unary(ECHO_ONE, Action(content=bytes(10_000)), compression=name)
        assert reply.content == bytes(10_000)
    try:
        channel.call(ECHO_ONE, compression="zip")
    except ValueError:
        pass
    else:
        raise AssertionError("an unknown compression was taken")


CASES: tuple[Callable[[CallOpener, CheckService], Awaitable[None]], ...] = (
    request_too_large,
    response_too_large,
    metadata_too_large,
    response_metadata_too_large,
    unread_bytes_are_bounded,
    messages_sent_together,
    senders_of_one_call_get_their_turns,
    waiting_senders_can_be_cancelled,
    more_calls_than_a_connection_takes,
    unread_messages_end_with_the_block,
    nearest_deadline,
    after_the_deadline,
    passed_deadline,
    after_cancel,
    cancel_before_the_headers,
    metadata_of_a_failure,
    status_only,
    details_of_a_failure,
    unsendable_metadata_of_a_failure,
    compression_is_an_option,
)
