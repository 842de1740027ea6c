"""`trio-cogment participants MODULE` and `run_participants`, as processes beside an orchestrator and a directory."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Server, environment_variables, server
from tests.rpc.tls_files import make_party
from trio_cogment.access import THIS_PROCESS, Identity
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import RpcError, TrialFailedError
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.participants import load
from trio_cogment.platform import open_platform
from trio_cogment.rpc import Channel, ask_health, client_tls, open_listeners, serve
from trio_cogment.sdk import (
    ActorSession,
    Controller,
    EnvironmentSession,
    Participants,
    actor_params,
    run_participants,
    trial_params,
)
from trio_cogment.servers.directory import DirectoryServer, Service, directory_services
from trio_cogment.servers.discovery import DirectoryClient, open_directory

MODULE = """
    from trio_cogment import Participants

    participants = Participants()


    async def world(session):
        await session.start([("*", b"0")])
        async for event in session.all_events():
            if event.actions is not None:
                if event.tick_id == 2:
                    await session.end([("*", b"the end")])
                else:
                    await session.produce_observations([("*", b"on")])


    async def echo(session):
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"")


    participants.register_environment(world, "world")
    participants.register_actor(echo, "echo", ["talker"])
"""
PROGRAM = f"""{MODULE}
    if __name__ == "__main__":
        import trio
        from trio_cogment import run_participants

        trio.run(run_participants, participants)
"""
TLS_PROGRAM = f"""{MODULE}
    if __name__ == "__main__":
        from functools import partial

        import trio
        from trio_cogment import run_participants
        from trio_cogment.rpc import client_tls, server_tls

        trio.run(
            partial(
                run_participants,
                participants,
                tls=server_tls("{{party.chain}}", "{{party.key}}", client_roots="{{party.roots}}"),
                directory_tls=client_tls("{{party.roots}}", certificate="{{party.chain}}", key="{{party.key}}"),
                registration_host="localhost",
            )
        )
