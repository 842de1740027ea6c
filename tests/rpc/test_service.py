"""An implementation's functions become the methods of a service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from google.protobuf.descriptor import ServiceDescriptor

from trio_cogment.api.common_pb2 import VersionInfo, VersionRequest
from trio_cogment.api.orchestrator_pb2 import TrialListEntry, TrialListRequest
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.rpc import (
    CallOpener,
    Channel,
    InProcessChannel,
    ServedAtOnce,
    ServerCall,
    WithMetadata,
    bind,
    methods_of,
)

SERVICE = SERVICES[ServiceKind.LIFECYCLE].descriptor()
CLIENT_ACTOR = SERVICES[ServiceKind.CLIENT_ACTOR].descriptor()
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


class Misspelt:
    async def version(self, _request: VersionRequest, _call: ServerCall) -> VersionInfo:
        raise AssertionError


class SnakeCase:
    async def get_trial_info(self, _request: VersionRequest, _call: ServerCall) -> VersionInfo:
        raise AssertionError


class Generating:
    """As methods of streams are with grpc.aio."""

    async def WatchTrials(self, _request: TrialListRequest, _call: ServerCall) -> AsyncIterator[TrialListEntry]:
        yield TrialListEntry()


class MisspeltGenerating:
    async def watch_trials(self, _request: TrialListRequest, _call: ServerCall) -> AsyncIterator[TrialListEntry]:
        yield TrialListEntry()


class WithoutRequest:
    async def Version(self, _call: ServerCall) -> VersionInfo:
        raise AssertionError


class WithRequest:
    async def RunTrial(self, _request: object, _call: ServerCall) -> None:
        raise AssertionError


class Helping(Versions):
    """What is its own stays its own: names that are like no method, and one that is like a method which is there."""

    async def look_around(self) -> None: ...

    async def version(self) -> None: ...

    async def _GetTrialInfos(self) -> None: ...


@pytest.mark.parametrize(
    ("implementation", "text"),
    [
        (Misspelt(), r"Misspelt\.version: cogmentAPI\.TrialLifecycleSP has no such method; did you mean 'Version'\?"),
        (SnakeCase(), r"SnakeCase\.get_trial_info: .*; did you mean 'GetTrialInfo'\?"),
        (MisspeltGenerating(), r"MisspeltGenerating\.watch_trials: .*; did you mean 'WatchTrials'\?"),
        (Versions, "expected an object, got the class Versions"),
    ],
)
def test_a_misspelt_method_is_refused(implementation: object, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        bind(SERVICE, implementation)


@pytest.mark.parametrize(
    ("service", "implementation", "text"),
    [
        (
            SERVICE,
            Generating(),
            r"Generating\.WatchTrials: a method cannot be a generator; `await call\.send\(response\)`",
        ),
        (
            SERVICE,
            WithoutRequest(),
            r"WithoutRequest\.Version: expected a function of \(request, call\), for one request",
        ),
        (
            CLIENT_ACTOR,
            WithRequest(),
            r"WithRequest\.RunTrial: expected a function of \(call\), for a stream of requests",
        ),
    ],
)
def test_a_function_of_another_shape_is_refused(service: ServiceDescriptor, implementation: object, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        bind(service, implementation)


def test_what_is_no_service_is_refused() -> None:
    with pytest.raises(TypeError, match=r"service: expected a ServiceDescriptor, as .* gives one, got 'Greeter'"):
        bind("Greeter", WithRequest())  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(TypeError, match="expected a ServiceDescriptor"):
        methods_of(SERVICE.file)  # type: ignore[arg-type]  # that is the mistake


async def test_other_functions_of_an_implementation_are_its_own() -> None:
    async with InProcessChannel([bind(SERVICE, Helping(at_once=False))]) as channel:
        assert (await channel.unary(VERSION, VersionRequest())).versions[0].name == "in a task"


@pytest.mark.parametrize("name", ["version", "Versionn"])
def test_a_method_that_a_service_has_not_is_named(name: str) -> None:
    with pytest.raises(KeyError) as caught:
        METHODS[name]
    assert str(caught.value) == f"cogmentAPI.TrialLifecycleSP has no method {name!r}; did you mean 'Version'?"
    assert METHODS.get(name) is None
    assert name not in METHODS


@pytest.mark.parametrize(
    "channel",
    [InProcessChannel(), Channel("127.0.0.1", 1), WithMetadata(InProcessChannel(), {"name": "value"})],
    ids=["process", "socket", "metadata"],
)
async def test_a_name_is_no_method(channel: CallOpener) -> None:
    with pytest.raises(TypeError, match=r"method: expected an rpc\.Method, .*, got 'Version'"):
        await channel.unary("Version", VersionRequest())  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TypeError, match=r"method: expected an rpc\.Method"):
        channel.call("Version")  # type: ignore[arg-type]  # the mistake
