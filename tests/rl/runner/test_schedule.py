"""The order of a run's trials, without any trial."""

from __future__ import annotations

import math
from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given

from trio_cogment.rl.runner._schedule import Job, Schedule


def schedule(
    n: int, sites: int = 1, *, parallel: int = 1, retries: int = 0, seeds: Sequence[int | None] | None = None
) -> Schedule:
    return Schedule(seeds or [None] * n, sites, parallel=parallel, retries=retries, unreachable_seconds=30)


def started(of: Schedule, now: float = 0) -> list[tuple[Job, int]]:
    """Start what may start; every site that is probed answers."""
    found = []
    for site in of.to_probe(now):
        of.answered(site)
    while (chosen := of.next(now)) is not None:
        found.append(chosen)
    return found


def test_trials_start_in_order_and_no_more_than_parallel() -> None:
    of = schedule(3, parallel=2, seeds=[7, 8, 9])
    first = started(of)
    assert [(job.index, job.seed) for job, _ in first] == [(0, 7), (1, 8)]
    assert of.running == 2
    of.ended(0)
    assert [job.index for job, _ in started(of)] == [2]
    of.ended(0)
    of.ended(0)
    assert of.over
    assert started(of) == []


def test_trials_are_spread() -> None:
    of = schedule(9, 3, parallel=6)
    assert [site for _, site in started(of)] == [0, 1, 2, 0, 1, 2]
    of.ended(1)
    assert [site for _, site in started(of)] == [1]


def test_nothing_starts_while_paused() -> None:
    of = schedule(2)
    of.paused = True
    assert started(of) == []
    assert of.wake_at() == math.inf
    of.paused = False
    assert len(started(of)) == 1


def test_an_orchestrator_that_takes_nothing_is_left_alone() -> None:
    of = schedule(4, 2, parallel=2)
    (one, bad), (_, good) = started(of)
    of.not_started(one, bad, 0)
    assert started(of) == [(one, good)], "the trial waits for nobody who cannot be reached"
    of.ended(good)
    of.ended(good)
    ((probe, at),) = started(of, of.wake_at())[:1]
    assert at in (bad, good)
    assert probe.index == 2


def test_an_orchestrator_gets_one_trial_to_prove_itself() -> None:
    of = schedule(10, parallel=4)
    jobs = started(of)
    for job, site in jobs:
        of.not_started(job, site, 0)
    assert started(of) == []
    now = of.wake_at()
    assert 0 < now < 30
    probes = started(of, now)
    assert len(probes) == 1
    of.ended(0)
    assert len(started(of, now)) == 4, "it is well again"


def test_the_pauses_grow() -> None:
    of = schedule(1)
    now, pauses = 0.0, []
    for _ in range(4):
        ((job, site),) = started(of, now)
        of.not_started(job, site, now)
        pauses.append(of.wake_at() - now)
        now = of.wake_at()
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1]


def test_a_site_that_loses_several_trials_at_once_has_failed_once() -> None:
    pauses = []
    for lost in (1, 8):
        of = schedule(8, parallel=8, retries=1)
        for job, site in started(of)[:lost]:
            of.lost(job, site, 0, site_failed=True)
        for _ in range(8 - lost):
            of.ended(0)
        for job, site in started(of)[:1]:
            of.not_started(job, site, 0)
        pauses.append(of.wake_at())
    assert pauses[0] == pauses[1]


def test_nothing_waits_for_a_site_that_does_not_answer() -> None:
    of = schedule(4, 2, parallel=2)
    (one, bad), (_, good) = started(of)
    of.not_started(one, bad, 0)
    now = of.wake_at()
    assert of.to_probe(now) == [bad]
    assert of.to_probe(now) == [], "it is being probed"
    assert of.wake_at() == math.inf
    assert of.next(now) == (one, good), "it is the only one that gets trials"
    of.no_answer(bad, now)
    assert of.wake_at() > now
    assert of.to_probe(now) == []
    now = of.wake_at()
    assert of.to_probe(now) == [bad]
    of.ended(good)
    of.ended(good)
    of.answered(bad)
    assert {site for _, site in started(of, now)} == {good, bad}


def test_sites_are_not_probed_for_nothing() -> None:
    of = schedule(1)
    ((job, site),) = started(of)
    of.not_started(job, site, 0)
    of.paused = True
    assert of.to_probe(100) == []
    of.paused = False
    of.stop()
    assert of.to_probe(100) == []
    assert of.wake_at() == math.inf