"""


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(textwrap.dedent(text))


def failure(folder: Path, *arguments: str) -> tuple[str, list[str]]:
    """Run a command that fails before it serves anything; return its last line, and what stands before it."""
    done = subprocess.run(
        [sys.executable, "-m", "trio_cogment", "participants", *arguments],
        cwd=folder,
        env=environment_variables(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    *before, last = done.stderr.splitlines()
    return last.removeprefix("trio-cogment: "), before


async def run_a_trial(orchestrator: Server, tls: ssl.SSLContext | None = None) -> None:
    async with Channel("127.0.0.1", orchestrator.port, tls=tls) as channel:
        controller = Controller(channel)
        params = trial_params([actor_params("ann", "talker", implementation="echo")], environment="world")
        trial_id = await controller.start_trial(params)
        await controller.wait_trial(trial_id)
        (info,) = await controller.trial_infos([trial_id])
        assert (info.state, info.tick_id) == (TrialState.ENDED, 3)


@asynccontextmanager
async def directory_and_orchestrator(
    *flags: str, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, Server, DirectoryClient]]:
    directory_flags = ("--port=0", "--persistence_file=", "--registration_lag=0")
    async with server("services", "directory", *directory_flags, *flags) as directory:
        endpoint = f"grpc://127.0.0.1:{directory.port}"
        access = f"--directory_endpoint={endpoint}"
        ports = ("--lifecycle_port=0", "--actor_port=0")
        async with (
            server("services", "orchestrator", *ports, access, *flags) as orchestrator,
            open_directory(endpoint, tls=tls) as client,
        ):
            yield endpoint, orchestrator, client


async def is_found(client: DirectoryClient, kind: ServiceKind) -> bool:
    return bool(await client.inquire(kind))


async def wait_registered(client: DirectoryClient) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            if await is_found(client, ServiceKind.ENVIRONMENT) and await is_found(client, ServiceKind.ACTOR):
                return
            await trio.sleep(0.02)


@pytest.mark.parametrize("command", ["participants", "program"])
async def test_a_trial_with_participants_found_in_a_directory(tmp_path: Path, command: str) -> None:
    """Control-C then ends them without a traceback, with 0, and nothing is registered any more."""
    write(tmp_path, "game", PROGRAM)
    async with directory_and_orchestrator() as (endpoint, orchestrator, client):
        variables = {"COGMENT_DIRECTORY_ENDPOINT": endpoint, "COGMENT_PARTICIPANTS_PORT": "0"}
        arguments, module = (["game"], "trio_cogment") if command == "participants" else ([], "game")
        if command == "participants":
            arguments = ["participants", *arguments]
        async with server(*arguments, variables=variables, module=module, folder=tmp_path) as process:
            await wait_registered(client)
            await run_a_trial(orchestrator)
            assert await process.stop(signal.SIGINT) == 0
            assert "Traceback" not in process.err, process.err
            assert process.out.count("listening on") == 1
        assert not await is_found(client, ServiceKind.ENVIRONMENT)
        assert not await is_found(client, ServiceKind.ACTOR)


async def test_a_function_and_flags(tmp_path: Path) -> None:
    """Without a directory, at an address and a port that flags name."""
    program = (
        MODULE
        + """
    def made():
        return participants
    """
    )
    write(tmp_path, "game", program)
    write(tmp_path, "one", "from game import participants as the_only_one\n")
    for target in ("game:made", "one"):
        async with server("participants", target, "--port=0", "--host=127.0.0.1", folder=tmp_path) as process:
            assert process.addresses[0][2] == "EnvironmentSP, ServiceActorSP"
            assert await process.stop() == 0
            assert "Traceback" not in process.err, process.err


async def is_open(port: int) -> bool:
    try:
        await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
    except OSError:
        return False
    return True


class Watching(DirectoryServer):
    """A directory that looks whether the port of a service is open when it is asked to forget it."""

    def __init__(self) -> None:
        super().__init__()
        #: Of the service.
        self.port = 0
        self.ports_open: list[bool] = []
        #: Its two services are registered.
        self.both = trio.Event()

    async def register(
        self,
        service: Service,
        *,
        permanent: bool = False,
        token: str = "",
        caller: Identity = THIS_PROCESS,
        reach: str | None = None,
    ) -> tuple[int, str]:
        registered = await super().register(service, permanent=permanent, token=token, caller=caller, reach=reach)
        if self.count == 2:
            self.both.set()
        return registered

    async def deregister(self, service_id: int, secret: str, *, token: str = "") -> None:
        # Time for a port that is closed at the same time.
        await trio.sleep(0.1)
        self.ports_open.append(await is_open(self.port))
        await super().deregister(service_id, secret, token=token)


@pytest.mark.parametrize("module", ["trio_cogment", "game"])
async def test_the_port_closes_after_the_registrations_are_gone(tmp_path: Path, module: str) -> None:
    """Whoever asks the directory is not sent to a port that is closed."""
    write(tmp_path, "game", PROGRAM)
    arguments = ["participants", "game"] if module == "trio_cogment" else []
    directory = Watching()
    async with directory, trio.open_nursery() as nursery:
        serving = await nursery.start(serve, directory_services(directory), await open_listeners("127.0.0.1"))
        variables = {
            "COGMENT_DIRECTORY_ENDPOINT": f"grpc://127.0.0.1:{serving.port}",
            "COGMENT_PARTICIPANTS_PORT": "0",
        }
        async with server(*arguments, variables=variables, module=module, folder=tmp_path) as process:
            directory.port = process.port
            with trio.fail_after(PATIENCE_SECONDS):
                await directory.both.wait()
            assert await process.stop() == 0
        assert directory.ports_open == [True, True]
        assert directory.count == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("module", ["trio_cogment", "game"])
async def test_certificates(tmp_path: Path, module: str) -> None:
    """Orchestrator, directory and participants demand a certificate from one another."""
    party = make_party(tmp_path, "party", "localhost", "127.0.0.1")
    flags = (f"--private_key={party.key}", f"--root_cert={party.roots}", f"--trust_chain={party.chain}")
    write(tmp_path, "game", TLS_PROGRAM.format(party=party))
    context = client_tls(party.roots, certificate=party.chain, key=party.key)
    arguments = ["participants", "game", *flags] if module == "trio_cogment" else []
    async with directory_and_orchestrator(*flags, tls=context) as (endpoint, orchestrator, client):
        variables = {"COGMENT_DIRECTORY_ENDPOINT": endpoint, "COGMENT_PARTICIPANTS_PORT": "0"}
        async with server(*arguments, variables=variables, module=module, folder=tmp_path) as process:
            await wait_registered(client)
            await run_a_trial(orchestrator, tls=context)
            stranger = client_tls(party.roots)
            with trio.fail_after(PATIENCE_SECONDS):
                for tls in (None, stranger):
                    async with Channel("localhost", process.port, tls=tls) as channel:
                        with pytest.raises(RpcError, match="UNAVAILABLE"):
                            await ask_health(channel)
            assert await process.stop() == 0
        assert not await is_found(client, ServiceKind.ENVIRONMENT)


def test_what_is_wrong_with_a_module(tmp_path: Path) -> None:
    """One line that says so, after the traceback of the user's own code, if there is one."""
    write(tmp_path, "broken", "def helper():\n    import there_is_no_such_library\n\n\nhelper()\n")
    last, before = failure(tmp_path, "broken")
    assert last == "cannot import 'broken': ModuleNotFoundError: No module named 'there_is_no_such_library'"
    assert before[0] == "Traceback (most recent call last):"
    assert [line for line in before if "File" in line] == [
        f'  File "{tmp_path}/broken.py", line 5, in <module>',
        f'  File "{tmp_path}/broken.py", line 2, in helper',
    ]
    write(tmp_path, "wrong", "def world(session:\n")
    last, before = failure(tmp_path, "wrong")
    assert last.startswith("cannot import 'wrong': SyntaxError: ")
    assert f'  File "{tmp_path}/wrong.py", line 1' in before
    write(tmp_path, "failing", "def made():\n    raise OSError('no data')\n")
    last, before = failure(tmp_path, "failing:made")
    assert last == "failing:made failed: OSError: no data"
    assert f'  File "{tmp_path}/failing.py", line 2, in made' in before


