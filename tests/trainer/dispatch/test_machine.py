"""Resources of this machine, as far as the system shows them."""

from __future__ import annotations

import os

import pytest

from trio_cogment.trainer.extension import this_machine


def test_gpus_are_those_with_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["null", "nvidia10", "nvidia0", "nvidiactl", "nvidia-uvm", "xnvidia1", "nvidia"]
    monkeypatch.setattr(os, "listdir", lambda _path: names)
    assert this_machine().gpus == (0, 10)
    assert this_machine(gpus=(3,)).gpus == (3,)
    assert this_machine(gpus=()).gpus == ()


def test_a_system_that_shows_no_devices_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: str) -> list[str]:
        raise PermissionError

    monkeypatch.setattr(os, "listdir", refuse)
    assert this_machine().gpus == ()


def test_what_is_given_counts_and_the_rest_is_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    given = this_machine(cpus=3, memory_mb=512, runs=7)
    assert (given.cpus, given.memory_mb, given.runs) == (3, 512, 7)
    found = this_machine()
    assert found.cpus == os.cpu_count()
    assert found.memory_mb == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    monkeypatch.setattr(os, "sysconf", lambda _name: 1)
    assert (this_machine().cpus, this_machine().memory_mb) == (1, 1)


@pytest.mark.parametrize("error", [OSError, ValueError])
def test_a_system_that_does_not_say_how_much_memory_it_has(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def refuse(_name: str) -> int:
        raise error

    monkeypatch.setattr(os, "sysconf", refuse)
    assert this_machine().memory_mb == 4096
