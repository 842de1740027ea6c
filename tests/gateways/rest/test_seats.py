"""Seats of pages: what is refused in which state, and since when a page is awaited."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
    RpcError,
    StatusCode,
)
from trio_cogment.gateways.rest.acting import Act
from trio_cogment.gateways.rest.seats import WebSeat
from trio_cogment.sdk import Event, EventType, RecvObservation
from trio_cogment.seats.mailbox import Answer

ACTED = FailedPreconditionError, "the action was sent already, and the next observation has not come"
GONE = NotFoundError, "there is no such actor that plays here, or its trial is over"
#: What leads to a state, and the refusals there of: joining again, acting, leaving.
STATES: dict[str, tuple[list[str], Any, Any, Any]] = {
    "free": ([], None, (FailedPreconditionError, "expected somebody to join first"), None),
    "joined": (["join"], None, ACTED, None),
    "its turn": (["join", "observe"], None, None, None),
    "acted": (["join", "observe", "act"], None, ACTED, None),
    "its last turn": (["join", "observe", "end"], None, None, None),
    "over": (["join", "end"], None, None, None),
    "told": (["join", "end", "take"], (FailedPreconditionError, "the trial is over for this actor"), GONE, GONE),
    "left": (["join", "leave"], (FailedPreconditionError, "the actor has left the trial"), GONE, GONE),
    "left before": (["leave"], (FailedPreconditionError, "the actor has left the trial"), GONE, GONE),
}


class Page:
    """Does one thing after another with a seat that has no trial."""

    def __init__(self) -> None:
        session: Any = SimpleNamespace(name="ann", details=None)
        self.seat = WebSeat(session, 1000)
        self.tick_id = -1

    def do(self, what: str) -> None:
        seat, mailbox = self.seat, self.seat.mailbox
        if what == "observe":
            self.tick_id += 1
            mailbox.put(Event(EventType.ACTIVE, self.tick_id, RecvObservation(self.tick_id, 0, b"")))
        elif what == "act":
            seat.act(mailbox.tick_id, Act(b""))
        elif what == "join":
            seat.join("somebody", ())
        else:
            getattr(seat if what == "leave" else mailbox, what)()


@pytest.mark.parametrize("number", range(3), ids=["join", "act", "leave"])
@pytest.mark.parametrize("state", STATES)
async def test_every_request_in_every_state(state: str, number: int) -> None:
    way, *refusals = STATES[state]
    page, request, refusal = Page(), ("join", "act", "leave")[number], refusals[number]
    for one in way:
        page.do(one)
    if refusal is None:
        page.do(request)
        return
    kind, text = refusal
    with pytest.raises(CogmentError) as refused:
        page.do(request)
    assert (type(refused.value), str(refused.value)) == (kind, text)


async def test_an_action_for_another_tick_is_told_the_present_one() -> None:
    page = Page()
    for one in ("join", "observe", "observe"):
        page.do(one)
    with pytest.raises(FailedPreconditionError, match="tick_id: expected 1, got 0; join again to see it"):
        page.seat.act(0, Act(b""))
    page.do("act")


async def test_it_is_free_until_somebody_joins() -> None:
    for way, free in {(): True, ("join",): False, ("leave",): False, ("end",): False}.items():
        page = Page()
        for one in way:
            page.do(one)
        assert page.seat.is_free is free


async def test_a_page_is_awaited_while_it_is_to_join_or_to_act(autojump_clock: trio.testing.MockClock) -> None:
    page, seen = Page(), []
    for what in ("", "join", "observe", "observe", "wrong", "act", "observe", "join", "end"):
        await trio.sleep(1)
        if what == "wrong":
            with pytest.raises(FailedPreconditionError):
                page.seat.act(0, Act(b""))
        elif what:
            page.do(what)
        since = page.seat.idle_since
        seen.append(None if math.isinf(since) else round(trio.current_time() - since))
    # Another observation, or a refused action, makes nobody more present; an action and coming back do.
    assert seen == [1, None, 0, 1, 2, None, 0, 0, None]


async def test_an_action_that_cannot_be_sent_makes_nobody_more_present(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def full(_action: object) -> None:
        raise ResourceExhaustedError("the orchestrator does not read")

    page = Page()
    for one in ("join", "observe"):
        page.do(one)
    session: Any = SimpleNamespace(is_over=False, do_action_nowait=full)
    page.seat._seat.session = session
    await trio.sleep(1)
    with pytest.raises(ResourceExhaustedError):
        page.do("act")
    page.do("observe")
    assert trio.current_time() - page.seat.idle_since == pytest.approx(1)


async def test_a_lost_connection_is_told_as_that() -> None:
    page = Page()
    page.do("join")
    assert page.seat.details == ""
    page.seat._seat.on_over(RpcError(StatusCode.UNAVAILABLE, "10.0.0.1 has hung up"))
    assert page.seat.details == "the connection to the orchestrator was lost"


async def test_a_seat_that_nobody_has_taken_ends_with_its_task() -> None:
    page = Page()
    with trio.move_on_after(0):
        await page.seat.play()
    assert page.seat.is_finished
    assert not page.seat.is_free


async def test_one_that_is_left_before_somebody_joins_does_not_play() -> None:
    page = Page()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(page.seat.play)
        await trio.testing.wait_all_tasks_blocked()
        page.do("leave")
    assert await page.seat.news() is Answer.END
