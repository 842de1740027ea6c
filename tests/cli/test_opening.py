"""The ports of a plain command line are opened and announced before the flags are read; all of them, or none."""

from __future__ import annotations

import errno
import os
import signal
import socket
from typing import Any

import click
import pytest

from tests.cli.process import run_main
from trio_cogment.cli.opening import opened
from trio_cogment.cli.plain import Plan, planned
from trio_cogment.cli.services.directory import DirectoryServerSettings, run_directory
from trio_cogment.host import binding


def plan_of(*arguments: str) -> Plan:
    found = planned(arguments, {})
    assert found is not None
    return found


def taken(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_it_is_announced_when_all_ports_are_open(capsys: pytest.CaptureFixture[str]) -> None:
    hosts = "127.0.0.1,::1" if socket.has_dualstack_ipv6() else "127.0.0.1,127.0.0.2"
    early = opened(plan_of("services", "orchestrator", f"--host={hosts}", "--lifecycle_port=0", "--actor_port=0"))
    assert early is not None
    assert not capsys.readouterr().out
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with early:
        [sockets] = early.ports.servers
        [port] = {one.getsockname()[1] for one in sockets}
        shown = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts.split(",")]
        expected = [f"orchestrator listening on {address} (TrialLifecycleSP, ClientActorSP)" for address in shown]
        assert capsys.readouterr().out.splitlines() == early.lines == expected
        assert taken(port)
        seen = [early.signals.came]
        signal.raise_signal(signal.SIGTERM)
        assert [*seen, early.signals.came] == [False, True]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert not taken(port)


def test_the_metrics_have_a_port_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        free = one.getsockname()[1]
    early = opened(plan_of("serve", "--host=127.0.0.1", "--port=0", f"--prometheus_port={free}"))
    assert early is not None
    assert [one.getsockname()[1] for one in early.ports.metrics] == [free]
    early.ports.close()
    assert not taken(free)


@pytest.mark.parametrize("flag", ["--port={}", "--port=0 --prometheus_port={}"])
def test_a_port_that_is_taken_is_reported_as_ever(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[socket.socket] = []
    bind = binding._bind

    def note(*arguments: Any) -> socket.socket:
        bound.append(bind(*arguments))
        return bound[-1]

    monkeypatch.setattr(binding, "_bind", note)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = ("services", "directory", "--host=127.0.0.1", *flag.format(port).split())
        assert opened(plan_of(*line)) is None
        assert len(bound) == flag.count("--") - 1
        output = run_main(*line)
    expected = f"trio-cogment: cannot listen on ipv4:127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}; "
    expected += f"name another port, or stop what uses it (`trio-cogment doctor --port={port}` tells)\n"
    assert (output.code, output.out, output.err) == (1, "", expected)
    assert all(one.fileno() == -1 for one in bound)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1,localhost", "no such host", "..", "1.2.3"])
def test_names_are_not_looked_up(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "getaddrinfo")
    assert opened(plan_of("serve", f"--host={host}")) is None


def test_what_was_announced_must_be_what_the_flags_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of this program, which no command line shows: the server does not go on."""
    served: list[object] = []
    monkeypatch.setattr("trio_cogment.cli.services.server.serve_until_signal", lambda start, _: served.append(start))
    early = opened(plan_of("services", "model_registry", "--host=127.0.0.1", "--port=0"))
    assert early is not None
    settings = DirectoryServerSettings(hosts=["127.0.0.1"], port=0, file="")
    with (
        click.Context(click.Command("directory"), obj=early),
        pytest.raises(RuntimeError, match=r"announced: \['model_registry .*according to the flags: \['directory "),
    ):
        run_directory(settings)
    assert not served
    assert [one.fileno() for sockets in early.ports.servers for one in sockets] == [-1]
