"""Environments and actors as users write them: in process, and the same functions over sockets."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import trio
from google.protobuf.wrappers_pb2 import DoubleValue, StringValue, UInt32Value
from trio.testing import MockClock

from tests.cli.process import served, server
from trio_cogment import (
    ActorClass,
    ActorSession,
    EnvironmentSession,
    EventType,
    Participants,
    PreTrialSession,
    Spec,
    actor_params,
    open_platform,
    trial_params,
)
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.errors import AlreadyExistsError, InvalidArgumentError, LocalProtocolError, RpcError, StatusCode
from trio_cogment.base.host import Host
from trio_cogment.base.outcome import EndCause
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.sdk import Controller, DatalogSession, EventStream, join_trial

SPEC = Spec.of(
    ActorClass("number", observation=UInt32Value, action=UInt32Value, config=StringValue),
    ActorClass("raw"),
    environment_config=StringValue,
)
TICKS = 20
PLAYERS = ("nora", "nick", "rita")


def recording_game(seed: int) -> tuple[Participants, dict[str, list[Any]]]:
    """An environment and actors that draw everything from a seed, and what each of them saw."""
    seen: dict[str, list[Any]] = {"env": []}
    participants = Participants(SPEC, host=Host(wall_clock=lambda: 5))

    async def environment(session: EnvironmentSession) -> None:
        dice = random.Random(f"{seed} env {session.config}")
        saw = seen["env"]
        saw.append(("config", session.config, [(a.index, a.name, a.actor_class) for a in session.actors]))

        def observations() -> list[tuple[str | int, Any]]:
            return [
                ("number.*", UInt32Value(value=dice.randrange(100))),
                ("rita", dice.randbytes(4)),
                ("nick", UInt32Value(value=dice.randrange(100))),
            ]

        await session.start(observations())
        tick = 0
        async for event in session.all_events():
            if event.actions is not None:
                tick += 1
                saw.append(
                    (event.type, event.tick_id, [(a.actor_index, a.available, a.payload) for a in event.actions])
                )
                await session.add_reward(dice.random(), 0.5, ["nick", "number.nora"], user_data=DoubleValue(value=tick))
                await session.add_reward(dice.random(), 1.5, "*")
                await session.send_message(StringValue(value=f"tick {tick}"), "raw.*")
                if tick == TICKS:
                    await session.end(observations())
                else:
                    await session.produce_observations(observations())
            elif event.message is not None:
                text = StringValue()
                assert event.message.payload.Unpack(text)
                saw.append((event.message.sender_name, text.value))
            else:
                saw.append((event.type, event.tick_id))

    async def actor(session: ActorSession) -> None:
        dice = random.Random(f"{seed} {session.name}")
        saw = seen[session.name] = [("config", session.actor_class, session.config, session.environment_name)]
        async for event in session.all_events():
            if event.observation is not None:
                saw.append((event.type, event.tick_id, event.observation.timestamp, event.observation.payload))
                if session.actor_class == "raw":
                    await session.do_action(dice.randbytes(3))
                else:
                    await session.do_action(UInt32Value(value=dice.randrange(1000)))
                if event.tick_id == 3:
                    await session.send_message(StringValue(value=f"from {session.name}"), "env")
            elif event.reward is not None:
                sources = [(s.sender_name, s.value, s.confidence, s.user_data.value) for s in event.reward.sources]
                saw.append(("reward", event.reward.tick_id, event.reward.value, sources))
            elif event.message is not None:
                saw.append(("message", event.message.sender_name, event.message.payload.value))
            else:
                saw.append((event.type, event.tick_id))

    participants.register_environment(environment, "game")
    participants.register_actor(actor, "player", ["number", "raw"])
    return participants, seen


def game_params(endpoint: str = "cogment://discover") -> TrialParams:
    return trial_params(
        [
            actor_params("nora", "number", endpoint=endpoint, config=StringValue(value="n")),
            actor_params("nick", "number", endpoint=endpoint, config=StringValue()),
            actor_params("rita", "raw", endpoint=endpoint),
        ],
        environment="game",
        environment_endpoint=endpoint,
        environment_config=StringValue(value="rules"),
    )


def sorted_messages(seen: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The order among different senders' messages is the network's; everything else must be equal as it stands."""
    return {
        name: [event for event in events if not _is_message(event)] + sorted(filter(_is_message, events), key=repr)
        for name, events in seen.items()
    }


