"""The place of an old client, without a trial: which call is answered when, and with what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import RewardSource
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from trio_cogment.base.host import Host
from trio_cogment.gateways.legacy import client_seat
from trio_cogment.gateways.legacy.actor_ids import ActorIds
from trio_cogment.gateways.legacy.client_seat import ClientSeat
from trio_cogment.sdk import Event, EventType, RecvObservation, RecvReward
from trio_cogment.seats.mailbox import Answer, Mailbox
from trio_cogment.seats.seat import Seat


class Place:
    """A client's place, whose trial is played by hand."""

    def __init__(self, nursery: trio.Nursery) -> None:
        ids = ActorIds(["player"], [("ann", "player")])
        opener: Any = None
        self.place = ClientSeat(nursery, opener, "t", ids, ids.members[0], b"config", Host())
        self.nursery = nursery
        self.tick_id = -1
        #: Of each call, when it is answered: its answer or its error.
        self.answers: list[Any] = []
        self.acted: list[tuple[int, bytes]] = []
        self.scope = trio.CancelScope()

    @property
    def seat(self) -> Seat:
        return self.place._seat

    @property
    def mailbox(self) -> Mailbox:
        return self.seat.mailbox

    async def call(self, what: Callable[[], Awaitable[Any]]) -> None:
        """Make a call, as far as it gets without anything else."""

        async def run() -> None:
            with trio.CancelScope() as self.scope:
                try:
                    self.answers.append(await what())
                except CogmentError as error:
                    self.answers.append(error)

        self.nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()

    async def join(self) -> None:
        await self.call(lambda: self.place.join("session"))

    async def act(self, content: bytes = b"a") -> None:
        await self.call(lambda: self.place.act(content))

    async def hang_up(self) -> None:
        self.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()

    async def observe(self, *, final: bool = False) -> None:
        self.tick_id += 1
        kind = EventType.ENDING if final else EventType.ACTIVE
        content = b"see %d" % self.tick_id
        self.mailbox.put(Event(kind, self.tick_id, RecvObservation(self.tick_id, 0, content)))
        await trio.testing.wait_all_tasks_blocked()

    async def end(self, error: Exception | None = None) -> None:
        self.seat.on_over(error)
        await trio.testing.wait_all_tasks_blocked()

    def seen(self) -> list[Any]:
        """Return the answers: of each the observation, or the kind of the error; `!` after the final one."""
        found: list[Any] = []
        for answer in self.answers:
            if isinstance(answer, CogmentError):
                found.append(type(answer))
            else:
                over = getattr(answer, "trial_is_over", False)
                found.append(answer.observation.data.content.decode() + "!" * over)
        return found


@pytest.fixture(autouse=True)
def _no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seat, "join", lambda *_arguments, **_options: None)


@asynccontextmanager
async def opened() -> AsyncIterator[Place]:
    async with trio.open_nursery() as nursery:
        place = Place(nursery)
        do = Mailbox.act

        def act(mailbox: Mailbox, tick_id: int | None = None) -> Answer:
            answer = do(mailbox, tick_id)
            if answer is Answer.SEND:
                place.acted.append((mailbox.tick_id, b""))
            return answer

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Mailbox, "act", act)
            yield place
        nursery.cancel_scope.cancel()


async def played(place: Place, steps: str) -> list[Any]:
    """Do one thing after another: Join, Act, hang Up, Observe, Final observation, End, Refuse, Lose."""
    doing: dict[str, Callable[[], Awaitable[None]]] = {
        "J": place.join,
        "A": place.act,
        "U": place.hang_up,
        "O": place.observe,
        "F": lambda: place.observe(final=True),
        "E": place.end,
        "R": lambda: place.end(NotFoundError("no such actor")),
    }
    for step in steps:
        await doing[step]()
    return place.seen()


