"""The mailbox of a seat as a table: a trial that pushes on one side, a client that pulls on the other.

Rule 1: every change of a mailbox's state is in this file, and a state depends on nothing but the inputs. This file
knows no trial, no client, no time and no Trio. It never waits, and what it is given it never refuses for lack of a
reader: the trial is not to be held up by somebody who is thinking, or gone.

Rule 2: an action counts once, and only for the newest observation. `act` says what becomes of it before anything is
sent, and the state has changed by then: in process the action may bring the next observation before the sending of it
returns.

Rule 3: nothing is lost with an answer. What a client was told stays until it has acted upon it. A client whose answer
was lost asks again and is told the same; what has come since comes on top.

Theory of operation: six inputs. OBSERVATION, FINAL and END come from the trial, and the trial's side does not care what
state the mailbox is in. ACT, TAKE and LEAVE come from the client, in any order and as late as it likes. The newest
observation replaces the one before: an environment may go on without an action, and what is past cannot be acted upon.
Rewards and messages add up instead, because each of them counts.

The normal way is WAITING, then TURN and ACTED in turns, FINAL_TURN, OVER, CLOSED. The final observation is a turn like
others for the client, which answers it with an action that nobody wants any more: `act` says DROP. A trial may also end
without a final observation (END in TURN). The client is thinking at that moment, so it is not interrupted: it sees the
observation, acts (DROP), and then is told of the end. That is ENDED_TURN. In OVER there is nothing to see but the end;
once it was told (CLOSED) there is nothing to do here any more, and an action is an error of the client's.

A client may be told of the final observation and of the end as one: it is free not to `take` in FINAL_TURN. The
attributes `observation`, `rewards` and `messages` stay what they are after the end, for that one last answer.

Where the table falls short:

- whether the client has been told of the news, and how many of the rewards and messages, is a memory (`unread`, and two
  numbers). As states it would double TURN, FINAL_TURN and ENDED_TURN, with no difference in what may be done;
- an action for another tick than that of the newest observation (LATE) is found after the table has been asked, and
  changes nothing. The table knows no ticks;
- `take_back` undoes an ACT whose action could not be sent. It is not an input: it can only follow a SEND, in the same
  moment.

Nothing is absent from the table. What the trial's side says after the end, or to a client that has left, is dropped:
events may be on their way when somebody leaves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final

from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.sdk import Event, EventType, RecvMessage, RecvObservation, RecvReward

#: What a reward or a message counts, without what it brings.
ITEM_BYTES = 64
#: The bound of what waits for a client to act, where nobody says.
MAX_BYTES = 1 << 20


class MailboxState(enum.IntEnum):
    """Where a client is in its trial."""

    #: No observation has come.
    WAITING = enum.auto()
    #: An observation is here, and the trial takes an action for it.
    TURN = enum.auto()
    #: The client has acted, and what follows has not come.
    ACTED = enum.auto()
    #: The final observation is here: the trial takes no action any more. Its end has not come.
    FINAL_TURN = enum.auto()
    #: The trial has ended, and there is an observation that the client has not answered.
    ENDED_TURN = enum.auto()
    #: The trial has ended, and that is all that there is to tell.
    OVER = enum.auto()
    #: The trial has ended, and the client was told.
    CLOSED = enum.auto()
    #: The client has left the trial.
    LEFT = enum.auto()


class MailboxInput(enum.IntEnum):
    """What can happen to a mailbox."""

    #: The trial: an observation, which is not the last one.
    OBSERVATION = enum.auto()
    #: The trial: the last observation.
    FINAL = enum.auto()
    #: The trial is over for this actor, for whatever reason.
    END = enum.auto()
    #: The client acts.
    ACT = enum.auto()
    #: The client is told what there is.
    TAKE = enum.auto()
    #: The client leaves the trial.
    LEAVE = enum.auto()


class Answer(enum.IntEnum):
    """What follows from an input. NOTHING is false, everything else is true."""

    #: Nothing is to be done. Of TAKE: there is no news.
    NOTHING = 0
    #: Of an input from the trial, and of LEAVE: whoever waits for news has some.
    TELL = enum.auto()
    #: Of TAKE: an observation.
    OBSERVATION = enum.auto()
    #: Of TAKE: the end.
    END = enum.auto()
    #: Of ACT: the action goes to the trial.
    SEND = enum.auto()
    #: Of ACT: it is right, and nobody wants it any more: the trial is ending, or has ended.
    DROP = enum.auto()
    #: Of ACT, by `Mailbox.act` only: it is for another tick. Nothing has changed.
    LATE = enum.auto()
    #: Of ACT: no observation has come.
    EARLY = enum.auto()
    #: Of ACT: the client has acted, and what follows has not come.
    ACTED = enum.auto()
    #: Of ACT and LEAVE: the trial is over, and the client was told so; or the client has left.
    GONE = enum.auto()


#: Answers to an action that is refused: nothing has changed.
REFUSED: Final = frozenset([Answer.LATE, Answer.EARLY, Answer.ACTED, Answer.GONE])
#: States in which there is an observation that the client has not answered.
TURNS: Final = frozenset([MailboxState.TURN, MailboxState.FINAL_TURN, MailboxState.ENDED_TURN])
#: States after the end of the trial for this actor, or after it has left.
ENDED: Final = frozenset([MailboxState.ENDED_TURN, MailboxState.OVER, MailboxState.CLOSED, MailboxState.LEFT])

_S, _I, _A = MailboxState, MailboxInput, Answer

TABLE: Final[dict[tuple[MailboxState, MailboxInput], tuple[MailboxState, Answer]]] = {
    (_S.WAITING, _I.OBSERVATION): (_S.TURN, _A.TELL),
    # A trial whose first observation is its last.
    (_S.WAITING, _I.FINAL): (_S.FINAL_TURN, _A.TELL),
    (_S.WAITING, _I.END): (_S.OVER, _A.TELL),
    (_S.WAITING, _I.ACT): (_S.WAITING, _A.EARLY),
    (_S.WAITING, _I.TAKE): (_S.WAITING, _A.NOTHING),
    (_S.WAITING, _I.LEAVE): (_S.LEFT, _A.TELL),
    # The environment has gone on without this actor.
    (_S.TURN, _I.OBSERVATION): (_S.TURN, _A.TELL),
    (_S.TURN, _I.FINAL): (_S.FINAL_TURN, _A.TELL),
    (_S.TURN, _I.END): (_S.ENDED_TURN, _A.TELL),
    (_S.TURN, _I.ACT): (_S.ACTED, _A.SEND),
    # Whoever has lost the answer asks again.
    (_S.TURN, _I.TAKE): (_S.TURN, _A.OBSERVATION),
    (_S.TURN, _I.LEAVE): (_S.LEFT, _A.TELL),
    (_S.ACTED, _I.OBSERVATION): (_S.TURN, _A.TELL),
    (_S.ACTED, _I.FINAL): (_S.FINAL_TURN, _A.TELL),
    (_S.ACTED, _I.END): (_S.OVER, _A.TELL),
    (_S.ACTED, _I.ACT): (_S.ACTED, _A.ACTED),
    (_S.ACTED, _I.TAKE): (_S.ACTED, _A.NOTHING),
    (_S.ACTED, _I.LEAVE): (_S.LEFT, _A.TELL),
    # Nothing follows the final observation but the end; a foreign orchestrator may send another one.
    (_S.FINAL_TURN, _I.OBSERVATION): (_S.FINAL_TURN, _A.TELL),
    (_S.FINAL_TURN, _I.FINAL): (_S.FINAL_TURN, _A.TELL),
    (_S.FINAL_TURN, _I.END): (_S.ENDED_TURN, _A.TELL),
    (_S.FINAL_TURN, _I.ACT): (_S.ACTED, _A.DROP),
    (_S.FINAL_TURN, _I.TAKE): (_S.FINAL_TURN, _A.OBSERVATION),
    (_S.FINAL_TURN, _I.LEAVE): (_S.LEFT, _A.TELL),
    (_S.ENDED_TURN, _I.OBSERVATION): (_S.ENDED_TURN, _A.NOTHING),
    (_S.ENDED_TURN, _I.FINAL): (_S.ENDED_TURN, _A.NOTHING),
    (_S.ENDED_TURN, _I.END): (_S.ENDED_TURN, _A.NOTHING),
    (_S.ENDED_TURN, _I.ACT): (_S.OVER, _A.DROP),
    (_S.ENDED_TURN, _I.TAKE): (_S.ENDED_TURN, _A.OBSERVATION),
    (_S.ENDED_TURN, _I.LEAVE): (_S.LEFT, _A.TELL),
    (_S.OVER, _I.OBSERVATION): (_S.OVER, _A.NOTHING),
    (_S.OVER, _I.FINAL): (_S.OVER, _A.NOTHING),
    (_S.OVER, _I.END): (_S.OVER, _A.NOTHING),
    # Two requests may act for the same observation: to both it is the last one.
    (_S.OVER, _I.ACT): (_S.OVER, _A.DROP),
    (_S.OVER, _I.TAKE): (_S.CLOSED, _A.END),
    (_S.OVER, _I.LEAVE): (_S.LEFT, _A.TELL),
    (_S.CLOSED, _I.OBSERVATION): (_S.CLOSED, _A.NOTHING),
    (_S.CLOSED, _I.FINAL): (_S.CLOSED, _A.NOTHING),
    (_S.CLOSED, _I.END): (_S.CLOSED, _A.NOTHING),
    (_S.CLOSED, _I.ACT): (_S.CLOSED, _A.GONE),
    # Two requests may wait for the end: the second is told it here.
    (_S.CLOSED, _I.TAKE): (_S.CLOSED, _A.END),
    (_S.CLOSED, _I.LEAVE): (_S.CLOSED, _A.GONE),
    (_S.LEFT, _I.OBSERVATION): (_S.LEFT, _A.NOTHING),
    (_S.LEFT, _I.FINAL): (_S.LEFT, _A.NOTHING),
    (_S.LEFT, _I.END): (_S.LEFT, _A.NOTHING),
    (_S.LEFT, _I.ACT): (_S.LEFT, _A.GONE),
    # For whoever waits still.
    (_S.LEFT, _I.TAKE): (_S.LEFT, _A.END),
    (_S.LEFT, _I.LEAVE): (_S.LEFT, _A.GONE),
}


#: What follows each input of a step, by state: those of the table, without a pair made to look one up. The members of
#: an enumeration are named here because looking them up there takes longer than the rest of a method.
_ON_OBSERVATION, _ON_FINAL, _ON_ACT, _ON_TAKE = (
    {state: TABLE[state, given] for state in MailboxState} for given in (_I.OBSERVATION, _I.FINAL, _I.ACT, _I.TAKE)
)
_ENDING, _SEND, _DROP, _OVER = EventType.ENDING, Answer.SEND, Answer.DROP, MailboxState.OVER


class Mailbox:
    """The newest observation for a client, with the rewards and messages since it has acted last; see the module.

    All methods are plain calls that never wait, and are called from one thread. None of them makes an object for a
    step: what there is to tell is in the attributes, and is read right after `take`, before anything else can happen.

    Args:
        on_news: called, without arguments, when there is something new to take: an observation, the end, or that the
            client has left. It is called in whatever task had the event, and must be quick. It may call every method of
            the mailbox, so it can take the news and even act upon them at once. What it raises ends the actor's part.
        aside: called with every reward and message; True: that is all, the mailbox does not keep it. None: the mailbox
            keeps all of them. Whoever forwards them at once, adds them up, or bounds them by number uses this.
        max_bytes: rewards and messages that wait for the client to act may be so large together.

    Attributes:
        state: where the client is.
        observation: the newest one, with its tick, timestamp and payload; None before the first. It stays after the
            client has acted, and after the end, until `forget`.
        final: `observation` is the trial's last one.
        unread: there is news that has not been taken.
        rewards, messages: those that came since the client has acted, in their order. Of those that came while it was
            thinking, the ones that it was not told before it acted stay.
    """

    __slots__ = (
        *("_acted_upon", "_aside", "_max_bytes", "_on_news", "_size", "_told_messages", "_told_rewards"),
        *("final", "messages", "observation", "rewards", "state", "unread"),
    )

    def __init__(
        self,
        on_news: Callable[[], None],
        *,
        aside: Callable[[Event[Any, None]], bool] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.state = MailboxState.WAITING
        self.observation: RecvObservation[Any] | None = None
        self.final = False
        self.unread = False
        self.rewards: list[RecvReward] = []
        self.messages: list[RecvMessage] = []
        self._on_news = on_news
        self._aside = aside
        self._max_bytes = max_bytes
        self._size = 0
        self._told_rewards = self._told_messages = 0
        self._acted_upon: tuple[list[RecvReward], list[RecvMessage]] | None = None

    @property
    def tick_id(self) -> int:
        """The tick of the newest observation; -1 before the first."""
        return -1 if self.observation is None else self.observation.tick_id

    @property
    def is_turn(self) -> bool:
        """Whether there is an observation that the client has not answered; the trial may have ended since."""
        return self.state in TURNS

    @property
    def has_ended(self) -> bool:
        """Whether the trial is over for this actor, told or not, or the actor has left it."""
        return self.state in ENDED

    # The trial's side

    def put(self, event: Event[Any, None]) -> None:
        """Take an event of the trial. It never waits, and a client that has gone makes no difference.

        Raises:
            ResourceExhaustedError: more rewards and messages wait for the client than may.
        """
        observation = event.observation
        if observation is not None:
            final = event.type is _ENDING
            self.state, answer = (_ON_FINAL if final else _ON_OBSERVATION)[self.state]
            if answer:
                # Before `on_news`, which may act upon it.
                self.observation, self.final, self.unread = observation, final, True
                self._on_news()
        elif event.reward is not None:
            if self._aside is None or not self._aside(event):
                self.rewards.append(event.reward)
                self._grow(_size_of_reward(event.reward))
        elif event.message is not None and (self._aside is None or not self._aside(event)):
            self.messages.append(event.message)
            self._grow(_size_of_message(event.message))

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._max_bytes:
            raise ResourceExhaustedError(
                f"more than {self._max_bytes} bytes of rewards and messages wait for an actor to fetch them"
            )

    def end(self) -> None:
        """Note that the trial is over for this actor, in whatever way. A second time it makes no difference."""
        self._enter(_I.END)

    def forget(self) -> None:
        """Keep nothing of what came, after the end: the client reads nothing any more."""
        self.observation = self._acted_upon = None
        self.rewards, self.messages = [], []
        self._size = self._told_rewards = self._told_messages = 0

    # The client's side

    def act(self, tick_id: int | None = None) -> Answer:
        """Note that the client acts; the caller sends the action after SEND, and only then.

        Args:
            tick_id: of the observation that the action answers; None: of the newest.

        Returns:
            SEND, DROP, or one of `REFUSED`. The first two end the turn: what the client was told of rewards and
            messages is forgotten. The others change nothing.
        """
        state, answer = _ON_ACT[self.state]
        if answer is not _SEND and answer is not _DROP:
            return answer
        if tick_id is not None and tick_id != self.tick_id:
            return _A.LATE
        self.state = state
        self.unread = state is _OVER
        if self._told_rewards or self._told_messages:
            self._forget_told()
        else:
            self._acted_upon = None
        return answer

    def _forget_told(self) -> None:
        rewards, messages = self._told_rewards, self._told_messages
        self._acted_upon = self.rewards[:rewards], self.messages[:messages]
        del self.rewards[:rewards], self.messages[:messages]
        self._told_rewards = self._told_messages = 0
        self._size = sum(map(_size_of_reward, self.rewards)) + sum(map(_size_of_message, self.messages))

    def take_back(self) -> None:
        """Undo the last `act`, which was SEND, because its action could not be sent: it is the client's turn again.

        If anything has come since, that counts, and nothing is undone.
        """
        if self.state is not _S.ACTED:
            return
        self.state = _S.TURN
        if self._acted_upon is not None:
            rewards, messages = self._acted_upon
            self.rewards[:0], self.messages[:0] = rewards, messages
            self._told_rewards, self._told_messages = len(rewards), len(messages)
            self._size += sum(map(_size_of_reward, rewards)) + sum(map(_size_of_message, messages))
            self._acted_upon = None

    def take(self) -> Answer:
        """Note that the client is told what there is: the attributes as they are now.

        Returns:
            OBSERVATION, END, or NOTHING (which is false) if there is neither. OBSERVATION comes again and again until
            the client has acted, END from then on.
        """
        self.state, answer = _ON_TAKE[self.state]
        if answer:
            self.unread = False
            self._told_rewards, self._told_messages = len(self.rewards), len(self.messages)
        return answer

    def leave(self) -> Answer:
        """Note that the client leaves; the caller has the actor leave the trial after TELL.

        Returns:
            TELL; GONE if there is nothing to leave any more.
        """
        return self._enter(_I.LEAVE)

    def _enter(self, happened: MailboxInput) -> Answer:
        self.state, answer = TABLE[self.state, happened]
        if answer is _A.TELL:
            self.unread = True
            self._on_news()
        return answer


def _size_of_reward(reward: RecvReward) -> int:
    return ITEM_BYTES + sum(source.ByteSize() for source in reward.sources)


def _size_of_message(message: RecvMessage) -> int:
    return ITEM_BYTES + message.payload.ByteSize()
