"""The lifecycle service: owners, who may end and watch a trial, clients of this process that join without a task."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
import trio.testing

from tests.helpers import END, NORMAL, Bench, Script, actor_that_acts, bench, environment_of
from trio_cogment.access import Grant, Identity, Quotas, Role
from trio_cogment.api import orchestrator_pb2
from trio_cogment.api.common_pb2 import (
    Action,
    ActorInitialOutput,
    ActorRunTrialOutput,
    CommunicationState,
    TrialParams,
    TrialState,
)
from trio_cogment.api.orchestrator_pb2 import TerminateTrialRequest
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import TRIAL_OWNER, TRIAL_QUOTAS, TRIAL_RUN
from trio_cogment.rpc import IN_PROCESS, InProcessChannel, Metadata, ServerCall, methods_of
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.orchestrator._services import (
    ClientActorService,
    LifecycleService,
    _account,
    _may_see_tracebacks,
    _starter,
)

RUN_TRIAL = methods_of(orchestrator_pb2.DESCRIPTOR.services_by_name["ClientActorSP"])["RunTrial"]
TERMINATE = methods_of(orchestrator_pb2.DESCRIPTOR.services_by_name["TrialLifecycleSP"])["TerminateTrial"]
WORKER = frozenset([Role.WORKER])
QUOTAS = Quotas(trials=3)


class Caller:
    """As much of a call as tells who makes it."""

    def __init__(
        self,
        peer: str,
        *metadata: tuple[str, str],
        roles: frozenset[Role] = frozenset(),
        trials: tuple[str, ...] = (),
    ) -> None:
        self.peer = peer
        self.metadata = Metadata(metadata)
        self.method = TERMINATE
        grant = Grant(name="me", roles=roles, trials=trials, quotas=QUOTAS)
        self.identity = Identity(account="token:me", local=False, grant=grant)


@pytest.mark.parametrize(
    ("caller", "starter"),
    [
        (Caller("1.2.3.4:5"), ("token:me", QUOTAS, "")),
        (Caller("1.2.3.4:5", (TRIAL_OWNER, "token:you"), (TRIAL_QUOTAS, "trials=9")), ("token:me", QUOTAS, "")),
        (Caller(IN_PROCESS), ("", Quotas(), "")),
        (Caller(IN_PROCESS, ("other", "x")), ("", Quotas(), "")),
        (Caller(IN_PROCESS, (TRIAL_OWNER, "token:a%20b")), ("token:a b", Quotas(), "")),
        (Caller(IN_PROCESS, (TRIAL_QUOTAS, "trials=2")), ("", Quotas(trials=2), "")),
        (Caller(IN_PROCESS, (TRIAL_OWNER, "x"), (TRIAL_QUOTAS, "trials=2")), ("x", Quotas(trials=2), "")),
        # For which run.
        (Caller("1.2.3.4:5", roles=WORKER, trials=("=a",)), ("token:me", QUOTAS, "a")),
        (Caller("1.2.3.4:5", roles=WORKER, trials=("a",)), ("token:me", QUOTAS, "a")),
        (Caller("1.2.3.4:5", roles=WORKER, trials=("a*",)), ("token:me", QUOTAS, "")),
        (Caller("1.2.3.4:5", roles=WORKER, trials=("a", "b")), ("token:me", QUOTAS, "")),
        (Caller("1.2.3.4:5", roles=WORKER), ("token:me", QUOTAS, "")),
        (Caller("1.2.3.4:5", trials=("=a",)), ("token:me", QUOTAS, "")),
        (Caller("1.2.3.4:5", (TRIAL_RUN, "a")), ("token:me", QUOTAS, "")),
        (Caller(IN_PROCESS, (TRIAL_OWNER, "x"), (TRIAL_RUN, "a%2Fb")), ("x", Quotas(), "a/b")),
    ],
)
def test_a_trial_is_of_who_calls_and_only_this_process_may_say_else(
    caller: Caller, starter: tuple[str, Quotas, str]
) -> None:
    call = cast(ServerCall, caller)
    assert _starter(call) == starter
    assert _account(call) == ("" if caller.peer == IN_PROCESS else "token:me")
    assert _may_see_tracebacks(call) is (caller.peer == IN_PROCESS)


def clients(*names: str) -> TrialParams:
    return trial_params([actor_params(name, "player", endpoint="cogment://client") for name in names])


async def test_who_ends_trials_ends_all_that_it_names_or_none(autojump_clock: trio.testing.MockClock) -> None:
    async with bench(Script(environment_of(1)).environment()) as table:
        orchestrator = table.orchestrator
        for trial_id, account in (("mine", "token:me"), ("second", "token:me"), ("yours", "token:you"), ("own", "")):
            await orchestrator.start_trial(trial_id=trial_id, params=clients("a"), account=account)
        service = LifecycleService(orchestrator)

        def states() -> list[bool]:
            return [trial.over for trial in orchestrator.trials]

        async def end(*trial_ids: str, hard: bool = True) -> None:
            caller = Caller("1.2.3.4:5", *(("trial-id", name) for name in trial_ids), roles=frozenset([Role.OPERATOR]))
            await service.TerminateTrial(TerminateTrialRequest(hard_termination=hard), cast(ServerCall, caller))

        with pytest.raises(RpcError, match="metadata trial-id: expected at least one trial id") as refused:
            await table.channel.unary(TERMINATE, TerminateTrialRequest(hard_termination=True))
        assert refused.value.code is StatusCode.INVALID_ARGUMENT
        for other in ("yours", "own"):
            with pytest.raises(Exception, match=f"trial '{other}': it belongs to somebody else"):
                await end("mine", other)
        assert states() == [False] * 4
        await end("nobody", "second")
        assert states() == [False, True, False, False]
        await end("mine", hard=False)
        assert states() == [False, True, False, False]  # in good order it takes its time
        assert service._is_of("token:me", "mine")
        assert not service._is_of("token:me", "yours")
        assert not service._is_of("", "nobody")
        assert not service._is_of("token:me", "nobody")


class Told:
    """Keeps what a call brings."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.ended: list[RpcError | None] = []

    def on_message(self, message: Any) -> None:
        self.messages.append(message)

    def on_end(self, error: RpcError | None) -> None:
        self.ended.append(error)


