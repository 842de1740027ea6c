"""The states of a run as one table: which state and which outcome follow which cause. Pure: no clock, no I/O.

A cause that has no row for a state is refused: `follow` raises, and nothing has changed. Whether a worker belongs to an
external run, and whether anything was ever published, choose the cause before the table is asked (`registration`,
`resumption`, `restart`).

TERM is final. The outcome is set once, by the first cause that leads to an end: a cancelled run stays "canceled",
whatever its worker's exit code, and a run that failed stays "failed", although it reaches TERM by its cleanup.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from trio_cogment.access import Sources
from trio_cogment.base.errors import FailedPreconditionError


class RunState(enum.IntEnum):
    """Where a run is; the numbers are those of `RunStatus`."""

    #: Submitted.
    INIT = 1
    #: Its worker is being started, or was started.
    HANDSHAKE = 2
    #: A worker has registered.
    READY = 3
    #: Steps or episodes have come.
    EXECUTING = 4
    PAUSED = 5
    #: Failed; its processes and trials are being ended.
    FAULT = 6
    #: Ended.
    TERM = 7


class RunOutcome(enum.Enum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


class Cause(enum.Enum):
    """What can happen to a run."""

    #: The dispatcher begins to start the worker.
    STARTED = "start of the worker"
    REGISTERED = "registration of a worker"
    #: A worker of an external run registers: nobody has started it.
    ATTACHED = "registration of an external worker"
    #: A step or an episode was accepted.
    TELEMETRY = "telemetry"
    PAUSE = "pause"
    RESUME = "resume"
    #: The same before anything was published.
    RESUME_UNPUBLISHED = "resume before telemetry"
    #: The worker ended with exit code 0, or all trials have ended.
    FINISHED = "end of the worker"
    #: The schedule allows no more time or steps.
    LIMIT = "schedule limit"
    #: The worker ended with another exit code, or said that it has failed.
    FAILED = "failure of the worker"
    #: The worker could not be started.
    START_FAILED = "failed start of the worker"
    #: There is not what the run asks for.
    REFUSED = "refusal of resources"
    NOT_REGISTERED = "missing registration"
    NO_HEARTBEAT = "missing heartbeat"
    CANCEL = "cancellation"
    #: The server was restarted, and the worker's process is gone.
    RESTARTED = "restart of the server"
    #: The same of an external run: its worker comes back by itself.
    RESTARTED_EXTERNAL = "restart of the server under an external worker"
    #: Nothing is left of a run that has failed.
    CLEANED = "cleanup"


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the table.

    Attributes:
        state: the next state; it may be the same one.
        outcome: how the run ends, where this decides it.
    """

    state: RunState
    outcome: RunOutcome | None = None


#: This many of the versions that a run has saved are kept with it.
KEPT_CHECKPOINTS = 100

Pair: TypeAlias = tuple[RunState, Cause]

_S, _C = RunState, Cause
_STARTED = (_S.HANDSHAKE, _S.READY, _S.EXECUTING, _S.PAUSED)
_WITH_WORKER = (_S.READY, _S.EXECUTING, _S.PAUSED)
_ENDED = (_S.FAULT, _S.TERM)


def _to(state: RunState, cause: Cause, *states: RunState, outcome: RunOutcome | None = None) -> dict[Pair, Change]:
    return {(before, cause): Change(state, outcome) for before in states}


def _stays(cause: Cause, states: Iterable[RunState]) -> dict[Pair, Change]:
    return {(state, cause): Change(state) for state in states}