@pytest.mark.parametrize(
    ("steps", "answers", "acted"),
    [
        # Nobody has joined.
        ("A", [FailedPreconditionError], 0),
        # Joining, with a call that waits or without.
        ("JO", ["see 0"], 0),
        ("JF", ["see 0"], 0),
        ("JE", [UnavailableError], 0),
        ("JR", [NotFoundError], 0),
        ("JRJO", [NotFoundError, "see 0"], 0),
        ("JJ", [UnavailableError], 0),
        ("JUJO", ["see 0"], 0),
        ("JUR", [], 0),
        ("JURA", [FailedPreconditionError], 0),
        ("JURJO", ["see 0"], 0),
        ("JUE", [], 0),
        ("JUEJ", [FailedPreconditionError], 0),
        ("JUEA", ["!"], 0),
        ("JUOJ", ["see 0"], 0),
        ("JUFJ", ["see 0"], 0),
        # An action that waits for the first observation.
        ("JUAO", [], 1),
        ("JUAOO", ["see 1"], 1),
        ("JUAE", ["!"], 0),
        ("JUAFE", ["see 0!"], 0),
        ("JUAR", [NotFoundError], 0),
        ("JUAUO", [], 0),
        ("JUAUOJ", ["see 0"], 0),
        ("JUAUOAO", ["see 1"], 1),
        # The first observation is here, and no call has taken it.
        ("JUOA", [], 1),
        ("JUOOJ", ["see 1"], 0),
        ("JUOEA", ["see 0!"], 0),
        # The client is to act.
        ("JOJ", ["see 0", AlreadyExistsError], 0),
        ("JOOAO", ["see 0", "see 2"], 1),
        ("JOEA", ["see 0", "see 0!"], 0),
        ("JOFA", ["see 0"], 0),
        ("JOFAE", ["see 0", "see 1!"], 0),
        # It has acted; its call waits, or has gone.
        ("JOAO", ["see 0", "see 1"], 1),
        ("JOAA", ["see 0", UnavailableError], 1),
        ("JOAE", ["see 0", "see 0!"], 1),
        ("JOAFE", ["see 0", "see 1!"], 1),
        ("JOAUJ", ["see 0", AlreadyExistsError], 1),
        ("JOAUAO", ["see 0", "see 1"], 1),
        ("JOAUE", ["see 0"], 1),
        # What came of its action is here, and no call has taken it.
        ("JOAUOJ", ["see 0", AlreadyExistsError], 1),
        ("JOAUOA", ["see 0", "see 1"], 1),
        ("JOAUOOA", ["see 0", "see 2"], 1),
        ("JOAUOAAO", ["see 0", "see 1", "see 2"], 2),
        ("JOAUOEA", ["see 0", "see 1!"], 1),
        # It is over.
        ("JOEAA", ["see 0", "see 0!", "see 0!"], 0),
        ("JOEJ", ["see 0", FailedPreconditionError], 0),
        ("JOEAJ", ["see 0", "see 0!", FailedPreconditionError], 0),
    ],
)
async def test_every_call_in_every_state(steps: str, answers: list[Any], acted: int) -> None:
    async with opened() as place:
        assert await played(place, steps) == answers
        assert len(place.acted) == acted


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from("AAAUUOOOFE"), max_size=12))
def test_an_action_counts_once_and_nothing_is_lost(steps: list[str]) -> None:
    async def main() -> None:
        async with opened() as place:
            await played(place, "JU")
            final = ended = False
            for step in steps:
                if (final or ended) and step in "OF":
                    continue
                final, ended = final or step == "F", ended or step == "E"
                await played(place, step)
            ticks = [tick for tick, _ in place.acted]
            assert len(set(ticks)) == len(ticks)
            # Whatever has happened, a call at the end gets the newest observation, if the trial has ended.
            await place.hang_up()
            await place.end()
            await place.act()
            newest = f"see {place.tick_id}" if place.tick_id >= 0 else ""
            assert place.seen()[-1] == f"{newest}!"

    trio.run(main)


async def test_who_has_ended_the_trial_acts_with_nothing() -> None:
    async with opened() as place:
        await played(place, "JO")
        place.place.drain()
        assert [tick for tick, _ in place.acted] == [0]
        await played(place, "O")
        assert [tick for tick, _ in place.acted] == [0, 1]
        assert await played(place, "AFE") == ["see 0", "see 2!"]


async def test_who_has_ended_the_trial_while_a_call_waits_acts_with_nothing_after_it() -> None:
    async with opened() as place:
        await played(place, "JOA")
        place.place.drain()
        assert await played(place, "O") == ["see 0", "see 1"]
        assert [tick for tick, _ in place.acted] == [0, 1]


async def test_what_fails_in_the_gateway_is_told_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as place:
        await played(place, "J")
        await place.end(ValueError("a secret"))
        await place.act()
    assert "the gateway failed; its log has the details" in str(place.answers[0])
    assert place.seen() == [UnavailableError, FailedPreconditionError]  # and then nobody has joined


async def test_an_action_that_cannot_be_sent_may_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_seat: Seat, _action: bytes) -> Answer:
        raise ResourceExhaustedError("the orchestrator does not read")

    async with opened() as place:
        await played(place, "JO")
        with monkeypatch.context() as patched:
            patched.setattr(Seat, "act", full)
            assert await played(place, "A") == ["see 0", ResourceExhaustedError]
        assert await played(place, "AO") == ["see 0", ResourceExhaustedError, "see 1"]
        assert len(place.acted) == 1


async def test_a_client_that_joins_again_without_a_session_keeps_the_one_that_it_had() -> None:
    async with opened() as place:
        await played(place, "JUO")
        await place.call(lambda: place.place.join(""))
        assert place.seen() == ["see 0"]
        assert place.place.session_id == "session"


async def test_the_final_answer_stays_as_it_was_given() -> None:
    async with opened() as place:
        await played(place, "JO")
        place.mailbox.put(Event(EventType.ACTIVE, 0, reward=RecvReward(0, 3.0, [RewardSource(value=3.0)])))
        await played(place, "EAA")
        assert [answer.reward.value for answer in place.answers[1:]] == [3.0, 3.0]


async def test_what_is_kept_for_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_seat, "MAX_KEPT_ITEMS", 2)
    async with opened() as place:
        await played(place, "JO")
        for value in range(1, 5):
            place.mailbox.put(Event(EventType.ACTIVE, 0, reward=RecvReward(0, value, [])))
        await played(place, "AO")
        assert place.answers[1].reward.value == 1 + 2


async def test_who_leaves_is_answered() -> None:
    async with opened() as place:
        place.place.leave()  # nobody has joined
        await played(place, "JOA")
        place.place.leave()
        await trio.testing.wait_all_tasks_blocked()
        assert place.seen() == ["see 0", "see 0!"]
        assert place.place.is_over
