"""Sites of a run: the places where its trials run, each behind one interface, whoever starts the trials there.

A run has one schedule for all of its sites. The schedule decides which site gets the next trial, when a site that
failed is asked again, and what is repeated; a site starts one attempt, says how far it got, and ends it when it is told
to. So retries, ids, callbacks, pauses and stops are the same for an orchestrator and for a worker on another machine.

An attempt that is not known to have ended is lost. Its id is never used again: it may still run where nobody can see
it, and then all that it can write to is its own trial.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from trio_cogment.api.common_pb2 import ActorParams, TrialParams
from trio_cogment.base.host import Host
from trio_cogment.rl.runner.results import TrialResult
from trio_cogment.sdk import ActorImplementation, DatastoreClient
from trio_cogment.seats.base import Seat

#: Who takes a seat: a seat, an asynchronous function over a session, or the parameters of an actor that is elsewhere.
Sitter: TypeAlias = Seat | ActorImplementation | ActorParams

#: The property of a trial that names its run.
RUN_PROPERTY = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Casting:
    """Who takes part in the trials of a run: what `run_trials_async` is told about it.

    Attributes:
        environment: see `run_trials_async`; so it is with the others.
        arguments: with which the environment is made.
        hosting: where it runs, in this process or beside it.
        seats: by actor.
        params: the trials' parameters, in place of what is made of the others.
        options: of the environment's episodes.
        max_steps: after this many the orchestrator ends a trial; 0 for no limit.
        tick_hz: ticks a second; 0: as the parameters say.
        store: keeps or serves the trials' samples.
        model_registry: the endpoint of the registry from which seats have their models.
        directory: the endpoint of the directory of the platform that is opened for the run.
        name: of the run, a property of its trials; empty: it has none.
        parallel: the maximum number of trials at the same time.
        seeds: the lowest and the highest of the trials' seeds; empty: they have none.
    """

    environment: Any = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    hosting: str = "inline"
    seats: Mapping[str, Sitter] = field(default_factory=dict)
    params: TrialParams | None = None
    options: Mapping[str, Any] | None = None
    max_steps: int = 0
    tick_hz: float = 0.0
    store: Any = None
    model_registry: str | None = None
    directory: str | None = None
    name: str = ""
    parallel: int = 1
    seeds: Sequence[int] = ()

    def beside(self, number: int) -> Casting:
        """Return it for one of several processes: where trials have no seeds, equal seats would all draw the same."""
        seats = {name: seat.beside(number) if isinstance(seat, Seat) else seat for name, seat in self.seats.items()}
        return replace(self, seats=seats)


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt to run a trial.

    Attributes:
        index: the trial's place in the run.
        seed: of its environment; None for none.
        trial_id: the id that this attempt has, and no other.
        timeout_seconds: how long it may take, before it is ended hard.
        goes_on: the stored trial that it goes on with, and at which tick; None: it begins.
    """

    index: int
    seed: int | None
    trial_id: str
    timeout_seconds: float
    goes_on: tuple[str, int] | None = None


class Verdict(enum.Enum):
    """What an attempt to run a trial means for the run."""

    #: The trial has ended, well or not, and would end like that elsewhere.
    DONE = enum.auto()
    #: It was not started: the site cannot be reached, or takes none.
    NOT_STARTED = enum.auto()
    #: The site was lost, and the trial had most likely not begun: it counts as not started, but not for ever.
    IN_DOUBT = enum.auto()
    #: It was lost together with its site.
    SITE_LOST = enum.auto()
    #: It ended because of an accident of its own.
    LOST = enum.auto()


@dataclass(frozen=True, slots=True)
class Attempt:
    """How far a trial got at a site.

    Attributes:
        result: of the trial.
        verdict: what it means for the run.
    """

    result: TrialResult
    verdict: Verdict

    @classmethod
    def failed(cls, task: Task, site: str, why: str, verdict: Verdict) -> Attempt:
        """Return one of which nothing is known but why it failed."""
        return cls(TrialResult(task.index, task.trial_id, task.seed, site, error=why), verdict)


#: Is called when a trial has been started, before its result is known.
Started: TypeAlias = Callable[[], Awaitable[None]]


class Site(Protocol):
    """A place where trials run, for one run.

    Attributes:
        name: for results and errors.
    """

    name: str

    async def attempt(self, task: Task, started: Started) -> Attempt:
        """Run a trial, as far as it gets. Several may run at once.

        After `Cancelled` the trial may still run, until `end_trials`.
        """

    async def probe(self) -> None:
        """Return when a site that has failed can take a trial again. It is cancelled if that takes long.

        Raises:
            CogmentError: it cannot, for now.
        """

    async def end_trials(self, *, hard: bool) -> None:
        """End the trials that run; a site that cannot be reached keeps them. It is cancelled if that takes long.

        Raises:
            CogmentError: they cannot be ended.
        """


@dataclass(frozen=True, slots=True)
class OpenSites:
    """The sites of a run, or some of them.

    Attributes:
        actors: the names of the trials' actors.
        sites: the sites.
        datastore: has the trials' samples; None where no site knows it.
    """

    actors: tuple[str, ...]
    sites: Sequence[Site]
    datastore: DatastoreClient | None = None


class SiteGroup(ABC):
    """Sites that are opened for a run and closed with it: what `on=` may be given beside orchestrators.

    They are in other processes. A store is checked before, and read by the process of the run.
    """

    @abstractmethod
    def open(self, name: str, casting: Casting, host: Host) -> AbstractAsyncContextManager[OpenSites]:
        """Open the sites for the time of an `async with` block.

        Args:
            name: what the names of the sites begin with; empty: they have names of their own.
            casting: who takes part in the trials.
            host: the clock, ids and randomness.

        Raises:
            CogmentError: they cannot be opened, or what was given makes no sense there.
        """
