"""Outcomes of trials: their end and the participants they lost, in the same words in every place that tells of it.

The trial's state machine decides it, once. It travels in the messages `EndOfTrial` and `ParticipantLoss` of the API.
`docs/ends.md` says what each cause means.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from trio_cogment.api import common_pb2
from trio_cogment.api.common_pb2 import EndOfTrial, ParticipantLoss
from trio_cogment.base.records import record

#: A reason is shortened to this many characters: it is in every description of its trial.
MAX_REASON = 1000


class EndCause(enum.IntEnum):
    """Why a trial ended, or why it lost a participant. The numbers are those of the API."""

    #: The trial has not ended, or whoever ran it does not say.
    UNKNOWN = 0
    #: The environment ended it: the episode is over.
    ENVIRONMENT = 1
    #: `max_steps` were made.
    STEP_LIMIT = 2
    #: Somebody asked for an orderly end.
    SOFT_TERMINATION = 3
    #: Somebody asked for the end at once.
    HARD_TERMINATION = 4
    #: A participant raised an exception.
    PARTICIPANT_FAILED = 5
    #: A participant returned before the end.
    PARTICIPANT_LEFT = 6
    #: The connection to a participant was lost: its process was killed, or the network failed.
    PARTICIPANT_LOST = 7
    #: A participant broke the protocol, or did not read what it was sent.
    PARTICIPANT_REFUSED = 8
    #: A participant did not come in time, or could not be reached.
    PARTICIPANT_MISSING = 9
    #: A required actor did not act in time.
    ACTION_MISSING = 10
    #: A participant did not acknowledge the end in time.
    ACKNOWLEDGEMENT_MISSING = 11
    #: Nothing happened for `max_inactivity` seconds.
    INACTIVITY = 12
    #: The end was asked for, but the final observations did not come in time.
    PATIENCE = 13
    #: A hook, the directory or the data log failed before the trial began.
    NOT_STARTED = 14
    #: The orchestrator stopped.
    SERVER_STOPPED = 15
    #: The orchestrator failed to run the trial; its log has the details.
    INTERNAL = 16

    @property
    def label(self) -> str:
        """The name as texts and files have it: `step_limit`."""
        return self.name.lower()

    @property
    def is_failure(self) -> bool:
        """Whether a trial that ended for this cause has failed."""
        return self >= EndCause.PARTICIPANT_FAILED

    @property
    def is_truncation(self) -> bool:
        """Whether the episode was cut off in good order, where the environment would have gone on."""
        return self in (EndCause.STEP_LIMIT, EndCause.SOFT_TERMINATION)

    @classmethod
    def of(cls, number: int) -> EndCause:
        """Return the cause with a number of the API; UNKNOWN for one that a later version may have added."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