def _is_message(event: Any) -> bool:
    return isinstance(event[0], str) and event[0] not in {"reward", "config"}


async def played_in_process(seed: int) -> dict[str, list[Any]]:
    participants, seen = recording_game(seed)
    async with open_platform(participants=participants) as platform:
        trial_id = await platform.controller.start_trial(game_params())
        info = await platform.controller.wait_trial_state(trial_id)
        assert info is not None
        assert info.tick_id == TICKS
    return seen


async def played_over_sockets(seed: int) -> dict[str, list[Any]]:
    """The same functions, served by this process, for an orchestrator that is a process of its own."""
    participants, seen = recording_game(seed)
    ports = ("--lifecycle_port=0", "--actor_port=0")
    async with (
        server("services", "orchestrator", *ports) as orchestrator,
        served(participants) as endpoint,
        Channel("127.0.0.1", orchestrator.port) as channel,
    ):
        controller = Controller(channel)
        trial_id = await controller.start_trial(game_params(endpoint))
        with trio.fail_after(30):
            info = await controller.wait_trial_state(trial_id)
        assert info is not None
        assert info.tick_id == TICKS
        with trio.fail_after(30):
            while seen["env"][-1] != (EventType.FINAL, TICKS - 1) or not all(_is_final(seen[n]) for n in PLAYERS):
                await trio.lowlevel.checkpoint()
    return seen


def _is_final(events: list[Any]) -> bool:
    return bool(events[-1] == (EventType.FINAL, TICKS))


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_the_same_functions_see_the_same_over_sockets_and_in_process(seed: int) -> None:
    near = await played_in_process(seed)
    far = await played_over_sockets(seed)
    assert sorted_messages(near) == sorted_messages(far)
    assert near["nora"][0] == ("config", "number", StringValue(value="n"), "env")
    assert near["rita"][0] == ("config", "raw", None, "env")
    observations = [event for event in near["nick"] if len(event) == 4 and isinstance(event[0], EventType)]
    assert [tick for _, tick, _, _ in observations] == list(range(TICKS + 1))
    assert [kind for kind, _, _, _ in observations] == [EventType.ACTIVE] * TICKS + [EventType.ENDING]
    assert near["nick"][-1] == (EventType.FINAL, TICKS)
    rewards = [event for event in near["nick"] if event[0] == "reward"]
    for _, _, value, sources in rewards:
        assert [source[0] for source in sources] == ["env", "env"]
        mean = sum(v * c for _, v, c, _ in sources) / sum(c for _, _, c, _ in sources)
        assert value == pytest.approx(mean, rel=1e-6)
    assert [tick for _, tick, _, _ in rewards] == list(range(TICKS))


async def test_other_seeds_see_something_else() -> None:
    assert await played_in_process(1) != await played_in_process(2)


async def test_client_actor_in_process_and_over_a_socket() -> None:
    for near in (True, False):
        finals: list[EventType] = []

        async def environment(session: EnvironmentSession) -> None:
            await session.start([("*", b"0")])
            async for event in session.all_events():
                if event.actions is not None:
                    await session.end([("*", b"1")])

        async def actor(session: ActorSession, finals: list[EventType] = finals) -> None:
            async for event in session.all_events():
                finals.append(event.type)
                if event.observation is not None:
                    await session.do_action(b"")

        async with open_platform() as platform, trio.open_nursery() as nursery:
            platform.participants.register_environment(environment)
            serving = await nursery.start(serve, platform.services, await open_listeners("127.0.0.1"))
            params = trial_params([actor_params("me", "human", endpoint="cogment://client")])
            trial_id = await platform.controller.start_trial(params)
            if near:
                await platform.join_trial(trial_id, actor, actor_class="human")
            else:
                async with Channel("127.0.0.1", serving.port) as channel:
                    await join_trial(channel, trial_id, actor, actor_name="me")
            nursery.cancel_scope.cancel()
        assert finals == [EventType.ACTIVE, EventType.ENDING, EventType.FINAL]


