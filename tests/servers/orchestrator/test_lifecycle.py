"""`TrialLifecycleSP` in front of in-process participants, on a virtual clock."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.helpers import (
    END,
    HookScript,
    Script,
    actor_that_acts,
    bench,
    environment_of,
    observation_set,
    params_of,
    start_environment,
    until_given_up,
)
from trio_cogment.api import orchestrator_pb2
from trio_cogment.api.common_pb2 import ActorParams, EnvironmentParams, SerializedMessage, TrialParams, TrialState
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.api.orchestrator_pb2 import TrialStartRequest
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import ServerCall, methods_of
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.orchestrator._watch import STOPPING

START_TRIAL = methods_of(orchestrator_pb2.DESCRIPTOR.services_by_name["TrialLifecycleSP"])["StartTrial"]
ALL_STATES = [
    TrialState.INITIALIZING,
    TrialState.PENDING,
    TrialState.RUNNING,
    TrialState.TERMINATING,
    TrialState.ENDED,
]


async def silent(call: ServerCall) -> None:
    """Take everything, say nothing."""
    async for _ in call:
        pass


async def states_of(watch: Any, trial_id: str) -> list[int]:
    states = []
    async for entry in watch:
        if entry.trial_id == trial_id:
            states.append(entry.state)
            if entry.state == TrialState.ENDED:
                break
    return states


@pytest.mark.parametrize("wire", [False, True])
async def test_trial_ended_by_environment_shows_every_state_once(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    seen: list[Any] = []
    services = Script(environment_of(3)).environment(), Script(actor_that_acts(seen)).actor()
    async with bench(*services, wire=wire) as table, table.controller.watch_trials() as watch:
        trial_id = await table.controller.start_trial(params_of("a", "b"))
        assert await states_of(watch, trial_id) == ALL_STATES
        (info,) = await table.controller.trial_infos([trial_id])
    assert info.tick_id == 3
    assert info.env_name == "env"
    ticks = [message.observation.tick_id for message in seen if message.HasField("observation")]
    assert ticks == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_soft_end_lets_the_environment_say_the_last_word(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[Any] = []
    services = Script(environment_of(None, seen)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        trial_id = await table.controller.start_trial(params_of("a"))
        await table.controller.wait_trial_state(trial_id, TrialState.RUNNING)
        await table.controller.terminate_trial(trial_id)
        info = await table.controller.wait_trial_state(trial_id)
    assert info is not None
    assert seen[-1].state == END
    assert not seen[-1].details


async def test_hard_end_is_over_when_the_call_returns(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[Any] = []
    services = Script(silent).environment(), Script(actor_that_acts(seen)).actor()
    async with bench(*services) as table:
        trial_id = await table.controller.start_trial(params_of("a"))
        await table.controller.terminate_trial(trial_id, hard=True)
        (info,) = await table.controller.trial_infos([trial_id])
        assert info.state == TrialState.ENDED
        await trio.testing.wait_all_tasks_blocked()
    assert "external request" in seen[-1].details


async def test_taken_id_answers_empty_and_creates_nothing(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(1)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        assert await table.controller.start_trial(params_of("a"), trial_id="t") == "t"
        assert await table.controller.start_trial(params_of("a"), trial_id="t") == ""
        await table.controller.wait_trial_state("t")
        # Ended, but still remembered: taken all the same.
        assert await table.controller.start_trial(params_of("a"), trial_id="t") == ""
        assert len(await table.controller.trial_infos()) == 1


async def test_ended_trials_are_forgotten_by_age_and_by_count(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(1)).environment(), Script(actor_that_acts()).actor()
    config = OrchestratorConfig(max_ended_trials=2, ended_trial_age_seconds=10)
    async with bench(*services, config=config) as table:
        for name in "xyz":
            await table.controller.start_trial(params_of("a"), trial_id=name)
            await table.controller.wait_trial_state(name)
        assert [info.trial_id for info in await table.controller.trial_infos()] == ["y", "z"]
        await trio.sleep(11)
        assert not await table.controller.trial_infos()
        assert await table.controller.start_trial(params_of("a"), trial_id="z") == "z"


def _bad_params() -> list[Any]:
    def with_actors(*actors: ActorParams) -> TrialParams:
        return trial_params(actors)

    one = actor_params("a", "c")
    return [
        pytest.param(TrialParams(), "actors", id="no actors"),
        pytest.param(with_actors(actor_params("", "c")), "name", id="empty name"),
        pytest.param(with_actors(actor_params("a", "")), "class", id="empty class"),
        pytest.param(with_actors(one, one), "'a'", id="duplicate name"),
        pytest.param(with_actors(actor_params("env", "c")), "env", id="named as the environment"),
        pytest.param(with_actors(actor_params("é", "c")), "ASCII", id="name beyond ASCII"),
        pytest.param(with_actors(actor_params("a", "c", endpoint="http://x")), "actors[0].endpoint", id="bad scheme"),
        pytest.param(with_actors(actor_params("a", "c", endpoint="grpc://x")), "actors[0].endpoint", id="no port"),
        pytest.param(
            TrialParams(actors=[one], environment=EnvironmentParams(endpoint="cogment://client")),
            "environment.endpoint",
            id="environment cannot be a client",
        ),
        pytest.param(trial_params([one], datalog_endpoint="grpc://:1"), "datalog.endpoint", id="bad datalog"),
    ]


@pytest.mark.parametrize(("params", "named"), _bad_params())
async def test_bad_parameters_are_refused_and_leave_nothing(params: TrialParams, named: str) -> None:
    async with bench() as table:
        with pytest.raises(RpcError) as caught:
            await table.controller.start_trial(params, trial_id="t")
        assert caught.value.code is StatusCode.INVALID_ARGUMENT
        assert named in caught.value.message
        assert not await table.controller.trial_infos()
        # The id is free again: the next refusal is about the parameters too.
        with pytest.raises(RpcError):
            await table.controller.start_trial(params, trial_id="t")


@pytest.mark.parametrize("trial_id", ["é", "a\nb", "\x7f"])
async def test_ids_that_could_not_travel_are_refused(trial_id: str) -> None:
    async with bench() as table:
        with pytest.raises(RpcError) as caught:
            await table.controller.start_trial(params_of("a"), trial_id=trial_id)
        assert caught.value.code is StatusCode.INVALID_ARGUMENT
        assert not await table.controller.trial_infos()


async def test_watch_refuses_a_state_that_is_none() -> None:
    async with bench() as table:
        with pytest.raises(RpcError) as caught:
            async with table.controller.watch_trials([7]) as watch:
                await watch.receive()
        assert caught.value.code is StatusCode.INVALID_ARGUMENT


async def test_watch_with_full_info_and_filter(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(2)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        states = [TrialState.ENDED]
        async with table.controller.watch_trials(states, full_info=True) as watch:
            trial_id = await table.controller.start_trial(params_of("a", properties={"k": "v"}))
            entry = await watch.receive()
    assert (entry.trial_id, entry.info.trial_id, entry.info.state) == ("", trial_id, TrialState.ENDED)
    assert dict(entry.info.properties) == {"k": "v"}
    assert not entry.info.actors_in_trial


async def test_watch_with_full_info_shows_each_state_of_a_hard_end(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(None)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table, table.controller.watch_trials(full_info=True) as watch:
        trial_id = await table.controller.start_trial(params_of("a"))
        seen = [(await watch.receive()).info.state for _ in range(3)]
        await table.controller.terminate_trial(trial_id, hard=True)
        # One input, two changes.
        seen += [(await watch.receive()).info.state for _ in range(2)]
    assert seen == ALL_STATES


async def test_watcher_that_never_reads_is_given_up_and_harms_nobody(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(1)).environment(), Script(actor_that_acts()).actor()
    config = OrchestratorConfig(watch_queue_entries=10)
    changes: list[tuple[str, int]] = []
    async with bench(*services, config=config) as table, table.controller.watch_trials() as watch:
        # The call's own buffers take some hundred entries before the watcher's queue fills.
        for _ in range(121):
            trial_id = await table.controller.start_trial(params_of("a"))
            assert await table.controller.wait_trial_state(trial_id) is not None
            changes += [(trial_id, state) for state in ALL_STATES]
        seen = await until_given_up(watch)
    # Everything until then, and without a gap.
    assert config.watch_queue_entries < len(seen) < len(changes)
    assert seen == changes[: len(seen)]


async def test_info_of_some_all_and_unknown(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(silent).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        for name in "xy":
            await table.controller.start_trial(params_of("a", "b"), trial_id=name)
        infos = await table.controller.trial_infos(["y", "nobody", "y", "x"], actors=True)
        assert [info.trial_id for info in infos] == ["y", "y", "x"]
        assert [actor.name for actor in infos[0].actors_in_trial] == ["a", "b"]
        assert len(await table.controller.trial_infos()) == 2


async def test_latest_observation_is_given_when_asked_for(autojump_clock: trio.testing.MockClock) -> None:
    async def one_observation(call: ServerCall) -> None:
        await call.send(observation_set(await start_environment(call), b"look"))
        await silent(call)

    services = Script(one_observation).environment(), Script(silent_after_start).actor()
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        await table.controller.wait_trial_state("t", TrialState.RUNNING)
        (info,) = await table.controller.trial_infos(["t"], latest_observation=True)
        assert list(info.latest_observation.observations) == [b"look"]
        (info,) = await table.controller.trial_infos(["t"])
        assert not info.HasField("latest_observation")


async def silent_after_start(call: ServerCall) -> None:
    from trio_cogment.api.common_pb2 import ActorInitialOutput, ActorRunTrialOutput, CommunicationState

    await call.receive()
    await call.send(ActorRunTrialOutput(state=CommunicationState.NORMAL, init_output=ActorInitialOutput()))
    await silent(call)


async def test_hooks_run_in_order_and_replace_everything(autojump_clock: trio.testing.MockClock) -> None:
    calls: list[tuple[str, str, int]] = []

    async def on_pre_trial(request: PreTrialParams, call: ServerCall) -> PreTrialParams:
        (trial_id,), (user_id,) = call.metadata.texts("trial-id"), call.metadata.texts("user-id")
        calls.append((trial_id, user_id, request.params.max_steps))
        assert request.params.trial_config.content == b"config"
        if request.params.max_steps:
            params = params_of("a")
            params.trial_config.content = b"config"
            return PreTrialParams(params=params)
        request.params.max_steps = 7
        return request

    services = (
        Script(environment_of(1)).environment(),
        Script(actor_that_acts()).actor(),
        HookScript(on_pre_trial).service(),
    )
    hooks = ["cogment://discover", "cogment://discover/prehook"]
    async with bench(*services, pre_trial_hooks=hooks) as table:
        assert await table.controller.start_trial(config=b"config", trial_id="t") == "t"
        # Both had replied when StartTrial did.
        assert calls == [("t", "trio-cogment", 0), ("t", "trio-cogment", 7)]
        await table.controller.wait_trial_state("t")
        # Parameters given whole bypass the hooks.
        await table.controller.start_trial(params_of("a"))
        assert len(calls) == 2


async def test_failing_hook_fails_the_start_and_leaves_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async def on_pre_trial(_request: PreTrialParams, _call: ServerCall) -> PreTrialParams:
        raise RpcError(StatusCode.ABORTED, "no")

    services = (HookScript(on_pre_trial).service(),)
    async with bench(*services, pre_trial_hooks=["cogment://discover"]) as table:
        with pytest.raises(RpcError) as caught:
            await table.controller.start_trial(trial_id="t")
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert "pre-trial hook 1" in caught.value.message
        assert not await table.controller.trial_infos()


async def test_slow_hook_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    async def on_pre_trial(request: PreTrialParams, _call: ServerCall) -> PreTrialParams:
        await trio.sleep(math.inf)
        return request

    config = OrchestratorConfig(hook_timeout_seconds=5)
    async with bench(
        HookScript(on_pre_trial).service(), pre_trial_hooks=["cogment://discover"], config=config
    ) as table:
        with pytest.raises(RpcError) as caught:
            await table.controller.start_trial(trial_id="t")
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert trio.current_time() == pytest.approx(5)


async def test_hard_end_during_a_hook_fails_the_start(autojump_clock: trio.testing.MockClock) -> None:
    in_hook = trio.Event()

    async def on_pre_trial(request: PreTrialParams, _call: ServerCall) -> PreTrialParams:
        in_hook.set()
        await trio.sleep(math.inf)
        return request

    outcome: list[RpcError] = []
    service = HookScript(on_pre_trial).service()
    async with bench(service, pre_trial_hooks=["cogment://discover"]) as table, trio.open_nursery() as nursery:

        async def start() -> None:
            with pytest.raises(RpcError) as caught:
                await table.controller.start_trial(trial_id="t")
            outcome.append(caught.value)

        nursery.start_soon(start)
        await in_hook.wait()
        await table.controller.terminate_trial("t", hard=True)
    assert outcome[0].code is StatusCode.FAILED_PRECONDITION


async def test_cancelled_start_leaves_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async def on_pre_trial(request: PreTrialParams, _call: ServerCall) -> PreTrialParams:
        await trio.sleep(math.inf)
        return request

    service = HookScript(on_pre_trial).service()
    async with bench(service, pre_trial_hooks=["cogment://discover"]) as table:
        with trio.move_on_after(1):
            await table.controller.start_trial(trial_id="t")
        await trio.testing.wait_all_tasks_blocked()
        assert not await table.controller.trial_infos()


async def test_stop_tells_everybody(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[Any] = []
    environment_seen: list[Any] = []
    services = Script(environment_of(None, environment_seen)).environment(), Script(actor_that_acts(seen)).actor()
    states: list[int] = []

    async def collect(watch: Any) -> None:
        async for entry in watch:
            states.append(entry.state)

    async def watching(table: Any, *, task_status: trio.TaskStatus[None]) -> None:
        async with table.controller.watch_trials() as watch:
            task_status.started()
            with pytest.raises(RpcError) as caught:
                await collect(watch)
            assert caught.value.code is StatusCode.UNAVAILABLE

    async with bench(*services) as table, trio.open_nursery() as nursery:
        await nursery.start(watching, table)
        await table.controller.start_trial(params_of("a"), trial_id="t")
        await table.controller.wait_trial_state("t", TrialState.RUNNING)
        await table.orchestrator.stop()
        with pytest.raises(RpcError) as refused:
            await table.controller.start_trial(params_of("a"))
        assert refused.value.code is StatusCode.UNAVAILABLE
    assert states == ALL_STATES
    for messages in (seen, environment_seen):
        assert messages[-1].state == END
        assert messages[-1].details == STOPPING


async def test_a_stop_waits_for_no_call_that_is_over(autojump_clock: trio.testing.MockClock) -> None:
    async with bench() as table:
        for _ in range(3):
            async with table.controller.watch_trials():
                pass
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await table.orchestrator.stop()
        assert trio.current_time() == began


async def test_version_and_status() -> None:
    from trio_cogment.api import orchestrator_pb2
    from trio_cogment.api.common_pb2 import StatusRequest, VersionRequest
    from trio_cogment.rpc import methods_of

    async with bench() as table:
        for service in ("TrialLifecycleSP", "ClientActorSP"):
            methods = methods_of(orchestrator_pb2.DESCRIPTOR.services_by_name[service])
            versions = await table.channel.unary(methods["Version"], VersionRequest())
            assert {"cogment-api", "grpc", "trio-cogment"} <= {entry.name for entry in versions.versions}
            status = await table.channel.unary(methods["Status"], StatusRequest(names=["overall_load", "bogus"]))
            assert list(status.statuses) == ["overall_load"]
            assert 0 <= int(status.statuses["overall_load"]) <= 254
            assert not (await table.channel.unary(methods["Status"], StatusRequest())).statuses
            trials = await table.channel.unary(methods["Status"], StatusRequest(names=["nb_trials"]))
            assert dict(trials.statuses) == ({"nb_trials": "0"} if service == "TrialLifecycleSP" else {})


@pytest.mark.parametrize("where", ["hook", "data log"])
async def test_a_start_that_a_stop_interrupts_says_so(where: str, autojump_clock: trio.testing.MockClock) -> None:
    """UNAVAILABLE: trying elsewhere, or later, may help; the caller's request is not to blame."""

    async def hangs(request: PreTrialParams, _call: ServerCall) -> PreTrialParams:
        await trio.sleep(math.inf)
        return request

    class Hanging:
        @asynccontextmanager
        async def open(self, *_: Any) -> AsyncIterator[Any]:
            await trio.sleep(math.inf)
            yield

    hooks = ["cogment://discover"] if where == "hook" else []
    async with (
        bench(HookScript(hangs).service(), sink=Hanging(), pre_trial_hooks=hooks) as table,
        trio.open_nursery() as nursery,
    ):
        caught: list[RpcError] = []

        async def start() -> None:
            try:
                params = None if hooks else params_of("a", datalog_endpoint="cogment://discover/datalog")
                await table.controller.start_trial(params, trial_id="t")
            except RpcError as error:
                caught.append(error)

        nursery.start_soon(start)
        await trio.testing.wait_all_tasks_blocked()
        await table.orchestrator.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert [(error.code, error.message) for error in caught] == [
            (StatusCode.UNAVAILABLE, "trial 't': the orchestrator is stopping")
        ]
        assert not await table.controller.trial_infos()


