"""The account of a trial, said plainly: one method for each thing that can happen.

Each method returns nothing; what is to be seen because of it is in `seen`, in order: participants in the order of the
parameters, with the environment first where all are told the same.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.account.people import (
    ENVIRONMENT,
    REACHABLE,
    TO_COME,
    Person,
    Where,
    receivers_of,
    weighted_mean,
    word_of,
)
from tests.account.ticks import Book
from trio_cogment.api import common_pb2
from trio_cogment.api.common_pb2 import (
    ActorRunTrialInput,
    CheckpointInterval,
    CommunicationState,
    EndOfTrial,
    Message,
    ParticipantLoss,
    Reward,
    TakenUp,
    TrialActor,
    TrialParams,
    TrialState,
)
from trio_cogment.api.environment_pb2 import EnvRunTrialInput

NORMAL, HEARTBEAT, LAST, END = (
    CommunicationState.NORMAL,
    CommunicationState.HEARTBEAT,
    CommunicationState.LAST,
    CommunicationState.END,
)

#: What participants write for the tick that there is, or that is next.
NOW = -1
#: How much of a reason is told.
MOST_OF_A_REASON = 1000
#: Rounding, of deadlines that are sums.
SLACK_SECONDS = 1e-6

(
    BY_ENVIRONMENT, STEP_LIMIT, SOFT, FAILED, LEFT, LOST, REFUSED, MISSING, NO_ACTION, NO_ACK, INACTIVE, IMPATIENT,
) = (
    common_pb2.EndCause.Value(f"END_CAUSE_{name}")
    for name in (
        "ENVIRONMENT", "STEP_LIMIT", "SOFT_TERMINATION", "PARTICIPANT_FAILED", "PARTICIPANT_LEFT", "PARTICIPANT_LOST",
        "PARTICIPANT_REFUSED", "PARTICIPANT_MISSING", "ACTION_MISSING", "ACKNOWLEDGEMENT_MISSING", "INACTIVITY",
        "PATIENCE",
    )
)  # fmt: skip


class Stage(enum.IntEnum):
    """How far a trial has come."""

    MADE = 0
    #: Hooks are asked, and endpoints looked up.
    STARTING = 1
    #: Participants come.
    GATHERING = 2
    RUNNING = 3
    #: The last actions are out: the environment owes its final observations.
    LAST_SET_OWED = 4
    #: The final observations are out: acknowledgements are owed.
    ACKS_OWED = 5
    OVER = 6


#: As the world sees them.
STATES = {
    Stage.MADE: TrialState.UNKNOWN,
    Stage.STARTING: TrialState.INITIALIZING,
    Stage.GATHERING: TrialState.PENDING,
    Stage.RUNNING: TrialState.RUNNING,
    Stage.LAST_SET_OWED: TrialState.TERMINATING,
    Stage.ACKS_OWED: TrialState.TERMINATING,
    Stage.OVER: TrialState.ENDED,
}


@dataclass(frozen=True)
class Patience:
    """How patient a trial is; see `docs/configuration.md`. 0 seconds is indefinitely."""

    soft_end_patience_seconds: float
    environment_init_timeout_seconds: float
    environment_ack_timeout_seconds: float
    actor_ack_timeout_seconds: float
    heartbeat_seconds: float
    max_held_messages: int
    max_held_bytes: int
    max_said_per_tick: int
    max_said_bytes_per_tick: int
    max_held_back_bytes: int
    checkpoint_ticks: int
    checkpoint_seconds: float


class ImpossibleError(Exception):
    """Nobody may ask this of a trial now; nothing has changed."""


class Account:
    """The account of one trial.

    Attributes:
        seen: what there is to be seen of what happened last: `(what, who, detail)`.
        wrong: what is wrong with the input itself: a deadline that passed, or came too early.
        outcome: how it ended.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.stage = Stage.MADE
        self.now = 0.0
        self.wall_ns = 0
        self.seen: list[tuple[str, int, Any]] = []
        self.wrong: list[str] = []
        self.params = TrialParams()
        self.environment = Person(ENVIRONMENT, "")
        self.actors: list[Person] = []
        self.book: Book | None = None
        self._logged = False
        #: When the time for something is over: what, and whose.
        self.deadlines: dict[tuple[str, int], float] = {}
        self._active_at = 0.0
        #: The stored trial with which it goes on; its first tick; and how many before are those of another trial.
        self.taken_up: TakenUp | None = None
        self.first = self.before = 0
        #: Observation sets so far, those before the first tick included.
        self.sets = 0
        #: Of this tick: who has acted, whose time is over, and whether its action set is out, or not wanted.
        self._contents: dict[int, bytes] = {}
        self._waiting_for: set[int] = set()
        self._answered = True
        #: At a rate: when the first tick began, how many ticks later the one under way ends, and what went wrong.
        self._began_at: float | None = None
        self._ends = 1
        self.missed = self.late = self.absent = 0
        self._bytes_said: Counter[int] = Counter()
        self._end_asked = False
        self._last_announced = False
        self._owing: set[int] = set()
        self._how = 0
        self._ack_loss: tuple[int, str, str] | None = None
        self.losses: list[ParticipantLoss] = []
        self.outcome: EndOfTrial | None = None

    # Helpers

    @property
    def tick(self) -> int:
        """The tick under way; the first one also before it begins."""
        return max(self.first, self.sets - 1)

    @property
    def state(self) -> int:
        """The public state."""
        return STATES[self.stage]

    @property
    def waiting_for(self) -> frozenset[int]:
        """Whose actions the tick still waits for."""
        return frozenset(self._waiting_for)

    @property
    def everybody(self) -> list[Person]:
        """The environment and the actors; nobody before the parameters are there."""
        return [self.environment, *self.actors] if self.stage >= Stage.GATHERING and self.actors else []

    @property
    def _hz(self) -> float:
        return self.params.environment.tick_hz

    def _shown_for(self, actor: Person, tick: int) -> int:
        """Return the tick of the observation that an actor has in a tick."""
        while tick > self.first and tick % max(1, actor.params.observe_every):
            tick -= 1
        return tick

    def _ends_at(self) -> float:
        assert self._began_at is not None
        return self._began_at + self._ends / self._hz

    def at(self, now: float, wall_ns: int) -> None:
        """Something happens now."""
        self.now, self.wall_ns = now, wall_ns
        self.seen, self.wrong = [], []
        for (what, who), deadline in self.deadlines.items():
            if deadline < now - SLACK_SECONDS:
                self.wrong.append(f"the time for {what} of {who} was over at {deadline:.6f}, and nobody was told")

    def _see(self, what: str, who: int, detail: Any = None) -> None:
        self.seen.append((what, who, detail))

    def _tell(self, person: Person, **fields: Any) -> None:
        self._see("message", person.number, _envelope(person, **fields))

    def _announce(self, state: int) -> None:
        self._see("state", 0, state)

    def _limit(self, what: str, who: int, seconds: float) -> None:
        if seconds > 0:
            self.deadlines[what, who] = self.now + seconds

    def _note(self, event: str) -> None:
        if self.book is not None:
            self.book.current.events.append(event)

    def _log(self, samples: list[Any]) -> None:
        if self._logged:
            for sample in samples:
                self._see("sample", 0, sample)

    def person(self, who: int) -> Person:
        """Return a participant; ImpossibleError if there is none."""
        for person in self.everybody:
            if person.number == who:
                return person
        raise ImpossibleError(f"nobody is {who}")

    # The beginning

    def begun(self) -> None:
        """The trial exists."""
        if self.stage is not Stage.MADE:
            raise ImpossibleError
        self.stage = Stage.STARTING
        self._announce(TrialState.INITIALIZING)

    def complete(self, params: TrialParams, taken_up: TakenUp | None, *, trial_id: str, logged: bool) -> None:
        """Its parameters are complete: all actors elsewhere are contacted at once, and clients may come."""
        if self.stage is Stage.OVER:
            return
        if self.stage is not Stage.STARTING:
            raise ImpossibleError
        self.stage = Stage.GATHERING
        self._announce(TrialState.PENDING)
        self.params.CopyFrom(params)
        self._logged = logged
        self.environment = Person(ENVIRONMENT, params.environment.name)
        self.actors = [Person(number, actor.name, actor) for number, actor in enumerate(self.params.actors)]
        if taken_up is not None:
            self.taken_up = TakenUp()
            self.taken_up.CopyFrom(taken_up)
            self.first = self.sets = taken_up.tick_id
            self.before = 0 if taken_up.trial_id == trial_id else self.first
        self.book = Book(self.params, self.wall_ns, self._patience.max_held_back_bytes, self.first)
        self._active_at = self.now
        self._limit("INACTIVITY", -2, params.max_inactivity)
        for actor in self.actors:
            if not actor.is_client:
                self._contact(actor)
            self._limit("INIT", actor.number, actor.params.initial_connection_timeout)

    def _contact(self, person: Person) -> None:
        person.where = Where.ASKED
        self._see("contact", person.number)
        self._introduce(person)

    def _introduce(self, person: Person) -> None:
        if person.is_environment:
            params: Any = self.params.environment
            data: dict[str, Any] = {"name": params.name, "impl_name": params.implementation, "tick_id": self.first}
            data["actors_in_trial"] = [
                TrialActor(name=actor.name, actor_class=actor.params.actor_class) for actor in self.actors
            ]
            if self.taken_up is not None:
                data["taken_up"] = self.taken_up
            if self._hz:
                data["tick_hz"] = self._hz
            if self._patience.checkpoint_ticks or self._patience.checkpoint_seconds:
                data["checkpoints"] = CheckpointInterval(
                    ticks=self._patience.checkpoint_ticks, seconds=self._patience.checkpoint_seconds
                )
        else:
            params = person.params
            data = {
                "actor_name": params.name,
                "actor_class": params.actor_class,
                "impl_name": params.implementation,
                "env_name": self.environment.name,
            }
            if self._hz:
                data["tick_hz"] = self._hz
            if params.observe_every > 1:
                data["observe_every"] = params.observe_every
        if params.HasField("config"):
            data["config"] = params.config
        self._tell(person, state=NORMAL, init_input=data)

    def place_for(self, actor_name: str, actor_class: str) -> int | None:
        """Return the place of a client that comes now; None if there is none for it."""
        if self.stage is not Stage.GATHERING:
            return None
        for actor in self.actors:
            wanted = actor.name == actor_name if actor_name else actor.params.actor_class == actor_class
            if wanted and actor.is_client and actor.where is Where.AWAY:
                return actor.number
        return None

    def joined(self, who: int) -> None:
        """A client takes its place."""
        actor = self.person(who)
        if not actor.is_client or actor.where is not Where.AWAY or self.stage is not Stage.GATHERING:
            raise ImpossibleError
        self._active_at = self.now
        self._introduce(actor)
        self._ready(actor)

    def _ready(self, person: Person) -> None:
        person.where = Where.PLAYING
        person.heard_at = self.now
        self._limit("HEARTBEAT", person.number, self._patience.heartbeat_seconds)
        self.deadlines.pop(("INIT", person.number), None)
        for message in person.held:
            self._see("message", person.number, message)
        person.held = []
        if not person.is_environment:
            self._ask_environment_if_settled()

    def _ask_environment_if_settled(self) -> None:
        if any(actor.where in TO_COME for actor in self.actors) or self.environment.where is not Where.AWAY:
            return
        self._contact(self.environment)
        self._limit("INIT", ENVIRONMENT, self._patience.environment_init_timeout_seconds)

    # What participants say

    def said(self, who: int, message: Any) -> None:
        """A participant sends a message."""
        person = self.person(who)
        if person.where is Where.AWAY:
            raise ImpossibleError
        word = word_of(message)
        person.heard_at = self.now
        if word == "END":
            person.last_words = message.details
        if person.where in (Where.GONE, Where.TOLD):
            return
        if word == "HEARTBEAT":
            self._on_heartbeat(person)
            return
        if person.is_environment and person.where is Where.ENDING and word == "LAST":
            return  # it has crossed with the one that it was told, or says the same again
        self._active_at = self.now
        if person.where is Where.ASKED:
            self._first_word(person, word, message)
        elif person.where is not Where.LATE:
            self._take(person, word, message)

    def _first_word(self, person: Person, word: str, message: Any) -> None:
        if word == "INIT_OUTPUT":
            if person.is_environment and self.taken_up is not None and not message.init_output.takes_up:
                person.where = Where.PLAYING
                why = "cannot be taken up at a tick: it neither saves itself nor is it played again"
                self._break_off(REFUSED, f"{person} {why}", person.name)
                return
            self._ready(person)
        elif word not in ("EMPTY", "BAD_STATE"):
            what = "data with a communication state other than NORMAL" if word == "BAD_DATA" else word
            person.where = Where.GONE
            self._see("hang up", person.number, True)
            self._lose(person, f"{what} where init_output was expected", REFUSED)

    def _take(self, person: Person, word: str, message: Any) -> None:
        if word == "LAST" and person.is_environment and person.where is Where.PLAYING:
            person.where = Where.ENDING
            if self.stage in (Stage.GATHERING, Stage.RUNNING):
                self._last_announced = True
                self._be_patient()
        elif word == "LAST_ACK" and person.where is Where.ENDING:
            person.where = Where.ACKNOWLEDGED
            self._settle(person)
        elif word == "MESSAGE":
            self._relay(person, message.message)
        elif word == "REWARD":
            self._reward(person, message.reward)
        elif word == "ACTION":
            self._act(person, message.action)
        elif word == "OBSERVATION_SET":
            self._observe(message.observation_set)

    def _on_heartbeat(self, person: Person) -> None:
        if person.nudges:
            person.nudges -= 1  # an answer is not answered
        else:
            self._tell(person, state=HEARTBEAT)

    def _may_speak(self, sender: Person, what: Message | Reward) -> bool:
        entries = max(1, len(what.sources)) if isinstance(what, Reward) else 1
        sender.said[self.tick] = sender.said.get(self.tick, 0) + entries
        self._bytes_said[self.tick] += what.ByteSize()
        few = sender.said[self.tick] <= self._patience.max_said_per_tick
        return few and self._bytes_said[self.tick] <= self._patience.max_said_bytes_per_tick

    def _relay(self, sender: Person, message: Message) -> None:
        if not self._may_speak(sender, message) or message.tick_id not in (NOW, self.tick):
            return
        message.sender_name = sender.name
        assert self.book is not None
        self.book.current.messages.append(message)
        receivers = receivers_of(message.receiver_name, self.actors)
        if not receivers and message.receiver_name == self.environment.name:
            receivers = [self.environment]
        for receiver in receivers:
            relayed = Message(tick_id=self.tick, sender_name=sender.name, receiver_name=receiver.name)
            if message.HasField("payload"):
                relayed.payload.CopyFrom(message.payload)
            told = _envelope(receiver, state=NORMAL, message=relayed)
            if receiver.takes_part:
                self._see("message", receiver.number, told)
            elif receiver.where in TO_COME:
                self._hold(receiver, told)

    def _hold(self, receiver: Person, told: Any) -> None:
        size = told.ByteSize() + sum(each.ByteSize() for each in receiver.held)
        room = len(receiver.held) < self._patience.max_held_messages and size <= self._patience.max_held_bytes
        if room or not receiver.held:
            receiver.held.append(told)

    def _reward(self, sender: Person, reward: Reward) -> None:
        if not self._may_speak(sender, reward):
            return
        late = self.before <= reward.tick_id < self.tick
        if reward.tick_id not in (NOW, self.tick) and not late:
            return
        for source in reward.sources:
            source.sender_name = sender.name
        assert self.book is not None
        if late:
            self._log(self.book.late(reward, self.wall_ns))
            return
        self.book.current.rewards.append(reward)
        for receiver in receivers_of(reward.receiver_name, self.actors) if reward.sources else []:
            if not receiver.lost:
                receiver.due.append((self.tick, list(reward.sources)))

    def _pay(self, actor: Person) -> None:
        """Tell an actor what it was rewarded with since its last observation."""
        if not actor.due:
            return
        sources = [source for _, given in actor.due for source in given]
        tick = actor.due[-1][0]
        reward = Reward(tick_id=tick, receiver_name=actor.name, value=weighted_mean(sources), sources=sources)
        actor.due = []
        self._tell(actor, state=NORMAL, reward=reward)

    # Ticks

    def _observe(self, shown: Any) -> None:
        if shown.tick_id not in (NOW, self.sets):
            return
        indexes = list(shown.actors_map)[: len(self.actors)]
        if len(indexes) < len(self.actors) or any(not 0 <= i < len(shown.observations) for i in indexes):
            return
        if self.stage is Stage.ACKS_OWED:
            return
        assert self.book is not None
        final = self._last_announced or self.stage is Stage.LAST_SET_OWED
        ended_in = TrialState.TERMINATING if self.stage is Stage.LAST_SET_OWED else TrialState.RUNNING
        if self.stage is Stage.GATHERING:
            self._announce(TrialState.RUNNING)
        if final and self.stage is not Stage.LAST_SET_OWED:
            self._announce(TrialState.TERMINATING)
        if self._hz and self.stage is Stage.RUNNING and self._answered and not final:
            self._miss_ticks()
        self.stage = Stage.ACKS_OWED if final else Stage.RUNNING
        self.sets += 1
        shown = _dated(shown)
        self.book.begin(shown, self.wall_ns, ended_in)
        self._contents = {}
        self._answered = final
        self._waiting_for = set()
        if final:
            self._how = self._how or BY_ENVIRONMENT
            self._note("the environment ended the trial")
        present = [actor for actor in self.actors if actor.takes_part]
        if not final:
            present = [actor for actor in present if self._shown_for(actor, self.tick) == self.tick]
        for actor in present:
            self._pay(actor)
            if final:
                actor.where = Where.ENDING
                self._tell(actor, state=LAST, end=EndOfTrial(cause=self._how))  # type: ignore[arg-type]  # an int is an enum value
            content = shown.observations[indexes[actor.number]]
            observation = {"tick_id": self.tick, "timestamp": shown.timestamp, "content": content}
            self._tell(actor, state=NORMAL, observation=observation)
        if final:
            self._await_acknowledgements(present)
            return
        for actor in present:
            self._waiting_for.add(actor.number)
            self._limit("RESPONSE", actor.number, actor.params.response_timeout)
        if self._hz:
            if self._began_at is None:
                self._began_at = self.now
            self.deadlines["TICK", -2] = self._ends_at()
        self._log(self.book.leaving())
        self._answer_if_all_are_in()

    def _miss_ticks(self) -> None:
        """Observations have come after the end of their tick: what has passed is not made up for."""
        missed = 0
        while self._ends_at() <= self.now:
            self._ends += 1
            missed += 1
        if missed:
            self.missed += missed
            self._note(f"ticks missed, because the observations came late: {missed}")

    def _may_act(self, actor: Person, action: Any) -> bool:
        """Tell whether an action is for this tick; what is for the ticks that follow is kept."""
        number = self.tick if action.tick_id == NOW else action.tick_id
        if not self.first <= number <= self.tick:
            return False
        answers = self._shown_for(actor, number)
        if answers <= actor.answered:
            return False
        actor.answered = answers
        over = self.tick + 1 if self._answered else self.tick
        if answers < self._shown_for(actor, over):
            self.late += 1
            return False
        # Taken again in other ticks, it says which one it was for.
        actor.last_action = type(action)(tick_id=number, timestamp=action.timestamp, content=action.content)
        return not self._answered

    def _act(self, actor: Person, action: Any) -> None:
        if self.stage is not Stage.RUNNING:
            return
        if self._has_rates:
            if not self._may_act(actor, _dated(action)):
                return
        elif action.tick_id not in (NOW, self.tick) or self._answered or actor.number in self._contents:
            return
        assert self.book is not None
        self._contents[actor.number] = action.content
        self.book.current.actions[actor.number] = _dated(action)
        self.deadlines.pop(("RESPONSE", actor.number), None)
        self._waiting_for.discard(actor.number)
        self._answer_if_all_are_in()

    def _answer_if_all_are_in(self) -> None:
        if not self._waiting_for and not self._answered and not self._hz:
            self._answer()

    def _answer(self) -> None:
        """The tick takes no actions any more."""
        self._answered = True
        if self._last_announced:
            return  # the environment does not want them
        missing = [actor for actor in self.actors if actor.is_required and actor.number not in self._contents]
        missing = [actor for actor in missing if self._held_by(actor) is None]
        if missing and not self._hz:
            self._fill_in()
            names = ", ".join(f"'{actor.name}'" for actor in missing)
            actors = "actors" if len(missing) > 1 else "actor"
            why = f"no action for tick {self.tick} from required {actors} {names}"
            self._break_off(NO_ACTION, why, missing[0].name)
            return
        last = self._end_asked or 0 < self.params.max_steps <= self.tick
        if last:
            self.stage = Stage.LAST_SET_OWED
            self._announce(TrialState.TERMINATING)
            self._how = SOFT if self._end_asked else STEP_LIMIT
            if not self._end_asked:
                self._note("the maximum number of steps was reached")
            if self.environment.where is Where.PLAYING:
                self.environment.where = Where.ENDING
            self._tell(self.environment, state=LAST)
            self._be_patient()
        contents, unavailable = self._fill_in()
        actions = {"tick_id": self.tick, "timestamp": self.wall_ns, "actions": contents}
        self._tell(self.environment, state=NORMAL, action_set={**actions, "unavailable_actors": unavailable})

    def _fill_in(self) -> tuple[list[bytes], list[int]]:
        """Return an action for everybody, made up where there is none, and who has no default."""
        absent = [actor for actor in self.actors if actor.number not in self._contents]
        held = {actor.number: self._held_by(actor) for actor in absent}
        again = {number: action for number, action in held.items() if action is not None}
        for actor in absent:
            unanswered = actor.answered < self._shown_for(actor, self.tick)
            self.absent += bool(self._hz and actor.takes_part and unanswered)
        absent = [actor for actor in absent if actor.number not in again]
        unavailable = [actor.number for actor in absent if not actor.params.HasField("default_action")]
        assert self.book is not None
        self.book.current.unavailable.extend(unavailable)
        self.book.current.defaults.extend(a.number for a in absent if a.number not in unavailable)
        self.book.current.held.extend(again)
        self.book.current.actions.update(again)
        contents = self._contents | {number: action.content for number, action in again.items()}
        # Of one without a default the content is empty, as that of the default that it does not have.
        return [contents.get(actor.number, actor.params.default_action.content) for actor in self.actors], unavailable

    @property
    def _has_rates(self) -> bool:
        return bool(self._hz) or any(
            actor.params.observe_every > 1 or actor.params.hold_action for actor in self.actors
        )

    def _held_by(self, actor: Person) -> Any:
        """Return the action of an actor that is taken again; None if there is none."""
        params = actor.params
        if not actor.takes_part or not (params.hold_action or params.observe_every > 1):
            return None
        answered = actor.answered == self._shown_for(actor, self.tick)
        return actor.last_action if params.hold_action or answered else None

    # The end

    def soft_end(self) -> None:
        """Somebody asks for an orderly end."""
        if self.stage is Stage.MADE:
            raise ImpossibleError
        if self.stage <= Stage.RUNNING and not self._end_asked:
            self._end_asked = True
            self._note("the end of the trial was asked for")
            self._be_patient()

    def _be_patient(self) -> None:
        if ("PATIENCE", -2) not in self.deadlines:
            self._limit("PATIENCE", -2, self._patience.soft_end_patience_seconds)

    def _await_acknowledgements(self, present: list[Person]) -> None:
        for what, who in list(self.deadlines):
            if what in ("PATIENCE", "RESPONSE", "TICK"):
                del self.deadlines[what, who]
        if self.environment.where is Where.ENDING:
            self._owing.add(ENVIRONMENT)
            self._limit("ACK", ENVIRONMENT, self._patience.environment_ack_timeout_seconds)
        for actor in present:
            self._owing.add(actor.number)
            self._limit("ACK", actor.number, self._patience.actor_ack_timeout_seconds)
        self._finish_if_nobody_owes()

    def _settle(self, person: Person) -> None:
        """Somebody's acknowledgement came, or will not."""
        self.deadlines.pop(("ACK", person.number), None)
        if self.stage is Stage.ACKS_OWED and person.number in self._owing:
            self._owing.discard(person.number)
            self._finish_if_nobody_owes()

    def _finish_if_nobody_owes(self) -> None:
        if self._owing:
            return
        for actor in self.actors:
            if actor.takes_part:
                self._pay(actor)
        if self._ack_loss is not None:
            self._end(*self._ack_loss, details="the environment did not acknowledge the end of the trial")
        else:
            by = self.environment.name if self._how == BY_ENVIRONMENT else ""
            self._end(self._how, "", by, details="")

    def hard_end(self, details: str, cause: int) -> None:
        """The trial ends now."""
        self._break_off(cause, details, "")

    def _break_off(self, cause: int, why: str, participant: str) -> None:
        if self.stage is Stage.OVER:
            return
        if self.stage is Stage.RUNNING:
            self._announce(TrialState.TERMINATING)
        self._note(f"the trial was broken off: {why}")
        self._end(cause, why, participant, details=why)

    def _end(self, cause: int, why: str, participant: str, *, details: str) -> None:
        everybody = self.everybody
        self.stage = Stage.OVER
        self.outcome = EndOfTrial(
            cause=cause,  # type: ignore[arg-type]  # an int is an enum value
            participant=participant,
            reason=why[:MOST_OF_A_REASON],
            ticks=self.sets - self.before if self.sets > self.first else 0,
        )
        if self._hz and self.outcome.ticks:
            self._note(
                f"at {self._hz:g} Hz: ticks missed: {self.missed}; late actions, dropped: {self.late}; "
                f"actions made up: {self.absent}"
            )
        more = {"details": details} if details else {}
        for person in everybody:
            if person.where in REACHABLE:
                self._tell(person, state=END, end=self.outcome, **more)
                self._see("hang up", person.number, False)
            if person.where is not Where.GONE:
                person.where = Where.TOLD
        self.outcome.losses.extend(self.losses)
        if self.book is not None:
            told = EndOfTrial()
            told.CopyFrom(self.outcome)
            for loss in told.losses:
                loss.traceback = ""
            self._log(self.book.close(told))
        self.deadlines.clear()
        self._announce(TrialState.ENDED)

    # Losses

    def stopped_sending(self, who: int) -> None:
        """A participant closes its side of its stream, and still reads."""
        person = self.person(who)
        if person.where is Where.AWAY:
            raise ImpossibleError
        if person.where in (Where.GONE, Where.TOLD):
            return
        if not person.is_environment and person.where is Where.ACKNOWLEDGED:
            return
        self._active_at = self.now
        if not person.is_environment and person.where is Where.ENDING:
            person.where = Where.ACKNOWLEDGED  # it has, in fact
            self._settle(person)
            return
        why = "it closed its side of the stream"
        person.where = Where.TOLD
        self._tell(person, state=END, details=why)
        self._see("hang up", person.number, False)
        self._lose(person, why, LEFT)

    def gone(self, who: int, why: str, cause: int, traceback: str) -> None:
        """A participant's stream is gone, or could not be made."""
        person = self.person(who)
        if person.where is Where.AWAY:
            raise ImpossibleError
        if person.where in (Where.GONE, Where.TOLD):
            return
        self._active_at = self.now
        if person.where is Where.ASKED and cause == LOST:
            cause, traceback = MISSING, ""
        person.where = Where.GONE
        self._lose(person, why, cause, traceback)

    def _lose(self, person: Person, why: str, cause: int, traceback: str = "") -> None:
        """Somebody takes no part any more; where it is has been said already."""
        if person.last_words:
            why, _, traceback = person.last_words.partition("\n")
            cause = FAILED
        for what in ("HEARTBEAT", "INIT", "RESPONSE"):
            self.deadlines.pop((what, person.number), None)
        person.held = []
        verb = {FAILED: "failed", LEFT: "left the trial"}.get(cause, "was lost")
        text = f"{person} {verb}: {why}"
        is_news = self.stage <= Stage.LAST_SET_OWED or person.number in self._owing or cause == FAILED
        if is_news and not person.lost:
            self._record_loss(person, cause, text, traceback)
        if person.lost:
            return
        person.lost = True
        person.due = []
        if self.stage is Stage.ACKS_OWED:
            self._without_acknowledgement(person, cause, text)
        elif person.is_environment:
            self._break_off(cause, text, person.name)
        elif self.stage is Stage.GATHERING:
            if person.is_required:
                self._break_off(cause, text, person.name)
            else:
                self._ask_environment_if_settled()
        elif self.stage is Stage.RUNNING:
            self._lose_running(person, cause, text)

    def _lose_running(self, actor: Person, cause: int, text: str) -> None:
        if actor.is_required:
            if not self._answered:
                self._fill_in()
            self._break_off(cause, text, actor.name)
        elif not self._answered:
            assert self.book is not None
            self._contents.pop(actor.number, None)
            self.book.current.void.add(actor.number)
            self._waiting_for.discard(actor.number)
            self._answer_if_all_are_in()

    def _record_loss(self, person: Person, cause: int, text: str, traceback: str = "") -> None:
        self.losses.append(
            ParticipantLoss(
                participant=person.name,
                cause=cause,  # type: ignore[arg-type]  # an int is an enum value
                reason=text[:MOST_OF_A_REASON],
                required=person.is_required,
                tick_id=self.tick,
                traceback=traceback,
            )
        )

    def _without_acknowledgement(self, person: Person, cause: int, text: str) -> None:
        if person.number in self._owing and person.is_environment:
            self._ack_loss = cause, text, person.name
        self._settle(person)

    # Time

    def time_over(self, what: str, who: int) -> None:
        """The time for something is over, says the clock."""
        deadline = self.deadlines.pop((what, who), None)
        if deadline is None:
            return  # it came, after all
        if deadline > self.now + SLACK_SECONDS:
            self.wrong.append(f"the time for {what} of {who} is not over before {deadline:.6f}")
        if what == "PATIENCE":
            seconds = self._patience.soft_end_patience_seconds
            self._break_off(IMPATIENT, f"the trial did not come to its end within {seconds:g} s", "")
        elif what == "INACTIVITY":
            self._on_inactivity()
        elif what == "HEARTBEAT":
            self._nudge(self.person(who))
        elif what == "INIT":
            self._give_up(self.person(who))
        elif what == "RESPONSE":
            self._waiting_for.discard(who)
            if self.stage is Stage.RUNNING:
                self._answer_if_all_are_in()
        elif what == "TICK":
            if self.stage is Stage.RUNNING:
                self._ends += 1
                if not self._answered:
                    self._waiting_for = set()
                    self._answer()
        elif what == "ACK":
            person = self.person(who)
            text = f"{person} did not acknowledge the end of the trial"
            self._record_loss(person, NO_ACK, text)
            self._without_acknowledgement(person, NO_ACK, text)

    def _give_up(self, person: Person) -> None:
        self._active_at = self.now
        person.where = Where.GONE if person.where is Where.AWAY else Where.LATE
        self._lose(person, "it did not come in time", MISSING)

    def _on_inactivity(self) -> None:
        over = self._active_at + self.params.max_inactivity
        if self.now >= over:
            text = f"nothing happened for {self.params.max_inactivity} s{self._missing()}"
            self._break_off(INACTIVE, text, "")
        else:
            self.deadlines["INACTIVITY", -2] = over

    def _missing(self) -> str:
        if self.stage is not Stage.GATHERING:
            return ""
        late = [str(actor) for actor in self.actors if actor.where in (Where.AWAY, Where.ASKED)]
        if late:
            rest = f" and {len(late) - 3} more" if len(late) > 3 else ""
            return ": " + ", ".join(late[:3]) + rest + " did not come"
        return f": {self.environment} {'sent no observations' if self.environment.takes_part else 'did not come'}"

    def _nudge(self, person: Person) -> None:
        """Send a heartbeat to somebody who has been silent, unless it is busy with what it owes."""
        silent_for = self._patience.heartbeat_seconds
        due = max(person.heard_at, person.nudged_at) + silent_for
        if self.now >= due:
            due = self.now + silent_for
            if not self._owes_something(person):
                person.nudged_at = self.now
                person.nudges += 1
                self._tell(person, state=HEARTBEAT)
        self.deadlines["HEARTBEAT", person.number] = due

    def _owes_something(self, person: Person) -> bool:
        if self.stage is Stage.ACKS_OWED:
            return person.number in self._owing
        if self.stage is not Stage.RUNNING:
            return person.is_environment
        return self._answered if person.is_environment else person.number not in self._contents


def _envelope(person: Person, **fields: Any) -> Any:
    return EnvRunTrialInput(**fields) if person.is_environment else ActorRunTrialInput(**fields)


def _dated(said: Any) -> Any:
    """Return what somebody said with its time in nanoseconds: a number of 15 or 16 digits is one of microseconds."""
    if len(str(said.timestamp)) not in (15, 16):
        return said
    dated = type(said)()
    dated.CopyFrom(said)
    dated.timestamp *= 1000
    return dated