def test_trials_that_are_done_are_not_run() -> None:
    of = Schedule([5, 6, 7], 1, parallel=9, retries=0, unreachable_seconds=1, done=[1])
    assert [(job.index, job.seed) for job, _ in started(of)] == [(0, 5), (2, 7)]


def test_a_lost_trial_is_started_again_elsewhere() -> None:
    of = schedule(1, 2, retries=1)
    ((job, site),) = started(of)
    assert of.may_repeat(job)
    of.lost(job, site, 0, site_failed=False)
    assert started(of) == [(job, 1 - site)]
    assert not of.may_repeat(job)
    of.lost(job, 1 - site, 0, site_failed=True)
    assert of.over


def test_a_lost_trial_is_started_again_where_there_is_no_other_place() -> None:
    of = schedule(1, 1, retries=1)
    ((job, site),) = started(of)
    of.lost(job, site, 0, site_failed=True)
    assert started(of) == []
    assert started(of, of.wake_at()) == [(job, site)]


def test_without_retries_a_lost_trial_is_over() -> None:
    of = schedule(1)
    ((job, site),) = started(of)
    of.lost(job, site, 0, site_failed=True)
    assert of.over


def test_it_gives_up_when_nobody_can_be_reached() -> None:
    of = schedule(3)
    now = 0.0
    while not (dropped := of.given_up(now)):
        for job, site in started(of, now):
            of.not_started(job, site, now)
        now = of.wake_at()
        assert now <= 30
    assert [job.index for job in dropped] == [0, 1, 2]
    assert now == 30
    assert of.over


def test_it_does_not_give_up_while_one_is_well() -> None:
    of = schedule(3, 2, parallel=2)
    (one, bad), (_, good) = started(of)
    of.not_started(one, bad, 0)
    of.ended(good)
    assert of.given_up(1000) == []


def test_a_stop_forgets_those_that_wait_and_repeats_none() -> None:
    of = schedule(5, parallel=2, retries=3)
    (one, site), (two, _) = started(of)
    of.stop()
    assert not of.over
    assert started(of) == []
    assert not of.may_repeat(one)
    of.lost(one, site, 0, site_failed=False)
    of.not_started(two, site, 0)
    assert of.over


@given(
    st.integers(1, 12), st.integers(1, 3), st.integers(1, 4), st.integers(0, 2), st.lists(st.integers(0, 3)), st.data()
)
def test_every_trial_has_one_end(
    n: int, sites: int, parallel: int, retries: int, luck: list[int], data: st.DataObject
) -> None:
    """Whatever happens, each trial ends, is lost for good, or is given up: exactly once."""
    of = schedule(n, sites, parallel=parallel, retries=retries)
    now, running, ends = 0.0, [], []
    while not of.over:
        running += started(of, now)
        assert len(running) == of.running <= parallel
        if running:
            job, site = running.pop(data.draw(st.integers(0, len(running) - 1)))
            kind = luck.pop() if luck else 0
            if kind == 0:
                of.ended(site)
                ends.append(job.index)
            elif kind == 1:
                of.not_started(job, site, now)
            else:
                if not of.may_repeat(job):
                    ends.append(job.index)
                of.lost(job, site, now, site_failed=kind == 2)
        else:
            now = of.wake_at()
            assert now < math.inf, "somebody waits for nothing"
            ends += [job.index for job in of.given_up(now)]
    assert sorted(ends) == list(range(n))


def test_a_rate_holds_back_starts() -> None:
    of = schedule(4, parallel=4)
    of.rate_hz = 2
    assert [len(started(of, now)) for now in (0, 0.4, 0.5, 0.6)] == [1, 0, 1, 0]
    assert of.wake_at() == 1.0
    of.rate_hz = 0
    assert len(started(of, 0.7)) == 2
    assert of.wake_at() == math.inf


def test_a_rate_that_holds_nothing_back_wakes_nobody() -> None:
    of = schedule(2, parallel=2)
    of.rate_hz = 2
    ((job, site),) = started(of, 0)
    of.not_started(job, site, 0.1)
    assert started(of, 0.55) == []
    assert of.wake_at() == 0.6, "when the orchestrator may be tried again"
