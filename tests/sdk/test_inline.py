"""Sessions whose events are handled where they arrive, by a plain function."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import trio
from google.protobuf.wrappers_pb2 import DoubleValue, StringValue, UInt32Value
from outcome import Outcome

from tests.cli.process import listening, served
from tests.sdk.test_sessions import (
    PLAYERS,
    SPEC,
    TICKS,
    game_params,
    played_in_process,
    sorted_messages,
)
from trio_cogment import (
    ActorSession,
    EnvironmentSession,
    Event,
    EventType,
    Participants,
    Reward,
    actor_params,
    open_platform,
)
from trio_cogment import trial_params as make_params
from trio_cogment.api.common_pb2 import ActorInitialInput, ActorRunTrialInput, ActorRunTrialOutput, CommunicationState
from trio_cogment.base.errors import LocalProtocolError, ResourceExhaustedError, RpcError, StatusCode, TrialFailedError
from trio_cogment.base.host import Host
from trio_cogment.base.log_context import bound_trial
from trio_cogment.base.outcome import EndCause
from trio_cogment.platform import Platform
from trio_cogment.sdk._inline import EVENTS_PER_TURN, MAX_WAITING_MESSAGES

Seen = dict[str, list[Any]]


def inline_game(seed: int) -> tuple[Participants, Seen]:
    """The game of `test_sessions.recording_game`, by plain functions."""
    participants, seen = Participants(SPEC, host=Host(wall_clock=lambda: 5)), Seen(env=[])

    async def environment(session: EnvironmentSession) -> None:
        dice, saw = random.Random(f"{seed} env {session.config}"), seen["env"]
        saw.append(("config", session.config, [(a.index, a.name, a.actor_class) for a in session.actors]))

        def observations() -> list[tuple[str | int, Any]]:
            return [
                ("number.*", UInt32Value(value=dice.randrange(100))),
                ("rita", dice.randbytes(4)),
                ("nick", UInt32Value(value=dice.randrange(100))),
            ]

        tick = 0

        def on_event(event: Event) -> None:
            nonlocal tick
            if event.message is not None:
                text = StringValue()
                assert event.message.payload.Unpack(text)
                saw.append((event.message.sender_name, text.value))
            elif event.actions is None:
                saw.append((event.type, event.tick_id))
            else:
                tick += 1
                saw.append(
                    (event.type, event.tick_id, [(a.actor_index, a.available, a.payload) for a in event.actions])
                )
                session.add_reward_nowait(
                    dice.random(), 0.5, ["nick", "number.nora"], user_data=DoubleValue(value=tick)
                )
                session.add_reward_nowait(dice.random(), 1.5, "*")
                session.send_message_nowait(StringValue(value=f"tick {tick}"), "raw.*")
                if tick == TICKS:
                    session.end_nowait(observations())
                else:
                    session.produce_observations_nowait(observations())

        await session.start(observations())
        await session.handle(on_event)

    async def actor(session: ActorSession) -> None:
        dice = random.Random(f"{seed} {session.name}")
        saw = seen[session.name] = [("config", session.actor_class, session.config, session.environment_name)]

        def on_event(event: Event) -> None:
            assert bound_trial() == session.trial_id
            if event.observation is not None:
                saw.append((event.type, event.tick_id, event.observation.timestamp, event.observation.payload))
                raw = session.actor_class == "raw"
                session.do_action_nowait(dice.randbytes(3) if raw else UInt32Value(value=dice.randrange(1000)))
                if event.tick_id == 3:
                    session.send_message_nowait(StringValue(value=f"from {session.name}"), "env")
            elif event.reward is not None:
                sources = [(s.sender_name, s.value, s.confidence, s.user_data.value) for s in event.reward.sources]
                saw.append(("reward", event.reward.tick_id, event.reward.value, sources))
            elif event.message is not None:
                saw.append(("message", event.message.sender_name, event.message.payload.value))
            else:
                saw.append((event.type, event.tick_id))

        await session.handle(on_event)

    participants.register_environment(environment, "game")
    participants.register_actor(actor, "player", ["number", "raw"])
    return participants, seen


async def play_inline(seed: int, *, sockets: bool) -> Seen:
    participants, seen = inline_game(seed)
    with trio.fail_after(30):
        async with open_platform(None if sockets else participants) as platform:
            if sockets:
                async with listening(*participants.services()) as endpoint:
                    await play_one(platform, endpoint)
            else:
                await play_one(platform, "cogment://discover")
    return seen


async def play_one(platform: Platform, endpoint: str) -> None:
    trial_id = await platform.controller.start_trial(game_params(endpoint))
    outcome = await platform.controller.wait_trial(trial_id)
    assert outcome.ticks == TICKS + 1


@pytest.mark.parametrize("sockets", [False, True])
async def test_plain_functions_see_what_coroutines_see(sockets: bool) -> None:
    theirs, ours = await played_in_process(5), await play_inline(5, sockets=sockets)
    assert sorted_messages(ours) == sorted_messages(theirs)
    for name in PLAYERS:
        assert ours[name][-1] == (EventType.FINAL, TICKS)


class Seat:
    """An actor that a caller drives: the events that have come, and the session to act in."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.session: ActorSession | None = None

    async def run(self, session: ActorSession) -> None:
        self.session = session
        await session.handle(self.events.append)

    def act(self, action: bytes) -> list[Event]:
        """Act, and return what has happened when that returns."""
        assert self.session is not None
        self.events.clear()
        self.session.do_action_nowait(action)
        return list(self.events)


