"""Sites of any kind: a run has one set of rules for all of them, whatever they are."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from trio_cogment.base.errors import InvalidArgumentError, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.rl.runner import TrialResult, open_run, run_trials_async
from trio_cogment.rl.runner.sites import Attempt, Casting, OpenSites, Site, SiteGroup, Started, Task, Verdict
from trio_cogment.seats.base import SeatContext
from trio_cogment.seats.scripted import random
from trio_cogment.spaces import Discrete, Observation


@dataclass
class Made:
    """A site that is made up.

    Attributes:
        name: of it.
        seconds: that each of its trials takes.
        lost: whether its first trial is lost with it.
        doubts: how many of its trials are lost with it before it has begun them.
        deaf: it answers nobody who asks it.
        broken: it refuses whatever it is asked.
        said: the text of its refusals.
        asked: how often it was asked whether it can take trials again.
        told: how it was told to end its trials: hard or not.
    """

    name: str
    seconds: float = 0.0
    lost: bool = False
    doubts: int = 0
    deaf: bool = False
    broken: bool = False
    said: str = "not now"
    asked: int = 0
    told: list[bool] = field(default_factory=list)

    async def attempt(self, task: Task, started: Started) -> Attempt:
        """Run a trial."""
        if self.doubts:
            self.doubts -= 1
            return Attempt.failed(task, self.name, "it was gone", Verdict.IN_DOUBT)
        await started()
        if self.lost:
            return Attempt.failed(task, self.name, "it is gone", Verdict.SITE_LOST)
        await trio.sleep(self.seconds)
        return Attempt(TrialResult(task.index, task.trial_id, task.seed, self.name), Verdict.DONE)

    async def probe(self) -> None:
        """Answer, or not."""
        self.asked += 1
        await self._answer()

    async def end_trials(self, *, hard: bool) -> None:
        """Note it."""
        self.told.append(hard)
        await self._answer()

    async def _answer(self) -> None:
        if self.deaf:
            await trio.sleep_forever()
        if self.broken:
            raise UnavailableError(self.said)


@dataclass
class Group(SiteGroup):
    """Such sites.

    Attributes:
        sites: the sites.
        casting: that they were opened with.
    """

    sites: Sequence[Site]
    casting: Casting | None = None

    @asynccontextmanager
    async def open(self, name: str, casting: Casting, host: Host) -> AsyncIterator[OpenSites]:
        """Open them."""
        self.casting = casting
        yield OpenSites(("player_0",), self.sites)


@pytest.mark.parametrize(
    ("site", "said"),
    [
        (Made("one", lost=True, deaf=True), "one: no answer within 10 s"),
        (Made("one", lost=True, broken=True), "one: not now"),
        (Made("one", lost=True, broken=True, said=""), "one: UnavailableError"),
    ],
)
async def test_a_site_that_fails_is_asked_until_the_run_gives_up(
    site: Made, said: str, autojump_clock: trio.testing.MockClock
) -> None:
    results = await run_trials_async(2, on=Group([site]), unreachable_seconds=60.0)
    assert [trial.error for trial in results.failures] == ["it is gone", said]
    assert site.asked > 2


async def test_the_others_go_on_meanwhile(autojump_clock: trio.testing.MockClock) -> None:
    deaf, well = Made("deaf", lost=True, deaf=True), Made("well", seconds=1.0)
    results = await run_trials_async(20, on=Group([deaf, well]), parallel=2, retries=1)
    assert not results.failures
    assert set(results.orchestrators.tolist()) == {"well"}
    assert trio.current_time() < 60, "nobody has waited for it"


async def test_a_stop_tells_each_site_and_waits_for_none_that_is_deaf(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its trials have failed some time after they should have been ended hard, whatever they do there."""
    deaf, broken = Made("deaf", seconds=math.inf, deaf=True), Made("broken", seconds=math.inf, broken=True)
    sites = [deaf, broken, Made("well", seconds=20.0)]
    async with open_run(9, on=Group(sites)) as run:
        await trio.testing.wait_all_tasks_blocked()
        results = await run.stop(grace_seconds=30.0)
    # The time of grace, then the time in which a site may hear of the hard end, and the trials' own for it.
    assert trio.current_time() == 30 + 10 + 5
    assert sorted(results.orchestrators.tolist()) == ["broken", "deaf", "well"]
    assert {trial.orchestrator: trial.error for trial in results.failures} == dict.fromkeys(
        ["broken", "deaf"], "it has not ended, though it was told to"
    )
    assert [site.told for site in sites] == [[False, True]] * 3
    assert caplog.messages == ["broken: its trials cannot be ended: not now"] * 2


async def test_a_site_that_is_deaf_takes_no_longer_than_the_grace(autojump_clock: trio.testing.MockClock) -> None:
    async with open_run(1, on=Group([Made("deaf", seconds=math.inf, deaf=True)])) as run:
        await trio.testing.wait_all_tasks_blocked()
        await run.stop(grace_seconds=2.0)
    assert trio.current_time() == 2 + 10 + 5


@pytest.mark.parametrize(("doubts", "failed", "attempts"), [(2, 0, 1), (3, 1, 1)])
async def test_a_trial_that_was_given_and_had_not_begun_costs_no_retry_twice(
    autojump_clock: trio.testing.MockClock, doubts: int, failed: int, attempts: int
) -> None:
    """Then it counts as the cause: there would be no end otherwise."""
    results = await run_trials_async(1, on=Group([Made("one", doubts=doubts)]), retries=0)
    assert len(results.failures) == failed
    assert [trial.attempts for trial in results.trials] == [attempts]
    assert [trial.error for trial in results.lost] == ["it was gone"] * 2
    assert len({trial.trial_id for trial in [*results.trials, *results.lost]}) == 3


async def test_seeds_that_sites_are_told_of_are_the_lowest_and_the_highest() -> None:
    group = Group([Made("one")])
    await run_trials_async(3, on=group, seeds=[7, 3, 5])
    assert group.casting is not None
    assert tuple(group.casting.seeds) == (3, 7)
    await run_trials_async(3, on=group)
    assert tuple(group.casting.seeds) == ()


@pytest.mark.parametrize("store", ["memory:", "sqlite:trials.db", math.pi])
async def test_a_store_of_one_process_alone_is_refused(store: Any) -> None:
    """Sites that are opened for a run are in other processes."""
    with pytest.raises(InvalidArgumentError, match=r"store: expected one that many processes can write to, .*got"):
        await run_trials_async(1, on=Group([Made("one")]), store=store)


async def test_equal_seats_of_several_processes_draw_otherwise() -> None:
    given = Casting(seats={"player_0": random(seed=1)})
    drawn = []
    for number in range(3):
        seat: Any = given.beside(number).seats["player_0"]
        draw = await seat.begin(SeatContext("made", "player_0", None))
        drawn.append([int(draw(Observation(0, action_space=Discrete(1 << 30)))) for _ in range(3)])
    assert len({tuple(each) for each in drawn}) == 3
