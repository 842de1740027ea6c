"""A participant's outbox when it has been given up, whatever its call does with what it was sending."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from trio_cogment.api.common_pb2 import ActorRunTrialInput
from trio_cogment.orchestrator._outboxes import Outboxes, outbox_memory
from trio_cogment.orchestrator._participant_stream import ParticipantStream
from trio_cogment.outcome import EndCause
from trio_cogment.trial import Event, Lost


class Full:
    """A call that takes nothing at once, and one message when it is told to."""

    def __init__(self) -> None:
        self.room = trio.Event()
        self.sent: list[Any] = []

    def set_consumer(self, consumer: object) -> None: ...

    def hand_over_nowait(self, message: object) -> None:
        raise trio.WouldBlock

    async def send(self, message: object) -> None:
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