async def echo(session: EnvironmentSession) -> None:
    """Reward and show each actor its own action; end when one says so."""

    def on_event(event: Event) -> None:
        if event.actions is None:
            return
        shown = [(action.actor_index, action.payload) for action in event.actions]
        session.add_reward_nowait(len(event.actions[0].payload), 1, "*")
        if event.actions[0].payload == b"end":
            session.end_nowait(shown)
        else:
            session.produce_observations_nowait(shown)

    await session.start([("*", b"first")])
    await session.handle(on_event)


def one_seat() -> Any:
    return make_params([actor_params("me", "seat")])


async def test_answer_is_there_when_the_action_has_been_sent() -> None:
    seat = Seat()
    async with open_platform() as platform:
        platform.participants.register_environment(echo)
        platform.participants.register_actor(seat.run, "seat")
        trial_id = await platform.controller.start_trial(one_seat())
        await trio.testing.wait_all_tasks_blocked()
        for tick in range(1, 40):
            reward, observation = seat.act(b"%d" % tick)
            assert reward.reward is not None
            assert observation.observation is not None
            assert (reward.reward.value, observation.observation.payload) == (len(str(tick)), b"%d" % tick)
            assert (observation.type, observation.tick_id) == (EventType.ACTIVE, tick)
        last = seat.act(b"end")
        assert [event.type for event in last if event.reward is None] == [EventType.ENDING, EventType.FINAL]
        outcome = await platform.controller.wait_trial(trial_id)
        assert outcome.ticks == 41
        assert seat.session is not None
        assert seat.session.is_over
        with pytest.raises(LocalProtocolError, match="do_action_nowait: the trial is over"):
            seat.act(b"late")


