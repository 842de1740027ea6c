"""Schedule of a run: the trial that starts next and its site; lost trials are repeated. Pure, without Trio or clock.

Times come in as arguments, in seconds of any clock that only goes forward. A site that fails is left alone for a while
that grows with each failure in a row. Then it is probed, while the trials go on elsewhere: none of them waits for a
site that does not answer. One that answers gets one trial to prove itself.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trio_cogment.base.backoff import exponential_delay

#: How long a site that failed is left alone: after the first failure, and at most.
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 15.0


@dataclass(slots=True, eq=False)
class Job:
    """A trial that is to be run.

    Attributes:
        index: its place in the run.
        seed: of its environment; None goes on with the environment's own generator.
        retries_left: how often it may still be started again after it was lost.
        doubts: how often a site was lost to which it had been given, and it was not known to have begun.
        avoid: the site that lost it last; another one is preferred.
    """

    index: int
    seed: int | None
    retries_left: int = 0
    doubts: int = 0
    avoid: int | None = None


@dataclass(slots=True)
class _Site:
    running: int = 0
    failures: int = 0
    #: It is not even probed before this time.
    free_at: float = -math.inf
    probing: bool = False
    #: Since its last failure it has answered a probe.
    answered: bool = False

    def probe_at(self) -> float:
        """Return when it is to be probed; infinity for never."""
        return self.free_at if self.failures and not (self.running or self.probing or self.answered) else math.inf


class Schedule:
    """The trials of a run that wait, and the sites that are to run them.

    Args:
        seeds: one for each trial.
        sites: how many sites there are; they are called by their numbers.
        parallel: how many trials run at the same time, at all of them together.
        retries: how often a trial that was lost is started again.
        unreachable_seconds: how long no site may be of use before the run gives up.
        done: the trials that are not run, by their places: they have been.
    """

    def __init__(
        self,
        seeds: Sequence[int | None],
        sites: int,
        *,
        parallel: int,
        retries: int,
        unreachable_seconds: float,
        done: Collection[int] = (),
    ) -> None:
        self._waiting = deque(Job(index, seed, retries) for index, seed in enumerate(seeds) if index not in done)
        self._sites = [_Site() for _ in range(sites)]
        self._parallel = parallel
        self._unreachable_seconds = unreachable_seconds
        self._all_down_since: float | None = None
        self._next_site = 0
        #: No trial is started while it is true.
        self.paused = False
        #: This many starts a second at most; 0: any number.
        self.rate_hz = 0.0
        self._last_start = -math.inf
        #: When the rate allows a start that it did not when `next` was asked last.
        self._held_until = math.inf
        self._stopped = False

    def may_repeat(self, job: Job) -> bool:
        """Whether a trial is started again if it is lost now."""
        return job.retries_left > 0 and not self._stopped

    @property
    def stopped(self) -> bool:
        """Whether no trial is started any more."""
        return self._stopped

    @property
    def running(self) -> int:
        """How many trials run."""
        return sum(site.running for site in self._sites)

    @property
    def over(self) -> bool:
        """Whether no trial runs, and none waits."""
        return not self._waiting and not self.running

    def next(self, now: float) -> tuple[Job, int] | None:
        """Return the trial that is to be started now, and where; None if there is none at this time."""
        self._held_until = math.inf
        if self.paused or not self._waiting or self.running >= self._parallel:
            return None
        if self.rate_hz and now < self._last_start + 1 / self.rate_hz:
            self._held_until = self._last_start + 1 / self.rate_hz
            return None
        free = [number for number in range(len(self._sites)) if self._is_free(number, now)]
        job = self._waiting[0]
        preferred = [number for number in free if number != job.avoid] or free
        if not preferred:
            return None
        count = len(self._sites)
        # The least busy one; of several the one that has waited longest for its turn.
        chosen = min(preferred, key=lambda number: (self._sites[number].running, (number - self._next_site) % count))
        self._next_site = (chosen + 1) % count
        self._waiting.popleft()
        self._sites[chosen].running += 1
        self._last_start = now
        return job, chosen

    def _is_free(self, number: int, now: float) -> bool:
        site = self._sites[number]
        return not site.failures or (site.answered and not site.running)

    def to_probe(self, now: float) -> list[int]:
        """Return the sites that are to be probed now; `answered` or `no_answer` says how that went."""
        if self.paused or not self._waiting:
            return []
        chosen = [number for number, site in enumerate(self._sites) if site.probe_at() <= now]
        for number in chosen:
            self._sites[number].probing = True
        return chosen

    def answered(self, site: int) -> None:
        """Note that a site has answered its probe: it gets a trial."""
        self._sites[site].probing = False
        self._sites[site].answered = True

    def no_answer(self, site: int, now: float) -> None:
        """Note that a site has not answered its probe."""
        self._sites[site].probing = False
        self._failed(site, now)

    def wake_at(self) -> float:
        """Return when `next` or `given_up` may say something else, if nothing is told before; infinity for never."""
        if self.paused or not self._waiting:
            return math.inf
        times = [site.probe_at() for site in self._sites]
        if self.running < self._parallel:
            times.append(self._held_until)
        if self._all_down_since is not None and not self.running:
            times.append(self._all_down_since + self._unreachable_seconds)
        return min(times, default=math.inf)

    def ended(self, site: int) -> None:
        """Note that a trial has ended, whatever its outcome: its site is well."""
        self._sites[site].running -= 1
        self._recovered(site)

    def not_started(self, job: Job, site: int, now: float) -> None:
        """Note that a site could not be reached, or takes no trial now; the trial waits for another chance."""
        self._sites[site].running -= 1
        self._failed(site, now)
        if not self._stopped:
            job.avoid = site
            self._waiting.appendleft(job)

    def lost(self, job: Job, site: int, now: float, *, site_failed: bool) -> None:
        """Note that a trial was lost; it waits for another chance, if it `may_repeat`.

        Args:
            job: the trial.
            site: its site.
            now: the time.
            site_failed: the site was lost, too, and not a participant of the trial.
        """
        self._sites[site].running -= 1
        if site_failed:
            self._failed(site, now)
        else:
            self._recovered(site)
        if self.may_repeat(job):
            job.retries_left -= 1
            job.avoid = site
            self._waiting.appendleft(job)

    def given_up(self, now: float) -> list[Job]:
        """Return, and forget, the trials that wait, if no site has been of use for too long."""
        since = self._all_down_since
        if since is None or self.running or now < since + self._unreachable_seconds:
            return []
        dropped = sorted(self._waiting, key=lambda job: job.index)
        self._waiting.clear()
        return dropped

    def stop(self) -> None:
        """Start no more trials, for good; forget those that wait."""
        self._stopped = True
        self.paused = False
        self._waiting.clear()

    def _failed(self, number: int, now: float) -> None:
        site = self._sites[number]
        site.answered = False
        if site.failures and now < site.free_at:
            return  # the trials that it had are lost one after the other: it has failed once
        site.free_at = now + exponential_delay(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, site.failures)
        site.failures += 1
        if self._all_down_since is None and all(site.failures for site in self._sites):
            self._all_down_since = now

    def _recovered(self, number: int) -> None:
        self._sites[number].failures = 0
        self._all_down_since = None
