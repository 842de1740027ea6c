"""Notes of the ends of calls."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.errors import RpcError
from trio_cogment.testing import (
    InvariantError,
    RecordedCalls,
    World,
    check_history,
    simulate,
)
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, FAIL, WAIT, CheckService


def test_how_calls_end_is_noted() -> None:
    async def scenario(world: World) -> None:
        async with world.in_process([CheckService().service()]) as channel:
            calls = RecordedCalls(channel, world.history, "me")
            await calls.unary(ECHO_ONE, Action(tick_id=1))
            with pytest.raises(RpcError):
                await calls.unary(FAIL, Action(content=b"status"))
            async with calls.call(WAIT, metadata=[("trial-id", "t")]) as call:
                call.set_consumer(_Silent())
                await trio.sleep(1)
            async with calls.call(ECHO) as call:
                await call.done_sending()
                assert await call.receive() is None
                assert await call.receive() is None
                assert call.trailing_metadata is not None

    history = simulate(1, scenario).history
    check_history(history)
    notes = [(event.what, event.details.get("method") or event.details.get("code")) for event in history]
    assert [note for note in notes if note[0] != "call left"] == [
        ("call", "EchoOne"),
        ("status", "OK"),
        ("call", "Fail"),
        ("status", "DATA_LOSS"),
        ("call", "Wait"),
        ("status", "CANCELLED"),
        ("call", "Echo"),
        ("status", "OK"),
    ]
    assert [event.details["trial"] for event in history if event.what == "call"] == ["", "", "t", ""]


class _Silent:
    def on_message(self, message: Any) -> None: ...
    def on_end(self, error: RpcError | None) -> None: ...


def test_a_call_that_ends_twice_is_found() -> None:
    async def scenario(world: World) -> None:
        async with (
            world.in_process([CheckService().service()]) as channel,
            RecordedCalls(channel, world.history, "me").call(ECHO) as call,
        ):
            given: list[Any] = []
            call._call.set_consumer = given.append  # type: ignore[attr-defined]  # to be told by hand
            call.set_consumer(_Silent())
            given[0].on_end(None)
            given[0].on_message(Action())
            given[0].on_end(None)

    with pytest.raises(InvariantError, match="calls-end-once: me: call 0 "):
        check_history(simulate(1, scenario).history)