def test_caller_between_the_turns_of_a_trio_that_is_a_guest() -> None:
    """A loop that is not Trio's acts in the trial, and has the answer when the action has been sent."""
    turns: deque[Callable[[], object]] = deque()
    ended: list[Outcome[None]] = []
    seat, closing = Seat(), []

    async def idle() -> None:
        while True:
            await trio.lowlevel.checkpoint()  # so that no turn waits for input and output in a thread

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(idle)
            async with open_platform() as platform:
                closing.append(trio.Event())
                platform.participants.register_environment(echo)
                platform.participants.register_actor(seat.run, "seat")
                trial_id = await platform.controller.start_trial(one_seat())
                await platform.controller.wait_trial(trial_id)
                await closing[0].wait()
            nursery.cancel_scope.cancel()

    trio.lowlevel.start_guest_run(
        main,
        run_sync_soon_threadsafe=turns.append,
        run_sync_soon_not_threadsafe=turns.append,
        done_callback=ended.append,
        host_uses_signal_set_wakeup_fd=True,
    )
    while not seat.events:
        turns.popleft()()
    seen = [[event.observation.payload for event in seat.act(b"%d" % tick) if event.observation] for tick in range(99)]
    assert seen == [[b"%d" % tick] for tick in range(99)]
    assert [event.type for event in seat.act(b"end")][-1] is EventType.FINAL
    closing[0].set()
    while not ended:
        turns.popleft()()
    ended[0].unwrap()


@pytest.mark.parametrize("who", ["environment", "actor"])
async def test_exception_is_the_failure_of_the_implementation(who: str, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[Event] = []

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"")])
        await session.handle(partial(fail if who == "environment" else lambda event: None))

    async def actor(session: ActorSession) -> None:
        def act(event: Event) -> None:
            session.do_action_nowait(b"")

        await session.handle(fail if who == "actor" else act)

    def fail(event: Event) -> None:
        calls.append(event)
        raise ZeroDivisionError("no luck")

    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "a")
        trial_id = await platform.controller.start_trial(one_seat())
        with pytest.raises(TrialFailedError, match="ZeroDivisionError: no luck") as caught:
            await platform.controller.wait_trial(trial_id)
    assert caught.value.outcome.cause is EndCause.PARTICIPANT_FAILED
    assert len(calls) == 1
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


async def test_who_has_more_to_say_says_when_it_is_done() -> None:
    done: list[str] = []

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"")], auto_done_sending=False)
        await session.handle(lambda event: session.end_nowait([("*", b"last")]) if event.actions else None)

    async def actor(session: ActorSession) -> None:
        await session.start(auto_done_sending=False)
        sessions.append(session)
        await session.handle(lambda event: session.do_action_nowait(b"") if event.observation else None)
        done.append(session.name)

    sessions: list[ActorSession] = []
    environments: list[EnvironmentSession] = []

    async def keeping(session: EnvironmentSession) -> None:
        environments.append(session)
        await environment(session)

    async with open_platform() as platform:
        platform.participants.register_environment(keeping)
        platform.participants.register_actor(actor, "a")
        trial_id = await platform.controller.start_trial(one_seat())
        await trio.testing.wait_all_tasks_blocked()
        session, game = sessions[0], environments[0]
        assert [session.is_over, game.is_over] == [False, False]
        session.send_message_nowait(StringValue(value="that was it"), "env")
        session.sending_done_nowait()
        assert [session.is_over] == [False]
        game.add_reward_nowait(1, 1, "me")
        game.sending_done_nowait()
        assert [session.is_over, game.is_over] == [True, True]
        await platform.controller.wait_trial(trial_id)
    assert done == ["me"]


async def test_environment_that_is_driven_ends_the_trial() -> None:
    environments: list[EnvironmentSession] = []
    seat, actions = Seat(), []

    async def environment(session: EnvironmentSession) -> None:
        environments.append(session)
        await session.start()
        await session.handle(lambda event: actions.append(event.tick_id) if event.actions else None)

    async def actor(session: ActorSession) -> None:
        await session.handle(lambda event: session.do_action_nowait(b"") if event.observation else None)

    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "a")
        trial_id = await platform.controller.start_trial(one_seat())
        await trio.testing.wait_all_tasks_blocked()
        (session,) = environments
        session.produce_observations_nowait([("*", b"0")])
        session.produce_observations_nowait([("*", b"1")])
        assert actions == [0, 1]
        session.end_nowait([("*", b"2")])
        assert session.is_over
        assert (await platform.controller.wait_trial(trial_id)).ticks == 3
    assert not seat.events


