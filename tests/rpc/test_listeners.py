"""Listeners of servers: hosts and ports, UNIX sockets, and what happens when descriptors run out."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import DATA, END_STREAM, PING, PREFACE, RawPeer, frame, request_headers, settings
from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.host import binding
from trio_cogment.rpc import CallOpener, Channel, RunningServer, open_listeners, open_unix_listener, serve
from trio_cogment.testing.conformance.channel import ECHO_ONE, WAIT, CheckService


@asynccontextmanager
async def serving_on(sockets: Any) -> AsyncIterator[RunningServer]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(serve, [CheckService().service()], sockets)
        nursery.cancel_scope.cancel()


async def check(channel: CallOpener) -> None:
    assert (await channel.unary(ECHO_ONE, Action(tick_id=5))).tick_id == 5


# --- TCP ---


@pytest.mark.parametrize(
    ("hosts", "addresses"),
    [
        ("127.0.0.1", ["ipv4:127.0.0.1:{}"]),
        ("::1", ["ipv6:[::1]:{}"]),
        (["127.0.0.1", "::1"], ["ipv4:127.0.0.1:{}", "ipv6:[::1]:{}"]),
        (["127.0.0.1", "127.0.0.2", "127.0.0.1"], ["ipv4:127.0.0.1:{}", "ipv4:127.0.0.2:{}"]),
        (["0.0.0.0", "::"], ["ipv4:0.0.0.0:{}", "ipv6:[::]:{}"]),
    ],
)
async def test_b14_hosts_share_one_port(hosts: Any, addresses: list[str]) -> None:
    async with serving_on(await open_listeners(hosts)) as serving:
        assert set(serving.ports) == {serving.port}
        assert list(serving.addresses) == [address.format(serving.port) for address in addresses]
        for address in serving.addresses:
            host = address.partition(":")[2].rpartition(":")[0].strip("[]")
            async with Channel({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), serving.port) as channel:
                await check(channel)


async def test_b14_names_are_resolved() -> None:
    async with serving_on(await open_listeners("localhost")) as serving, Channel("localhost", serving.port) as channel:
        await check(channel)


async def test_b14_a_port_taken_on_one_family_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's choice for IPv4 is taken on IPv6: both move to another one."""
    bind = binding._bind
    blockers: list[socket.socket] = []

    def take_the_other(family: int, kind: int, protocol: int, address: Any) -> Any:
        listener = bind(family, kind, protocol, address)
        if not blockers:
            blocker = socket.socket(socket.AF_INET6)
            blockers.append(blocker)
            blocker.bind(("::1", listener.getsockname()[1]))
            blocker.listen()
        return listener

    monkeypatch.setattr(binding, "_bind", take_the_other)
    opened = await open_listeners(["127.0.0.1", "::1"])
    ports = {listener.socket.getsockname()[1] for listener in opened}
    assert len(ports) == 1
    assert ports != {blockers[0].getsockname()[1]}
    for listener in opened:
        await listener.aclose()
    blockers[0].close()


