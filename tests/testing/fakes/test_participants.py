"""The fakes, in process and over the simulated network, and over real sockets too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import trio
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value

from tests.helpers import bench, params_of
from trio_cogment import rpc
from trio_cogment.api.common_pb2 import CommunicationState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError
from trio_cogment.sdk import ActorSession, Controller, EnvironmentSession, actor_params, trial_params
from trio_cogment.sdk.spec import ActorClass, Spec
from trio_cogment.testing import (
    Behaviour,
    FakeActor,
    FakeDatalog,
    FakeEnvironment,
    FakeHook,
    Fault,
    History,
    HistoryEvent,
    Misbehaviour,
    World,
    check_history,
    record_states,
    simulate,
)
from trio_cogment.testing.fakes.behaviour import Part, Sees, see_nothing
from trio_cogment.testing.fakes.participants import Chatter, say_nothing

END_STATE = CommunicationState.END
NORMAL = CommunicationState.NORMAL
DISCOVER = "cogment://discover"


async def play(
    world: World,
    behaviours: dict[str, Behaviour],
    wire: bool = False,
    *,
    sees: Sees = see_nothing,
    chatter: Chatter = say_nothing,
    **params: Any,
) -> History:
    """One trial of ann and bob, whose parts behave as told, to its end."""

    def behave(_trial_id: str, name: str) -> Behaviour:
        return behaviours.get(name, Behaviour())

    services = [
        FakeActor(world, behave, sees=sees, chatter=chatter).service(),
        FakeEnvironment(world, behave, ticks=5, sees=sees, chatter=chatter).service(),
        FakeDatalog(world, behave, sees=sees).service(),
    ]
    config = OrchestratorConfig(soft_end_patience_seconds=20)
    async with bench(*services, wire=wire, config=config) as table, trio.open_nursery() as nursery:
        nursery.start_soon(record_states, Controller(table.channel), world.history)
        trial = params_of("ann", "bob", datalog_endpoint=DISCOVER, **params)
        for actor in trial.actors:
            actor.response_timeout, actor.optional, actor.initial_connection_timeout = 5.0, True, 5.0
        await table.controller.start_trial(trial, trial_id="t")
        with trio.move_on_after(60):
            await table.controller.wait_trial_state("t")
        await table.controller.terminate_trial("t")
        with trio.fail_after(200):
            await table.controller.wait_trial_state("t")
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    check_history(world.history)
    return world.history


def whats(history: History, who: str) -> list[str]:
    return [event.what for event in history if event.who == who]


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_by_the_book(seed: int, wire: bool) -> None:
    history = simulate(seed, play, {}, wire).history
    for who in ("actor ann", "actor bob"):
        seen = whats(history, who)
        assert seen[:2] == ["opened", "observation"]
        assert seen[-5:] == ["last", "observation", "acknowledged", "end", "closed"]
        assert seen.count("observation") == 6
    assert whats(history, "datalog datalog").count("sample") == 6
    rewards = [value for event in history if event.what == "reward" for value in event.details["values"]]
    assert len(rewards) == len(set(rewards)) == 10


def of(history: History, who: str, what: str) -> list[HistoryEvent]:
    return [event for event in history if (event.who, event.what) == (who, what)]


def outcome_of(history: History, who: str) -> str:
    return str(of(history, who, "closed")[0].details["outcome"])


def ticks_of(history: History, who: str, what: str) -> list[int]:
    return [event.details["tick"] for event in of(history, who, what)]


def slowest(history: History, who: str, first: str, then: str) -> float:
    """How long after what it got somebody noted what it did, at most."""
    return max(
        (
            min((later.seconds for later in of(history, who, then) if later.seconds > event.seconds), default=0)
            - event.seconds
            for event in of(history, who, first)
        ),
        default=0,
    )


def flooded(history: History) -> bool:
    return [event.details["text"] for event in of(history, "actor bob", "message")].count("flood") >= 20


Sign = Callable[[History, str], bool]
#: Who is told as what, what it gets, and what it does then.
PARTICIPANTS = {
    "ann": ("actor ann", "observation", "acted"),
    "env": ("environment env", "actions", "showed"),
}


def signs_of(who: str, gets: str, does: str) -> dict[Misbehaviour, Sign]:
    """What is seen of any participant that misbehaves."""
    return {
        Misbehaviour.VANISH: lambda seen, _: outcome_of(seen, who) == "UNAVAILABLE",
        Misbehaviour.CRASH: lambda seen, _: outcome_of(seen, who) == "CrashError",
        Misbehaviour.SLOW: lambda seen, _: slowest(seen, who, gets, does) > 7,
        Misbehaviour.SILENT: lambda seen, _: ticks_of(seen, who, does) == [0, 1],
        Misbehaviour.DEAF: lambda seen, _: whats(seen, who)[-2:] == [gets, "closed"],
        Misbehaviour.NEVER_ACK: lambda seen, _: not of(seen, who, "acknowledged"),
        Misbehaviour.FLOOD: lambda seen, _: flooded(seen),
    }


SIGNS: dict[tuple[str, Misbehaviour], Sign] = {
    **{(name, kind): sign for name, its in PARTICIPANTS.items() for kind, sign in signs_of(*its).items()},
    ("ann", Misbehaviour.DUPLICATE): lambda _, log: "actor 'ann': another action for tick 2" in log,
    ("ann", Misbehaviour.WRONG_TICK): lambda _, log: "actor 'ann': an action for tick 1, not 2" in log,
    ("env", Misbehaviour.DUPLICATE): lambda _, log: "an observation set for tick 2, not 3" in log,
    ("env", Misbehaviour.WRONG_TICK): lambda _, log: "an observation set for tick 9, not 2" in log,
    ("datalog", Misbehaviour.VANISH): lambda seen, _: outcome_of(seen, "datalog datalog") == "UNAVAILABLE",
    ("datalog", Misbehaviour.CRASH): lambda seen, _: outcome_of(seen, "datalog datalog") == "CrashError",
    ("datalog", Misbehaviour.SLOW): lambda seen, _: slowest(seen, "datalog datalog", "sample", "sample") > 7,
    ("datalog", Misbehaviour.SILENT): lambda seen, _: not of(seen, "datalog datalog", "answers"),
    ("datalog", Misbehaviour.DEAF): lambda seen, _: not of(seen, "datalog datalog", "complete"),
    ("datalog", Misbehaviour.NEVER_ACK): lambda seen, _: not of(seen, "datalog datalog", "answers"),
}


@pytest.mark.parametrize(("who", "misbehaviour"), SIGNS, ids=str)
@pytest.mark.parametrize("wire", [False, True])
def test_every_misbehaviour_shows_and_the_trial_ends(
    wire: bool, who: str, misbehaviour: Misbehaviour, caplog: pytest.LogCaptureFixture
) -> None:
    from_tick = 2 if who != "datalog" or misbehaviour is Misbehaviour.SLOW else -1
    shows = SIGNS[who, misbehaviour]
    assert not shows(simulate(1, play, {}, wire).history, caplog.text), "without any misbehaviour, too"
    caplog.clear()
    behaviour = Behaviour(misbehaviour=misbehaviour, from_tick=from_tick, seconds=7, count=20)
    outcome = simulate(1, play, {who: behaviour}, wire)
    kind, _, _ = PARTICIPANTS.get(who, (who, "", ""))[0].partition(" ")
    assert outcome.counters[f"{kind}: {misbehaviour.value}"]
    assert "closed" in whats(outcome.history, "actor bob")
    assert shows(outcome.history, caplog.text)


def test_what_is_read_is_seen_and_what_is_said_beside_arrives() -> None:
    read: dict[str, list[Any]] = {}
    outcomes: set[str] = set()
    parts: set[Part] = set()

    def sees(part: Part, message: Any) -> None:
        parts.add(part)
        assert not part.outcome
        read.setdefault(part.who, []).append(message)

    def chatter(part: Part, tick_id: int) -> list[dict[str, Any]]:
        message = {"tick_id": -1, "receiver_name": "*"}
        return [{"state": NORMAL, "message": message}] if part.name in ("bob", "env") and tick_id == 3 else []

    async def scenario(world: World) -> None:
        await play(world, {}, sees=sees, chatter=chatter)

    simulate(1, scenario)
    outcomes.update(part.outcome for part in parts)
    assert outcomes == {"left"}
    for who in ("actor ann", "actor bob"):
        first, *rest = read[who]
        assert first.HasField("init_input")
        assert [m.message.sender_name for m in rest if m.HasField("message") and not m.message.HasField("payload")] == [
            "env",
            "bob",
        ]
        assert sum(m.HasField("observation") for m in rest) == 6
        assert rest[-1].state == END_STATE
    assert read["environment env"][0].HasField("init_input")
    assert sum(m.HasField("action_set") for m in read["environment env"]) == 5
    params, *samples = read["datalog datalog"]
    assert params.HasField("trial_params")
    assert [m.sample.info.tick_id for m in samples] == list(range(6))


def test_every_misbehaviour_has_a_sign() -> None:
    assert {kind for who, kind in SIGNS if who != "datalog"} == set(Misbehaviour)
    nothing_to_say = {Misbehaviour.DUPLICATE, Misbehaviour.FLOOD, Misbehaviour.WRONG_TICK}
    assert {kind for who, kind in SIGNS if who == "datalog"} == set(Misbehaviour) - nothing_to_say


def test_hooks_change_delay_and_fail() -> None:
    async def scenario(world: World, behaviour: Behaviour) -> str:
        hook = FakeHook(world, behaviour, change=lambda _: params_of("ann"))
        services = [FakeActor(world).service(), FakeEnvironment(world).service(), hook.service()]
        config = OrchestratorConfig(hook_timeout_seconds=10)
        async with bench(*services, config=config, pre_trial_hooks=["cogment://discover/prehook"]) as table:
            try:
                await table.controller.start_trial(trial_id="t")
            except RpcError as error:
                assert not await table.controller.trial_infos()
                return error.code.name
            await table.controller.wait_trial_state("t")
            return "fine"

    def outcome(misbehaviour: Misbehaviour | None, seconds: float = 0) -> str:
        return simulate(3, scenario, Behaviour(misbehaviour=misbehaviour, from_tick=-1, seconds=seconds)).value

    assert outcome(None) == outcome(Misbehaviour.SLOW, 9) == "fine"
    for bad in (Misbehaviour.VANISH, Misbehaviour.CRASH, Misbehaviour.SILENT, Misbehaviour.DEAF):
        assert outcome(bad) == "UNAVAILABLE"
    assert outcome(Misbehaviour.SLOW, 11) == "UNAVAILABLE"
    assert outcome(Misbehaviour.WRONG_TICK) == "INVALID_ARGUMENT"


def test_behaviour_from_a_fault() -> None:
    fault = Fault("any", details={"misbehaviour": "slow", "seconds": 3.5, "from_tick": 4})
    expected = Behaviour(misbehaviour=Misbehaviour.SLOW, seconds=3.5, from_tick=4)
    assert Behaviour.from_fault(fault) == expected
    with pytest.raises(ValueError, match="rude"):
        Behaviour.from_fault(Fault("any", details={"misbehaviour": "rude"}))


async def test_fakes_and_checkers_over_real_sockets() -> None:
    """What is simulated elsewhere: the real clock, real sockets, the same checkers."""
    world = World(1)
    services = [FakeActor(world).service(), FakeEnvironment(world, ticks=3).service()]
    async with trio.open_nursery() as nursery:
        listeners = await rpc.open_listeners("127.0.0.1")
        serving = await nursery.start(rpc.serve, services, listeners)
        async with bench() as table, trio.open_nursery() as watching:
            watching.start_soon(record_states, table.controller, world.history)
            endpoint = f"grpc://127.0.0.1:{serving.port}"
            params = params_of("ann", environment_endpoint=endpoint)
            params.actors[0].endpoint = endpoint
            await table.controller.start_trial(params, trial_id="t")
            await table.controller.wait_trial_state("t")
            await table.orchestrator.stop()
        await serving.drain()
        nursery.cancel_scope.cancel()
    assert whats(world.history, "actor ann").count("observation") == 4
    check_history(world.history)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"misbehaviour": "silent"}, "misbehaviour: expected a Misbehaviour"),
        ({"misbehaviour": Misbehaviour.SLOW}, "seconds: expected how long"),
        ({"misbehaviour": Misbehaviour.SLOW, "seconds": -1}, "seconds: expected 0 or more"),
        ({"seconds": math.inf}, "seconds: expected 0 or more"),
        ({"misbehaviour": Misbehaviour.FLOOD, "count": 0}, "count: expected at least 1"),
        ({"misbehaviour": Misbehaviour.DUPLICATE, "count": 1}, "count: expected at least 2"),
        ({"count": "5"}, "count: expected at least 1"),
        ({"from_tick": -2}, "from_tick: expected a tick, or -1"),
        ({"think_seconds": (0.2, 0.1)}, "think_seconds: expected the least and the most"),
        ({"think_seconds": (-0.2, 0.1)}, "think_seconds: expected"),
        ({"think_seconds": (0.1, math.inf)}, "think_seconds: expected"),
        ({"think_seconds": (0.1,)}, "think_seconds: expected"),
    ],
)
def test_behaviours_that_make_no_sense(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Behaviour(**values)


@pytest.mark.parametrize(
    "details",
    [
        {},
        {"misbehaviour": "silent", "tick": 3},
        {"misbehaviour": "silent", "think_seconds": 3},
        {"misbehaviour": "slow"},
        {"misbehaviour": "flood", "count": None},
    ],
)
def test_faults_that_are_no_behaviour(details: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Behaviour.from_fault(Fault("any", details=details))


def test_what_a_service_cannot_show_is_refused() -> None:
    flood = Behaviour(misbehaviour=Misbehaviour.FLOOD)
    with pytest.raises(ValueError, match="expected one that a hook can show"):
        FakeHook(World(1), flood)
    with pytest.raises(ValueError, match="expected one that a data log can show"):
        FakeDatalog(World(1), flood)


@pytest.mark.parametrize("asserting", [False, True])
def test_what_a_service_cannot_show_fails_the_run(asserting: bool) -> None:
    async def scenario(world: World) -> None:
        hook = FakeHook(world, lambda _trial_id, _name: Behaviour(misbehaviour=Misbehaviour.FLOOD))
        async with bench(hook.service(), pre_trial_hooks=["cogment://discover/prehook"]) as table:
            with pytest.raises(RpcError):
                await table.controller.start_trial(trial_id="t")
            assert not asserting, "the hook should have answered"

    mistake = "misbehaviour: hook hook of t: expected one that it can show"
    with pytest.raises(AssertionError if asserting else ValueError) as caught:
        simulate(1, scenario)
    assert f"mistake in the scenario: {mistake}" in caught.value.__notes__[0]
    assert asserting or mistake in str(caught.value)


def test_a_data_log_without_files_kept_nothing() -> None:
    with pytest.raises(RuntimeError, match="without `files` keeps nothing"):
        FakeDatalog(World(1)).note_kept()


def test_fakes_send_messages_to_those_with_a_spec() -> None:
    """A fake actor plays with a real environment, then a real actor with a fake environment."""
    spec = Spec.of(ActorClass("player", observation=StringValue, action=UInt32Value))
    acted: list[tuple[str, int]] = []
    seen: list[str] = []

    async def world_of_two_ticks(session: EnvironmentSession[Any, Any, Any]) -> None:
        await session.start([("*", StringValue(value="go"))])
        async for event in session.all_events():
            if event.actions is not None:
                acted.extend((session.actors[one.actor_index].name, one.payload.value) for one in event.actions)
                send = session.end if event.tick_id == 1 else session.produce_observations
                await send([("*", StringValue(value="go"))])

    async def player(session: ActorSession[Any, Any, Any]) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                seen.append(event.observation.payload.value)
                await session.do_action(UInt32Value(value=1))

    async def scenario(world: World) -> None:
        actor = FakeActor(world, action=lambda name, tick: UInt32Value(value=10 * tick + len(name)))
        stage = FakeEnvironment(world, ticks=1, observation=lambda name, tick: StringValue(value=f"{name} {tick}"))
        fakes = [actor.service(), stage.service()]
        async with trio.open_nursery() as nursery, world.open_platform(spec) as platform:
            await nursery.start(rpc.serve, fakes, [world.network.host("fakes").listen(9001)])
            platform.participants.register_environment(world_of_two_ticks)
            platform.participants.register_actor(player, "player", ["player"])
            there = "grpc://fakes:9001"
            for params in (
                trial_params([actor_params("ann", "player", endpoint=there)]),
                trial_params([actor_params("bob", "player")], environment_endpoint=there),
            ):
                await platform.controller.wait_trial(await platform.controller.start_trial(params))
            nursery.cancel_scope.cancel()
        check_history(world.history)

    simulate(1, scenario)
    assert acted == [("ann", 3), ("ann", 13)]
    assert seen == ["bob 0", "bob 1"]