def init(name: str) -> ActorRunTrialOutput:
    return ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput(actor_name=name))


def join(table: Bench, trial_id: str | None, first: ActorRunTrialOutput) -> tuple[Any, Told]:
    """Join a trial from this process, without a task."""
    assert isinstance(table.channel, InProcessChannel)
    metadata = () if trial_id is None else (("trial-id", trial_id),)
    call = table.channel.call_nowait(RUN_TRIAL, metadata=metadata, first=first)
    assert call is not None
    told = Told()
    call.set_consumer(told)
    return call, told


async def test_a_client_of_this_process_takes_part_without_a_task(autojump_clock: trio.testing.MockClock) -> None:
    async with bench(Script(environment_of(None)).environment(), Script(actor_that_acts()).actor()) as table:
        await table.orchestrator.start_trial(trial_id="t", params=clients("a"))
        tasks = trio.lowlevel.current_statistics().tasks_living
        call, told = join(table, "t", init("a"))
        assert [message.init_input.actor_name for message in told.messages] == ["a"]
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks + 1  # the environment's
        assert told.messages[-1].observation.tick_id == 0
        call.send_nowait(ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=0, content=b"x")))
        await trio.testing.wait_all_tasks_blocked()
        assert told.messages[-1].observation.tick_id == 1
        assert told.ended == []
        (trial,) = table.orchestrator.trials
        trial.hard_end("enough")
        await trio.testing.wait_all_tasks_blocked()
        assert (told.messages[-1].state, told.messages[-1].details) == (END, "enough")
        assert told.ended == [None]


@pytest.mark.parametrize(
    ("trial_id", "first", "code"),
    [
        (None, init("a"), StatusCode.INVALID_ARGUMENT),
        ("nobody", init("a"), StatusCode.NOT_FOUND),
        ("t", init("b"), StatusCode.NOT_FOUND),
        ("t", ActorRunTrialOutput(state=NORMAL, action=Action()), StatusCode.INVALID_ARGUMENT),
        ("t", ActorRunTrialOutput(state=CommunicationState.LAST), StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_what_is_to_be_refused_is_refused_as_to_anybody_else(
    trial_id: str | None, first: ActorRunTrialOutput, code: StatusCode, autojump_clock: trio.testing.MockClock
) -> None:
    async with bench(Script(environment_of(1)).environment()) as table:
        await table.orchestrator.start_trial(trial_id="t", params=clients("a"))
        _, told = join(table, trial_id, first)
        await trio.sleep(2)
        assert told.messages == []
        (error,) = told.ended
        assert error is not None
        assert error.code is code
        (trial,) = table.orchestrator.trials
        assert trial.state == TrialState.PENDING


async def test_who_may_not_join_learns_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with bench(Script(environment_of(1)).environment()) as table:
        await table.orchestrator.start_trial(trial_id="t", params=clients("a"), account="token:you")
        service = ClientActorService(table.orchestrator)
        for trial_id in ("t", "nobody"):
            caller = Caller("1.2.3.4:5", ("trial-id", trial_id), roles=frozenset([Role.OPERATOR]))
            with pytest.raises(Exception, match=f"metadata trial-id: trial '{trial_id}': not for this caller"):
                await service.RunTrial(cast(ServerCall, caller))
            assert not service.RunTrial_at_once(cast(Any, caller), init("a"))
