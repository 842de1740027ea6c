"""A player of a world by itself: every state with everything that can happen, and walks in which each is answered."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import UnavailableError
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import Verdict
from trio_cogment.gateways.dm_env_rpc.gateway.records import PlayerRecord
from trio_cogment.gateways.dm_env_rpc.gateway.templates import WorldTemplate
from trio_cogment.gateways.dm_env_rpc.gateway.worlds import INTERRUPTED, RUNNING, TERMINATED, Awaits, Player, Reply
from trio_cogment.sdk import Event, EventType, RecvObservation, RecvReward, actor_params, trial_params
from trio_cogment.seats.mailbox import MailboxState

PARAMS: TrialParams = trial_params([actor_params("ann", "player", endpoint="cogment://client")])


class Mapping:
    """A mapping that takes every payload; `b"done"` says that the task is over."""

    default_action = b"default"

    def verdict(self, content: bytes) -> Verdict:
        return Verdict.TERMINATED if content == b"done" else Verdict.GOING_ON

    def describes(self, _: bytes) -> bool:
        return True


class FakeWorld:
    """A world whose trial goes on whether its players act or not."""

    def __init__(self) -> None:
        self.has_begun = self.has_started = True
        self.end_asked = self.is_asking = False
        self.changes = 0
        self.pokes = 0

    def __str__(self) -> str:
        return "world 'w'"

    def poke(self) -> None:
        self.pokes += 1

    def settled(self) -> None:
        self.changes += 1

    def why_not_begun(self, _: object) -> Exception:
        return UnavailableError("not begun")

    def why_ended(self, _: object) -> str:
        return "ended"

    def withdraw(self, player: Player) -> None:
        player.playing = False


class State(enum.Enum):
    """The states of a player, as the module tells them apart."""

    FREE = enum.auto()
    READY = enum.auto()
    FIRST = enum.auto()
    ACTING = enum.auto()
    NEXT = enum.auto()
    RESETTING = enum.auto()
    OVER = enum.auto()


class Told(enum.Enum):
    """What a request is answered with."""

    NOTHING = enum.auto()
    RUNNING = enum.auto()
    END = enum.auto()
    SPECS = enum.auto()
    ERROR = enum.auto()


class Played:
    """A player, a trial of it, and what its client is told."""

    def __init__(self) -> None:
        self.world = FakeWorld()
        there: Any = self.world
        self.player = Player("ann", "player", there)
        mapping: Any = Mapping()
        self.player.mapping = mapping
        self.replies: list[Reply] = []
        self.tick = -1
        self.begin_trial()

    def begin_trial(self) -> None:
        self.seat = self.player.take_seat(WorldTemplate(params=PARAMS))

    @property
    def state(self) -> State:
        player = self.player
        if not player.is_joined:
            assert player.awaits is None
            assert player.untold is None
            return State.FREE
        if player.awaits is not None:
            assert player.untold is None
            return {Awaits.FIRST: State.FIRST, Awaits.NEXT: State.NEXT, Awaits.END: State.RESETTING}[player.awaits]
        if player.untold is not None:
            assert not player.playing
            return State.OVER
        return State.ACTING if player.playing else State.READY

    def told(self) -> Told:
        """Return the answer that has come since the last call of this."""
        if not self.replies:
            return Told.NOTHING
        [reply] = self.replies
        self.replies.clear()
        if reply.error is not None:
            return Told.ERROR
        return {RUNNING: Told.RUNNING, TERMINATED: Told.END, INTERRUPTED: Told.END}.get(reply.state, Told.SPECS)

    # Inputs

    def join(self) -> None:
        self.player.record = PlayerRecord(actor_name="ann", actors=[("ann", "player")], environment_name="env")

    def leave(self) -> None:
        self.player.leave()
        self.world.withdraw(self.player)

    def step(self) -> None:
        self.player.step(b"action" if self.player.is_to_act else None)
        self.player.take_answer(self.replies.append)

    def reset(self) -> None:
        """As `World.reset` does it."""
        if not self.player.is_to_act:
            self.player.void()
            self.replies.append(Reply())
            return
        self.player.awaits = Awaits.END
        self.world.withdraw(self.player)
        self.player.take_answer(self.replies.append)

    def observation(self, content: bytes = b"seen", *, final: bool = False) -> None:
        self.tick += 1
        kind = EventType.ENDING if final else EventType.ACTIVE
        self.seat.on_event(Event(kind, self.tick, RecvObservation(self.tick, 0, content)))

    def done(self) -> None:
        self.observation(b"done")

    def end(self) -> None:
        self.seat.on_over(None)

    def failure(self) -> None:
        """As `World.fail` does it."""
        if self.player.awaits is not None:
            self.player.refuse(ValueError("planted"))

    def void(self) -> None:
        self.player.void()
        self.world.withdraw(self.player)


INPUTS: dict[str, Callable[[Played], None]] = {
    each.__name__: each
    for each in (
        *(Played.join, Played.leave, Played.step, Played.reset),
        *(Played.observation, Played.done, Played.end, Played.failure, Played.void),
    )
}
#: How to come into each state; the trial goes on in all of them but where it had to end.
WAYS: dict[State, list[str]] = {
    State.FREE: [],
    State.READY: ["join"],
    State.FIRST: ["join", "step"],
    State.ACTING: ["join", "step", "observation"],
    State.NEXT: ["join", "step", "observation", "step"],
    State.RESETTING: ["join", "step", "observation", "reset"],
    State.OVER: ["join", "step", "observation", "done"],
}
S, T = State, Told
#: What follows in each state from what can happen there.
RULES: dict[tuple[State, str], tuple[State, Told]] = {
    (S.FREE, "join"): (S.READY, T.NOTHING),
    **{(state, "leave"): (S.FREE, T.NOTHING) for state in State if state is not S.FREE},
    # Requests come while none waits.
    (S.READY, "step"): (S.FIRST, T.NOTHING),
    (S.ACTING, "step"): (S.NEXT, T.NOTHING),
    (S.OVER, "step"): (S.READY, T.END),
    (S.READY, "reset"): (S.READY, T.SPECS),
    (S.ACTING, "reset"): (S.RESETTING, T.NOTHING),
    (S.OVER, "reset"): (S.READY, T.SPECS),
    **{(state, "void"): (S.READY, T.NOTHING) for state in (S.READY, S.ACTING, S.OVER)},
    # What a client waits for. The first answer is RUNNING, whatever the observation says.
    (S.FIRST, "observation"): (S.ACTING, T.RUNNING),
    (S.FIRST, "done"): (S.ACTING, T.RUNNING),
    (S.NEXT, "observation"): (S.ACTING, T.RUNNING),
    (S.NEXT, "done"): (S.READY, T.END),
    (S.NEXT, "end"): (S.READY, T.END),
    (S.RESETTING, "end"): (S.READY, T.SPECS),
    (S.ACTING, "done"): (S.OVER, T.NOTHING),
    (S.ACTING, "end"): (S.OVER, T.NOTHING),
    # Without an observation there is no sequence; with one the client is still to be told of its end.
    (S.FIRST, "failure"): (S.READY, T.ERROR),
    **{(state, "failure"): (S.OVER, T.ERROR) for state in (S.NEXT, S.RESETTING)},
    # What does not concern the client: the trial goes on, or ends, without it.
    (S.FIRST, "end"): (S.FIRST, T.NOTHING),
    (S.ACTING, "observation"): (S.ACTING, T.NOTHING),
    (S.ACTING, "failure"): (S.ACTING, T.NOTHING),
    **{(S.RESETTING, each): (S.RESETTING, T.NOTHING) for each in ("observation", "done")},
    **{
        (state, each): (state, T.NOTHING)
        for state in (S.FREE, S.READY, S.OVER)
        for each in ("observation", "done", "end", "failure")
    },
}


@pytest.mark.parametrize("pair", sorted(RULES, key=str), ids=lambda pair: f"{pair[0].name}-{pair[1]}")
def test_every_pair(pair: tuple[State, str]) -> None:
    state, happened = pair
    played = Played()
    for each in WAYS[state]:
        INPUTS[each](played)
    assert played.state is state
    played.replies.clear()
    INPUTS[happened](played)
    assert (played.state, played.told()) == RULES[pair]


#: What the answers tell a client, as its library counts them: whether a sequence was running, and is.
ANSWERS = {Told.RUNNING: ((False, True), True), Told.END: ((True,), False), Told.SPECS: ((False, True), False)}
RUNS = {S.ACTING, S.NEXT, S.RESETTING, S.OVER}


@given(st.lists(st.sampled_from(sorted(INPUTS)), max_size=60))
def test_the_client_is_told_each_change(inputs: list[str]) -> None:
    """What a client has been told, by answers alone, is where it is; and no request goes without an answer."""
    played, runs, over = Played(), False, False
    for happened in inputs:
        before = played.state
        if (before, happened) not in RULES or (over and happened in ("observation", "done", "end")):
            continue
        INPUTS[happened](played)
        told = played.told()
        if told in ANSWERS:
            allowed, runs_now = ANSWERS[told]
            assert runs in allowed
            runs = runs_now
        elif happened in ("join", "void", "leave"):
            runs = False
        assert (played.state in RUNS) == runs
        if before in (S.FIRST, S.NEXT, S.RESETTING) and happened != "leave":
            assert (told is T.NOTHING) == (played.state is before)
        over = over or happened == "end"
        if over and played.state in (S.FIRST, S.READY):
            played.begin_trial()
            over = False


@pytest.mark.parametrize("request_made", ["step", "reset"])
async def test_after_an_error_the_end_comes_with_the_last_observation(request_made: str) -> None:
    played = Played()
    for each in (*WAYS[State.ACTING], request_made, "failure", "step"):
        INPUTS[each](played)
    assert played.replies[-1] == Reply(INTERRUPTED, b"seen")
    assert played.state is State.READY


async def test_a_request_that_waits_too_long_is_refused(autojump_clock: object) -> None:
    played = Played()
    for each in WAYS[State.ACTING]:
        INPUTS[each](played)
    played.replies.clear()
    played.player.step(b"action")
    reply = await played.player.answered(3)
    assert str(reply.error) == "DEADLINE_EXCEEDED: world 'w', actor 'ann': waited 3 s for the next observation"
    assert played.state is State.OVER


def test_the_final_observation_is_told_with_the_end() -> None:
    """Rewards that come between the two count, and so do those of observations that the client has not answered."""
    played = Played()
    for each in WAYS[State.ACTING]:
        INPUTS[each](played)
    played.replies.clear()
    for value in (1.0, 2.0, 4.0):
        played.seat.on_event(Event(EventType.ACTIVE, played.tick, reward=RecvReward(played.tick, value, [], "ann")))
        played.observation()
    played.step()
    played.observation(b"last", final=True)
    assert played.replies == []
    played.seat.on_event(Event(EventType.ENDING, played.tick, reward=RecvReward(played.tick, 8.0, [], "ann")))
    played.end()
    assert played.replies == [Reply(TERMINATED, b"last", 15.0)]


def test_default_actions_are_played_where_no_client_acts() -> None:
    played, states = Played(), []
    for asking in (False, True, False):
        played.world.is_asking = asking
        played.observation()
        states.append(played.seat.mailbox.state)
    assert states == [MailboxState.ACTED, MailboxState.TURN, MailboxState.ACTED]


def test_one_may_take_over_in_the_middle_unless_the_trial_is_ending() -> None:
    played = Played()
    played.observation()
    played.join()
    played.world.end_asked = True
    played.step()
    played.observation()
    assert played.state is State.FIRST
    played.world.end_asked = False
    played.observation(b"now")
    assert played.replies == [Reply(RUNNING, b"now")]


def test_the_world_is_told_of_what_others_may_wait_for() -> None:
    """A client that comes, goes or is told; not every step."""
    played = Played()
    for happened, told in [("join", 0), ("step", 0), ("observation", 1), ("end", 1), ("step", 1), ("leave", 1)]:
        before = played.world.changes
        INPUTS[happened](played)
        assert played.world.changes - before == told, happened
    assert played.world.pokes == 1
