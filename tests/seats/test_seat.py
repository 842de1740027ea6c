"""Seats in real trials: in this process without a task, and over HTTP/2."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from tests.seats.playing import TICKS, Playground, playground
from trio_cogment import ActorSession, EnvironmentSession, Event, Reward
from trio_cogment.base.errors import InvalidArgumentError, ResourceExhaustedError, RpcError
from trio_cogment.base.outcome import EndCause
from trio_cogment.sdk import join_trial
from trio_cogment.sdk.spec import ActorClass, Spec
from trio_cogment.seats.mailbox import Answer, MailboxState
from trio_cogment.seats.seat import Seat

WHERE = pytest.mark.parametrize("where", ["in process", "over HTTP/2"])


def join(there: Playground, seat: Seat, trial_id: str) -> trio.Event:
    over = trio.Event()
    seat.join(there.opener, trial_id, there.nursery.start_soon, then=over.set)
    return over


async def waiting(session: EnvironmentSession) -> None:
    """Send one observation, and wait indefinitely."""
    await session.start([("*", b"0")])
    async for _ in session.all_events():
        pass


@WHERE
async def test_a_client_plays_a_trial_to_its_end(where: str) -> None:
    seat, seen = Seat("ann"), []
    async with playground(where) as there:
        trial_id = await there.start("ann")
        over = join(there, seat, trial_id)
        while await seat.news() is Answer.OBSERVATION:
            mailbox = seat.mailbox
            assert mailbox.observation is not None
            rewards = [reward.value for reward in mailbox.rewards]
            seen.append((mailbox.tick_id, mailbox.observation.payload, rewards, len(mailbox.messages)))
            final = mailbox.final
            assert seat.act(mailbox.observation.payload, mailbox.tick_id) is (Answer.DROP if final else Answer.SEND)
        await over.wait()
    assert seen == [
        (tick, b"0" + b"!" * tick, [tick - 1.0] if tick else [], int(tick > 0)) for tick in range(TICKS + 2)
    ]
    assert seat.is_over
    assert seat.error is None
    assert seat.details == ""
    assert seat.outcome is not None
    assert seat.outcome.cause is EndCause.ENVIRONMENT
    assert seat.mailbox.state is MailboxState.CLOSED


async def test_in_process_it_has_no_task_and_the_answer_is_there_when_act_returns() -> None:
    seat = Seat("ann")

    async def inline(session: EnvironmentSession) -> None:
        await session.start([("*", b"0")])

        def on_event(event: Event[Any, Any]) -> None:
            if event.actions is not None:
                session.produce_observations_nowait([("*", b"1")])

        await session.handle(on_event)

    async with playground(play=inline) as there:
        join(there, seat, await there.start("ann"))
        assert not there.nursery.child_tasks
        await seat.news()
        assert seat.act(b"a") is Answer.SEND
        assert seat.mailbox.tick_id == 1
        assert seat.mailbox.state is MailboxState.TURN
        seat.leave()


@WHERE
async def test_whoever_is_told_acts_at_once(where: str) -> None:
    told: list[Any] = []

    def on_news() -> None:
        told.append((seat.mailbox.take(), seat.mailbox.tick_id))
        seat.act_default()

    seat = Seat("ann", on_news, default=b"d")
    async with playground(where) as there:
        trial_id = await there.start("ann")
        over = join(there, seat, trial_id)
        await over.wait()
        outcome = await there.platform.controller.wait_trial(trial_id)
    assert outcome.cause is EndCause.ENVIRONMENT
    # The end comes after the final observation, which is still to be seen: nobody acts for it.
    assert told == [(Answer.OBSERVATION, tick) for tick in (*range(TICKS + 2), TICKS + 1)]


async def test_without_a_default_action_there_is_none() -> None:
    seat = Seat("ann")
    async with playground() as there:
        join(there, seat, await there.start("ann"))
        seat.act_default()
        await seat.news()
        seat.act_default()
        assert seat.mailbox.is_turn
        seat.default = b"d"
        seat.act_default()
        await seat.wait(lambda: seat.mailbox.tick_id == 1)
        assert (await seat.news(), seat.mailbox.tick_id) == (Answer.OBSERVATION, 1)
        seat.leave()


@WHERE
async def test_rewards_and_messages_go_with_an_action(where: str) -> None:
    seats = {name: Seat(name) for name in ("ann", "bob")}
    ann, bob = seats.values()
    async with playground(where) as there:
        trial_id = await there.start(*seats)
        for seat in seats.values():
            join(there, seat, trial_id)
        await ann.news()
        await bob.news()
        rewards, messages = [Reward("bob", 7.0)], [(StringValue(value="to bob"), "bob")]
        ann.say(rewards, messages)
        assert ann.act(b"a", 0, rewards=rewards, messages=messages) is Answer.SEND
        assert bob.act(b"b", 0) is Answer.SEND
        await bob.news()
        sent = [message.sender_name for message in bob.mailbox.messages]
        assert sent.count("ann") == 2
        sources = [source.value for reward in bob.mailbox.rewards for source in reward.sources]
        assert sources.count(7.0) == 2
        for seat in seats.values():
            seat.leave()
        # Nobody is there any more; nothing is sent, and nothing is an error.
        ann.say(rewards, messages)
        assert ann.act(b"a") is Answer.GONE


async def test_an_action_that_cannot_be_sent_leaves_the_turn_as_it_was() -> None:
    seat = Seat("ann")
    spec = Spec(actor_classes=(ActorClass("player", action=StringValue),))
    async with playground() as there:
        trial_id = await there.start("ann")

        async def join_typed() -> None:
            await join_trial(there.opener, trial_id, seat.play, actor_name="ann", spec=spec)

        there.nursery.start_soon(join_typed)
        await seat.news()
        with pytest.raises(InvalidArgumentError, match="action"):
            seat.act(Int32Value(value=1))
        assert seat.mailbox.state is MailboxState.TURN
        with pytest.raises(InvalidArgumentError, match="value"):
            seat.act(StringValue(value="x"), rewards=[Reward("ann", "much")])  # type: ignore[arg-type]  # as it should
        assert seat.mailbox.state is MailboxState.TURN
        assert seat.act(StringValue(value="x"), 5) is Answer.LATE
        assert seat.act(StringValue(value="x"), 0) is Answer.SEND
        seat.leave()


@WHERE
async def test_an_actor_that_leaves_is_gone(where: str) -> None:
    over: list[str] = []
    seat = Seat("ann", on_over=lambda: over.append("over"))
    async with playground(where) as there:
        trial_id = await there.start("ann")
        done = join(there, seat, trial_id)
        await seat.news()
        assert seat.leave() is Answer.TELL
        assert seat.has_left
        await done.wait()
        outcome = await there.platform.controller.wait_trial(trial_id, check=False)
        assert outcome.cause is EndCause.PARTICIPANT_LOST
        assert await seat.news() is Answer.END
        assert seat.leave() is Answer.GONE
    assert over == ["over"]
    assert seat.error is None


@WHERE
async def test_one_that_has_left_before_it_joins_is_never_there(where: str) -> None:
    seat = Seat("ann")
    async with playground(where) as there:
        trial_id = await there.start("ann")
        seat.leave()
        done = join(there, seat, trial_id)
        await done.wait()
        assert seat.session is None
        await there.platform.controller.terminate_trial(trial_id, hard=True)


@WHERE
async def test_a_trial_that_does_not_exist_ends_the_part_with_an_error(where: str) -> None:
    seat = Seat("ann")
    async with playground(where) as there:
        done = join(there, seat, "no such trial")
        assert await seat.news() is Answer.END
        await done.wait()
        assert isinstance(seat.error, RpcError)
        assert "no such trial" in seat.details


@WHERE
async def test_a_hard_end_has_its_reason(where: str) -> None:
    seat = Seat("ann")
    async with playground(where, waiting) as there:
        trial_id = await there.start("ann")
        join(there, seat, trial_id)
        await seat.news()
        await there.platform.controller.terminate_trial(trial_id, hard=True)
        # The client was thinking: it sees the observation still, and then the end.
        await seat.wait(lambda: seat.is_over)
        assert await seat.news() is Answer.OBSERVATION
        assert seat.act(b"a") is Answer.DROP
        assert await seat.news() is Answer.END
        assert seat.details


async def test_what_a_function_of_the_seat_raises_ends_its_part_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def on_news() -> None:
        if not seat.is_over:
            raise ValueError("no idea")

    for where in ("in process", "over HTTP/2"):
        over: list[str] = []
        seat = Seat("ann", on_news, on_over=partial(over.append, "over"))
        async with playground(where, waiting) as there:
            done = join(there, seat, await there.start("ann"))
            await done.wait()
        assert over == ["over"]
        assert isinstance(seat.error, ValueError)
        own = [record for record in caplog.records if record.name == "trio_cogment.seats.seat"]
        assert [record.getMessage().rpartition(": ")[2] for record in own] == ["its part failed"]
        assert "no idea" in caplog.text
        caplog.clear()


async def test_too_much_that_nobody_fetches_ends_the_part() -> None:
    seat = Seat("ann", max_bytes=10)
    async with playground() as there:
        done = join(there, seat, await there.start("ann"))
        await seat.news()
        seat.act(b"a")
        await done.wait()
        assert isinstance(seat.error, ResourceExhaustedError)


@WHERE
async def test_one_may_leave_as_soon_as_it_takes_part(where: str) -> None:
    def leave(_session: object) -> None:
        seat.leave()

    seat = Seat("ann", on_begun=leave)
    async with playground(where, waiting) as there:
        trial_id = await there.start("ann")
        done = join(there, seat, trial_id)
        await done.wait()
        outcome = await there.platform.controller.wait_trial(trial_id, check=False)
        assert (outcome.cause, outcome.participant) == (EndCause.PARTICIPANT_LOST, "ann")


async def test_one_that_is_cancelled_while_it_joins_has_its_end() -> None:
    seat = Seat("ann")
    async with playground("over HTTP/2", waiting) as there:
        trial_id = await there.start("ann")
        async with trio.open_nursery() as nursery:
            seat.join(there.opener, trial_id, nursery.start_soon)
            nursery.cancel_scope.cancel()
        assert await seat.news() is Answer.END
        await there.platform.controller.terminate_trial(trial_id, hard=True)


async def test_one_that_is_served_has_its_end_when_it_is_cancelled() -> None:
    seat = Seat("ann")
    async with playground(play=waiting) as there:
        trial_id = await there.start("ann")
        async with trio.open_nursery() as nursery:
            play = partial(join_trial, there.opener, trial_id, seat.play, actor_name="ann")
            nursery.start_soon(play)
            await seat.news()
            seat.act(b"a")
            nursery.cancel_scope.cancel()
        assert await seat.news() is Answer.END


async def test_the_task_that_plays_is_cancelled_and_whoever_waits_is_told() -> None:
    seat, over = Seat("ann", on_over=lambda: pytest.fail("it is not told")), trio.Event()
    got: list[Answer] = []

    async def wait() -> None:
        await seat.wait(lambda: seat.is_over)
        got.append(seat.mailbox.take())
        over.set()

    async with playground("over HTTP/2", waiting) as there:
        trial_id = await there.start("ann")
        async with trio.open_nursery() as nursery:
            seat.join(there.opener, trial_id, nursery.start_soon)
            await seat.news()
            seat.act(b"a")
            there.nursery.start_soon(wait)
            nursery.cancel_scope.cancel()
        await over.wait()
    assert got == [Answer.END]


async def test_news_waits_no_longer_than_it_should(autojump_clock: trio.testing.MockClock) -> None:
    seat = Seat("ann")
    assert await seat.news(timeout=5) is Answer.NOTHING
    assert trio.current_time() >= 5
    assert not await seat.wait(lambda: False, timeout=5)
    assert await seat.wait(lambda: True)


async def test_news_takes_nothing_when_it_is_cancelled() -> None:
    seat = Seat("ann")
    async with playground(play=waiting) as there:
        join(there, seat, await there.start("ann"))
        await seat.wait(lambda: seat.mailbox.is_turn)
        with trio.CancelScope() as scope:
            scope.cancel()
            await seat.news()
        assert scope.cancelled_caught
        assert seat.mailbox.unread
        seat.leave()


async def test_many_may_wait_for_the_same() -> None:
    seat, got = Seat("ann"), []

    async def wait() -> None:
        got.append(await seat.news())

    async with playground(play=waiting) as there:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            join(there, seat, await there.start("ann"))
        seat.leave()
    assert got == [Answer.OBSERVATION] * 3


async def test_a_seat_is_told_of_the_session_when_it_takes_part() -> None:
    sessions: list[ActorSession[Any, Any, Any]] = []
    seat = Seat("ann", on_begun=sessions.append)
    async with playground(play=waiting) as there:
        join(there, seat, await there.start("ann"))
        await seat.news()
        assert sessions == [seat.session]
        assert sessions[0].actor_class == "player"
        seat.leave()
