"""A round: one trial with seats, from its start to its end.

Whoever lets others play starts a trial, takes seats in it, waits until it has begun, has it ended, and learns how it
did. In this process none of this needs a task: a trial that is started costs half of what it would with one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import Protocol

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    RpcError,
    StatusCode,
    UnavailableError,
)
from trio_cogment.base.host import Host
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.rpc import CallOpener, ClientCall
from trio_cogment.sdk import Controller
from trio_cogment.sdk.spec import Payload, Spec
from trio_cogment.seats.seat import Seat

_log = logging.getLogger(__name__)

_FAILED = re.compile(r" failed: (\w+): ")
#: What a participant says that would fail again: its configuration is wrong, or its environment refuses.
_LASTING: dict[str, type[CogmentError]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "FAILED_PRECONDITION": FailedPreconditionError,
    "InvalidEnvironmentError": FailedPreconditionError,
}


class EndTrial(Protocol):
    """Ends a trial: `Controller.terminate_trial`, or a gateway's `Caller.end_trial`."""

    def __call__(self, trial_id: str, /, *, hard: bool = False) -> Awaitable[None]:
        """End it softly, or hard and at once.

        Raises:
            CogmentError: it cannot be ended.
        """


def not_begun(what: str, details: str) -> CogmentError:
    """Return the error for a trial that has ended without a first observation.

    A client tries again where it is told UNAVAILABLE. So that is what it is told, unless the participant that has
    failed says that it would fail again.

    Args:
        what: has happened: "the trial ended before it began".
        details: the reason, as the orchestrator has it (`Seat.details`). After `failed: ` it has the status of a
            participant's error, or the type of its exception.
    """
    found = _FAILED.search(details)
    error = _LASTING.get(found[1] if found else "", UnavailableError)
    return error(f"{what}: {details}" if details else what)


def not_started(error: CogmentError) -> CogmentError:
    """Return the error for a trial that the orchestrator did not start, for a client that may try again.

    Args:
        error: of `Controller.start_trial`.
    """
    if isinstance(error, UnavailableError) or (
        isinstance(error, RpcError) and error.code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)
    ):
        return UnavailableError(f"the trial could not be started: {error}")
    return RpcError(StatusCode.FAILED_PRECONDITION, f"the trial could not be started: {error}")


