"""An implementation's functions become the methods of a service."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from trio_cogment.api.common_pb2 import VersionInfo, VersionRequest
from trio_cogment.errors import RpcError, StatusCode
from trio_cogment.rpc import InProcessChannel, ServedAtOnce, ServerCall, bind, methods_of
from trio_cogment.services import SERVICES, ServiceKind

SERVICE = SERVICES[ServiceKind.LIFECYCLE].descriptor()
METHODS = methods_of(SERVICE)
VERSION = METHODS["Version"]


class Versions:
    """Answers in a task, or at once where it can."""

    def __init__(self, *, at_once: bool) -> None:
        self.in_tasks = 0
        self.at_once = at_once

    async def Version(self, _request: VersionRequest, _call: ServerCall) -> VersionInfo:
        self.in_tasks += 1
        await trio.lowlevel.checkpoint()
        return VersionInfo(versions=[VersionInfo.Version(name="in a task")])

    def Version_at_once(self, call: ServedAtOnce, first: VersionRequest) -> bool:
        assert type(first) is VersionRequest
        if self.at_once:
            call.hand_over_nowait(VersionInfo(versions=[VersionInfo.Version(name="at once")]))
            call.finish()
        return self.at_once


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_plain_function_beside_a_method_takes_calls_without_a_task(at_once: bool) -> None:
    service = Versions(at_once=at_once)
    async with InProcessChannel([bind(SERVICE, service)]) as channel:
        call = channel.call_nowait(VERSION, first=VersionRequest())
        assert call is not None
        call.done_sending_nowait()
        assert (await call.receive()).versions[0].name == ("at once" if at_once else "in a task")
        assert await call.receive() is None
        assert service.in_tasks == (not at_once)
        # A call that comes without its first message has a task.
        assert (await channel.unary(VERSION, VersionRequest())).versions[0].name == "in a task"


async def test_what_is_not_implemented_says_so() -> None:
    async with InProcessChannel([bind(SERVICE, Versions(at_once=False))]) as channel:
        for name, method in METHODS.items():
            if name != "Version":
                with pytest.raises(RpcError, match=f"{method.path} is not implemented here") as caught:
                    await channel.unary(method, method.request_type())
                assert caught.value.code is StatusCode.UNIMPLEMENTED


class Sending(Versions):
    """Has sent its reply itself."""

    async def Version(self, _request: VersionRequest, call: ServerCall) -> Any:
        await call.send(VersionInfo(versions=[VersionInfo.Version(name="sent")]))


async def test_a_reply_that_was_sent_is_not_sent_again() -> None:
    async with InProcessChannel([bind(SERVICE, Sending(at_once=False))]) as channel:
        assert (await channel.unary(VERSION, VersionRequest())).versions[0].name == "sent"
