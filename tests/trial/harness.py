"""A trial played by hand: performs the machine's effects on lists, and checks what must always hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage

from tests.account.beside import Beside
from trio_cogment.api.common_pb2 import (
    Action,
    ActorInitialOutput,
    ActorParams,
    ActorRunTrialInput,
    ActorRunTrialOutput,
    CommunicationState,
    DatalogParams,
    EnvironmentParams,
    Message,
    Reward,
    RewardSource,
    SerializedMessage,
    TakenUp,
    TrialParams,
)
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import EnvInitialOutput, EnvRunTrialInput, EnvRunTrialOutput, ObservationSet
from trio_cogment.base.errors import CogmentError
from trio_cogment.trial import (
    ENVIRONMENT,
    Announce,
    ArmTimer,
    Begin,
    Close,
    Connect,
    DisarmTimer,
    Effect,
    EmitSample,
    Event,
    HalfClosed,
    HardEnd,
    Joined,
    Lost,
    Note,
    ParametersComplete,
    Received,
    Send,
    SoftEnd,
    Timer,
    TimerFired,
    TimerKind,
    TrialMachine,
    TrialRules,
    unbatched,
    validate_params,
)
from trio_cogment.trial._trial_table import Phase

CLIENT = "cogment://client"
SERVICE = "grpc://actors:9000"

NORMAL, HEARTBEAT, LAST, LAST_ACK, END = (
    CommunicationState.NORMAL,
    CommunicationState.HEARTBEAT,
    CommunicationState.LAST,
    CommunicationState.LAST_ACK,
    CommunicationState.END,
)

#: The default rules but for heartbeats, which only tests of them want to see.
QUIET = TrialRules(heartbeat_seconds=0)

#: Wall clock of a trial that begins.
EPOCH = 1_700_000_000_000_000_000


def actor(name: str, actor_class: str = "cls", endpoint: str = SERVICE, **more: Any) -> ActorParams:
    """Return an actor's parameters; `default` is the content of its default action."""
    default = more.pop("default", None)
    if default is not None:
        more["default_action"] = SerializedMessage(content=default)
    return ActorParams(name=name, actor_class=actor_class, endpoint=endpoint, implementation="impl", **more)


def make_params(*actors: ActorParams, exclude: Sequence[str] = (), **more: Any) -> TrialParams:
    """Return complete parameters."""
    environment = EnvironmentParams(name="env", endpoint="grpc://env:9000", implementation="envimpl")
    datalog = DatalogParams(endpoint="grpc://log:9000", exclude_fields=exclude)
    return TrialParams(actors=actors or [actor("a"), actor("b")], environment=environment, datalog=datalog, **more)