async def test_soft_end_by_the_controller_reaches_user_code_as_ending() -> None:
    types: list[EventType] = []
    playing = trio.Event()

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"")])
        async for event in session.all_events():
            types.append(event.type)
            if event.actions is not None:
                playing.set()
                await session.produce_observations([("*", b"")])

    async def actor(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"")
                await trio.lowlevel.checkpoint()

    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "a")
        trial_id = await platform.controller.start_trial(trial_params([actor_params("a", "c")]))
        await playing.wait()
        await platform.controller.terminate_trial(trial_id)
        await platform.controller.wait_trial(trial_id)
    assert types[-2:] == [EventType.ENDING, EventType.FINAL]
    assert set(types[:-2]) == {EventType.ACTIVE}


async def test_hard_end_stops_the_events_and_tells_why() -> None:
    details: list[str | None] = []

    async def waits(session: Any) -> None:
        events: EventStream = session.all_events()
        async for event in events:
            assert event.type is not EventType.FINAL
        assert session.is_over
        details.append(session.details)

    async with open_platform() as platform:
        platform.participants.register_environment(waits)
        platform.participants.register_actor(waits, "a")
        trial_id = await platform.controller.start_trial(trial_params([actor_params("a", "c")]))
        await trio.testing.wait_all_tasks_blocked()
        await platform.controller.terminate_trial(trial_id, hard=True)
        await trio.testing.wait_all_tasks_blocked()
    assert details == ["terminated by an external request"] * 2


async def test_user_code_that_fails_ends_its_trial_only(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(session: EnvironmentSession) -> None:
        raise ZeroDivisionError("secret")

    async def actor(session: ActorSession) -> None:
        async for _ in session.all_events():
            pass

    async with open_platform() as platform:
        platform.participants.register_environment(fails)
        platform.participants.register_actor(actor, "a")
        trial_id = await platform.controller.start_trial(trial_params([actor_params("a", "c")]))
        info = await platform.controller.wait_trial_state(trial_id)
        assert info is not None
        assert info.state == TrialState.ENDED
    assert "ZeroDivisionError" in caplog.text


async def test_hooks_and_datalogs_are_functions_too() -> None:
    logged: list[Any] = []

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"")])
        async for event in session.all_events():
            if event.actions is not None:
                await session.end([("*", b"")])

    async def actor(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"act")

    async def hook(session: PreTrialSession) -> None:
        assert session.params.trial_config.content == b"wanted"
        assert (session.trial_id, session.user_id) == ("t", "trio-cogment")
        session.params.CopyFrom(
            trial_params([actor_params("a", "c")], datalog_endpoint="cogment://discover", environment="e")
        )

    async def datalog(session: DatalogSession) -> None:
        logged.append((session.trial_id, session.user_id, len(session.params.actors)))
        async for sample in session:
            logged.append((sample.tick_id, sample.state))

    async with open_platform(config=PlatformConfig(pre_trial_hooks=("cogment://discover",))) as platform:
        participants = platform.participants
        participants.register_environment(environment, "e")
        participants.register_actor(actor, "a")
        participants.register_pre_trial_hook(hook)
        participants.register_datalog(datalog)
        await platform.controller.start_trial(config=b"wanted", trial_id="t")
        await platform.controller.wait_trial("t")
        await trio.testing.wait_all_tasks_blocked()
    assert logged == [("t", "trio-cogment", 1), (0, TrialState.RUNNING), (1, TrialState.ENDED)]


async def test_an_end_that_was_sent_may_be_asked_for_again() -> None:
    """As by somebody who was cancelled while it was sent: there is one."""
    seen: list[tuple[str, bytes]] = []

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"first")])
        async for event in session.all_events():
            if event.actions is not None:
                for text in (b"last", b"again"):
                    await session.end([("*", text)])

    async def actor(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                seen.append((event.type.name, event.observation.payload))
                await session.do_action(b"")

    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "a")
        trial_id = await platform.controller.start_trial(trial_params([actor_params("a", "c")]))
        outcome = await platform.controller.wait_trial(trial_id)
    assert (outcome.ticks, outcome.cause) == (2, EndCause.ENVIRONMENT)
    assert seen == [("ACTIVE", b"first"), ("ENDING", b"last")]