def test_what_is_wrong_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    write(tmp_path, "empty", "from trio_cogment import Participants\n\nnone = Participants()\nnumber = 5\n")
    write(tmp_path, "two", "from trio_cogment import Participants\n\na, b = Participants(), Participants()\n")
    write(tmp_path, "nothing", "def made():\n    return 5\n")
    for target, expected in {
        "missing": f"there is no module 'missing' in {tmp_path}, nor among the installed packages",
        "empty.py": "empty.py: expected the name of a module, not of a file; try 'empty'",
        "of/lab.py": "of/lab.py: expected the name of a module, not of a file; try 'of.lab'",
        "../lab/game": "../lab/game: expected the name of a module, not of a file; try 'game' in the folder ../lab",
        "/lab/game.py": "/lab/game.py: expected the name of a module, not of a file; try 'game' in the folder /lab",
        ".empty": "expected the name of a module, got '.empty'",
        "empty": "empty: nothing is registered; use register_environment, register_actor, ...",
        "empty:number": "empty:number: expected Participants or a function that returns them, got int",
        "empty:other": "empty:other: module 'empty' has no attribute 'other'",
        "empty:numbr": "empty:numbr: module 'empty' has no attribute 'numbr'; did you mean 'number'?",
        "empty:none.kind": "empty:none.kind: 'Participants' object has no attribute 'kind'; did you mean 'kinds'?",
        "two": "two has several Participants; choose one: two:a, two:b",
        "nothing": "nothing has no Participants; assign them to `participants`, or name a function that returns them",
        "nothing:made": "nothing:made: expected a function that returns Participants, got int",
    }.items():
        with pytest.raises(Failure) as caught:
            load(target)
        assert str(caught.value) == expected


