"""Participants that ask for tokens: only orchestrators get in, each for the trials it runs."""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from tests.access.keys import FOREIGN, KEYS, control, grant, token_text
from trio_cogment.access import Role, Rules
from trio_cogment.api.common_pb2 import ActorRunTrialInput, TrialParams
from trio_cogment.api.datalog_pb2 import RunTrialDatalogInput
from trio_cogment.api.environment_pb2 import EnvRunTrialInput
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import SERVICES, TRIAL_ID, USER_ID, ServiceKind
from trio_cogment.platform import open_platform
from trio_cogment.rpc import Channel, methods_of
from trio_cogment.sdk import (
    ActorSession,
    DatalogSession,
    EnvironmentSession,
    Participants,
    PreTrialSession,
    actor_params,
    serve_participants,
    trial_params,
)

PATIENCE_SECONDS = 30
CALLS: dict[ServiceKind, tuple[str, Any]] = {
    ServiceKind.ENVIRONMENT: ("RunTrial", EnvRunTrialInput()),
    ServiceKind.ACTOR: ("RunTrial", ActorRunTrialInput()),
    ServiceKind.PRE_TRIAL_HOOK: ("OnPreTrial", PreTrialParams()),
    ServiceKind.DATALOG: ("RunTrialDatalog", RunTrialDatalogInput(trial_params=TrialParams())),
}


async def environment(session: EnvironmentSession) -> None:
    await session.start([("*", b"begin")])
    async for event in session.all_events():
        if event.actions is not None:
            await session.end([("*", b"end")])


async def actor(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"")


class Guests:
    """Participants, and which trials have come to them."""

    def __init__(self) -> None:
        self.trials: list[str] = []
        self.participants = Participants()
        self.participants.register_environment(environment)
        self.participants.register_actor(actor, "default")
        self.participants.register_pre_trial_hook(self._hook)
        self.participants.register_datalog(self._log)

    async def _hook(self, session: PreTrialSession) -> None:
        self.trials.append(session.trial_id)

    async def _log(self, session: DatalogSession) -> None:
        self.trials.append(session.trial_id)
        async for _ in session:
            pass


async def code_of(channel: Channel, kind: ServiceKind) -> StatusCode:
    method, message = CALLS[kind]
    described = methods_of(SERVICES[kind].descriptor())[method]
    async with channel.call(described, metadata=((TRIAL_ID, "mine"), (USER_ID, "u"))) as call:
        try:
            await call.send(message)
            await call.done_sending()
        except RpcError:
            pass
        try:
            while await call.receive() is not None:
                pass
        except RpcError as error:
            return error.code
    return StatusCode.OK


async def test_only_the_orchestrator_of_a_trial_gets_in() -> None:
    guests = Guests()
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            access = control(Rules(keys=KEYS))
            serve_them = partial(serve_participants, guests.participants, address="127.0.0.1", access=access)
            running = await nursery.start(serve_them)
            refused = StatusCode.PERMISSION_DENIED
            for token, expected in (
                ("", StatusCode.UNAUTHENTICATED),
                (token_text(grant(Role.ORCHESTRATOR), keys=FOREIGN), StatusCode.UNAUTHENTICATED),
                (token_text(grant(Role.OPERATOR)), refused),
                (token_text(grant(Role.ORCHESTRATOR, trials=("=other",))), refused),
            ):
                async with Channel("127.0.0.1", running.port, token=token) as channel:
                    assert {kind: await code_of(channel, kind) for kind in CALLS} == dict.fromkeys(CALLS, expected)
            assert guests.trials == []
            async with Channel(
                "127.0.0.1", running.port, token=token_text(grant(Role.ORCHESTRATOR, trials=("=mine",)))
            ) as channel:
                for kind in CALLS:
                    assert await code_of(channel, kind) not in (refused, StatusCode.UNAUTHENTICATED)
            assert set(guests.trials) == {"mine"}
            nursery.cancel_scope.cancel()


async def test_an_orchestrator_with_the_keys_runs_its_trials_there() -> None:
    guests = Guests()
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            access = control(Rules(keys=KEYS))
            serve_them = partial(serve_participants, guests.participants, address="127.0.0.1", access=access)
            running = await nursery.start(serve_them)
            where = f"grpc://127.0.0.1:{running.port}"
            async with open_platform(access=control(Rules(keys=KEYS))) as platform:
                params = trial_params(
                    [actor_params("a", "player", endpoint=where)], environment_endpoint=where, datalog_endpoint=where
                )
                trial_id = await platform.controller.start_trial(params)
                outcome = await platform.controller.wait_trial(trial_id)
                assert outcome.samples_lost == 0
            assert guests.trials == [trial_id]
            nursery.cancel_scope.cancel()