async def test_who_returns_from_the_final_data_has_acknowledged_it(autojump_clock: MockClock) -> None:
    """Nobody waits for it, and it is not lost."""

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"first")])
        async for event in session.all_events():
            if event.actions is not None:
                await session.end([("*", b"last")])
                return

    async def actor(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.type.name == "ENDING":
                return
            await session.do_action(b"")

    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "a")
        trial_id = await platform.controller.start_trial(trial_params([actor_params("a", "c")]))
        began = trio.current_time()
        outcome = await platform.controller.wait_trial(trial_id)
        assert trio.current_time() == began
    assert (outcome.ticks, outcome.cause, outcome.failed) == (2, EndCause.ENVIRONMENT, False)


async def test_what_is_registered_nowhere_is_refused_by_name() -> None:
    async with open_platform() as platform:

        async def never(session: Any) -> None:
            raise AssertionError

        platform.participants.register_actor(never, "a", ["c"], properties={"speed": "high"})
        platform.participants.register_environment(never, "e")
        for params, named in (
            (trial_params([actor_params("a", "other")]), "__actor_class=other"),
            (trial_params([actor_params("a", "c", implementation="b")]), "__implementation=b"),
            (trial_params([actor_params("a", "c", endpoint="cogment://discover?speed=low")]), "speed=low"),
            (trial_params([actor_params("a", "c")], environment="x"), "__implementation=x"),
        ):
            with pytest.raises(RpcError) as caught:
                await platform.controller.start_trial(params)
            assert caught.value.code is StatusCode.FAILED_PRECONDITION
            assert named in caught.value.message
        with pytest.raises(AlreadyExistsError):
            platform.participants.register_actor(never, "a")
        with pytest.raises(InvalidArgumentError):
            platform.participants.register_actor(never, "b", "class")


async def test_bad_calls_of_user_code_are_named() -> None:
    errors: list[str] = []

    async def environment(session: EnvironmentSession) -> None:
        with pytest.raises(LocalProtocolError) as early:
            await session.send_message(StringValue(), "a")
        errors.append(str(early.value))
        await session.start()
        for observations in ([], [("b", b"")], [("nobody", b""), ("*", b"")], [("*", "text")]):
            with pytest.raises(InvalidArgumentError) as caught:
                await session.produce_observations(observations)  # type: ignore[arg-type]  # that is the test
            errors.append(str(caught.value))
        await session.end([("*", b"")])
        async for _ in session.all_events():
            pass

    async def actor(session: ActorSession) -> None:
        async for _ in session.all_events():
            pass

    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "a")
        params = trial_params([actor_params("a", "c"), actor_params("b", "c")])
        trial_id = await platform.controller.start_trial(params)
        await platform.controller.wait_trial(trial_id)
        with pytest.raises(InvalidArgumentError):
            await platform.controller.start_trial(params, config=b"")
        with pytest.raises(InvalidArgumentError):
            await platform.join_trial(trial_id, actor)
    who, hint = f"trial '{trial_id}', environment 'env'", 'name each actor, its class ("class.*") or all ("*")'
    assert errors == [
        f"{who}: send_message: the session has not been started; await session.start()",
        f"{who}: observations: expected one for every actor, none for 'a', 'b'; {hint}",
        f"{who}: observations: expected one for every actor, none for 'a'; {hint}",
        f"{who}: observations: 'nobody' is not an actor of this trial; its actors are 'a', 'b'",
        f"{who}: observation of 'a': expected bytes or a protobuf message, got str; send one, or declare a type in the "
        "spec",
    ]


async def test_exception_in_the_users_block_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_platform():
            raise ZeroDivisionError


