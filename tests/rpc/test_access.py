"""The gate in front of a server's handlers, over real connections."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from tests.access.keys import FOREIGN, KEYS, NOW, Clock, control, grant, token_text
from trio_cogment.access import NEVER, THIS_PROCESS, AccessControl, Identity, Revoked, Role, Rules, authorization
from trio_cogment.api.common_pb2 import VersionInfo, VersionRequest
from trio_cogment.api.orchestrator_pb2 import TrialListRequest, TrialStartRequest
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.budget.refusals import refusals
from trio_cogment.rpc import CallOpener, Channel, InProcessChannel, ServerCall, bind, methods_of, open_listeners, serve

DESCRIPTOR = SERVICES[ServiceKind.LIFECYCLE].descriptor()
METHODS = methods_of(DESCRIPTOR)


class Handlers:
    """Remembers who has called."""

    def __init__(self) -> None:
        self.callers: list[Identity] = []

    async def Version(self, _request: VersionRequest, call: ServerCall) -> VersionInfo:
        self.callers.append(call.identity)
        return VersionInfo()

    async def WatchTrials(self, _request: object, call: ServerCall) -> None:
        self.callers.append(call.identity)
        await call.send_initial_metadata()
        await trio.sleep_forever()


@asynccontextmanager
async def served(handlers: Handlers, access: AccessControl | None) -> AsyncIterator[Channel]:
    config = RpcConfig(access_recheck_seconds=0.01)
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        serving = partial(serve, [bind(DESCRIPTOR, handlers)], listeners, access=access, config=config)
        running = await nursery.start(serving)
        async with Channel("127.0.0.1", running.port) as channel:
            yield channel
        nursery.cancel_scope.cancel()


async def asked(channel: CallOpener, token: str) -> tuple[StatusCode, str]:
    try:
        await channel.unary(METHODS["Version"], VersionRequest(), metadata=authorization(token))
    except RpcError as error:
        return error.code, error.message
    return StatusCode.OK, ""


async def test_with_open_access_every_caller_has_an_account_and_all_rights() -> None:
    handlers = Handlers()
    async with served(handlers, None) as channel:
        assert await asked(channel, "") == (StatusCode.OK, "")
        assert await asked(channel, "whatever") == (StatusCode.OK, "")
    for caller in handlers.callers:
        assert (caller.account, caller.local, caller.admin) == ("ipv4:127.0.0.1", True, True)


async def test_a_server_that_asks_for_tokens_ends_when_it_is_drained() -> None:
    listeners = await open_listeners("127.0.0.1")
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            serving = partial(serve, [bind(DESCRIPTOR, Handlers())], listeners, access=control())
            running = await nursery.start(serving)
            await running.drain(1)


async def test_in_process_the_caller_is_the_program() -> None:
    handlers = Handlers()
    async with InProcessChannel([bind(DESCRIPTOR, handlers)]) as channel:
        assert await asked(channel, "") == (StatusCode.OK, "")
    assert handlers.callers == [THIS_PROCESS]


async def test_without_a_good_token_no_handler_starts() -> None:
    handlers = Handlers()
    clock = Clock()
    access = control(Rules(keys=KEYS, revoked=Revoked.parse("gone")), clock)
    held = grant(Role.OPERATOR)
    bad = {
        "": "expected a token, in the metadata authorization as 'Bearer TOKEN', or a client certificate that is known",
        "forged": "the token is not valid here",
        token_text(held, keys=FOREIGN): "the token is not valid here",
        token_text(held, expires_at=NOW): "the token has expired",
        token_text(held, token_id="gone"): "the token has been revoked",
    }
    async with served(handlers, access) as channel:
        for token, text in bad.items():
            assert await asked(channel, token) == (StatusCode.UNAUTHENTICATED, text)
        assert handlers.callers == []
        assert await asked(channel, token_text(held)) == (StatusCode.OK, "")
        assert [caller.account for caller in handlers.callers] == ["token:alice"]


async def test_whether_a_method_exists_is_not_told_to_strangers() -> None:
    other = methods_of(SERVICES[ServiceKind.DIRECTORY].descriptor())["Version"]
    async with served(Handlers(), control()) as channel:
        for token, code in (("", StatusCode.UNAUTHENTICATED), (token_text(grant()), StatusCode.UNIMPLEMENTED)):
            with pytest.raises(RpcError) as caught:
                await channel.unary(other, VersionRequest(), metadata=authorization(token))
            assert caught.value.code is code


async def test_a_role_that_may_not_is_told_so() -> None:
    handlers = Handlers()
    async with served(handlers, control()) as channel:
        metadata = authorization(token_text(grant(Role.OBSERVER)))
        with pytest.raises(RpcError) as caught:
            await channel.unary(METHODS["StartTrial"], TrialStartRequest(), metadata=metadata)
    assert caught.value.code is StatusCode.PERMISSION_DENIED
    assert caught.value.message == (
        "/cogmentAPI.TrialLifecycleSP/StartTrial: not allowed for the caller's roles (observer)"
    )


@pytest.mark.parametrize("how", ["expired", "revoked", "rotated"])
async def test_a_running_call_ends_with_its_token(how: str) -> None:
    clock = Clock()
    access = control(clock=clock)
    async with served(Handlers(), access) as channel:
        mine = authorization(token_text(grant(Role.OBSERVER), expires_at=NOW + 10))
        others = authorization(token_text(grant(Role.OBSERVER, name="bob"), token_id="t2", expires_at=NEVER))
        async with (
            channel.call(METHODS["WatchTrials"], metadata=mine) as watching,
            channel.call(METHODS["WatchTrials"], metadata=others) as watching_on,
        ):
            for call in (watching, watching_on):
                await call.send(TrialListRequest())
                await call.done_sending()
                await call.wait_initial_metadata()
            if how == "expired":
                clock.seconds = NOW + 10
            elif how == "revoked":
                access.adopt(Rules(keys=KEYS, revoked=Revoked.parse("t1")))
            else:
                access.adopt(Rules(keys=FOREIGN))
            with trio.fail_after(10), pytest.raises(RpcError) as caught:
                await watching.receive()
            assert caught.value.code is StatusCode.UNAUTHENTICATED
            if how != "rotated":
                with trio.move_on_after(0.1):
                    await watching_on.receive()
                    raise AssertionError("the other's call has ended")


async def test_refused_calls_are_counted_and_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trio_cogment.rpc")
    async with served(Handlers(), control()) as channel:
        for _ in range(30):
            assert (await asked(channel, ""))[0] is StatusCode.UNAUTHENTICATED
            assert (await asked(channel, token_text(grant(Role.ADMIN), keys=FOREIGN)))[0] is StatusCode.UNAUTHENTICATED
            request, metadata = TrialStartRequest(), authorization(token_text(grant(Role.OBSERVER)))
            with pytest.raises(RpcError, match="not allowed for the caller's roles"):
                await channel.unary(METHODS["StartTrial"], request, metadata=metadata)
    assert refusals().counts["unauthenticated calls"] == 60
    assert refusals().counts["calls without the right"] == 30
    assert refusals().tokens == {"cogmentAPI.TrialLifecycleSP": 60}
    lines = [message for message in caplog.messages if "refused" in message]
    assert 2 <= len(lines) < 10
    assert lines[0].startswith("call from ipv4:127.0.0.1 refused: expected a token")
