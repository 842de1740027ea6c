"""Rounds: trials that are started, played and ended with seats."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
import trio.testing

from tests.seats.playing import Playground, params_of, playground
from tests.seats.test_seat import WHERE, waiting
from trio_cogment import EnvironmentSession
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    RpcError,
    StatusCode,
    UnavailableError,
)
from trio_cogment.base.outcome import EndCause
from trio_cogment.seats.mailbox import Answer
from trio_cogment.seats.round import Round, not_begun, not_started
from trio_cogment.seats.seat import Seat


def round_of(there: Playground, *names: str, **options: Any) -> Round:
    seats = [Seat(name, default=b"d") for name in names]
    return Round(there.opener, there.nursery.start_soon, seats, **options)


async def play(seat: Seat) -> None:
    """Act until the end."""
    while await seat.news() is Answer.OBSERVATION:
        seat.act(b"a")


@WHERE
@pytest.mark.parametrize("nowait", [False, True])
async def test_a_trial_is_started_played_and_over(where: str, nowait: bool) -> None:
    told: list[str] = []
    async with playground(where) as there:
        round_ = round_of(
            there, "ann", "bob", on_started=lambda: told.append("started"), on_over=lambda: told.append("over")
        )
        if nowait:
            round_.start_nowait(params_of("ann", "bob"))
            assert not told
        else:
            await round_.start(params_of("ann", "bob"))
            assert told == ["started"]
        await round_.wait_begun()
        assert round_.has_begun
        assert round_.trial_id
        states = [round_.is_over]
        for seat in round_.seats:
            there.nursery.start_soon(play, seat)
        await round_.wait_over()
        states.append(round_.is_over)
        assert states == [False, True]
        assert (await round_.outcome()).cause is EndCause.ENVIRONMENT
    assert told == ["started", "over"]
    assert round_.failure is None


async def test_in_process_a_start_has_no_task() -> None:
    async with playground(play=waiting) as there:
        round_ = round_of(there, "ann")
        round_.start_nowait(params_of("ann"))
        assert not there.nursery.child_tasks
        await round_.wait_begun()
        round_.abandon()


@WHERE
@pytest.mark.parametrize("nowait", [False, True])
async def test_ids_are_tried_in_turn(where: str, nowait: bool) -> None:
    async with playground(where, waiting) as there:
        await there.platform.controller.start_trial(params_of("ann"), trial_id="w.1")
        await there.platform.controller.start_trial(params_of("ann"), trial_id="w.2")
        ids = (f"w.{number}" for number in itertools.count(1))
        round_ = round_of(there, "ann")
        if nowait:
            round_.start_nowait(params_of("ann"), ids)
        else:
            await round_.start(params_of("ann"), ids)
        await round_.wait_begun()
        assert round_.trial_id == "w.3"
        assert next(ids) == "w.4"
        round_.end(hard=True)
        await round_.wait_over()
        await there.platform.controller.terminate_trial(["w.1", "w.2"], hard=True)


@WHERE
@pytest.mark.parametrize("nowait", [False, True])
async def test_a_trial_that_cannot_be_started_is_over(where: str, nowait: bool) -> None:
    over: list[CogmentError | None] = []
    async with playground(where) as there:
        await there.platform.controller.start_trial(params_of("ann"), trial_id="w")
        round_: Round = round_of(there, "ann", on_over=lambda: over.append(round_.failure))
        if nowait:
            round_.start_nowait(params_of("ann"), ["w"])
        else:
            with pytest.raises(AlreadyExistsError, match="'w' is taken"):
                await round_.start(params_of("ann"), ["w"])
        await round_.wait_over()
        assert isinstance(round_.failure, AlreadyExistsError)
        assert over == [round_.failure]
        (seat,) = round_.seats
        assert seat.error is round_.failure
        assert await seat.news() is Answer.END
        with pytest.raises(RpcError, match="the trial could not be started: no id") as caught:
            await round_.wait_begun()
        assert caught.value.code is StatusCode.FAILED_PRECONDITION
        await there.platform.controller.terminate_trial("w", hard=True)


async def test_an_accident_at_the_start_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def planted(*_args: Any, **_options: Any) -> Any:
        raise RuntimeError("planted")

    async with playground() as there:
        round_ = round_of(there, "ann")
        monkeypatch.setattr(round_.controller, "start_trial_nowait", planted)
        monkeypatch.setattr(round_.controller, "start_trial", planted)
        round_.start_nowait(params_of("ann"))
        with pytest.raises(UnavailableError, match="the server failed: RuntimeError"):
            await round_.wait_begun()
        assert round_.is_over
    assert "planted" in caplog.text


@WHERE
async def test_bad_parameters_are_a_failure(where: str) -> None:
    params = params_of("ann")
    params.actors.add(name="ann", actor_class="player")
    async with playground(where) as there:
        round_ = round_of(there, "ann")
        round_.start_nowait(params)
        with pytest.raises(RpcError, match="the trial could not be started") as caught:
            await round_.wait_begun()
        assert caught.value.code is StatusCode.FAILED_PRECONDITION
        assert round_.is_over


@WHERE
async def test_a_trial_that_ends_before_it_begins_is_explained(where: str) -> None:
    async def refusing(session: EnvironmentSession) -> None:
        raise InvalidArgumentError("config: expected a board, got none")

    async with playground(where, refusing) as there:
        round_ = round_of(there, "ann")
        await round_.start(params_of("ann"))
        with pytest.raises(InvalidArgumentError, match=r"the trial ended before it began: .*expected a board"):
            await round_.wait_begun()


async def test_a_seat_that_leaves_before_is_not_waited_for() -> None:
    async with playground(play=waiting) as there:
        round_ = round_of(there, "ann", "bob")
        ann, bob = round_.seats
        ann.leave()
        await round_.start(
            params_of("ann", "bob", optional=True, default_action=b"d", initial_connection_timeout_seconds=0.1)
        )
        await round_.wait_begun()
        assert bob.mailbox.observation is not None
        assert not round_.has_begun
        bob.leave()
        await round_.wait_over()


@WHERE
async def test_a_soft_end_has_one_more_tick(where: str) -> None:
    ending: list[str] = []

    def on_ending() -> None:
        ending.append("ending")
        for seat in round_.seats:
            seat.act_default()

    async with playground(where) as there:
        round_ = round_of(there, "ann", on_ending=on_ending)
        await round_.start(params_of("ann"))
        await round_.wait_begun()
        round_.end(patience=60)
        assert round_.end_asked
        asking = [round_.is_asking]
        await round_.wait_over()
        assert [*asking, round_.is_asking] == [True, False]
        (seat,) = round_.seats
        assert seat.mailbox.final
        assert (await round_.outcome()).cause is EndCause.SOFT_TERMINATION
    assert ending == ["ending"]


async def test_after_the_patience_a_soft_end_is_a_hard_one(autojump_clock: trio.testing.MockClock) -> None:
    async with playground(play=waiting) as there:
        round_ = round_of(there, "ann")
        await round_.start(params_of("ann"))
        await round_.wait_begun()
        round_.end(patience=5)
        await round_.wait_over()
        assert trio.current_time() >= 5
        assert (await round_.outcome()).cause is EndCause.HARD_TERMINATION


async def test_without_patience_nothing_waits_for_a_soft_end() -> None:
    async with playground(play=waiting) as there:
        round_ = round_of(there, "ann")
        await round_.start(params_of("ann"))
        await round_.wait_begun()
        before = set(there.nursery.child_tasks)
        round_.end()
        while round_.is_asking or set(there.nursery.child_tasks) != before:
            await trio.lowlevel.checkpoint()
        assert not round_.is_over
        await there.platform.controller.terminate_trial(round_.trial_id, hard=True)
        await round_.wait_over()


async def test_a_round_without_seats_is_ended_with_patience(autojump_clock: trio.testing.MockClock) -> None:
    async with playground(play=waiting) as there:
        round_ = round_of(there)
        await round_.start(params_of("ann"))
        seat = Seat("ann")
        seat.join(there.opener, round_.trial_id, there.nursery.start_soon)
        await seat.news()
        round_.end(patience=5)
        assert (await round_.outcome()).cause is EndCause.HARD_TERMINATION


@WHERE
async def test_a_trial_whose_end_is_asked_for_before_its_start_ends(where: str) -> None:
    async with playground(where, waiting) as there:
        round_ = round_of(there, "ann")
        round_.end(hard=True)
        round_.end()
        round_.start_nowait(params_of("ann"))
        await round_.wait_over()
        assert (await round_.outcome()).cause is EndCause.HARD_TERMINATION


@WHERE
@pytest.mark.parametrize("taken", [False, True])
async def test_a_round_that_is_abandoned_while_it_starts_tells_nobody(where: str, taken: bool) -> None:
    told: list[str] = []
    async with playground(where, waiting) as there:
        if taken:
            await there.platform.controller.start_trial(params_of("ann"), trial_id="t")
        round_ = round_of(there, "ann", on_started=lambda: told.append("started"), on_over=lambda: told.append("over"))
        round_.start_nowait(params_of("ann"), ["t"])
        round_.abandon()
        await trio.testing.wait_all_tasks_blocked()
        if where == "in process" and not taken:
            assert not await there.platform.controller.trial_infos()  # its start was broken off
        await there.platform.controller.terminate_trial("t", hard=True)
        assert all(seat.has_left for seat in round_.seats)
    assert (told, round_.failure, round_.trial_id) == ([], None, "")


@WHERE
async def test_an_abandoned_round_tells_nobody_of_its_end(where: str) -> None:
    async with playground(where, waiting) as there:
        round_ = round_of(there, "ann", on_over=lambda: pytest.fail("told"))
        round_.start_nowait(params_of("ann"))
        await round_.wait_begun()
        round_.abandon()
        assert all(seat.has_left for seat in round_.seats)


async def test_the_end_is_asked_for_once_and_not_after_it() -> None:
    asked: list[bool] = []

    async def end_trial(_trial_id: str, *, hard: bool = False) -> None:
        asked.append(hard)
        await there.platform.controller.terminate_trial(round_.trial_id, hard=True)

    async with playground(play=waiting) as there:
        for before in (True, False):
            round_ = round_of(there, "ann", end_trial=end_trial)
            await round_.start(params_of("ann"))
            await round_.wait_begun()
            if before:
                round_.end()
                round_.end(hard=True)
            else:
                await there.platform.controller.terminate_trial(round_.trial_id, hard=True)
            await round_.wait_over()
            round_.end(hard=True)
            await trio.testing.wait_all_tasks_blocked()
            assert asked == [True]


async def test_nobody_waits_for_the_answer_to_the_end_of_a_trial_that_has_ended() -> None:
    async def end_trial(_trial_id: str, *, hard: bool = False) -> None:
        await trio.sleep_forever()

    async with playground(play=waiting) as there:
        before = set(there.nursery.child_tasks)
        round_ = round_of(there, "ann", end_trial=end_trial)
        await round_.start(params_of("ann"))
        await round_.wait_begun()
        round_.end(hard=True)
        await trio.testing.wait_all_tasks_blocked()
        await there.platform.controller.terminate_trial(round_.trial_id, hard=True)
        await round_.wait_over()
        await trio.testing.wait_all_tasks_blocked()
        assert set(there.nursery.child_tasks) == before


@WHERE
async def test_a_seat_that_the_trial_does_not_have_is_explained(where: str) -> None:
    async with playground(where, waiting) as there:
        round_ = round_of(there, "zoe")
        await round_.start(params_of("ann"))
        with pytest.raises(RpcError, match="zoe") as caught:
            await round_.wait_begun()
        assert caught.value.code is StatusCode.NOT_FOUND
        await there.platform.controller.terminate_trial(round_.trial_id, hard=True)


async def test_where_the_end_cannot_be_asked_for_the_seats_leave(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(trial_id: str, *, hard: bool = False) -> None:
        raise UnavailableError("nobody there")

    async with playground(play=waiting) as there:
        round_ = round_of(there, "ann", end_trial=refuse)
        await round_.start(params_of("ann"))
        await round_.wait_begun()
        round_.end()
        await round_.wait_over()
        assert round_.seats[0].has_left
    assert "it cannot be ended: nobody there" in caplog.text


def test_a_trial_that_has_not_begun_is_worth_another_try_where_nobody_says_otherwise() -> None:
    for details, kind in {
        "": UnavailableError,
        "the orchestrator is stopping": UnavailableError,
        "environment 'env' failed: ValueError: x": UnavailableError,
        "environment 'env' failed: INVALID_ARGUMENT: x": InvalidArgumentError,
        "environment 'env' failed: FAILED_PRECONDITION: x": FailedPreconditionError,
        "environment 'env' failed: InvalidEnvironmentError: x": FailedPreconditionError,
    }.items():
        error = not_begun("it ended", details)
        assert type(error) is kind
        assert str(error) == (f"it ended: {details}" if details else "it ended")


def test_a_trial_that_was_not_started_is_worth_another_try_where_the_orchestrator_is_away() -> None:
    for code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
        assert isinstance(not_started(RpcError(code, "x")), UnavailableError)
    for refused in (RpcError(StatusCode.INVALID_ARGUMENT, "x"), AlreadyExistsError("x")):
        error = not_started(refused)
        assert isinstance(error, RpcError)
        assert error.code is StatusCode.FAILED_PRECONDITION
        assert "the trial could not be started: " in str(error)