@pytest.mark.parametrize("where", ["hook", "data log"])
async def test_why_a_start_failed_is_told_and_logged_without_tokens(
    where: str, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def refuses(_request: PreTrialParams, _call: ServerCall) -> PreTrialParams:
        raise RpcError(StatusCode.INTERNAL, "no good today")

    class Refusing:
        def open(self, *_: Any) -> Any:
            raise RpcError(StatusCode.INTERNAL, "no good today")

    endpoint = "cogment://discover?__authentication-token=hidden&for=us"
    hooks = [endpoint] if where == "hook" else []
    async with bench(HookScript(refuses).service(), sink=Refusing(), pre_trial_hooks=hooks) as table:
        with pytest.raises(RpcError, match="no good today") as caught:
            await table.controller.start_trial(None if hooks else params_of("a", datalog_endpoint=endpoint))
    assert caught.value.code is StatusCode.UNAVAILABLE
    assert "cogment://discover?for=us" in caught.value.message
    (record,) = [record for record in caplog.records if "could not start" in record.getMessage()]
    assert record.levelname == "WARNING"
    line = record.getMessage()
    # It is that trial's line.
    trial, _, why = caught.value.message.partition(": ")
    assert line.startswith(trial.replace("'", ""))
    assert why in line
    assert "hidden" not in caplog.text + caught.value.message


async def test_parameters_given_are_used_as_they_are_even_if_there_is_nothing_in_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """And a config, even an empty one, replaces the default one."""
    asked: list[bytes | None] = []

    async def hook(request: PreTrialParams, _call: ServerCall) -> PreTrialParams:
        config = request.params.trial_config
        asked.append(config.content if request.params.HasField("trial_config") else None)
        return request

    default = params_of("a")
    default.trial_config.content = b"default"
    options: dict[str, Any] = {"default_params": default, "pre_trial_hooks": ["cogment://discover"]}
    async with bench(HookScript(hook).service(), Script(silent).actor(), **options) as table:

        async def start(**data: Any) -> None:
            await table.channel.unary(START_TRIAL, TrialStartRequest(**data))

        with pytest.raises(RpcError) as caught:
            await start(params=TrialParams())
        assert caught.value.code is StatusCode.INVALID_ARGUMENT
        assert asked == []
        for data in ({}, {"config": SerializedMessage()}, {"config": SerializedMessage(content=b"c")}):
            await start(**data)
        assert asked == [b"default", b"", b"c"]
