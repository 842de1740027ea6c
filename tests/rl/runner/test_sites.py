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
        deaf: it answers nobody who asks it.
        broken: it refuses whatever it is asked.
        asked: how often it was asked whether it can take trials again.
        told: how it was told to end its trials: hard or not.
    """

    name: str
    seconds: float = 0.0
    lost: bool = False
    deaf: bool = False
    broken: bool = False
    asked: int = 0
    told: list[bool] = field(default_factory=list)

    async def attempt(self, task: Task, started: Started) -> Attempt:
        """Run a trial."""
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
            raise UnavailableError("not now")


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
    sites = [Made("deaf", seconds=100.0, deaf=True), Made("broken", seconds=100.0, broken=True), Made("well", 100.0)]
    async with open_run(9, on=Group(sites)) as run:
        await trio.testing.wait_all_tasks_blocked()
        results = await run.stop(grace_seconds=30.0)
    assert sorted(results.orchestrators.tolist()) == ["broken", "deaf", "well"]
    assert [site.told for site in sites] == [[False, True]] * 3
    assert caplog.messages == ["broken: its trials cannot be ended: not now"] * 2


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
