"""Participants that break the rules: their trial copes or ends, and its neighbour does not notice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tests.helpers import (
    END,
    HEARTBEAT,
    LAST,
    LAST_ACK,
    NORMAL,
    Bench,
    Script,
    actor_that_acts,
    bench,
    environment_of,
    observation_set,
    params_of,
    start_environment,
)
from tests.servers.orchestrator.puppets import stage
from tests.servers.orchestrator.test_reference_cases import params
from trio_cogment.api.common_pb2 import (
    Action,
    ActorInitialOutput,
    ActorRunTrialOutput,
    TrialState,
)
from trio_cogment.api.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput, ObservationSet
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.rpc import ServerCall
from trio_cogment.sdk import actor_params, trial_params

both = pytest.mark.parametrize("wire", [False, True])


async def start_actor(call: ServerCall) -> None:
    await call.receive()
    await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))


def by_trial(bad: Callable[[ServerCall], Awaitable[None]], good: Callable[[ServerCall], Awaitable[None]]) -> Script:
    """One service, two manners: bad in the trial named so."""

    async def run(call: ServerCall) -> None:
        await (bad if call.metadata.texts("trial-id") == ["bad"] else good)(call)

    return Script(run)


async def bad_and_good(table: Bench, params: Any) -> tuple[Any, Any]:
    """Start a bad and a good trial together; return how both ended, the good one still running until then."""
    await table.controller.start_trial(params, trial_id="good")
    await table.controller.start_trial(params, trial_id="bad")
    bad = await table.controller.wait_trial_state("bad")
    good = await table.controller.wait_trial_state("good")
    return bad, good


@both
@pytest.mark.parametrize(
    "message",
    [
        pytest.param(EnvRunTrialOutput(state=LAST), id="LAST"),
        pytest.param(EnvRunTrialOutput(state=LAST, init_output=EnvInitialOutput()), id="init with LAST"),
    ],
)
async def test_environment_that_does_not_begin_with_init_output_is_lost(
    wire: bool, message: EnvRunTrialOutput, autojump_clock: trio.testing.MockClock
) -> None:
    async def bad(call: ServerCall) -> None:
        await call.receive()
        await call.send(message)
        await trio.sleep_forever()

    ended: list[Any] = []
    services = by_trial(bad, environment_of(3)).environment(), Script(actor_that_acts(ended)).actor()
    async with bench(*services, wire=wire) as table:
        bad_info, good_info = await bad_and_good(table, params_of("a"))
        assert good_info.tick_id == 3
        assert bad_info.tick_id < 3
    assert any(seen.state == END and seen.details for seen in ended)


async def test_oversized_message_ends_that_stream_only(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:

    async def bad(call: ServerCall) -> None:
        actors = await start_environment(call)
        await call.send(observation_set(actors, bytes(5 * 1024 * 1024)))
        await trio.sleep_forever()

    services = by_trial(bad, environment_of(3)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, wire=True) as table:
        bad_info, good_info = await bad_and_good(table, params_of("a"))
    assert good_info.tick_id == 3
    assert bad_info.tick_id == 0
    (told,) = [record for record in caplog.records if "RESOURCE_EXHAUSTED" in record.getMessage()]
    assert told.levelname == "WARNING"
    assert "environment 'env' was lost" in told.getMessage()


@both
async def test_bad_observation_sets_are_refused_and_the_tick_is_kept(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    seen: list[Any] = []

    async def careless(call: ServerCall) -> None:
        await start_environment(call)
        await call.send(observation_set(2, b"0"))
        await call.receive()
        for bad in (
            ObservationSet(tick_id=5, observations=[b"wrong tick"], actors_map=[0, 0]),
            ObservationSet(tick_id=-1, observations=[b"short map"], actors_map=[0]),
            ObservationSet(tick_id=-1, observations=[b"out of range"], actors_map=[0, 1]),
            ObservationSet(tick_id=-1, observations=[b"negative"], actors_map=[0, -1]),
        ):
            await call.send(EnvRunTrialOutput(state=NORMAL, observation_set=bad))
        await call.send(EnvRunTrialOutput(state=LAST))
        await call.send(observation_set(2, b"1", tick_id=1))
        async for message in call:
            if message.state == END:
                return

    services = Script(careless).environment(), Script(actor_that_acts(seen)).actor()
    async with bench(*services, wire=wire) as table:
        await table.controller.start_trial(params_of("a", "b"), trial_id="t")
        info = await table.controller.wait_trial_state("t")
        assert info is not None
        assert info.tick_id == 1
    shown = [(m.observation.tick_id, m.observation.content) for m in seen if m.HasField("observation")]
    assert shown == [(0, b"0"), (0, b"0"), (1, b"1"), (1, b"1")]


@both
async def test_odd_actor_messages_are_ignored_and_the_stream_lives(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    action_sets: list[Any] = []

    async def odd(call: ServerCall) -> None:
        await start_actor(call)
        async for message in call:
            if message.state == END:
                return
            if not message.HasField("observation"):
                continue
            tick = message.observation.tick_id
            for odd_message in (
                ActorRunTrialOutput(state=LAST),
                ActorRunTrialOutput(state=END),
                ActorRunTrialOutput(state=NORMAL),
                ActorRunTrialOutput(state=NORMAL, details="hello"),
                ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()),
                ActorRunTrialOutput(),
                ActorRunTrialOutput(details="hello"),
                ActorRunTrialOutput(state=LAST_ACK, action=Action(tick_id=tick, content=b"with a state")),
                ActorRunTrialOutput(state=HEARTBEAT, details=""),
                ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=-5, content=b"late")),
                ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=tick + 1, content=b"early")),
                ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=tick, content=b"right")),
                ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=tick, content=b"twice")),
                ActorRunTrialOutput(state=HEARTBEAT),
            ):
                await call.send(odd_message)

    config_free = Script(environment_of(3, action_sets)).environment(), Script(odd).actor()
    async with bench(*config_free, wire=wire) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        info = await table.controller.wait_trial_state("t")
        assert info is not None
        assert info.tick_id == 3
    contents = [list(m.action_set.actions) for m in action_sets if m.HasField("action_set")]
    assert contents == [[b"right"]] * 3


@both
async def test_required_actor_that_vanishes_ends_its_trial_only(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async def leaves(call: ServerCall) -> None:
        await start_actor(call)
        await call.receive()

    seen: list[Any] = []
    services = Script(environment_of(3, seen)).environment(), by_trial(leaves, actor_that_acts()).actor()
    async with bench(*services, wire=wire) as table:
        bad_info, good_info = await bad_and_good(table, params_of("a"))
        assert bad_info.tick_id == 0
        assert good_info.tick_id == 3
    assert any(m.state == END and "'a'" in m.details for m in seen)


@both
async def test_optional_actor_that_vanishes_is_replaced(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    seen: list[Any] = []

    async def run(call: ServerCall) -> None:
        first = await call.receive()
        await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
        if first.init_input.actor_name == "leaver":
            await call.receive()
            return
        await actor_that_acts(start=False)(call)

    params = trial_params(
        [
            actor_params("stayer", "player"),
            actor_params("leaver", "player", optional=True, default_action=b"default"),
        ]
    )
    async with bench(Script(environment_of(3, seen)).environment(), Script(run).actor(), wire=wire) as table:
        await table.controller.start_trial(params, trial_id="t")
        info = await table.controller.wait_trial_state("t")
        assert info is not None
        assert info.tick_id == 3
    sets = [m.action_set for m in seen if m.HasField("action_set")]
    assert [list(s.actions) for s in sets] == [[b"a", b"default"]] * 3
    assert not any(s.unavailable_actors for s in sets)


@both
async def test_environment_that_fails_ends_its_trial_with_details(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    seen: list[Any] = []

    async def fails(call: ServerCall) -> None:
        await call.send(observation_set(await start_environment(call)))
        await call.receive()

    services = by_trial(fails, environment_of(3)).environment(), Script(actor_that_acts(seen)).actor()
    async with bench(*services, wire=wire) as table:
        bad_info, good_info = await bad_and_good(table, params_of("a"))
        assert bad_info.tick_id == 0
        assert good_info.tick_id == 3
    assert any(m.state == END and m.details for m in seen)


@both
@pytest.mark.parametrize(
    "config",
    [
        OrchestratorConfig(max_outbox_messages=100),
        OrchestratorConfig(max_outbox_messages=10**6, max_outbox_bytes=2**20),
    ],
    ids=["messages", "bytes"],
)
async def test_actor_that_does_not_read_is_lost_and_the_sender_is_not(
    config: OrchestratorConfig, wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    from google.protobuf.any_pb2 import Any as AnyMessage

    from trio_cogment.api.common_pb2 import Message

    async def deaf(call: ServerCall) -> None:
        await start_actor(call)
        await trio.sleep_forever()

    async def chatty(call: ServerCall) -> None:
        actors = await start_environment(call)
        await call.send(observation_set(actors))
        payload = AnyMessage(value=bytes(64 * 1024))
        for _ in range(600):
            message = Message(tick_id=-1, receiver_name="a", payload=payload)
            await call.send(EnvRunTrialOutput(state=NORMAL, message=message))
        async for received in call:
            if received.state == END:
                ends.append(received.details)
                return

    ends: list[str] = []
    async with bench(Script(chatty).environment(), Script(deaf).actor(), wire=wire, config=config) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        with trio.fail_after(100):
            info = await table.controller.wait_trial_state("t")
        assert info is not None
        await trio.testing.wait_all_tasks_blocked()
        assert info.state == TrialState.ENDED
        assert len(ends) == 1
        assert "'a'" in ends[0]


async def test_unreachable_participants(autojump_clock: trio.testing.MockClock) -> None:
    nowhere = "grpc://127.0.0.1:9"
    services = Script(environment_of(2)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        required = trial_params([actor_params("a", "player", endpoint=nowhere)])
        await table.controller.start_trial(required, trial_id="required")
        info = await table.controller.wait_trial_state("required")
        assert info is not None
        assert info.state == TrialState.ENDED
        optional = trial_params([actor_params("a", "player", endpoint=nowhere, optional=True)])
        await table.controller.start_trial(optional, trial_id="optional")
        info = await table.controller.wait_trial_state("optional")
        assert info is not None
        assert info.tick_id == 2
        lost = params_of("a", environment_endpoint=nowhere)
        await table.controller.start_trial(lost, trial_id="lost")
        assert await table.controller.wait_trial_state("lost") is not None


async def test_who_sends_under_another_name_is_shown_under_its_own(autojump_clock: trio.testing.MockClock) -> None:
    """A puppet says that it is "forged", whatever it sends."""
    sent_by: dict[str, list[tuple[str, list[str]]]] = {}
    async with stage() as play:
        await play.play(params("a", "b"))
        await play["env"].observe(indexes=[0, 0])
        for sender, receivers in {"a": ("b", "env"), "b": ("a",), "env": ("a", "b")}.items():
            for receiver in receivers:
                await play[sender].tell(receiver)
                await play[sender].reward(receiver, (1, 1))
        await play["a"].act()
        await play["b"].act()
        await play["env"].observe(indexes=[0, 0])
        for name in ("a", "b", "env"):
            got = play[name].take()
            messages = [one.message.sender_name for one in got if one.HasField("message")]
            rewards = [one.reward.sources for one in got if one.WhichOneof("data") == "reward"]
            sent_by[name] = [
                ("messages", messages),
                ("rewards", [source.sender_name for sources in rewards for source in sources]),
            ]
        await play.hard()
    assert sent_by == {
        "a": [("messages", ["b", "env"]), ("rewards", ["b", "env"])],
        "b": [("messages", ["a", "env"]), ("rewards", ["a", "env"])],
        "env": [("messages", ["a"]), ("rewards", [])],
    }
    logged = [sample for sample in play.samples if sample.messages]
    (first,) = logged
    assert [message.sender_name for message in first.messages] == ["a", "a", "b", "env", "env"]
    assert {source.sender_name for reward in first.rewards for source in reward.sources} == {"a", "b", "env"}