@pytest.mark.parametrize("first", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("second", ["127.0.0.1", "0.0.0.0"])
async def test_b14_no_silent_second_server_on_a_port(first: str, second: str) -> None:
    (listener,) = await open_listeners(first)
    async with listener:
        with pytest.raises(OSError, match="cannot listen on ipv4:") as caught:
            await open_listeners(second, listener.socket.getsockname()[1])
        assert caught.value.errno == errno.EADDRINUSE


async def test_b14_the_port_is_free_again_at_once_after_a_restart() -> None:
    """Connections that the old server closed are in TIME_WAIT still."""
    port = 0
    for _ in range(3):
        async with serving_on(await open_listeners("127.0.0.1", port)) as serving:
            port = serving.port
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(b"this is no HTTP/2 and the server closes first\r\n")
            while await stream.receive_some():
                pass
            await stream.aclose()


async def test_one_taken_address_opens_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    bind = binding._bind

    def note(*args: Any) -> socket.socket:
        made.append(bind(*args))
        return made[-1]

    monkeypatch.setattr(binding, "_bind", note)
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::1", 0))
        taken.listen()
        with pytest.raises(OSError, match="cannot listen on ipv6:"):
            await open_listeners(["127.0.0.1", "::1"], taken.getsockname()[1])
    assert [bound.fileno() for bound in made] == [-1]


async def test_addresses_this_machine_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match=r"cannot listen on ipv4:192\.0\.2\.1"):  # given as such: an error
        await open_listeners(["127.0.0.1", "192.0.2.1"])

    async def resolve(host: str, port: int, **_: Any) -> Any:
        found = {"both.test": ["192.0.2.1", "127.0.0.1"], "far.test": ["192.0.2.1"]}[host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(trio.socket, "getaddrinfo", resolve)
    (listener,) = await open_listeners("both.test")
    assert listener.socket.getsockname()[0] == "127.0.0.1"
    await listener.aclose()
    with pytest.raises(OSError, match=r"cannot listen on ipv4:192\.0\.2\.1"):
        await open_listeners("far.test")


async def test_no_host_at_all() -> None:
    with pytest.raises(ValueError, match="addresses"):
        await open_listeners([])


class MemoryListener(trio.abc.Listener[trio.abc.Stream]):
    """Anybody's listener: connections are put in from outside."""

    def __init__(self) -> None:
        self.put, self._get = trio.open_memory_channel[trio.abc.Stream](8)
        self.closed = False

    async def accept(self) -> trio.abc.Stream:
        return await self._get.receive()

    async def aclose(self) -> None:
        self.closed = True
        self.put.close()
        self._get.close()
        await trio.lowlevel.checkpoint()


async def test_b14_any_listener_beside_sockets(tmp_path: Path) -> None:
    memory = MemoryListener()

    async def connect() -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        await memory.put.send(theirs)
        return ours

    path = tmp_path / "socket"
    sockets = [memory, await open_unix_listener(path), *await open_listeners("127.0.0.1")]
    async with serving_on(sockets) as serving:
        assert serving.addresses == (f"unix:{path}", f"ipv4:127.0.0.1:{serving.port}")
        async with Channel.over(connect) as one, Channel.unix(path) as two, Channel("127.0.0.1", serving.port) as three:
            for channel in (one, two, three):
                await check(channel)
    assert memory.closed
    assert not path.exists()


# --- UNIX sockets ---


async def test_b14_unix_socket_permissions_and_removal(tmp_path: Path) -> None:
    for mode in (0o600, 0o666):
        path = tmp_path / f"socket-{mode:o}"
        async with serving_on([await open_unix_listener(path, mode=mode)]) as serving:
            assert serving.addresses == (f"unix:{path}",)
            assert serving.ports == ()
            assert stat.S_IMODE(path.stat().st_mode) == mode
            async with Channel.unix(path) as channel:
                assert channel.authority == "localhost"
                await check(channel)
        assert not path.exists()


async def test_b14_unix_socket_permissions_are_in_force_from_the_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between `bind` and `chmod` nobody else can get in, whatever the process's umask is."""
    path = tmp_path / "socket"
    before: list[int] = []
    change = os.chmod

    def note(which: str, mode: int) -> None:
        before.append(stat.S_IMODE(os.stat(which).st_mode))
        change(which, mode)

    monkeypatch.setattr(os, "chmod", note)
    umask = os.umask(0)
    try:
        listener = await open_unix_listener(path)
    finally:
        os.umask(umask)
    assert before == [0o600]
    await listener.aclose()


async def test_a_server_that_cannot_start_closes_its_listeners(tmp_path: Path) -> None:
    unix = await open_unix_listener(tmp_path / "socket")
    (tcp,) = await open_listeners("127.0.0.1")
    with pytest.raises(ValueError, match="served twice"):
        await serve([CheckService().service()] * 2, [unix, tcp])
    assert (unix.socket.fileno(), tcp.socket.fileno()) == (-1, -1)
    assert not (tmp_path / "socket").exists()


async def test_unix_socket_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listener = await open_unix_listener("socket")
    assert (tmp_path / "socket").exists()
    await listener.aclose()
    await listener.aclose()
    assert not (tmp_path / "socket").exists()


async def test_b14_a_dead_servers_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    assert path.exists()
    async with serving_on([await open_unix_listener(path)]), Channel.unix(path) as channel:
        await check(channel)


async def test_b14_a_live_servers_socket_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with serving_on([await open_unix_listener(path)]):
        with pytest.raises(OSError, match="a server listens there") as caught:
            await open_unix_listener(path)
        assert caught.value.errno == errno.EADDRINUSE
        async with Channel.unix(path) as channel:
            await check(channel)


async def test_a_full_queue_is_a_live_server(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as first:
        busy.bind(str(path))
        busy.listen(0)
        first.connect(str(path))
        with pytest.raises(OSError, match="a server listens there"):
            await open_unix_listener(path)


async def test_what_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("precious")
    with pytest.raises(OSError, match="not a socket") as caught:
        await open_unix_listener(path)
    assert caught.value.errno == errno.EEXIST
    assert path.read_text() == "precious"
    with pytest.raises(FileNotFoundError):
        await open_unix_listener(tmp_path / "nowhere" / "socket")
    with pytest.raises(OSError, match="too long"):
        await open_unix_listener(tmp_path / ("long" * 50))


async def test_closing_leaves_anothers_socket_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    old = await open_unix_listener(path)
    path.unlink()
    new = await open_unix_listener(path)
    await old.aclose()
    assert path.exists()
    await new.aclose()


async def test_servers_that_start_together_do_not_share_a_path(tmp_path: Path) -> None:
    """One of many wins, whatever dead socket they all found."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    opened: list[Any] = []
    failed: list[OSError] = []

    async def start() -> None:
        try:
            opened.append(await open_unix_listener(path))
        except OSError as error:
            failed.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(start)
    assert (len(opened), len(failed)) == (1, 9)
    await opened[0].aclose()


async def test_a_directory_that_somebody_keeps_locked(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    import fcntl

    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            await open_unix_listener(tmp_path / "socket")
        with trio.move_on_after(1) as scope:
            await open_unix_listener(tmp_path / "socket")
        assert scope.cancelled_caught
    finally:
        os.close(folder)
    await (await open_unix_listener(tmp_path / "socket")).aclose()


# --- descriptors run out ---


class Exhausted(trio.abc.Listener[trio.abc.Stream]):
    """Fails for some time as `accept` does when descriptors run out."""

    def __init__(self, seconds: float) -> None:
        self._until = trio.current_time() + seconds
        self.attempts = 0
        self.better = trio.Event()

    async def accept(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.attempts += 1
        if trio.current_time() < self._until:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.better.set()
        await trio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_running_out_of_descriptors_is_logged_once_a_second(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    caplog.set_level(logging.INFO)
    sockets = [Exhausted(9.95), Exhausted(9.95)]
    async with serving_on(sockets):
        for listener in sockets:
            await listener.better.wait()
        assert 9.95 <= trio.current_time() <= 10.1
    assert 5 <= len(caplog.records) <= 10  # for both together
    assert all(listener.attempts < 240 for listener in sockets)  # and no busy loop


SERVER = """
import logging, resource, sys
from functools import partial
import trio
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.testing.conformance.channel import CheckService

async def main():
    listeners = await open_listeners("127.0.0.1", int(sys.argv[1]))
    if sys.argv[2] != "0":
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
    async with trio.open_nursery() as nursery:
        config = RpcConfig(keepalive_seconds=float(sys.argv[3]), reserved_descriptors=int(sys.argv[4]))
        serving = await nursery.start(partial(serve, [CheckService().service()], listeners, config=config))
        print(serving.port, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()

logging.basicConfig(level=logging.INFO, stream=sys.stderr)
trio.run(main)
"""


@contextmanager
def child_server(
    port: int, descriptors: int, keepalive_seconds: float = 20.0, reserved: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    root = Path(__file__).resolve().parents[2]
    search = os.pathsep.join([str(root), str(root / "src")])
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port), str(descriptors), str(keepalive_seconds), str(reserved)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": search},
    ) as child:
        try:
            yield child
        finally:
            child.kill()


RESERVES = pytest.mark.parametrize(
    ("reserved", "reason"),
    [
        (0, b"connection refused: cannot accept: Too many open files"),
        (32, b"connection refused: reserved_descriptors: the last 32 are not for connections"),
    ],
)


@RESERVES
async def test_emfile_a_real_server_serves_on_and_recovers(reserved: int, reason: bytes) -> None:
    """Descriptors run out with an innocent stream beside: it does not notice, and later calls get through."""
    with trio.fail_after(60), child_server(0, 64, reserved=reserved) as child:
        errors = await _exhaust(child)
    assert reason in errors
    assert b"Traceback" not in errors


@RESERVES
async def test_emfile_a_silent_connection_is_kept(reserved: int, reason: bytes) -> None:
    """The first PING of a server comes when it has no descriptors left: what it needs for it is there already."""
    with trio.fail_after(60), child_server(0, 64, 0.05, reserved) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        port = int(await trio.to_thread.run_sync(child.stdout.readline))
        idle = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(80)]
        assert reason in await trio.to_thread.run_sync(child.stderr.readline)
        silent = RawPeer(idle[0])
        await silent.send(PREFACE, settings(), silent.headers(1, request_headers(b"/trio_cogment.testing.Check/Wait")))
        pings: list[bytes] = []
        while not (pings or silent.eof):
            await silent.pump()
            pings = [payload for kind, flags, _, payload in silent.frames if kind == PING and not flags]
        await silent.send(frame(PING, 1, 0, pings[0]))
        await silent.send(silent.headers(3, request_headers()), frame(DATA, END_STREAM, 3))
        assert (await silent.until_over(3)).status == 0
        assert (silent.goaway, silent.eof, silent.answer(1).ended) == (None, False, False)
        for stream in idle:
            await stream.aclose()
        child.stdin.close()
        assert b"Traceback" not in await trio.to_thread.run_sync(child.stderr.read)


async def _exhaust(child: subprocess.Popen[bytes]) -> bytes:
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    port = int(await trio.to_thread.run_sync(child.stdout.readline))
    begin = trio.current_time()
    idle = []
    async with Channel("127.0.0.1", port) as channel, channel.call(WAIT) as innocent:
        await innocent.wait_initial_metadata()
        for _ in range(80):  # more than it can take; the rest is refused
            idle.append(await trio.open_tcp_stream("127.0.0.1", port))
        first = await trio.to_thread.run_sync(child.stderr.readline)
        await check(channel)
        for stream in idle:
            await stream.aclose()
        async with Channel("127.0.0.1", port) as late:
            # The server may not have noticed yet that the others are gone.
            await late.unary(ECHO_ONE, Action(), wait_for_ready=True)
        await check(channel)
    child.stdin.close()
    seconds = trio.current_time() - begin
    errors = first + await trio.to_thread.run_sync(child.stderr.read)
    assert errors.count(b"connection refused") <= seconds + 1
    return errors


async def call_when_ready(channel: Channel, answered: trio.Event) -> None:
    await channel.unary(ECHO_ONE, Action(), wait_for_ready=True)
    answered.set()


async def test_b5_a_killed_server_ends_every_pending_call_and_its_successor_is_found() -> None:
    ended: list[StatusCode] = []

    async def pend(channel: Channel, task_status: trio.TaskStatus[None]) -> None:
        async with channel.call(WAIT) as call:
            await call.wait_initial_metadata()
            task_status.started()
            with pytest.raises(RpcError) as caught:
                await call.receive()
            ended.append(caught.value.code)

    with trio.fail_after(60), child_server(0, 0) as child:
        assert child.stdout is not None
        port = int(await trio.to_thread.run_sync(child.stdout.readline))
        async with Channel("127.0.0.1", port) as channel:
            async with trio.open_nursery() as pending:
                for _ in range(20):
                    await pending.start(pend, channel)
                child.kill()
            assert ended == [StatusCode.UNAVAILABLE] * 20
            with pytest.raises(RpcError, match="cannot connect"):
                await channel.unary(ECHO_ONE, Action())
            async with trio.open_nursery() as waiting:
                answered = trio.Event()
                waiting.start_soon(call_when_ready, channel, answered)
                with child_server(port, 0) as successor:  # on the same port at once
                    assert successor.stdout is not None
                    assert int(await trio.to_thread.run_sync(successor.stdout.readline)) == port
                    await answered.wait()


async def test_a_file_that_cannot_be_removed_keeps_nobody_from_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "socket"
    listener = await open_unix_listener(path)
    monkeypatch.setattr(os, "unlink", _denied)
    await listener.aclose()
    monkeypatch.undo()
    assert listener.socket.fileno() == -1
    await (await open_unix_listener(path)).aclose()  # the next server sees that nobody listens
    assert not path.exists()


def _denied(*_: object) -> None:
    raise PermissionError(errno.EPERM, "not permitted")


async def test_where_the_mode_cannot_be_set_before_it_is_set_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "socket"
    monkeypatch.setattr(os, "fchmod", _denied)
    listener = await open_unix_listener(path, mode=0o640)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    await listener.aclose()


@pytest.mark.parametrize("fails", ["chmod", "bind"])
async def test_what_cannot_be_listened_on_leaves_no_file_and_no_descriptor(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ("socket" if fails == "chmod" else "socket" * 40)
    if fails == "chmod":
        monkeypatch.setattr(os, "chmod", _denied)
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match=r"not permitted|too long"):
        await open_unix_listener(path)
    assert len(os.listdir("/dev/fd")) == before
    assert os.listdir(tmp_path) == []
