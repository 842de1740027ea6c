"""Versions and statuses."""

from __future__ import annotations

import os

import pytest

from tests.helpers import bench
from trio_cogment import __version__
from trio_cogment.api import common_pb2, orchestrator_pb2
from trio_cogment.base import about
from trio_cogment.rpc import Method, methods_of


class Machine:
    """Clocks and a load average, all set by hand."""

    def __init__(self) -> None:
        self.cpu = 7.0
        self.now = 100.0
        self.share = 0.0
        self.meter = about.LoadMeter(lambda: self.cpu, lambda: self.now, lambda: self.share)

    def pass_time(self, seconds: float, cpu: float) -> int:
        self.now += seconds
        self.cpu += cpu
        return self.meter.percent()


def test_load_is_what_the_process_used_of_one_processor() -> None:
    machine = Machine()
    assert machine.meter.percent() == 0
    assert machine.pass_time(10, cpu=2.5) == 25
    assert machine.pass_time(4, cpu=4) == 100
    # Threads of the process may use more than one.
    assert machine.pass_time(4, cpu=8) == 100
    assert machine.pass_time(4, cpu=0) == 0


def test_load_is_not_measured_over_an_instant() -> None:
    machine = Machine()
    assert machine.pass_time(2, cpu=1) == 50
    assert machine.pass_time(0.5, cpu=0.5) == 50
    assert machine.pass_time(0.5, cpu=0) == 50
    assert machine.pass_time(1, cpu=1.5) == 100


def test_a_busy_machine_is_loaded_whatever_the_process_does() -> None:
    machine = Machine()
    machine.share = 0.6
    assert machine.pass_time(2, cpu=1) == 60
    machine.share = 3
    assert machine.meter.percent() == 100


def test_the_machines_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.0, 0.0, 0.0))
    assert about.machine_share() == 0.25

    def missing() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", missing)
    assert about.machine_share() == 0


def test_star_means_all_and_unknown_names_are_passed_over() -> None:
    statuses = {"a": lambda: "1", "b": lambda: "2"}
    assert dict(about.status_reply(["*", "bogus"], statuses).statuses) == {"a": "1", "b": "2"}
    assert dict(about.status_reply(["b", "bogus"], statuses).statuses) == {"b": "2"}
    assert not about.status_reply([], statuses).statuses


def methods(service: str) -> dict[str, Method]:
    return methods_of(orchestrator_pb2.DESCRIPTOR.services_by_name[service])


@pytest.mark.parametrize("service", ["TrialLifecycleSP", "ClientActorSP"])
async def test_both_services_of_an_orchestrator_answer(service: str) -> None:
    async with bench(wire=True) as table:
        reply = await table.channel.unary(methods(service)["Version"], common_pb2.VersionRequest())
        versions = {entry.name: entry.version for entry in reply.versions}
        assert versions["trio-cogment"] == __version__
        assert versions["cogment-api"] == "2.22.0"
        assert versions["grpc"]
        # It would say that we are the reference.
        assert "cogment" not in versions
        asked = common_pb2.StatusRequest(names=["overall_load", "unheard_of"])
        statuses = (await table.channel.unary(methods(service)["Status"], asked)).statuses
        assert list(statuses) == ["overall_load"]
        assert 0 <= int(statuses["overall_load"]) <= 100
        asked = common_pb2.StatusRequest(names=["*"])
        statuses = (await table.channel.unary(methods(service)["Status"], asked)).statuses
        assert set(statuses) == {"overall_load", "nb_trials"} - ({"nb_trials"} if service == "ClientActorSP" else set())
