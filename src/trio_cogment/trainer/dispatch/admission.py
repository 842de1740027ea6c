"""Admission of runs: processors, memory and GPUs that are free, and the queue of those that wait. Pure.

Runs start in the order in which they came; interactive ones come before batch ones. Nobody overtakes within a class, so
that a large run gets its turn. One that asks for more processors than there are gets them all, and only takes longer.
One that asks for more memory than there is would fail, and is refused.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from dataclasses import dataclass

from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.trainer.run_config import RUN_CLASSES, Resources, RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What all runs share.

    Attributes:
        cpus: processors.
        memory_mb: memory in MiB.
        gpus: the ids of the GPUs.
        runs: how many run at a time.
    """

    cpus: int
    memory_mb: int
    gpus: tuple[int, ...] = ()
    runs: int = 1000

    def __post_init__(self) -> None:
        for name in ("cpus", "memory_mb", "runs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        if len(set(self.gpus)) != len(self.gpus) or any(gpu < 0 for gpu in self.gpus):
            raise ValueError(f"gpus: expected ids that are different and not negative, got {self.gpus}")


class Admission:
    """What is used, and who waits.

    Args:
        capacity: what there is.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._running: dict[str, Resources] = {}
        self._gpus: dict[str, tuple[int, ...]] = {}
        self._waiting: dict[str, OrderedDict[str, Resources]] = {name: OrderedDict() for name in RUN_CLASSES}

    @property
    def waiting(self) -> list[str]:
        """The runs that wait, the next one first."""
        return [run_id for waiting in self._waiting.values() for run_id in waiting]

    def ask(self, run_id: str, config: RunConfig, *, queue: bool) -> bool:
        """Ask for what a run needs; return whether it may start now. Else it waits (`next`).

        Args:
            run_id: which run.
            config: what it asks for.
            queue: it waits if that is not free.

        Raises:
            ResourceExhaustedError: it would never be free; or it is not free, and the run does not wait.
        """
        resources, run_class = self._within_the_machine(config.resources), config.schedule.run_class
        missing = self._more_than_there_is(resources)
        if missing:
            raise ResourceExhaustedError(f"resources.{missing}")
        ahead = self._ahead(run_class)
        waiting = "1 run waits already" if ahead == 1 else f"{ahead} runs wait already"
        missing = waiting if ahead else self._not_free(resources)
        if not missing:
            self._take(run_id, resources)
            return True
        if not queue:
            raise ResourceExhaustedError(f"resources: {missing}; schedule.when_full is 'refuse'")
        self._waiting[run_class][run_id] = resources
        return False

    def next(self) -> str | None:
        """Return a run that waited and may start now, and give it what it asked for; None: nobody."""
        for waiting in self._waiting.values():
            for run_id, resources in waiting.items():
                if self._not_free(resources):
                    return None
                del waiting[run_id]
                self._take(run_id, resources)
                return run_id
        return None

    def gpus_of(self, run_id: str) -> tuple[int, ...]:
        """Return the GPUs that a run has got."""
        return self._gpus[run_id]

    def release(self, run_id: str) -> None:
        """Take back what a run has, or let it wait no more; a run that is not known has nothing."""
        self._running.pop(run_id, None)
        self._gpus.pop(run_id, None)
        for waiting in self._waiting.values():
            waiting.pop(run_id, None)

    def _ahead(self, run_class: str) -> int:
        """Return how many wait that a new run of a class may not overtake."""
        classes = RUN_CLASSES[: RUN_CLASSES.index(run_class) + 1]
        return sum(len(self._waiting[name]) for name in classes)

    def _take(self, run_id: str, resources: Resources) -> None:
        self._running[run_id] = resources
        self._gpus[run_id] = tuple(self._free_gpus()[: resources.gpus])

    def _free_gpus(self) -> list[int]:
        used = {gpu for gpus in self._gpus.values() for gpu in gpus}
        return sorted(set(self._capacity.gpus) - used)

    def _within_the_machine(self, resources: Resources) -> Resources:
        return dataclasses.replace(resources, cpus=min(resources.cpus, self._capacity.cpus))

    def _more_than_there_is(self, resources: Resources) -> str:
        capacity = self._capacity
        if resources.memory_mb > capacity.memory_mb:
            return f"memory_mb: expected at most {capacity.memory_mb}, which is all there is, got {resources.memory_mb}"
        if resources.gpus_mandatory and resources.gpus > len(capacity.gpus):
            return f"gpus: expected at most {len(capacity.gpus)}, which is all there are, got {resources.gpus}"
        return ""

    def _not_free(self, resources: Resources) -> str:
        capacity, running = self._capacity, self._running.values()
        cpus = capacity.cpus - sum(used.cpus for used in running)
        memory_mb = capacity.memory_mb - sum(used.memory_mb for used in running)
        gpus = len(self._free_gpus())
        if len(running) >= capacity.runs:
            return f"{'1 run goes on' if len(running) == 1 else f'{len(running)} runs go on'}, which is the limit"
        if resources.cpus > cpus:
            return f"{cpus} cpus are free, {resources.cpus} are asked for"
        if resources.memory_mb > memory_mb:
            return f"{memory_mb} MiB of memory are free, {resources.memory_mb} are asked for"
        if resources.gpus_mandatory and resources.gpus > gpus:
            return f"{gpus} gpus are free, {resources.gpus} are asked for"
        return ""