async def test_cancelled_handling_calls_nothing_any_more() -> None:
    calls: list[EventType] = []
    errors: list[str] = []
    scope = trio.CancelScope()

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"")])
        await session.handle(lambda event: session.produce_observations_nowait([("*", b"")]) if event.actions else None)

    async def actor(session: ActorSession) -> None:
        def on_event(event: Event) -> None:
            calls.append(event.type)

        with scope:
            await session.handle(on_event)
        for use in (session.do_action_nowait, lambda action: session.send_message_nowait(action, "env")):
            with pytest.raises(LocalProtocolError) as caught:
                use(StringValue())
            errors.append(str(caught.value).partition(": ")[2])
        with pytest.raises(LocalProtocolError, match="set_consumer"):
            await session.handle(on_event)
        await session.do_action(b"")
        await trio.sleep_forever()

    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "a")
        trial_id = await platform.controller.start_trial(one_seat())
        await trio.testing.wait_all_tasks_blocked()
        assert calls == [EventType.ACTIVE]
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert calls == [EventType.ACTIVE]
        (info,) = await platform.controller.trial_infos([trial_id])
        assert info.tick_id == 1
    rest = "expected it while handle() runs; in other tasks await the function of the same name without _nowait"
    assert errors == [f"do_action_nowait: {rest}", f"send_message_nowait: {rest}"]


