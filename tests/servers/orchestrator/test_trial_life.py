"""Lives of trials: what is left when a start is abandoned at the worst moment, and last words."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

from tests.helpers import Script, actor_that_acts, bench, params_of
from tests.servers.orchestrator.puppets import LAST, LAST_ACK, settle, stage
from tests.servers.orchestrator.test_reference_cases import params
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.host import Host
from trio_cogment.rpc import ServerCall
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.orchestrator import Orchestrator, orchestrator_services
from trio_cogment.servers.orchestrator._trial import Trial
from trio_cogment.servers.orchestrator._trial_run import TrialRun

S = TrialState
Clock = trio.testing.MockClock


@pytest.mark.parametrize("moment", ["announced", "settled", "returned"])
@pytest.mark.parametrize("how", ["cancelled", "deadline"])
async def test_start_abandoned_between_pending_and_its_reply_leaves_nothing(
    moment: str, how: str, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = trio.CancelScope()
    pending: list[str] = []

    def abandon() -> None:
        if how == "cancelled":
            caller.cancel()
        else:
            caller.deadline = trio.current_time()

    on_state, start = Orchestrator._on_state, Orchestrator._start

    def watched(self: Orchestrator, trial: Trial, state: int) -> None:
        on_state(self, trial, state)
        if state == S.PENDING:
            pending.append(trial.trial_id)
            if moment == "announced":
                # Still within the step that makes it PENDING.
                abandon()
            elif moment == "settled":
                # Everybody who waits for that has been told in the same turn.
                trial.settled.set()
                abandon()

    async def started(self: Orchestrator, *arguments: Any) -> None:
        await start(self, *arguments)
        if moment == "returned":
            abandon()

    monkeypatch.setattr(Orchestrator, "_on_state", watched)
    monkeypatch.setattr(Orchestrator, "_start", started)
    async with stage() as play:
        with caller:
            await play.table.orchestrator.start_trial(trial_id="t", params=params("a"))
            # A deadline that comes in that very turn is seen in the next.
            assert how == "deadline"
        await settle()
        if caller.cancelled_caught:
            assert pending == ["t"]
            assert not list(play.table.orchestrator.trials)
            assert play["a"].end == "the trial could not start"
            await trio.sleep(10)
            assert play.table.orchestrator.running_trials == 0
            # And the id is free.
            caller = trio.CancelScope()
            moment = "never"
            assert await play.table.orchestrator.start_trial(trial_id="t", params=params("a")) == "t"
        else:
            # The caller had its reply in time.
            assert moment == "returned"
            assert [trial.trial_id for trial in play.table.orchestrator.trials] == ["t"]


@pytest.mark.parametrize("wire", [False, True])
async def test_start_abandoned_by_a_peer_at_any_moment_leaves_nothing_or_a_trial(
    wire: bool, autojump_clock: Clock
) -> None:
    """Whatever turn the caller leaves in: either the trial runs and can be asked about, or there is no trace of it."""

    async def waits(call: ServerCall) -> None:
        async for _ in call:
            pass

    outcomes: set[int] = set()
    async with bench(Script(waits).environment(), Script(waits).actor(), wire=wire) as table:
        for turns in range(40):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(table.controller.start_trial, params_of("a"))
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            await settle()
            await trio.sleep(5)
            trials = list(table.orchestrator.trials)
            outcomes.add(len(trials))
            assert table.orchestrator.running_trials == len(trials) <= 1
            for trial in trials:
                assert trial.state == S.PENDING
                await table.controller.terminate_trial(trial.trial_id, hard=True)
                table.orchestrator.trials.remove(trial)
            await trio.sleep(5)
    assert outcomes == {0, 1}


async def test_start_is_refused_once_the_host_has_cancelled(autojump_clock: Clock) -> None:
    async with stage() as play:
        play.table.orchestrator._nursery.cancel_scope.cancel()
        await settle()
        with pytest.raises(RpcError) as caught:
            await play.start(params("a"))
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert not list(play.table.orchestrator.trials)


async def test_properties_are_bounded_and_configs_are_not(autojump_clock: Clock) -> None:
    async with stage(config=OrchestratorConfig(max_properties_bytes=1000)) as play:
        with pytest.raises(RpcError) as caught:
            await play.start(params("a", properties={"é" * 300: "x" * 401}))
        assert caught.value.code is StatusCode.INVALID_ARGUMENT
        assert "properties: 1001 bytes" in caught.value.message
        assert not await play.table.controller.trial_infos()
        fits = params("a", properties={"é" * 300: "x" * 400})
        fits.environment.config.content = bytes(3 * 1024 * 1024)
        await play.start(fits)
        assert len((await play.info()).properties) == 1


async def test_one_that_cannot_even_begin_is_told_and_leaves_nothing(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(TrialRun, "_open_datalog", fails)
    async with stage() as play:
        with pytest.raises(RpcError) as caught:
            await play.start(params("a"))
        assert caught.value.code is StatusCode.INTERNAL
        assert not list(play.table.orchestrator.trials)


async def test_last_rewards_come_before_the_final_observation_or_just_before_the_end(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("a", "b"))
        await play["env"].observe(indexes=[0, 0])
        await play.soft()
        await play["a"].act()
        await play["b"].act()
        for puppet in play.puppets.values():
            puppet.take()
        await play["b"].reward("a", (math.nan, 1))
        await play["env"].observe(indexes=[0, 0])
        reward, last, observation = play["a"].take()
        assert math.isnan(reward.reward.value)
        assert last.state == LAST
        assert observation.HasField("observation")
        await play["env"].reward("*", (3, 1))
        await play["a"].say(LAST_ACK)
        await play["b"].say(LAST_ACK)
        assert play["a"].take() == play["b"].take()[2:] == []
        await play["env"].say(LAST_ACK)
        for name in ("a", "b"):
            assert play[name].kinds() == ["NORMAL/reward", "END"]


async def test_actors_connect_at_the_same_time_and_each_wait_is_its_own(autojump_clock: Clock) -> None:
    waits = [
        actor_params(f"w{seconds}", "cls", optional=True, initial_connection_timeout_seconds=seconds)
        for seconds in (3, 1, 2)
    ]
    async with stage() as play:
        await play.start(params("a", *waits))
        assert {"a", "w1", "w2", "w3"} <= set(play.puppets)
        await play["a"].ready()
        await trio.sleep(1.5)
        await play["w1"].ready()
        await play["w2"].ready()
        await trio.sleep(1)
        assert "env" not in play
        await trio.sleep(1)
        # As soon as nobody is awaited any more, at the latest of the waits.
        await play["env"].ready()
        await play["env"].observe(indexes=[0] * 4)
        got = {name: [kind for kind in play[name].kinds() if "observation" in kind] for name in ("a", "w1", "w2", "w3")}
        assert {name for name, kinds in got.items() if kinds} == {"a", "w2"}


async def test_patience_with_a_soft_end_is_limited(autojump_clock: Clock) -> None:
    """Reference: a soft end that nobody answers never takes effect."""
    for where in ("pending", "an actor", "the environment"):
        async with stage(config=OrchestratorConfig(soft_end_patience_seconds=50)) as play:
            if where == "pending":
                await play.start(params("a"))
            else:
                await play.play(params("a"))
                await play["env"].observe(indexes=[0])
            await play.soft()
            if where == "the environment":
                await play["a"].act()
            before = trio.current_time()
            await trio.sleep(49)
            assert await play.state() < S.ENDED
            await trio.sleep(2)
            assert await play.state() == S.ENDED
            assert trio.current_time() - before == pytest.approx(51)
            assert "within 50 s" in str(play["a"].end)


async def test_a_wall_clock_that_jumps_moves_no_timeout(autojump_clock: Clock) -> None:
    from tests.helpers import Everything
    from trio_cogment.rpc import InProcessChannel
    from trio_cogment.sdk import Controller

    wall = [10**18]

    async def deaf(call: ServerCall) -> None:
        async for _ in call:
            wall[0] -= 10**17

    services = Script(deaf).environment(), Script(actor_that_acts()).actor()
    async with InProcessChannel(services) as local:
        orchestrator = Orchestrator(host=Host(wall_clock=lambda: wall[0], new_id=lambda: "t"), local=Everything(local))
        async with orchestrator, InProcessChannel(orchestrator_services(orchestrator)) as channel:
            controller = Controller(channel)
            await controller.start_trial(trial_params([actor_params("a", "cls")]))
            wall[0] += 10**17
            info = await controller.wait_trial_state("t")
            assert info is not None
            assert trio.current_time() == pytest.approx(60)
            assert info.trial_duration == 60 * 10**9
