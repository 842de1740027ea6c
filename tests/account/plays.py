"""Trials played at random, from a seed: what a machine may be given, with its account beside it.

Hypothesis draws each step alike, and most trials of it die young. Here each play has a temper of its own: some kinds of
steps come often in it and others never, so that some trials are long and quiet, some full of messages, some of losses.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.trial.harness import CLIENT, END, HEARTBEAT, LAST, LAST_ACK, NORMAL, SERVICE, Play, actor, make_params
from trio_cogment.api.common_pb2 import ActorInitialOutput, TakenUp, TrialParams
from trio_cogment.api.environment_pb2 import EnvInitialOutput
from trio_cogment.base.errors import FailedPreconditionError, LocalProtocolError, NotFoundError
from trio_cogment.base.outcome import EndCause
from trio_cogment.trial import ENVIRONMENT, Joined, Lost, ParametersComplete, TrialRules

STEPS = 80
PATTERNS = ("*", "*", "cls.*", "other.*", "n0", "n1", "cls.n1", "other.n1", "a.b", "a.b.*", "env", "*.*", "", "nobody")
CLASSES = ("cls", "cls", "other", "a", "a.b")
FIELDS = ("info", "observations", "actions", "rewards", "messages", "default_actors", "unavailable_actors", "bogus")
LIMITS: tuple[dict[str, int], ...] = (
    {},
    {},
    {"max_held_messages": 2},
    {"max_held_bytes": 80},
    {"max_said_per_tick": 3},
    {"max_said_bytes_per_tick": 150},
    {"max_held_back_bytes": 200},
)
CAUSES = (EndCause.PARTICIPANT_FAILED, EndCause.PARTICIPANT_LEFT, EndCause.PARTICIPANT_REFUSED)
WORDS = ("why", "ValueError: why\n  a line\n  another", "long " * 300)
SOURCES = ((1.0, 1.0), (-3.0, 0.25), (0.1, 0.5), (5.0, 0.0), (7.0, -1.0))


class Player:
    """Plays one trial.

    Args:
        seed: decides about everything.
    """

    def __init__(self, seed: int) -> None:
        self._rng = rng = random.Random(seed)
        names = [f"n{number}" for number in range(rng.randint(1, 4))]
        if rng.random() < 0.1:
            names[-1] = rng.choice(["a.b", "*", "cls.n1"])
        params = make_params(
            *(actor(name, **self._an_actor()) for name in names),
            max_steps=rng.choice([0, 0, 0, 1, 4, 9]),
            max_inactivity=rng.choice([0, 0, 0, 20]),
            nb_buffered_ticks=rng.choice([0, 2, 3, 5]),
            exclude=rng.sample(FIELDS, rng.choice([0, 0, 1, 2])),
        )
        # Not drawn from the same numbers, for the same reason as below.
        self._paces: list[float] = [0.5, 0.5, 1, 2, 5, 40]
        if seed % 4 == 2:
            self._give_rates(params, random.Random(seed))
        rules = TrialRules(heartbeat_seconds=rng.choice([0, 0, 3, 20]), **rng.choice(LIMITS))
        # Not drawn, so that the others are played as they were before there was this.
        self._goes_on = seed % 16 == 5
        taken_up = TakenUp(trial_id=("t", "other")[seed % 3 == 0], tick_id=seed % 5) if self._goes_on else None
        self.play = Play(params, rules=rules, collect_samples=rng.random() < 0.9, taken_up=taken_up)
        self._count = len(names)
        self._names = names
        self._kinds = self._temper()

    def _give_rates(self, params: TrialParams, rng: random.Random) -> None:
        hz = rng.choice([0, 0.5, 4, 4, 60])
        params.environment.tick_hz = hz
        for each in params.actors:
            each.observe_every = rng.choice([0, 0, 1, 2, 3])
            each.hold_action = rng.random() < 0.5
        if hz:
            self._paces += [rng.choice([0.4, 0.5, 1, 1, 1.5, 2, 3.7]) / hz for _ in range(12)]

    def _an_actor(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "actor_class": rng.choice(CLASSES),
            "endpoint": rng.choice([CLIENT, SERVICE, SERVICE]),
            "optional": rng.random() < 0.6,
            "initial_connection_timeout": rng.choice([0, 0, 5]),
            "response_timeout": rng.choice([0, 0, 1]),
            "default": rng.choice([None, None, b"", b"D"]),
        }

    def _temper(self) -> dict[Callable[[], None], int]:
        rng = self._rng
        harmless = (self.tick, self.observe, self.act, self.tell, self.reward, self.time_passes, self.say)
        late = (self.soft, self.last, self.acknowledge)
        harmful = (self.go, self.act_and_go, self.explain, self.break_the_rules, self.hard)
        kinds: dict[Callable[[], None], int] = {self.tick: 4, self.begin_somebody: 1}
        kinds |= {kind: rng.choice([0, 2, 4, 8]) for kind in harmless[1:]}
        kinds |= {kind: rng.choice([0, 0, 1]) for kind in late}
        if rng.random() < 0.5:
            kinds |= {kind: rng.choice([0, 0, 1]) for kind in harmful}
        return kinds

    def run(self) -> Play:
        """Play; raise DiffersError as soon as the trial is not as its account says."""
        rng = self._rng
        self.play.begin()
        before = (self.begin_somebody, self.tell, self.tell, self.reward, self.say, self.time_passes)
        for _ in range(rng.choice([0, 0, 5, 20])):
            harm = rng.choice([self.go, self.break_the_rules])
            self._do(harm if rng.random() < 0.05 else rng.choice(before))
        for index in rng.sample(range(self._count), self._count):
            if rng.random() < 0.9:
                self._do(lambda index=index: self._begin(index))  # type: ignore[misc]  # a default of its own
        self._do(lambda: self._begin(ENVIRONMENT))
        kinds, weights = list(self._kinds), list(self._kinds.values())
        for _ in range(STEPS):
            self._do(*rng.choices(kinds, weights))
        if rng.random() < 0.2:
            self.be_slow()
        self._do(self.last)
        for _ in range(self._count + 3):
            self._do(rng.choice([self.acknowledge_one, self.acknowledge_one, self.go, self.time_passes, self.tell]))
        self._do(self.acknowledge)
        return self.play

    @staticmethod
    def _do(step: Callable[[], object]) -> None:
        try:
            step()
        except LocalProtocolError:
            pass  # it is impossible now, and the account says so, too

    def _anybody(self) -> int:
        return self._rng.randrange(-1, self._count)

    def _tick_id(self) -> int:
        now = self.play.machine.tick_id
        return self._rng.choice([-1, -1, now, now, now + 1, now - 1, now - 2, 0, -2])

    # Steps

    def begin_somebody(self) -> None:
        self._begin(self._anybody())

    def _begin(self, index: int) -> None:
        if index == ENVIRONMENT:
            self.play.say(index, NORMAL, init_output=EnvInitialOutput(takes_up=self._goes_on and self._count < 4))
        elif self.play.params.actors[index].endpoint == CLIENT:
            try:
                slot = self.play.machine.slot_for(actor_name=self._names[index])
            except (NotFoundError, FailedPreconditionError):
                return
            self.play.feed(Joined(slot))
        else:
            self.play.say(index, NORMAL, init_output=ActorInitialOutput())

    def tick(self) -> None:
        self._do(lambda: self.play.observe(self._rng.choice([-1, self.play.beside.account.sets])))
        for index in range(self._count):
            if self._rng.random() < 0.93:
                self._do(lambda index=index: self.play.act(index))  # type: ignore[misc]  # a default of its own

    def observe(self) -> None:
        rng = self._rng
        count = self._count
        indexes = rng.choice([None, None, [0] * count, [0], [0] * (count + 2), [*range(count), 99], [-1] * count])
        self.play.observe(rng.choice([-1, -1, self._tick_id()]), actors_map=indexes)

    def act(self) -> None:
        content = self._rng.choice([b"", b"", b"again"])
        self.play.act(self._rng.randrange(self._count), tick_id=self._tick_id(), content=content)

    def tell(self) -> None:
        self.play.tell(self._anybody(), self._rng.choice(PATTERNS), tick_id=self._tick_id())

    def reward(self) -> None:
        sources = self._rng.sample(SOURCES, self._rng.choice([0, 1, 1, 2, 3]))
        self.play.reward(self._anybody(), self._rng.choice(PATTERNS), *sources, tick_id=self._tick_id())

    def time_passes(self) -> None:
        self.play.pass_time(self._rng.choice(self._paces))

    def say(self) -> None:
        self.play.say(self._anybody(), self._rng.choice([HEARTBEAT, HEARTBEAT, LAST_ACK, NORMAL]))

    def be_slow(self) -> None:
        """Take all the patience that there is with an end that was asked for."""
        self.play.soft()
        for seconds in (70, 70):
            self.play.pass_time(seconds)
            self._do(lambda: self.play.say(ENVIRONMENT, LAST))

    def soft(self) -> None:
        self.play.soft()

    def last(self) -> None:
        self.play.say(ENVIRONMENT, LAST)
        if self._rng.random() < 0.7:
            self.play.observe()

    def acknowledge(self) -> None:
        for index in range(-1, self._count):
            if self._rng.random() < 0.8:
                self._do(lambda index=index: self.play.ack(index))  # type: ignore[misc]  # a default of its own

    def acknowledge_one(self) -> None:
        self.play.ack(self._anybody())

    def act_and_go(self) -> None:
        index = self._rng.randrange(self._count)
        self._do(lambda: self.play.observe())
        self._do(lambda: self.play.act(index))
        self._go(index)

    def go(self) -> None:
        self._go(self._anybody())

    def _go(self, index: int) -> None:
        rng = self._rng
        if index in self.play.lost:
            return
        how = rng.choice(["half", "lost", "lost", *CAUSES])
        if isinstance(how, EndCause):
            self.play.feed(Lost(index, rng.choice(WORDS), how, "Traceback:\n  one line"))
        elif how == "half":
            self.play.half_close(index)
        else:
            self.play.lose(index, rng.choice(WORDS))

    def explain(self) -> None:
        index = self._anybody()
        if index not in self.play.lost:
            self.play.say(index, END, details=self._rng.choice(WORDS))

    def break_the_rules(self) -> None:
        state = self._rng.choice([0, LAST, 9])
        self.play.say(self._anybody(), state, **self._rng.choice([{}, {"reward": {}}]))

    def hard(self) -> None:
        if self._rng.random() < 0.2:
            self.play.hard()
        else:
            self.play.feed(ParametersComplete(self.play.params))
