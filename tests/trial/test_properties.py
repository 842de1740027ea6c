"""Properties of every trial, whatever happens in whatever order."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trio_cogment.api.common_pb2 import ActorInitialOutput, TrialState
from trio_cogment.api.environment_pb2 import EnvInitialOutput
from trio_cogment.base.errors import FailedPreconditionError, LocalProtocolError, NotFoundError
from trio_cogment.base.outcome import EndCause
from trio_cogment.trial import ENVIRONMENT, Joined, Lost, ParametersComplete, Timer, TimerKind, TrialRules
from trio_cogment.trial._events import NO_PARTICIPANT
from trio_cogment.trial._stream_table import StreamState

from .harness import CLIENT, END, LAST, LAST_ACK, NORMAL, SERVICE, Play, actor, kind_of, make_params, snapshot

MAX_ACTORS = 4
ACTORS = st.builds(
    lambda client, optional, wait, respond, default, actor_class, every, hold: {
        "actor_class": actor_class,
        "endpoint": CLIENT if client else SERVICE,
        "optional": optional,
        "initial_connection_timeout": wait,
        "response_timeout": respond,
        "default": default,
        "observe_every": every,
        "hold_action": hold,
    },
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 0, 5]),
    st.sampled_from([0, 0, 1]),
    st.sampled_from([None, b"", b"D"]),
    st.sampled_from(["cls", "cls", "other"]),
    st.sampled_from([0, 0, 1, 2, 3]),
    st.sampled_from([False, False, True]),
)
INDEXES = st.integers(-1, MAX_ACTORS - 1)
ACTOR_INDEXES = st.integers(0, MAX_ACTORS - 1)
TICKS = st.sampled_from([-1, -1, -1, 0, 1, 2, 5, -2])
PATTERNS = st.sampled_from(
    ["*", "cls.*", "other.*", "n0", "n1", "cls.n1", "other.n1", "env", "*.*", "*.n0", "", "nobody"]
)
#: Values and confidences, of which some carry no weight.
SOURCES = st.lists(
    st.tuples(st.sampled_from([1.0, -3.0, 0.1]), st.sampled_from([1.0, 0.25, 0.0, -1.0])), min_size=0, max_size=3
)
FIELDS = ["info", "observations", "actions", "rewards", "messages", "default_actors", "unavailable_actors", "bogus"]
CAUSES = [EndCause.PARTICIPANT_FAILED, EndCause.PARTICIPANT_LEFT, EndCause.PARTICIPANT_REFUSED]
#: Limits as an operator sets them, and so small that a few messages reach them.
LIMITS = st.sampled_from(
    [
        {},
        {"max_held_messages": 2},
        {"max_held_bytes": 80},
        {"max_said_per_tick": 3},
        {"max_said_bytes_per_tick": 150},
        {"max_held_back_bytes": 200},
    ]
)


class Trials(RuleBasedStateMachine):
    """A trial under any input.

    `Play` itself asserts that nothing is sent after END and that states go forward; and it compares everything with the
    account (`tests.account`), whole.
    """

    play: Play

    @initialize(
        actors=st.lists(ACTORS, min_size=1, max_size=MAX_ACTORS),
        max_steps=st.sampled_from([0, 0, 1, 3]),
        max_inactivity=st.sampled_from([0, 0, 20]),
        buffered=st.sampled_from([0, 2, 3, 5]),
        exclude=st.lists(st.sampled_from(FIELDS), max_size=2),
        limits=LIMITS,
        ready=st.booleans(),
        collect=st.booleans(),
        heartbeat=st.sampled_from([0, 3, 20]),
        tick_hz=st.sampled_from([0, 0, 1, 60]),
    )
    def begin(
        self,
        actors: list[dict[str, Any]],
        max_steps: int,
        max_inactivity: int,
        buffered: int,
        exclude: list[str],
        limits: dict[str, int],
        ready: bool,
        collect: bool,
        heartbeat: float,
        tick_hz: float,
    ) -> None:
        params = make_params(
            *(actor(f"n{index}", **more) for index, more in enumerate(actors)),
            max_steps=max_steps,
            max_inactivity=max_inactivity,
            nb_buffered_ticks=buffered,
            exclude=exclude,
        )
        params.environment.tick_hz = tick_hz
        self.exclude = exclude
        self.count = len(actors)
        rules = TrialRules(heartbeat_seconds=heartbeat, **limits)
        self.play = Play(params, rules=rules, collect_samples=collect).begin()
        self.last_sets: list[int] = []
        self.last_observed: dict[int, int] = {}
        self.ended_with: list[int] = []
        if ready:
            for index in range(self.count):
                if actors[index]["endpoint"] == CLIENT:
                    self.play.join(f"n{index}")
                else:
                    self.play.ready(index)
            self.play.environment_ready()

    def attempt(self, do: Any) -> None:
        """Do something that may be impossible now: then it must be refused, and change nothing."""
        before = snapshot(self.play.machine)
        try:
            do()
        except LocalProtocolError:
            assert snapshot(self.play.machine) == before

    def exists(self, index: int) -> bool:
        return index < self.count

    @rule(index=INDEXES)
    def becomes_ready(self, index: int) -> None:
        if index == ENVIRONMENT:
            self.attempt(lambda: self.play.say(index, NORMAL, init_output=EnvInitialOutput()))
        elif self.exists(index):
            self.attempt(lambda: self.play.say(index, NORMAL, init_output=ActorInitialOutput()))

    @rule(index=ACTOR_INDEXES)
    def joins(self, index: int) -> None:
        try:
            slot = self.play.machine.slot_for(actor_name=f"n{index}")
        except (NotFoundError, FailedPreconditionError):
            return
        self.play.feed(Joined(slot))

    @rule(tick_id=st.sampled_from([-1, -1, -1, -1, 0, 1, 2]), short=st.sampled_from([False] * 9 + [True]))
    def observes(self, tick_id: int, short: bool) -> None:
        self.attempt(lambda: self.play.observe(tick_id, actors_map=[0] if short else None))

    @rule(index=ACTOR_INDEXES, tick_id=TICKS)
    def acts(self, index: int, tick_id: int) -> None:
        if self.exists(index):
            self.attempt(lambda: self.play.act(index, tick_id=tick_id))

    @rule()
    def plays_a_tick(self) -> None:
        self.observes(-1, False)
        for index in range(self.count):
            self.acts(index, -1)

    @rule(index=INDEXES, pattern=PATTERNS, tick_id=TICKS)
    def tells(self, index: int, pattern: str, tick_id: int) -> None:
        if self.exists(index):
            self.attempt(lambda: self.play.tell(index, pattern, tick_id=tick_id))

    @rule(index=INDEXES, pattern=PATTERNS, tick_id=TICKS, sources=SOURCES)
    def rewards(self, index: int, pattern: str, tick_id: int, sources: list[tuple[float, float]]) -> None:
        if self.exists(index):
            self.attempt(lambda: self.play.reward(index, pattern, *sources, tick_id=tick_id))

    @rule(index=INDEXES, past=st.integers(1, 4))
    def rewards_the_past(self, index: int, past: int) -> None:
        tick_id = self.play.machine.tick_id - past
        if self.exists(index) and tick_id >= 0:
            self.attempt(lambda: self.play.reward(index, "*", (1.0, 1.0), tick_id=tick_id))

    @rule(index=INDEXES, words=st.sampled_from(["why", "ValueError: why\n  a line\n  another"]))
    def says_why_it_goes(self, index: int, words: str) -> None:
        if self.exists(index) and index not in self.play.lost:
            self.attempt(lambda: self.play.say(index, END, details=words))

    @rule(index=INDEXES, state=st.sampled_from([1, 2, 2, 3, 4, 4, 5]))
    def says(self, index: int, state: int) -> None:
        if self.exists(index):
            self.attempt(lambda: self.play.say(index, state))

    @rule(index=INDEXES, state=st.sampled_from([0, 3]))
    def breaks_the_rules(self, index: int, state: int) -> None:
        if self.exists(index):
            self.attempt(lambda: self.play.say(index, state, **({"reward": {}} if state else {})))

    @rule(index=INDEXES, how=st.sampled_from(["half", "lost", "lost", *CAUSES]))
    def goes(self, index: int, how: str | EndCause) -> None:
        if not self.exists(index) or index in self.play.lost:
            return
        if isinstance(how, EndCause):
            lost = Lost(index, "it raised", how, "Traceback:\n  one line")
            self.attempt(lambda: self.play.feed(lost))
        else:
            self.attempt(lambda: self.play.half_close(index) if how == "half" else self.play.lose(index))

    @rule(seconds=st.sampled_from([1 / 60, 0.5, 1, 1, 5, 40]))
    def time_passes(self, seconds: float) -> None:
        self.play.pass_time(seconds)

    @rule()
    def soft_end(self) -> None:
        self.play.soft()

    @rule()
    def environment_ends(self) -> None:
        self.attempt(lambda: self.play.say(ENVIRONMENT, LAST))
        self.observes(-1, False)

    @rule()
    def all_acknowledge(self) -> None:
        for index in (ENVIRONMENT, *range(self.count)):
            self.attempt(lambda i=index: self.play.say(i, LAST_ACK))

    @rule(sure=st.sampled_from([False] * 9 + [True]))
    def hard_end(self, sure: bool) -> None:
        if sure:
            self.play.hard()

    @rule()
    def parameters_again(self) -> None:
        self.attempt(lambda: self.play.feed(ParametersComplete(self.play.params)))

    @invariant()
    def what_was_sent_is_in_order(self) -> None:
        if not hasattr(self, "play"):
            return
        for index in (ENVIRONMENT, *range(self.count)):
            for message in self.play.take(index):
                self.look_at(index, message)

    def look_at(self, index: int, message: Any) -> None:
        kind = kind_of(message)
        assert index not in self.ended_with
        if kind.startswith("END"):
            self.ended_with.append(index)
        elif kind == "NORMAL/action_set":
            data = message.action_set
            assert len(data.actions) == self.count
            assert list(data.unavailable_actors) == sorted(set(data.unavailable_actors))
            assert not self.last_sets or data.tick_id > self.last_sets[-1]
            self.last_sets.append(data.tick_id)
        elif kind == "NORMAL/observation":
            # Who sees one tick sees the next that is for it, until it is lost.
            shown, before = message.observation.tick_id, self.last_observed.get(index, -1)
            every = self.play.params.actors[index].observe_every or 1
            assert shown == before + 1 if every == 1 else shown > before
            # The last one is for everybody.
            assert shown % every == 0 or self.play.states[-1] >= TrialState.TERMINATING
            self.last_observed[index] = message.observation.tick_id
        elif kind == "HEARTBEAT":
            assert self.play.machine.participants[index].state not in (StreamState.IDLE, StreamState.LOST)
        elif kind == "NORMAL/message":
            assert message.message.receiver_name == ("env" if index == ENVIRONMENT else f"n{index}")
        elif kind == "NORMAL/reward":
            assert all(source.sender_name != "forged" for source in message.reward.sources)

    @invariant()
    def samples_are_complete(self) -> None:
        if not hasattr(self, "play"):
            return
        if "info" in self.exclude:
            return  # what would tell the tick; the account compares the rest
        ticks = [sample.info.tick_id for sample in self.play.samples if not sample.info.out_of_sync]
        assert ticks == list(range(len(ticks)))
        states = [sample.info.state for sample in self.play.samples if not sample.info.out_of_sync]
        assert states == sorted(states)
        if self.play.machine.is_over:
            assert self.play.states[-1] == 5
            assert not self.play.timers
            if self.play.machine.collect_samples:
                assert len(ticks) == self.play.machine.tick_id + 1
                assert states[-1] == 5

    @invariant()
    def it_is_never_stuck(self) -> None:
        """A tick under way waits for somebody who is there."""
        if not hasattr(self, "play"):
            return
        machine = self.play.machine
        assert machine.state == self.play.states[-1]
        if not machine.answered and not machine.is_over:
            waiting_for = sorted(machine.awaited)
            if machine.tick_hz:
                assert Timer(TimerKind.TICK, NO_PARTICIPANT) in self.play.timers
            else:
                assert waiting_for
            for index in waiting_for:
                assert machine.participants[index].state is StreamState.ACTIVE


class TestTrials(Trials.TestCase):  # type: ignore[valid-type,misc]  # made by hypothesis
    settings = settings(
        max_examples=60,
        stateful_step_count=60,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