@pytest.mark.parametrize("module", ["trio_cogment", "game"])
async def test_control_c_in_the_middle_of_a_trial(tmp_path: Path, module: str) -> None:
    """The trial loses its participants, and these end without a traceback."""
    write(tmp_path, "game", PROGRAM.replace("if event.tick_id == 2", "if False"))
    arguments = ["participants", "game"] if module == "trio_cogment" else []
    variables = {"COGMENT_PARTICIPANTS_PORT": "0"}
    async with server(*arguments, module=module, variables=variables, folder=tmp_path) as process:
        there = f"grpc://127.0.0.1:{process.port}"
        async with open_platform() as platform:
            ann = actor_params("ann", "talker", implementation="echo", endpoint=there)
            params = trial_params([ann], environment="world", environment_endpoint=there)
            async with platform.controller.watch_trials([TrialState.RUNNING]) as running:
                trial_id = await platform.controller.start_trial(params)
                await running.receive()
            assert await process.stop(signal.SIGINT) == 0
            with trio.fail_after(PATIENCE_SECONDS), pytest.raises(TrialFailedError):
                await platform.controller.wait_trial(trial_id)
        assert "Traceback" not in process.err, process.err


BUSY = """
    import time

    import trio_cogment.cli.participants
    from trio_cogment import Participants, run_participants
    from trio_cogment.sdk import _participants_program
    from trio_cogment.sync import environment

    trio_cogment.cli.participants._GIVE_UP_SECONDS = _participants_program.GIVE_UP_SECONDS = {give_up}
    participants = Participants()


    def world(session):
        session.start([("*", b"0")])
        time.sleep(1000)


    participants.register_environment(environment(world), "world")
    if __name__ == "__main__":
        import trio

        trio.run(run_participants, participants)
"""


@pytest.mark.parametrize("module", ["trio_cogment", "game"])
@pytest.mark.parametrize(("signals", "code"), [(1, 1), (2, 128 + signal.SIGTERM)])
async def test_a_function_that_computes_on(tmp_path: Path, module: str, signals: int, code: int) -> None:
    """Nothing cancels it; the process ends nevertheless, some time after the signal or at a second one."""
    write(tmp_path, "game", BUSY.format(give_up=0.5 if signals == 1 else 1000))
    arguments = ["participants", "game"] if module == "trio_cogment" else []
    variables = {"COGMENT_PARTICIPANTS_PORT": "0"}
    observed = trio.Event()

    async def observer(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                observed.set()

    async with server(*arguments, module=module, variables=variables, folder=tmp_path) as process:
        there = f"grpc://127.0.0.1:{process.port}"
        async with open_platform() as platform:
            platform.participants.register_actor(observer, "observer")
            params = trial_params([actor_params("ann", "c")], environment="world", environment_endpoint=there)
            await platform.controller.start_trial(params)
            with trio.fail_after(PATIENCE_SECONDS):
                await observed.wait()
            if signals == 2:
                process.process.send_signal(signal.SIGINT)
                await process.wait_closed()  # of two signals at once either may be the first
            assert await process.stop() == code
    assert "Traceback" not in process.err
    assert ("the process ends without it" in process.err) == (signals == 1)


async def test_a_port_in_use() -> None:
    """In a program, it is the error of the port, not a group."""
    listeners = await open_listeners("127.0.0.1", 0)
    participants = Participants()
    participants.register_environment(never, "world")
    with pytest.raises(OSError, match="Address already in use"):
        await run_participants(
            participants,
            port=listeners[0].socket.getsockname()[1],
            address="127.0.0.1",
            directory="grpc://127.0.0.1:9",
            signals=[],
            variables={},
        )
    for listener in listeners:
        await listener.aclose()


async def never(_session: EnvironmentSession) -> None:
    raise AssertionError