class SlowCall:
    """A call that takes a message only when it is told to."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.receive = None
        self.room = trio.Semaphore(0)
        self.error: RpcError | None = None

    def accept_shared(self) -> None:
        """It gives whole messages."""

    def set_consumer(self, consumer: Any) -> None:
        self.consumer = consumer

    def hand_over_nowait(self, message: Any) -> None:
        if self.error is not None:
            raise self.error
        try:
            self.room.acquire_nowait()
        except trio.WouldBlock:
            raise trio.WouldBlock from None
        self.taken.append(message)

    async def send_together(self, messages: Sequence[Any]) -> None:
        await self.room.acquire()
        if self.error is not None:
            raise self.error
        self.taken.extend(messages)


class Slow:
    """An `ActorSession` over a `SlowCall`."""

    def __init__(self, on_event: Callable[[Event], None] = lambda event: None) -> None:
        self.call = SlowCall()
        call: Any = self.call
        init = ActorInitialInput(actor_name="me", actor_class="c")
        self.session: ActorSession = ActorSession(
            call, "t", init, spec=Participants().spec, wall_clock=lambda: 1, joined=True
        )
        self.on_event = on_event

    async def run(self) -> None:
        await self.session.handle(self.on_event)

    def observe(self, tick_id: int) -> None:
        message = ActorRunTrialInput(state=CommunicationState.NORMAL)
        message.observation.tick_id = tick_id
        self.call.consumer.on_message(message)


def states(messages: list[ActorRunTrialOutput]) -> list[Any]:
    return [message.action.content or CommunicationState.Name(message.state) for message in messages]


async def test_what_the_call_does_not_take_waits_in_order() -> None:
    slow = Slow()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.run)
        await trio.testing.wait_all_tasks_blocked()
        slow.observe(0)
        slow.call.room.release()
        for number in range(3):
            slow.session.do_action_nowait(b"%d" % number)
        assert states(slow.call.taken) == [b"0"]
        await trio.testing.wait_all_tasks_blocked()
        slow.call.room.release()
        slow.session.do_action_nowait(b"3")  # there is room now, but others came first
        assert states(slow.call.taken) == [b"0"]
        slow.call.room.release()
        slow.call.room.release()
        await trio.testing.wait_all_tasks_blocked()
        assert states(slow.call.taken) == [b"0", b"1", b"2", b"3"]
        # Whoever has been waited for is forgotten: the next one that has room goes at once.
        slow.call.room.release()
        slow.session.do_action_nowait(b"4")
        assert states(slow.call.taken)[-1] == b"4"
        nursery.cancel_scope.cancel()


async def test_what_waits_is_bounded() -> None:
    slow = Slow()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.run)
        await trio.testing.wait_all_tasks_blocked()
        slow.observe(0)
        for _ in range(MAX_WAITING_MESSAGES):
            slow.session.do_action_nowait(b"x")
        with pytest.raises(ResourceExhaustedError, match="trial 't', actor 'me': expected the orchestrator to read"):
            slow.session.do_action_nowait(b"x")
        slow.call.consumer.on_message(ActorRunTrialInput(state=CommunicationState.END, details="enough"))
        await trio.testing.wait_all_tasks_blocked()  # it does not wait for room any more
        assert not nursery.child_tasks
        assert slow.session.details == "enough"


async def test_heartbeats_are_answered() -> None:
    slow = Slow()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.run)
        await trio.testing.wait_all_tasks_blocked()
        slow.call.room.release()
        slow.call.consumer.on_message(ActorRunTrialInput(state=CommunicationState.HEARTBEAT))
        assert states(slow.call.taken) == ["HEARTBEAT"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("error", [None, RpcError(StatusCode.UNAVAILABLE, "cut")])
async def test_stream_that_breaks(error: RpcError | None) -> None:
    slow = Slow()
    raised: list[RpcError] = []

    async def run() -> None:
        try:
            await slow.run()
        except RpcError as caught:
            raised.append(caught)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        slow.observe(0)
        slow.session.do_action_nowait(b"waits")
        await trio.testing.wait_all_tasks_blocked()
        slow.call.error = error
        slow.call.consumer.on_end(error)
    if error is None:
        assert (slow.session.is_over, slow.session.details, raised) == (True, "the stream was closed", [])
    else:
        assert [(each.code, each.message) for each in raised] == [(error.code, error.message)]


@pytest.mark.parametrize("waiting", [False, True])
async def test_message_that_is_too_large_is_the_senders_mistake(waiting: bool) -> None:
    """It is told at once, or ends the handling when its turn comes."""
    slow = Slow()
    raised: list[RpcError] = []

    async def run() -> None:
        try:
            await slow.run()
        except RpcError as caught:
            raised.append(caught)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        slow.observe(0)
        if waiting:
            slow.session.do_action_nowait(b"long")
        slow.call.error = RpcError(StatusCode.RESOURCE_EXHAUSTED, "too large")
        if waiting:
            slow.call.room.release()
        else:
            with pytest.raises(RpcError, match="too large"):
                slow.session.do_action_nowait(b"long")
            slow.call.consumer.on_message(ActorRunTrialInput(state=CommunicationState.END))
    assert [error.code for error in raised] == [StatusCode.RESOURCE_EXHAUSTED] * waiting


async def test_others_run_beside_a_trial_in_which_nobody_waits() -> None:
    """Its observations and actions call for one another without end."""
    ticks = 0

    async def environment(session: EnvironmentSession) -> None:
        def on_event(event: Event) -> None:
            nonlocal ticks
            ticks += 1
            session.produce_observations_nowait([("*", b"")])

        await session.start([("*", b"")])
        await session.handle(on_event)

    async def actor(session: ActorSession) -> None:
        await session.handle(lambda event: session.do_action_nowait(b"") if event.observation else None)

    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "a")
        trial_id = await platform.controller.start_trial(one_seat())
        while ticks < 3 * EVENTS_PER_TURN:
            await trio.lowlevel.checkpoint()
        await platform.controller.terminate_trial(trial_id, hard=True)
        assert (await platform.controller.wait_trial(trial_id)).cause is EndCause.HARD_TERMINATION


async def test_events_cannot_be_awaited_and_handled() -> None:
    problems: list[str] = []
    tried = trio.Event()

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"")])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.handle, lambda event: None)
            await trio.testing.wait_all_tasks_blocked()
            for use in (session.handle(lambda event: None), anext(session.all_events())):
                with pytest.raises(LocalProtocolError) as caught:
                    await use
                problems.append(str(caught.value))
            tried.set()
            nursery.cancel_scope.cancel()

    async def actor(session: ActorSession) -> None:
        await session.handle(lambda event: None)

    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "a")
        await platform.controller.start_trial(one_seat())
        await tried.wait()
    assert [problem.rpartition(": ")[2] for problem in problems] == [
        "the events of this session are handled already",
        "the call has a consumer",
    ]


async def test_payloads_as_bytes_and_no_rewards() -> None:
    participants, seen = Participants(SPEC), Seen(environment=[], actor=[])

    async def environment(session: EnvironmentSession) -> None:
        def on_event(event: Event) -> None:
            if event.actions is not None:
                seen["environment"] += [action.payload for action in event.actions]
                session.end_nowait([("*", UInt32Value(value=8))], [Reward("*", 1.0)])

        await session.start([("*", UInt32Value(value=7))], [Reward("*", 0.5)])
        await session.handle(on_event, as_bytes=True)

    async def actor(session: ActorSession) -> None:
        def on_event(event: Event) -> None:
            seen["actor"].append(event.reward or (event.observation and event.observation.payload))
            if event.observation is not None:
                session.do_action_nowait(UInt32Value(value=9))

        await session.handle(on_event, as_bytes=True, with_rewards=False)

    participants.register_environment(environment)
    participants.register_actor(actor, "player")
    async with open_platform(participants) as platform:
        trial_id = await platform.controller.start_trial(make_params([actor_params("nick", "number")]))
        await platform.controller.wait_trial(trial_id)
    assert seen["environment"] == [UInt32Value(value=9).SerializeToString()]
    assert seen["actor"] == [UInt32Value(value=value).SerializeToString() for value in (7, 8)] + [None]


@pytest.mark.parametrize("sockets", [False, True])
async def test_contents_are_all_that_a_tick_brings(sockets: bool) -> None:
    """The same as bytes over a socket, and what was sent within the process; the last one is told by `is_ending`."""
    participants, seen = Participants(SPEC), dict[str, list[Any]](env=[], ann=[])

    async def environment(session: EnvironmentSession) -> None:
        def on_actions(actions: list[Any]) -> None:
            seen["env"].append(([bytes(action) for action in actions], session.tick_id, session.is_ending))
            tick = len(seen["env"])
            session.add_reward_nowait(1.0, 1.0, "*")
            observations = [("*", UInt32Value(value=tick))]
            if tick == 3:
                session.end_nowait(observations)
            else:
                session.produce_observations_nowait(observations)

        await session.start([("*", UInt32Value(value=0))])
        await session.handle_contents(on_actions)

    async def actor(session: ActorSession) -> None:
        def on_observation(content: Any) -> None:
            seen["ann"].append((UInt32Value.FromString(bytes(content)).value, session.tick_id, session.is_ending))
            if not session.is_ending:
                session.do_action_nowait(UInt32Value(value=7))

        await session.start()
        await session.handle_contents(on_observation)

    participants.register_environment(environment)
    participants.register_actor(actor, "player")
    async with open_platform(participants) as platform:
        params = make_params([actor_params("ann", "number", spec=SPEC)], spec=SPEC)
        if sockets:
            async with served(participants) as address:
                params.environment.endpoint = address
                params.actors[0].endpoint = address
                await platform.controller.start_trial(params, trial_id="t")
                outcome = await platform.controller.wait_trial("t")
        else:
            await platform.controller.start_trial(params, trial_id="t")
            outcome = await platform.controller.wait_trial("t")
    assert outcome.cause is EndCause.ENVIRONMENT
    content = UInt32Value(value=7).SerializeToString()
    assert seen["env"] == [([content], tick, False) for tick in range(3)]
    assert seen["ann"] == [(0, 0, False), (1, 1, False), (2, 2, False), (3, 3, True)]
