"""A program of participants: what variables say, what it registers, and how it stops."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.services import IMPLEMENTATION
from trio_cogment.rpc import RunningServer, open_listeners, serve
from trio_cogment.sdk import EnvironmentSession, Participants
from trio_cogment.sdk import _participants_program as program_module
from trio_cogment.sdk._participants_program import (
    DEFAULT_PORT,
    DIRECTORY_VARIABLE,
    PORT_VARIABLE,
    TOKEN_VARIABLE,
    _port,
    run_participants,
)
from trio_cogment.servers.directory import DirectoryServer, Inquiry, directory_services
from trio_cogment.servers.directory._entries import Entry


def test_variables_are_those_of_the_published_sdk() -> None:
    assert (PORT_VARIABLE, DIRECTORY_VARIABLE, TOKEN_VARIABLE) == (
        "COGMENT_PARTICIPANTS_PORT",
        "COGMENT_DIRECTORY_ENDPOINT",
        "COGMENT_DIRECTORY_AUTHENTICATION_TOKEN",
    )


@pytest.mark.parametrize(
    ("text", "port"), [("", DEFAULT_PORT), (" ", DEFAULT_PORT), ("0", 0), (" 9001 ", 9001), ("65535", 65535)]
)
def test_a_port(text: str, port: int) -> None:
    assert _port(text) == port


@pytest.mark.parametrize("text", ["65536", "-1", "9001.5", "x", "9001 9002"])
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{PORT_VARIABLE}: expected a port from 0 to 65535, got '{text}'$"):
        _port(text)


# The whole program


async def game(session: EnvironmentSession) -> None:
    await session.start([])


def participants() -> Participants:
    found = Participants()
    found.register_environment(game, "chess")
    return found


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[RunningServer]:
    """Run the program without signals; it is cancelled in the end."""
    options = {"address": "127.0.0.1", "signals": (), "variables": {}, **options}
    async with trio.open_nursery() as nursery:
        yield await nursery.start(partial(run_participants, participants(), **options))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def directory() -> AsyncIterator[tuple[DirectoryServer, str]]:
    """Run a directory; yield it and its endpoint."""
    async with (
        DirectoryServer(config=DirectoryServerConfig(startup_lag_seconds=0)) as server,
        trio.open_nursery() as nursery,
    ):
        listeners = await open_listeners("127.0.0.1", 0)
        serving = await nursery.start(serve, directory_services(server), listeners)
        yield server, f"grpc://127.0.0.1:{serving.port}"
        nursery.cancel_scope.cancel()


async def registered(server: DirectoryServer, token: str = "") -> Entry:
    """Wait for the only registration with a token."""
    with trio.fail_after(30):
        while True:
            found = await server.find(Inquiry(), token=token)
            if found:
                (entry,) = found
                return entry
            await trio.sleep(0.02)


async def test_it_says_where_it_listens_and_who(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(variables={PORT_VARIABLE: "0"}) as serving:
        assert serving.port not in (0, DEFAULT_PORT)
        stream = await trio.open_tcp_stream("127.0.0.1", serving.port)
        await stream.aclose()
    assert capsys.readouterr().out == f"participants listening on 127.0.0.1:{serving.port} (EnvironmentSP)\n"


async def test_a_port_that_is_given_counts_more_than_the_variable() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with running(port=port, variables={PORT_VARIABLE: "x"}) as serving:
        assert serving.port == port


async def test_it_is_registered_while_it_serves() -> None:
    async with directory() as (server, endpoint):
        variables = {PORT_VARIABLE: "0", DIRECTORY_VARIABLE: f" {endpoint} ", TOKEN_VARIABLE: "t"}
        async with running(variables=variables, registration_properties={"room": "7"}) as serving:
            entry = await registered(server, "t")
            assert (entry.service.host, entry.service.port) == ("127.0.0.1", serving.port)
            said = entry.service.properties
            assert said["room"] == "7"
            assert said["__registration_source"] == "PythonSDK-Implicit"
            assert said[IMPLEMENTATION] == "chess"
            assert entry.service.protocol == 1
        assert server.count == 0


async def test_what_is_given_counts_more_than_variables() -> None:
    async with directory() as (server, endpoint):
        variables = {DIRECTORY_VARIABLE: "grpc://127.0.0.1:1", TOKEN_VARIABLE: "other"}
        given: dict[str, Any] = {"directory": endpoint, "directory_token": "t", "registration_host": "localhost"}
        async with running(port=0, variables=variables, **given):
            assert (await registered(server, "t")).service.host == "localhost"


async def test_an_empty_token_that_is_given_is_none() -> None:
    async with (
        directory() as (server, endpoint),
        running(port=0, directory=endpoint, directory_token="", variables={TOKEN_VARIABLE: "other"}),
    ):
        await registered(server)


async def test_a_signal_stops_it_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    async with directory() as (server, endpoint):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                options: dict[str, Any] = {"port": 0, "address": "127.0.0.1", "directory": endpoint, "variables": {}}
                program = partial(run_participants, participants(), signals=[signal.SIGUSR1], **options)
                serving = await nursery.start(program)
                await registered(server)
                os.kill(os.getpid(), signal.SIGUSR1)
            assert server.count == 0
            with pytest.raises(OSError, match="connect"):
                await trio.open_tcp_stream("127.0.0.1", serving.port)
    assert not ended


async def test_a_second_signal_ends_the_process_with_the_status_of_shells(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(BaseException):
        pass

    def exit_(status: int) -> None:
        ended.append(status)
        raise Ended

    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", exit_)
    send, received = trio.open_memory_channel[int](1)
    send.send_nowait(signal.SIGTERM)
    with pytest.raises(Ended):
        await program_module._end_process(received)
    assert ended == [128 + signal.SIGTERM]