async def test_action_on_its_way_when_the_trial_is_ended_hard_is_dropped_and_the_end_is_told() -> None:
    details: list[str | None] = []
    acting, ended = trio.Event(), trio.Event()

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"")])
        async for _ in session.all_events():
            pass

    async def thinks(session: ActorSession) -> None:
        async for event in session.all_events():
            assert event.observation is not None
            acting.set()
            await ended.wait()
            # The orchestrator has closed the call; END is still unread here.
            await session.do_action(b"late")
            await session.add_reward(1.0, 1.0, "*")
        details.append(session.details)

    async with open_platform() as platform, trio.open_nursery() as nursery:
        platform.participants.register_environment(environment)
        params = trial_params([actor_params("me", "human", endpoint="cogment://client")])
        trial_id = await platform.controller.start_trial(params)
        nursery.start_soon(partial(platform.join_trial, trial_id, thinks, actor_name="me"))
        await acting.wait()
        await platform.controller.terminate_trial(trial_id, hard=True)
        await trio.testing.wait_all_tasks_blocked()
        ended.set()
    assert details == ["terminated by an external request"]


async def test_discovery_runs_the_registration_it_found() -> None:
    ran: list[str] = []

    def named(name: str) -> Any:
        async def run(session: Any) -> None:
            ran.append(name)

        return run

    async def actor(session: ActorSession) -> None:
        async for _ in session.all_events():
            pass

    async with open_platform() as platform:
        participants = platform.participants
        participants.register_environment(named("small"), "small", properties={"size": "s"})
        participants.register_environment(named("big"), "big", properties={"size": "b"})
        participants.register_actor(actor, "a")
        for endpoint in (
            "cogment://discover?size=b",
            "cogment://discover?__implementation=big",
            "cogment://discover/environment?__implementation=big",
        ):
            params = trial_params([actor_params("a", "c")], environment_endpoint=endpoint)
            trial_id = await platform.controller.start_trial(params)
            await platform.controller.wait_trial(trial_id, check=False)
    assert ran == ["big"] * 3


async def test_hook_asked_for_by_name_runs_alone() -> None:
    ran: list[str] = []

    def hook(name: str) -> Any:
        async def run(session: PreTrialSession) -> None:
            ran.append(name)

        return run

    participants = Participants()
    participants.register_pre_trial_hook(hook("a"), "a")
    participants.register_pre_trial_hook(hook("b"), "b")
    hooks = ("cogment://discover/prehook?__implementation=b", "cogment://discover")
    async with open_platform(participants, config=PlatformConfig(pre_trial_hooks=hooks)) as platform:
        with pytest.raises(RpcError):
            await platform.controller.start_trial()
    assert ran == ["b", "a", "b"]


async def test_cancelled_session_may_be_asked_again() -> None:
    seen: list[EventType] = []

    async def environment(session: EnvironmentSession) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await session.start()
        await session.start([("*", b"")])
        async for event in session.all_events():
            if event.actions is not None:
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await session.end([("*", b"")])
                await session.end([("*", b"last")])
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await session._next()

    async def actor(session: ActorSession) -> None:
        events = session.all_events()
        with trio.CancelScope() as scope:
            scope.cancel()
            await events.__anext__()
        async for event in events:
            seen.append(event.type)
            if event.observation is not None:
                await session.do_action(b"")

    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "a")
        with trio.fail_after(30):
            trial_id = await platform.controller.start_trial(trial_params([actor_params("a", "c")]))
            await platform.controller.wait_trial(trial_id)
            await trio.testing.wait_all_tasks_blocked()
    assert seen == [EventType.ACTIVE, EventType.ENDING, EventType.FINAL]


async def test_user_code_that_fails_while_it_is_cancelled_harms_only_its_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def environment(session: EnvironmentSession) -> None:
        async def careless() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("cleaning up failed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(careless)
            await session.start([("*", b"")])
            await trio.sleep_forever()

    async def actor(session: ActorSession) -> None:
        async for _ in session.all_events():
            pass

    async with open_platform() as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "a")
        for _ in range(2):
            trial_id = await platform.controller.start_trial(trial_params([actor_params("a", "c")]))
            await platform.controller.wait_trial_state(trial_id, TrialState.RUNNING)
            await platform.controller.terminate_trial(trial_id, hard=True)
    assert "cleaning up failed" in caplog.text