class Play:
    """One trial and everything its machine did.

    Attributes:
        sent: participant -> messages, those not looked at yet.
        states: what was announced.
        closed: participant -> the error its stream was closed with, or None.
    """

    def __init__(
        self,
        params: TrialParams | None = None,
        *,
        rules: TrialRules | None = None,
        collect_samples: bool = True,
        taken_up: TakenUp | None = None,
    ) -> None:
        self.taken_up = taken_up
        self.params = validate_params(make_params() if params is None else params)
        self.machine = TrialMachine("t", rules=rules or QUIET, collect_samples=collect_samples)
        self.beside = Beside(self.machine, self.machine.handle)
        self.now = 100.0
        self.sent: dict[int, list[Any]] = {}
        self.connected: list[int] = []
        self.closed: dict[int, CogmentError | None] = {}
        self.lost: set[int] = set()
        self.timers: dict[Timer, float] = {}
        self.samples: list[DatalogSample] = []
        self.states: list[int] = []
        self.notes: list[Note] = []

    @property
    def wall_ns(self) -> int:
        return EPOCH + int(self.now * 1_000_000_000)

    # Feeding

    def feed(self, event: Event) -> list[Effect]:
        effects = self.beside.handle(event, self.now, self.wall_ns)
        self.beside.check()
        if isinstance(event, Lost):
            self.lost.add(event.participant)
        effects = unbatched(effects)
        for effect in effects:
            self._perform(effect)
        self.check_counts()
        return effects

    def check_counts(self) -> None:
        """Whatever the machine counts is this many."""
        log = self.machine.log
        for count in [*self.machine.recount(), *(log.recount() if log is not None else ())]:
            assert count.kept == count.counted, count

    def _perform(self, effect: Effect) -> None:
        assert 5 not in self.states, "something was done after ENDED was announced"
        if isinstance(effect, Connect):
            assert effect.participant not in self.connected
            self.connected.append(effect.participant)
            self.sent.setdefault(effect.participant, [])
        elif isinstance(effect, Send):
            index = effect.participant
            assert index not in self.closed, f"{index} was sent something after Close"
            assert index not in self.lost, f"{index} was sent something after it was lost"
            expected = EnvRunTrialInput if index == ENVIRONMENT else ActorRunTrialInput
            assert isinstance(effect.message, expected)
            self.sent.setdefault(index, []).append(effect.message)
        elif isinstance(effect, Close):
            assert effect.participant not in self.closed
            self.closed[effect.participant] = effect.error
        elif isinstance(effect, ArmTimer):
            assert effect.deadline >= self.now
            self.timers[effect.timer] = effect.deadline
        elif isinstance(effect, DisarmTimer):
            del self.timers[effect.timer]
        elif isinstance(effect, EmitSample):
            assert isinstance(effect.sample, DatalogSample)  # nothing is shared here
            self.samples.append(effect.sample)
        elif isinstance(effect, Announce):
            assert not self.states or effect.state > self.states[-1]
            self.states.append(effect.state)
        else:
            assert isinstance(effect, Note)
            self.notes.append(effect)

    def begin(self) -> Play:
        self.feed(Begin())
        self.feed(ParametersComplete(self.params, taken_up=self.taken_up))
        return self

    def ready(self, *indexes: int) -> Play:
        for index in indexes:
            self.feed(Received(index, ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput())))
        return self

    def environment_ready(self, *, takes_up: bool = True) -> Play:
        ready = EnvInitialOutput(takes_up=takes_up)
        self.feed(Received(ENVIRONMENT, EnvRunTrialOutput(state=NORMAL, init_output=ready)))
        return self

    def start(self) -> Play:
        """Begin, with everybody there: clients join, services answer."""
        self.begin()
        for index, params in enumerate(self.params.actors):
            if params.endpoint == CLIENT:
                self.join(name=params.name)
            else:
                self.ready(index)
        self.environment_ready()
        self.clear()
        return self

    def join(self, name: str = "", actor_class: str = "") -> int:
        index = self.machine.slot_for(actor_name=name, actor_class=actor_class)
        assert index == self.beside.account.place_for(name, actor_class)
        self.feed(Joined(index))
        return index

    def observe(
        self, tick_id: int = -1, *, observations: Sequence[bytes] | None = None, actors_map: Sequence[int] | None = None
    ) -> list[Effect]:
        count = len(self.params.actors)
        contents = [b"o%d" % index for index in range(count)] if observations is None else observations
        indexes = range(count) if actors_map is None else actors_map
        data = ObservationSet(tick_id=tick_id, timestamp=self.wall_ns, observations=contents, actors_map=indexes)
        return self.feed(Received(ENVIRONMENT, EnvRunTrialOutput(state=NORMAL, observation_set=data)))

    def act(self, *indexes: int, tick_id: int = -1, content: bytes = b"") -> list[Effect]:
        effects: list[Effect] = []
        for index in indexes:
            data = Action(tick_id=tick_id, timestamp=7, content=content or b"x%d" % index)
            effects += self.feed(Received(index, ActorRunTrialOutput(state=NORMAL, action=data)))
        return effects

    def say(self, index: int, state: int, **data: Any) -> list[Effect]:
        """A participant sends any message at all."""
        kind = EnvRunTrialOutput if index == ENVIRONMENT else ActorRunTrialOutput
        return self.feed(Received(index, kind(state=state, **data)))  # type: ignore[arg-type]  # any number

    def ack(self, *indexes: int) -> None:
        for index in indexes:
            self.say(index, LAST_ACK)

    def tell(self, sender: int, receiver: str, text: bytes = b"hello", tick_id: int = -1) -> list[Effect]:
        payload = AnyMessage(type_url="type.googleapis.com/x.Y", value=text)
        message = Message(tick_id=tick_id, sender_name="forged", receiver_name=receiver, payload=payload)
        return self.say(sender, NORMAL, message=message)

    def reward(
        self, sender: int, receiver: str, *sources: tuple[float, float], tick_id: int = -1, value: float = 99.0
    ) -> list[Effect]:
        listed = [RewardSource(sender_name="forged", value=v, confidence=c) for v, c in sources]
        return self.say(
            sender, NORMAL, reward=Reward(tick_id=tick_id, receiver_name=receiver, value=value, sources=listed)
        )

    def soft(self) -> list[Effect]:
        return self.feed(SoftEnd())

    def hard(self, details: str = "enough") -> list[Effect]:
        return self.feed(HardEnd(details))

    def lose(self, index: int, reason: str = "reset") -> list[Effect]:
        return self.feed(Lost(index, reason))

    def half_close(self, index: int) -> list[Effect]:
        return self.feed(HalfClosed(index))

    def pass_time(self, seconds: float) -> None:
        """Let time go by; timers fire in order, at their deadlines."""
        until = self.now + seconds
        while self.timers:
            timer, deadline = min(self.timers.items(), key=lambda item: (item[1], item[0]))
            if deadline > until:
                break
            self.now = max(self.now, deadline)
            del self.timers[timer]
            self.feed(TimerFired(timer))
        self.now = until

    # Looking

    # Methods, because a type checker believes that an attribute looked at twice has not changed.

    def is_over(self) -> bool:
        return self.machine.is_over

    def phase(self) -> Phase:
        return self.machine.phase

    def clear(self) -> None:
        for messages in self.sent.values():
            messages.clear()

    def take(self, index: int) -> list[Any]:
        """Return what was sent to a participant since the last look."""
        messages = self.sent.get(index, [])
        self.sent[index] = []
        return messages

    def kinds(self, index: int) -> list[str]:
        """The same, as short texts: `NORMAL/observation`, `LAST`, `END`."""
        return [kind_of(message) for message in self.take(index)]

    def take_set(self) -> Any:
        """Return the one action set the environment was sent, with nothing else."""
        (message,) = self.take(ENVIRONMENT)
        assert kind_of(message) == "NORMAL/action_set"
        return message.action_set

    def has_timer(self, kind: TimerKind, index: int = -2) -> bool:
        return Timer(kind, index) in self.timers

    def end_details(self, index: int) -> str | None:
        """Return the details of the END that was sent last, None if it had none."""
        message = self.take(index)[-1]
        assert message.state == END
        return str(message.details) if message.HasField("details") else None


def kind_of(message: Any) -> str:
    data = message.WhichOneof("data")
    name = CommunicationState.Name(message.state)
    return f"{name}/{data}" if data else name


def play_ticks(play: Play, count: int, indexes: Iterable[int] | None = None) -> Play:
    """Play `count` whole ticks."""
    who = list(range(len(play.params.actors)) if indexes is None else indexes)
    for _ in range(count):
        play.observe()
        play.act(*who)
    return play


def snapshot(machine: TrialMachine) -> dict[str, Any]:
    """Return everything a machine remembers, but for what each event brings along."""
    seen: dict[str, Any] = {}
    skip = {"now", "wall_ns", "out", "rows", "row"}
    for kind in type(machine).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if name not in skip:
                seen[name] = _plain(getattr(machine, name))
    return seen


def _plain(value: Any) -> Any:
    if hasattr(value, "SerializeToString") and not isinstance(value, type):
        return value.SerializeToString(deterministic=True)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, set):
        return sorted(value)
    if type(value).__module__.startswith("trio_cogment.trial") and not isinstance(value, int):
        names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        names += list(getattr(value, "__dict__", ()))
        return {name: _plain(getattr(value, name)) for name in names if name not in ("row", "_rows")}
    return value