def counted(number: int, noun: str) -> str:
    """Return a number of things as people read it: `1 sample`, `5 samples`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ticks_text(ticks: int) -> str:
    """Return a number of ticks as people read it: `1 tick`, `5 ticks`."""
    return counted(ticks, "tick")


def lost_text(samples: int) -> str:
    """Return how many samples of a trial were lost as people read it: `1 sample did not reach the data log`."""
    return f"{counted(samples, 'sample')} did not reach the data log"


@record()
class Loss:
    """A participant that the trial went on without, or ended because of.

    Attributes:
        participant: its name.
        cause: why it was lost.
        reason: the same in words, for people.
        required: the trial could not go on without it.
        tick_id: the tick that was under way.
        traceback: the last lines of the traceback, if it raised; empty if that is not known here.
    """

    participant: str
    cause: EndCause
    reason: str
    required: bool
    tick_id: int = 0
    traceback: str = ""

    def message(self, *, tracebacks: bool) -> ParticipantLoss:
        """Return it as a message of the API, with the traceback or without."""
        return ParticipantLoss(
            participant=self.participant,
            cause=common_pb2.EndCause.Name(self.cause),
            reason=self.reason[:MAX_REASON],
            required=self.required,
            tick_id=self.tick_id,
            traceback=self.traceback if tracebacks else "",
        )

    @classmethod
    def of(cls, message: ParticipantLoss) -> Loss:
        """Return the loss that a message of the API tells of."""
        cause = EndCause.of(message.cause)
        return cls(message.participant, cause, message.reason, message.required, message.tick_id, message.traceback)


@record()
class TrialOutcome:
    """How a trial ended.

    Attributes:
        trial_id: the trial's id.
        cause: why it ended.
        participant: who ended it, or because of whom it ended: the name of an actor or of the environment; empty if
            that is nobody in particular.
        reason: the same in words, for people; for an orderly end empty.
        ticks: how many observation sets there were, the final one included.
        losses: the participants that were lost on the way, in that order.
        samples_pending: the data log has not taken all samples yet.
        samples_lost: the number of samples that did not reach the data log.
    """

    trial_id: str
    cause: EndCause
    participant: str = ""
    reason: str = ""
    ticks: int = 0
    losses: Sequence[Loss] = ()
    samples_pending: bool = False
    samples_lost: int = 0

    @property
    def culprit(self) -> Loss | None:
        """The loss because of which the trial has failed; None if it has not, or for another reason."""
        for loss in self.losses:
            if loss.required and loss.participant == self.participant and loss.cause == self.cause:
                return loss
        if self.cause.is_failure:
            return None
        failed = (loss for loss in self.losses if loss.required and loss.cause is EndCause.PARTICIPANT_FAILED)
        return next(failed, None)

    @property
    def failed_participant(self) -> str:
        """The name of the participant because of which the trial has failed; empty if there is none."""
        if self.cause.is_failure:
            return self.participant
        culprit = self.culprit
        return "" if culprit is None else culprit.participant

    @property
    def traceback(self) -> str:
        """The last lines of that participant's traceback, if it raised; empty if that is not known here."""
        culprit = self.culprit
        return "" if culprit is None else culprit.traceback

    @property
    def failed(self) -> bool:
        """Whether the trial failed: it was broken off, or a participant that it needed raised, if only at the end."""
        return self.cause.is_failure or self.culprit is not None

    @property
    def stored(self) -> bool:
        """Whether every sample is in the data log; True also for a trial without one."""
        return not self.samples_pending and not self.samples_lost

    def __str__(self) -> str:
        name = f"'{self.participant}'"
        texts = {
            EndCause.UNKNOWN: "it ended",
            EndCause.ENVIRONMENT: f"the environment {name} ended it",
            EndCause.STEP_LIMIT: "the maximum number of steps was reached",
            EndCause.SOFT_TERMINATION: "its orderly end was asked for",
            EndCause.HARD_TERMINATION: "it was terminated",
        }
        text = self.reason or texts.get(self.cause, self.cause.label)
        culprit = self.culprit
        if culprit is not None and not self.cause.is_failure:
            text += f"; {culprit.reason}"
        if self.samples_lost:
            text += f"; {lost_text(self.samples_lost)}"
        elif self.samples_pending:
            text += "; the data log has not taken all samples"
        return f"trial {self.trial_id} ended after {ticks_text(self.ticks)} ({self.cause.label}): {text}"

    def message(self, *, tracebacks: bool = False) -> EndOfTrial:
        """Return it as a message of the API.

        Args:
            tracebacks: with those of the losses; they are for the process of the participants only.
        """
        return EndOfTrial(
            cause=common_pb2.EndCause.Name(self.cause),
            participant=self.participant,
            reason=self.reason[:MAX_REASON],
            ticks=self.ticks,
            losses=[loss.message(tracebacks=tracebacks) for loss in self.losses],
            samples_pending=self.samples_pending,
            samples_lost=self.samples_lost,
        )

    @classmethod
    def of(cls, trial_id: str, message: EndOfTrial) -> TrialOutcome:
        """Return the outcome that a message of the API tells of."""
        return cls(
            trial_id,
            EndCause.of(message.cause),
            message.participant,
            message.reason,
            message.ticks,
            tuple(Loss.of(loss) for loss in message.losses),
            message.samples_pending,
            message.samples_lost,
        )