class Round:
    """One trial, and the seats in it that are played from here. It is not used again.

    There may be no seats at all, where the actors are served, or join by themselves: then `outcome` tells of the end,
    and `is_over` only of a start that failed.

    Args:
        opener: calls the orchestrator, as the one to whom the trial belongs.
        spawn: `start_soon` of a nursery that stays open until the round is over.
        seats: join the trial when it has been started.
        user_id: of the trial.
        spec: the project, where the trial's configuration is not bytes.
        host: gives the wall clock.
        end_trial: ends the trial; by default the controller does.
        on_started: called when the trial has been started, and its id is known, before the seats join it.
        on_ending: called when the orchestrator has confirmed a soft end: the next tick is the trial's last one, if
            everybody acts.
        on_over: called once, when the trial is over for all seats, or could not be started: then there is a `failure`.
            Not called after `abandon`.

    Attributes:
        trial_id: empty until it has been started.
        seats: see above.
        controller: of the orchestrator, as the trial's owner.
        failure: why it could not be started; None if it could. Each seat has it as its error, too.
        is_over: the trial is over for all seats, or could not be started.
        end_asked: `end` was called.
        is_asking: it was, and the orchestrator has not confirmed it.
    """

    def __init__(
        self,
        opener: CallOpener,
        spawn: Callable[..., None],
        seats: Iterable[Seat] = (),
        *,
        user_id: str = "",
        spec: Spec | None = None,
        host: Host | None = None,
        end_trial: EndTrial | None = None,
        on_started: Callable[[], None] | None = None,
        on_ending: Callable[[], None] | None = None,
        on_over: Callable[[], None] | None = None,
    ) -> None:
        self.trial_id = ""
        self.seats: Sequence[Seat] = tuple(seats)
        self.controller = Controller(opener, spec=spec, user_id=user_id)
        self.failure: CogmentError | None = None
        self.is_over = False
        self.end_asked = self.is_asking = False
        self._opener = opener
        self._spawn = spawn
        self._host = host
        self._end_trial: EndTrial = end_trial or self.controller.terminate_trial
        self._on_started = on_started
        self._on_ending = on_ending
        self._on_over = on_over
        self._playing = len(self.seats)
        self._hard = False
        self._patience = inf
        #: Of the task that asks for the end.
        self._asking: trio.CancelScope | None = None
        #: The start, while it is on its way without a task.
        self._starting: ClientCall | None = None
        self._abandoned = False
        self._over = trio.Event()

    # The start

    async def start(
        self, params: TrialParams | None, trial_ids: Iterable[str] = ("",), *, config: Payload | None = None
    ) -> None:
        """Start the trial, and have the seats join it.

        Args:
            params: of the trial; None: the orchestrator's default ones, after its hooks.
            trial_ids: ids that it may have, which are tried in turn until one is free; an empty one: the orchestrator
                makes one.
            config: see `Controller.start_trial`.

        Raises:
            AlreadyExistsError: all the ids are taken.
            CogmentError: it could not be started; see `Controller.start_trial`.

        After `Cancelled` the trial may have been started nevertheless.
        """
        try:
            trial_id = await self._first_free(params, trial_ids, config)
        except CogmentError as error:
            self._set_not_started(error)
            raise
        self._set_started(trial_id)

    async def _first_free(self, params: TrialParams | None, trial_ids: Iterable[str], config: Payload | None) -> str:
        wanted = ""
        for wanted in trial_ids:
            trial_id = await self.controller.start_trial(params, config=config, trial_id=wanted)
            if trial_id:
                return trial_id
        raise AlreadyExistsError(f"no id for the trial: {wanted!r} is taken")

    def start_nowait(self, params: TrialParams, trial_ids: Iterable[str] = ("",)) -> None:
        """Start the trial without waiting, and without a task if the orchestrator is in this process.

        `on_started` tells of the start, and `on_over` of one that has failed. Neither is called before this returns.

        Args:
            params: of the trial.
            trial_ids: see `start`; the later ones are not looked at unless they are needed.
        """
        ids = iter(trial_ids)
        first = next(ids)

        def on_started(trial_id: str, error: RpcError | None) -> None:
            self._starting = None
            if trial_id:
                self._set_started(trial_id)
            elif error is not None:
                self._set_not_started(error)
            else:  # the id is taken
                self._spawn(self._start_in_task, params, ids, name=f"start of trial {first!r}")

        try:
            self._starting = self.controller.start_trial_nowait(params, on_started, trial_id=first)
        except Exception:  # noqa: BLE001  the task meets it again
            pass
        if self._starting is None:
            self._spawn(self._start_in_task, params, chain([first], ids), name=f"start of trial {first!r}")

    async def _start_in_task(self, params: TrialParams, trial_ids: Iterable[str]) -> None:
        try:
            await self.start(params, trial_ids)
        except CogmentError:
            pass  # it is the round's failure
        except Exception as error:  # noqa: BLE001  the boundary of a round: whoever waits for it is told
            _log.exception("a trial could not be started")
            self._set_not_started(UnavailableError(f"the server failed: {type(error).__name__}"))

    def _set_started(self, trial_id: str) -> None:
        if self._abandoned:
            return
        self.trial_id = trial_id
        if self._on_started is not None:
            self._on_started()
        if self.end_asked:
            self._spawn(self._have_it_ended, name=f"end of trial {trial_id}")
        for seat in self.seats:
            seat.join(self._opener, trial_id, self._spawn, host=self._host, then=self._seat_is_over)

    def _set_not_started(self, error: CogmentError) -> None:
        if self._abandoned:
            return
        self.failure = error
        for seat in self.seats:
            seat.on_over(error)
        self._set_over()

    # The play

    @property
    def has_begun(self) -> bool:
        """Whether every seat has had its first observation."""
        return all(seat.mailbox.observation is not None for seat in self.seats)

    async def wait_begun(self) -> None:
        """Wait until every seat has its first observation. A seat that leaves before is not waited for.

        Raises:
            CogmentError: the trial could not be started, or has ended before; the text has the reason, and the status
                tells whether it is worth trying again. See `not_started` and `not_begun`.
        """
        for seat in self.seats:
            await seat.wait(partial(_has_begun_or_ended, seat))
            if seat.mailbox.observation is None and not seat.has_left:
                raise self.why_not_begun(seat)

    def why_not_begun(self, seat: Seat) -> CogmentError:
        """Return the error for the client of a seat whose part has ended without an observation."""
        if self.failure is not None:
            return not_started(self.failure)
        if isinstance(seat.error, CogmentError):
            return seat.error
        return not_begun("the trial ended before it began", seat.details)

    # The end

    def end(self, *, hard: bool = False, patience: float = inf) -> None:
        """Have the trial end; `on_over` and `wait_over` tell when it has. One that is being started ends after that.

        If the orchestrator cannot be asked, which is logged, the seats leave the trial. Asking a second time changes
        nothing, but that the end is hard if it was not sent yet.

        Args:
            hard: at once; otherwise the trial has one more tick, in which everybody acts, and its final observations.
            patience: seconds after which a soft end becomes a hard one.
        """
        self._hard = self._hard or hard
        if self.end_asked:
            return
        self.end_asked = self.is_asking = True
        self._patience = patience
        if self.trial_id and not self.is_over:
            self._spawn(self._have_it_ended, name=f"end of trial {self.trial_id}")

    async def _have_it_ended(self) -> None:
        with trio.CancelScope() as self._asking:
            try:
                if self._hard or await self._end_softly():
                    await self._end_trial(self.trial_id, hard=True)
                    self.is_asking = False
            except CogmentError as error:
                _log.warning("trial %s: it cannot be ended: %s", self.trial_id, error)
                for seat in self.seats:
                    seat.leave()

    async def _end_softly(self) -> bool:
        """Return whether it is still to be ended hard."""
        with trio.move_on_after(self._patience):
            await self._end_trial(self.trial_id)
            self.is_asking = False
            if self._on_ending is not None:
                self._on_ending()
            if self._patience == inf:
                return False
            await (self._over.wait() if self.seats else self.controller.wait_trial_state(self.trial_id))
            return False
        return True

    def abandon(self) -> None:
        """Leave the trial at all seats, or break its start off. Nobody is told, and the trial is not asked to end."""
        self._abandoned = True
        if self._starting is not None:
            self._starting.cancel()
        for seat in self.seats:
            seat.leave()

    def _seat_is_over(self) -> None:
        self._playing -= 1
        if not self._playing:
            self._set_over()

    def _set_over(self) -> None:
        self.is_over = True
        self._over.set()
        if self._asking is not None:
            self._asking.cancel()  # nobody has to be asked for the end any more
        if self._on_over is not None and not self._abandoned:
            self._on_over()

    async def wait_over(self) -> None:
        """Wait until the trial is over for all seats, or could not be started."""
        await self._over.wait()

    async def outcome(self) -> TrialOutcome:
        """Wait until the trial has ended and its samples are stored; return how. It has been started.

        Raises:
            CogmentError: the orchestrator cannot tell; see `Controller.wait_trial`.
        """
        return await self.controller.wait_trial(self.trial_id, check=False)


def _has_begun_or_ended(seat: Seat) -> bool:
    return seat.mailbox.observation is not None or seat.is_over
