"""The ports of a server: all of them, or a line that says why not, and nobody connects before it serves."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import pytest

from tests.cli.process import run_main
from trio_cogment.base.host import binding
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.services.ports import Ports, announcement, listen, merged

HERE = "127.0.0.1"


def refused(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex((HERE, port)) == errno.ECONNREFUSED


def test_nobody_connects_before_it_listens() -> None:
    ports = Ports()
    ports.bind([HERE], [0, 0], 0)
    [port] = ports.numbers
    assert refused(port)
    [sockets] = ports.servers
    listen(sockets)
    assert not refused(port)
    ports.close()
    assert refused(port)


def test_each_server_is_announced_at_each_of_its_addresses() -> None:
    hosts = [HERE, "::1"] if socket.has_dualstack_ipv6() else [HERE, "127.0.0.2"]
    ports = Ports()
    ports.bind(hosts, [0], 0)
    [[port], [sockets]] = ports.numbers, ports.servers
    shown = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts]
    assert announcement("a, b", sockets, ["A", "B"]) == [f"a, b listening on {address} (A, B)" for address in shown]
    assert announcement("a", sockets, []) == [f"a listening on {address}" for address in shown]
    ports.close()


def test_two_that_have_bound_a_port_at_the_same_moment_do_not_both_serve() -> None:
    first, second = Ports(), Ports()
    first.bind([HERE], [0], 0)
    [port] = first.numbers
    second.bind([HERE], [port], 0)
    listen(second.servers[0])
    with pytest.raises(Failure, match=rf"^cannot listen on ipv4:127\.0\.0\.1:{port}: .*doctor --port={port}` tells\)$"):
        listen(first.servers[0])
    first.close()
    second.close()


@pytest.mark.parametrize("flag", ["--port={}", "--port=0 --prometheus_port={}"])
def test_a_port_that_is_taken_is_one_line(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[socket.socket] = []
    bind = binding._bind

    def note(*arguments: Any) -> socket.socket:
        bound.append(bind(*arguments))
        return bound[-1]

    monkeypatch.setattr(binding, "_bind", note)
    with socket.create_server((HERE, 0)) as other:
        port = other.getsockname()[1]
        output = run_main("services", "directory", f"--host={HERE}", *flag.format(port).split())
    expected = f"trio-cogment: cannot listen on ipv4:127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}; "
    expected += f"name another port, or stop what uses it (`trio-cogment doctor --port={port}` tells)\n"
    assert (output.code, output.out, output.err) == (1, "", expected)
    assert len(bound) == flag.count("--") - 1
    assert all(one.fileno() == -1 for one in bound)


def test_ports_share_a_server_only_if_they_are_the_same() -> None:
    store, log = object(), object()
    assert merged([0, 0], [[store], [log]]) == [[store, log]]
    assert merged([2, 1], [[store], [log]]) == [[store], [log]]
    with pytest.raises(ValueError, match="shorter"):
        merged([1, 2], [[store]])
