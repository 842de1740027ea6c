"""Every state and input of a mailbox, and sequences of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from google.protobuf import any_pb2
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import RewardSource
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.sdk import Event, EventType, RecvMessage, RecvObservation, RecvReward
from trio_cogment.seats.mailbox import (
    ENDED,
    ITEM_BYTES,
    REFUSED,
    TABLE,
    TURNS,
    Answer,
    Mailbox,
    MailboxInput,
    MailboxState,
)

_S, _I, _A = MailboxState, MailboxInput, Answer

#: For each state: what OBSERVATION, FINAL, END, ACT, TAKE and LEAVE lead to, and what follows.
_EXPECTED: dict[MailboxState, str] = {
    _S.WAITING: "TURN.TELL FINAL_TURN.TELL OVER.TELL WAITING.EARLY WAITING.NOTHING LEFT.TELL",
    _S.TURN: "TURN.TELL FINAL_TURN.TELL ENDED_TURN.TELL ACTED.SEND TURN.OBSERVATION LEFT.TELL",
    _S.ACTED: "TURN.TELL FINAL_TURN.TELL OVER.TELL ACTED.ACTED ACTED.NOTHING LEFT.TELL",
    _S.FINAL_TURN: "FINAL_TURN.TELL FINAL_TURN.TELL ENDED_TURN.TELL ACTED.DROP FINAL_TURN.OBSERVATION LEFT.TELL",
    _S.ENDED_TURN: 3 * "ENDED_TURN.NOTHING " + "OVER.DROP ENDED_TURN.OBSERVATION LEFT.TELL",
    _S.OVER: "OVER.NOTHING OVER.NOTHING OVER.NOTHING OVER.DROP CLOSED.END LEFT.TELL",
    _S.CLOSED: "CLOSED.NOTHING CLOSED.NOTHING CLOSED.NOTHING CLOSED.GONE CLOSED.END CLOSED.GONE",
    _S.LEFT: "LEFT.NOTHING LEFT.NOTHING LEFT.NOTHING LEFT.GONE LEFT.END LEFT.GONE",
}
#: Leads to each state.
_WAY: dict[MailboxState, list[MailboxInput]] = {
    _S.WAITING: [],
    _S.TURN: [_I.OBSERVATION],
    _S.ACTED: [_I.OBSERVATION, _I.ACT],
    _S.FINAL_TURN: [_I.FINAL],
    _S.ENDED_TURN: [_I.OBSERVATION, _I.END],
    _S.OVER: [_I.END],
    _S.CLOSED: [_I.END, _I.TAKE],
    _S.LEFT: [_I.LEAVE],
}


def observation(tick_id: int, *, final: bool = False) -> Event[Any, None]:
    kind = EventType.ENDING if final else EventType.ACTIVE
    return Event(kind, tick_id, RecvObservation(tick_id, 0, f"observation {tick_id}"))


def reward(value: float, sources: int = 0) -> Event[Any, None]:
    return Event(EventType.ACTIVE, 0, reward=RecvReward(0, value, [RewardSource(sender_name="x" * 10)] * sources))


def message(text: str) -> Event[Any, None]:
    payload = any_pb2.Any()
    payload.Pack(StringValue(value=text))
    return Event(EventType.ACTIVE, 0, message=RecvMessage(0, "env", payload))


class Played:
    """A mailbox, and what it has told."""

    def __init__(self, **arguments: Any) -> None:
        self.mailbox = Mailbox(self._on_news, **arguments)
        self.told = 0
        self.tick_id = -1

    def _on_news(self) -> None:
        self.told += 1

    def do(self, given: MailboxInput) -> Answer | None:
        """Have one thing happen; None for what has no answer."""
        if given is _I.ACT:
            return self.mailbox.act()
        if given is _I.TAKE:
            return self.mailbox.take()
        if given is _I.LEAVE:
            return self.mailbox.leave()
        if given is _I.END:
            self.mailbox.end()
        else:
            self.tick_id += 1
            self.mailbox.put(observation(self.tick_id, final=given is _I.FINAL))
        return None


def test_the_table_has_every_pair() -> None:
    assert set(TABLE) == set(itertools.product(MailboxState, MailboxInput))


@pytest.mark.parametrize("given", MailboxInput)
@pytest.mark.parametrize("state", MailboxState)
def test_every_pair(state: MailboxState, given: MailboxInput) -> None:
    follows, answer = _EXPECTED[state].split()[given - 1].split(".")
    played = Played()
    for one in _WAY[state]:
        played.do(one)
    mailbox = played.mailbox
    assert mailbox.state is state
    before = played.told
    got = played.do(given)
    assert mailbox.state is MailboxState[follows]
    if got is not None:
        assert got is Answer[answer]
    assert played.told - before == (answer == "TELL")


def test_what_is_seen_is_the_newest_observation() -> None:
    played = Played()
    mailbox = played.mailbox
    assert (mailbox.tick_id, mailbox.observation, mailbox.is_turn) == (-1, None, False)
    for tick_id in range(3):
        mailbox.put(observation(tick_id))
    assert mailbox.observation is not None
    assert (mailbox.tick_id, mailbox.observation.payload, mailbox.final) == (2, "observation 2", False)
    mailbox.put(observation(3, final=True))
    assert (mailbox.tick_id, mailbox.final, mailbox.has_ended) == (3, True, False)
    mailbox.end()
    mailbox.put(observation(4))
    assert (mailbox.tick_id, mailbox.has_ended, mailbox.is_turn) == (3, True, True)
    assert played.told == 5


def test_news_is_unread_until_it_was_taken() -> None:
    mailbox = Played().mailbox
    unread = [mailbox.unread]
    for happens in (
        *(lambda: mailbox.put(observation(0)), mailbox.take, mailbox.act, lambda: mailbox.put(observation(1))),
        *(mailbox.act, mailbox.end, mailbox.take),  # it acts without looking
    ):
        happens()
        unread.append(mailbox.unread)
    assert unread == [False, True, False, False, True, False, True, False]


def test_the_end_that_came_during_a_turn_is_news_after_the_action() -> None:
    mailbox = Played().mailbox
    mailbox.put(observation(0))
    mailbox.end()
    answers = [(answer(), mailbox.unread) for answer in (mailbox.take, mailbox.act, mailbox.take)]
    assert answers == [(_A.OBSERVATION, False), (_A.DROP, True), (_A.END, False)]


def test_an_action_for_another_tick_changes_nothing() -> None:
    mailbox = Played().mailbox
    mailbox.put(observation(4))
    mailbox.put(reward(1.0))
    mailbox.take()
    for tick_id in (3, 5, -1):
        assert mailbox.act(tick_id) is _A.LATE
    assert mailbox.state is _S.TURN
    assert len(mailbox.rewards) == 1
    assert mailbox.act(4) is _A.SEND
    assert mailbox.act(4) is _A.ACTED  # and not LATE: the state comes first
    mailbox.end()
    assert mailbox.act(3) is _A.LATE
    assert mailbox.act(4) is _A.DROP
    assert mailbox.take() is _A.END
    assert mailbox.act(3) is _A.GONE


def test_rewards_and_messages_stay_until_the_client_that_was_told_acts() -> None:
    mailbox = Played().mailbox
    mailbox.put(reward(1.0))
    mailbox.put(message("a"))
    mailbox.put(observation(0))
    mailbox.take()
    mailbox.put(reward(2.0))
    mailbox.put(message("b"))
    # It was not told of these, whatever it does now.
    mailbox.act()
    assert [each.value for each in mailbox.rewards] == [2.0]
    assert len(mailbox.messages) == 1
    mailbox.put(observation(1))
    mailbox.take()
    mailbox.take()
    assert [each.value for each in mailbox.rewards] == [2.0]
    mailbox.act()
    assert (mailbox.rewards, mailbox.messages) == ([], [])


def test_an_action_that_was_not_sent_is_taken_back() -> None:
    mailbox = Played().mailbox
    mailbox.put(reward(1.0))
    mailbox.put(message("a"))
    mailbox.put(observation(0))
    mailbox.take()
    mailbox.put(reward(2.0))
    mailbox.act()
    mailbox.take_back()
    assert mailbox.state is _S.TURN
    assert [each.value for each in mailbox.rewards] == [1.0, 2.0]
    assert len(mailbox.messages) == 1
    mailbox.act()
    # It was told of the first one only.
    assert [each.value for each in mailbox.rewards] == [2.0]
    mailbox.put(observation(1))
    mailbox.take_back()  # something has come since
    assert mailbox.state is _S.TURN
    assert [each.value for each in mailbox.rewards] == [2.0]
    mailbox.act()
    mailbox.take_back()
    assert [each.value for each in mailbox.rewards] == [2.0]  # nothing was told, so nothing comes back twice


def test_rewards_and_messages_are_bounded_in_bytes() -> None:
    mailbox = Played(max_bytes=3 * ITEM_BYTES).mailbox
    for _ in range(3):
        mailbox.put(reward(1.0))
    mailbox.put(observation(0))
    with pytest.raises(ResourceExhaustedError, match=f"more than {3 * ITEM_BYTES} bytes of rewards and messages"):
        mailbox.put(message(""))


def test_room_comes_back_with_the_action_and_goes_again_when_it_is_taken_back() -> None:
    mailbox = Played(max_bytes=3 * ITEM_BYTES).mailbox
    for _ in range(20):
        mailbox.put(observation(0))
        for _ in range(2):
            mailbox.put(reward(1.0))
        mailbox.take()
        mailbox.put(reward(2.0))
        mailbox.act()
        mailbox.take_back()
        with pytest.raises(ResourceExhaustedError):
            mailbox.put(reward(3.0))
        mailbox.take()
        mailbox.act()
        assert mailbox.rewards == []


def test_what_a_reward_brings_counts() -> None:
    mailbox = Played(max_bytes=2 * ITEM_BYTES).mailbox
    mailbox.put(reward(1.0, sources=1))
    with pytest.raises(ResourceExhaustedError):
        mailbox.put(reward(1.0, sources=6))


def test_somebody_else_may_take_rewards_and_messages() -> None:
    seen: list[Any] = []

    def aside(event: Event[Any, None]) -> bool:
        seen.append(event)
        return event.reward is not None

    mailbox = Played(aside=aside).mailbox
    mailbox.put(reward(1.0))
    mailbox.put(message("a"))
    mailbox.put(observation(0))
    assert mailbox.rewards == []
    assert len(mailbox.messages) == 1
    assert len(seen) == 2


def test_whoever_is_told_may_act_at_once() -> None:
    acted: list[int] = []

    def on_news() -> None:
        if mailbox.take() is _A.OBSERVATION and mailbox.act() is _A.SEND:
            acted.append(mailbox.tick_id)

    mailbox = Mailbox(on_news)
    for tick_id in range(3):
        mailbox.put(observation(tick_id))
        assert mailbox.state is _S.ACTED
    mailbox.put(observation(3, final=True))
    mailbox.end()
    assert acted == [0, 1, 2]
    assert mailbox.state is _S.CLOSED


@given(st.lists(st.sampled_from(MailboxInput)))
def test_sequences(given: list[MailboxInput]) -> None:
    played = Played()
    mailbox = played.mailbox
    ended = False
    sent: set[int] = set()
    for one in given:
        before, told = mailbox.state, played.told
        got = played.do(one)
        ended = ended or one in (_I.END, _I.LEAVE)
        assert mailbox.has_ended is ended
        if ended:
            assert mailbox.take() in (_A.OBSERVATION, _A.END)  # whoever waits has something to be told
            assert mailbox.state in ENDED
        if got is _A.SEND:
            assert before is _S.TURN
            assert mailbox.tick_id not in sent  # an action counts once
            sent.add(mailbox.tick_id)
        if got in REFUSED:
            assert mailbox.state is before
        if one is _I.TAKE and got is _A.OBSERVATION:
            assert before in TURNS
        if played.told > told:
            assert mailbox.unread or ended


@pytest.mark.parametrize("state", ENDED)
def test_nothing_is_kept_for_who_reads_nothing_any_more(state: MailboxState) -> None:
    played = Played()
    mailbox = played.mailbox
    for one in _WAY[state]:
        played.do(one)
        mailbox.put(reward(1))
        mailbox.put(message("hello"))
    mailbox.forget()
    assert mailbox.state is state
    assert (mailbox.observation, mailbox.tick_id, mailbox.rewards, mailbox.messages) == (None, -1, [], [])