#: Pairs that are absent are refused.
TABLE: Mapping[Pair, Change] = {
    **_to(_S.HANDSHAKE, _C.STARTED, _S.INIT),
    **_to(_S.READY, _C.REGISTERED, _S.HANDSHAKE),
    **_stays(_C.REGISTERED, _WITH_WORKER),
    **_to(_S.READY, _C.ATTACHED, _S.INIT),
    **_stays(_C.ATTACHED, _WITH_WORKER),
    **_to(_S.EXECUTING, _C.TELEMETRY, _S.READY, _S.EXECUTING),
    **_to(_S.PAUSED, _C.PAUSE, *_WITH_WORKER),
    **_to(_S.EXECUTING, _C.RESUME, _S.PAUSED, _S.EXECUTING),
    **_to(_S.READY, _C.RESUME_UNPUBLISHED, _S.PAUSED, _S.READY),
    **_to(_S.TERM, _C.FINISHED, *_STARTED, outcome=RunOutcome.SUCCEEDED),
    **_to(_S.TERM, _C.LIMIT, *_STARTED, outcome=RunOutcome.SUCCEEDED),
    **_to(_S.FAULT, _C.FAILED, *_STARTED, outcome=RunOutcome.FAILED),
    **_to(_S.FAULT, _C.START_FAILED, _S.INIT, _S.HANDSHAKE, outcome=RunOutcome.FAILED),
    **_to(_S.TERM, _C.REFUSED, _S.INIT, outcome=RunOutcome.FAILED),
    **_to(_S.FAULT, _C.NOT_REGISTERED, _S.HANDSHAKE, outcome=RunOutcome.FAILED),
    **_to(_S.FAULT, _C.NO_HEARTBEAT, *_WITH_WORKER, outcome=RunOutcome.FAILED),
    **_to(_S.TERM, _C.CANCEL, _S.INIT, *_STARTED, outcome=RunOutcome.CANCELED),
    **_to(_S.INIT, _C.RESTARTED, _S.INIT, _S.HANDSHAKE, _S.READY),
    **_to(_S.FAULT, _C.RESTARTED, _S.EXECUTING, _S.PAUSED, outcome=RunOutcome.FAILED),
    **_stays(_C.RESTARTED_EXTERNAL, (_S.INIT, *_WITH_WORKER)),
    **_to(_S.TERM, _C.CLEANED, _S.FAULT),
    # What comes late because an earlier cause has decided already.
    **_stays(_C.CANCEL, _ENDED),
    **_stays(_C.FINISHED, _ENDED),
    **_stays(_C.LIMIT, _ENDED),
    **_stays(_C.FAILED, _ENDED),
    **_stays(_C.START_FAILED, _ENDED),
    **_stays(_C.NO_HEARTBEAT, _ENDED),
    **_stays(_C.NOT_REGISTERED, (*_WITH_WORKER, *_ENDED)),
    **_stays(_C.CLEANED, (_S.TERM,)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run at one moment; never changed, only replaced.

    Attributes:
        run_id: its name.
        digest: SHA-256 of its configuration's canonical form, in hexadecimal digits.
        external: nobody starts a worker for it.
        created_ns: when it was submitted, in nanoseconds since the epoch.
        updated_ns: when its state changed last.
        heartbeat_ns: when one of its workers was heard last; 0: never.
        state: where it is.
        outcome: how it ends; None: that is not decided.
        failure_reason: why it failed or was cancelled, in short.
        detail: what else is known about that, for example the last lines of standard error.
        gpu_slots: the GPUs that it has, or had.
        published: whether a step or an episode was ever accepted.
        checkpoints: the latest versions of models that it has saved, as `model@version`, in order.
        max_rate_hz: how many steps, or starts of trials, a second controllers allow; 0: any number.
        run_name: what its configuration calls it, for people.
        owner: the account that has submitted it; empty: that is not known.
        sources: the token, or certificate, of who has submitted it; that of its worker is derived from it.
    """

    run_id: str
    digest: str
    external: bool
    created_ns: int
    updated_ns: int
    heartbeat_ns: int = 0
    state: RunState = RunState.INIT
    outcome: RunOutcome | None = None
    failure_reason: str = ""
    detail: str = ""
    gpu_slots: tuple[int, ...] = ()
    published: bool = False
    checkpoints: tuple[str, ...] = ()
    max_rate_hz: int = 0
    run_name: str = ""
    owner: str = ""
    sources: Sources = ()

    @property
    def ended(self) -> bool:
        """Whether it is in its last state."""
        return self.state is RunState.TERM

    @property
    def registration(self) -> Cause:
        """The cause that the registration of a worker is."""
        return Cause.ATTACHED if self.external else Cause.REGISTERED

    @property
    def resumption(self) -> Cause:
        """The cause that a resume is."""
        return Cause.RESUME if self.published else Cause.RESUME_UNPUBLISHED

    @property
    def restart(self) -> Cause:
        """The cause that a new start of the server is."""
        return Cause.RESTARTED_EXTERNAL if self.external else Cause.RESTARTED


def with_checkpoint(run: Run, checkpoint: str) -> Run:
    """Return a run that has saved a version of a model; the same object if that is known.

    Args:
        run: as it is.
        checkpoint: the version, as `model@version`.

    Raises:
        FailedPreconditionError: it has ended.
    """
    if run.ended:
        raise FailedPreconditionError(f"run {run.run_id!r} has ended, and saves no checkpoint any more{ending(run)}")
    if checkpoint in run.checkpoints:
        return run
    return replace(run, checkpoints=(*run.checkpoints, checkpoint)[-KEPT_CHECKPOINTS:])


def follow(run: Run, cause: Cause, now_ns: int, reason: str = "", detail: str = "") -> Run:
    """Return a run after a cause; the same object if the cause changes nothing.

    Args:
        run: as it is.
        cause: what has happened.
        now_ns: when, in nanoseconds since the epoch.
        reason: becomes `Run.failure_reason`, if this decides the outcome.
        detail: becomes `Run.detail`, likewise.

    Raises:
        FailedPreconditionError: the state does not allow it.
    """
    change = TABLE.get((run.state, cause))
    if change is None:
        raise FailedPreconditionError(
            f"run {run.run_id!r}: no {cause.value} is possible in the state {run.state.name}{ending(run)}"
        )
    published = run.published or cause is Cause.TELEMETRY
    if change.state is run.state and published == run.published:
        return run
    decides = run.outcome is None and change.outcome is not None
    return replace(
        run,
        state=change.state,
        updated_ns=now_ns,
        published=published,
        outcome=change.outcome if decides else run.outcome,
        failure_reason=reason if decides else run.failure_reason,
        detail=detail if decides else run.detail,
    )


def ending(run: Run) -> str:
    """Return how a run has ended, in brackets behind a blank, for the text of an error; empty: it has not."""
    if run.outcome is None:
        return ""
    return f" ({run.outcome.value}{': ' if run.failure_reason else ''}{run.failure_reason})"
