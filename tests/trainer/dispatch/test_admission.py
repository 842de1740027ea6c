"""Admission of runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.configs import a_config
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.trainer.config_check import parse_config
from trio_cogment.trainer.dispatch.admission import Admission, Capacity
from trio_cogment.trainer.run_config import RunConfig


def config(
    cpus: int = 1, memory_mb: int = 256, gpus: int = 0, mandatory: bool = False, run_class: str = "batch"
) -> RunConfig:
    resources = {"cpus": cpus, "memory_mb": memory_mb, "gpus": {"requested": gpus, "mandatory": mandatory}}
    return parse_config(a_config(resources=resources, schedule={"class": run_class}))


def admission(**changes: Any) -> Admission:
    return Admission(Capacity(**{"cpus": 4, "memory_mb": 1024, "gpus": (0, 1, 2, 3), **changes}))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"memory_mb": 2000}, "memory_mb: expected at most 1024, which is all there is, got 2000"),
        ({"gpus": 5, "mandatory": True}, "gpus: expected at most 4, which is all there are, got 5"),
    ],
)
def test_more_than_there_is_is_refused_although_the_run_would_wait(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ResourceExhaustedError, match=text):
        admission().ask("a", config(**settings), queue=True)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"cpus": 2}, "1 cpus are free, 2 are asked for"),
        ({"memory_mb": 600}, "512 MiB of memory are free, 600 are asked for"),
        ({"gpus": 2, "mandatory": True}, "1 gpus are free, 2 are asked for"),
    ],
)
def test_what_is_not_free_is_refused_or_waited_for(settings: dict[str, Any], text: str) -> None:
    shared = admission()
    assert shared.ask("a", config(cpus=3, memory_mb=512, gpus=3), queue=False)
    with pytest.raises(ResourceExhaustedError, match=text):
        shared.ask("b", config(**settings), queue=False)
    assert not shared.ask("b", config(**settings), queue=True)
    assert (shared.waiting, shared.next()) == (["b"], None)
    shared.release("a")
    assert (shared.next(), shared.next(), shared.waiting) == ("b", None, [])


def test_a_run_that_asks_for_more_processors_than_there_are_gets_them_all() -> None:
    shared = admission()
    assert shared.ask("a", config(cpus=64), queue=False)
    with pytest.raises(ResourceExhaustedError, match="0 cpus are free, 1 are asked for"):
        shared.ask("b", config(), queue=False)
    assert not shared.ask("c", config(cpus=64), queue=True)
    shared.release("a")
    assert (shared.next(), shared.waiting) == ("c", [])


def test_so_many_runs_at_a_time() -> None:
    shared = admission(runs=1)
    assert shared.ask("a", config(), queue=False)
    with pytest.raises(ResourceExhaustedError, match="1 run goes on, which is the limit"):
        shared.ask("b", config(), queue=False)


def test_the_lowest_free_gpus_are_given_and_fewer_where_they_are_not_mandatory() -> None:
    shared = admission(gpus=(0, 2, 5))
    shared.ask("a", config(gpus=1), queue=False)
    shared.ask("b", config(gpus=1), queue=False)
    assert (shared.gpus_of("a"), shared.gpus_of("b")) == ((0,), (2,))
    shared.release("a")
    shared.ask("c", config(gpus=8), queue=False)
    shared.ask("d", config(gpus=1), queue=False)
    assert (shared.gpus_of("c"), shared.gpus_of("d")) == ((0, 5), ())


def test_interactive_runs_come_first_and_nobody_overtakes_within_a_class() -> None:
    shared = admission()
    shared.ask("now", config(cpus=4), queue=True)
    for run_id, cpus, run_class in (
        ("b1", 4, "batch"),
        ("b2", 1, "batch"),
        ("i1", 3, "interactive"),
        ("i2", 1, "interactive"),
    ):
        assert not shared.ask(run_id, config(cpus=cpus, run_class=run_class), queue=True)
    assert shared.waiting == ["i1", "i2", "b1", "b2"]
    shared.release("now")
    assert [shared.next() for _ in range(3)] == ["i1", "i2", None]
    with pytest.raises(ResourceExhaustedError, match="2 runs wait already"):
        shared.ask("b3", config(), queue=False)
    shared.release("i1")
    shared.release("i2")
    assert [shared.next(), shared.next()] == ["b1", None]


def test_who_waits_no_more_is_forgotten() -> None:
    shared = admission(cpus=1)
    shared.ask("a", config(), queue=True)
    shared.ask("b", config(), queue=True)
    shared.release("b")
    shared.release("never heard of")
    shared.release("a")
    assert (shared.next(), shared.waiting) == (None, [])


@pytest.mark.parametrize(
    ("settings", "text"), [({"cpus": 0}, "cpus"), ({"gpus": (1, 1)}, "gpus"), ({"gpus": (-1,)}, "gpus")]
)
def test_a_capacity_that_makes_no_sense(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"{text}: expected"):
        admission(**settings)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.booleans(), st.booleans()), max_size=20))
def test_never_more_than_there_is_and_everybody_gets_a_turn(runs: list[tuple[int, int, bool, bool]]) -> None:
    shared = admission()
    configs = {
        str(number): config(cpus, 256, gpus, mandatory, "interactive" if interactive else "batch")
        for number, (cpus, gpus, mandatory, interactive) in enumerate(runs)
    }
    running = [run_id for run_id, wanted in configs.items() if shared.ask(run_id, wanted, queue=True)]
    served = set(running)
    while running:
        assert sum(configs[run_id].resources.cpus for run_id in running) <= 4
        gpus = [gpu for run_id in running for gpu in shared.gpus_of(run_id)]
        assert len(gpus) == len(set(gpus))
        shared.release(running.pop(0))
        while (following := shared.next()) is not None:
            running.append(following)
            served.add(following)
    assert served == set(configs)
