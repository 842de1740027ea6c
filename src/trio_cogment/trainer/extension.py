"""`PlatformTrainer`: a trainer with its files, its workers and its service, alone or with a platform."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from purerpc import Service

from trio_cogment.access import AccessControl
from trio_cogment.base.config import TrainerConfig, WorkersConfig
from trio_cogment.base.endpoints import DISCOVER
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.host import Host
from trio_cogment.base.metrics import TrainerMetrics
from trio_cogment.platform import OpenedExtension, Platform
from trio_cogment.sdk import DatastoreClient, ModelRegistryClient
from trio_cogment.sdk.spec import Spec
from trio_cogment.trainer._service import trainer_services
from trio_cogment.trainer._trainer import Trainer
from trio_cogment.trainer.dispatch.admission import Capacity
from trio_cogment.trainer.dispatch.command import Surroundings
from trio_cogment.trainer.dispatch.dispatcher import RunDispatcher, Starter
from trio_cogment.trainer.dispatch.workers import Workers
from trio_cogment.trainer.opening import open_trainer
from trio_cogment.trainer.trials.attending import AttendedWorkers, ExternalRuns
from trio_cogment.trainer.trials.starter import TrialRuns
from trio_cogment.trainer.trials.where import Where

# Resources of this machine for runs.

_GPU = re.compile(r"nvidia([0-9]+)")
_MIB = 1024 * 1024
#: Where the system does not say.
_MEMORY_MB = 4096


def this_machine(
    *, cpus: int | None = None, memory_mb: int | None = None, gpus: tuple[int, ...] | None = None, runs: int = 1000
) -> Capacity:
    """Return the capacity of this machine.

    Args:
        cpus: how many processors runs may have; None: all there are.
        memory_mb: how much memory; None: all there is.
        gpus: which GPUs; None: those of NVIDIA that the system shows.
        runs: how many run at a time.
    """
    return Capacity(
        cpus=cpus or os.cpu_count() or 1,
        memory_mb=memory_mb or _memory_mb(),
        gpus=_gpus() if gpus is None else gpus,
        runs=runs,
    )


def _memory_mb() -> int:
    try:
        return max(1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB)
    except (ValueError, OSError):
        return _MEMORY_MB


def _gpus() -> tuple[int, ...]:
    try:
        names = os.listdir("/dev")
    except OSError:
        return ()
    return tuple(sorted(int(found[1]) for found in map(_GPU.fullmatch, names) if found))


#: In the folder of a trainer: its database, and the folders of runs.
DATABASE, RUNS = "trainer.db", "runs"


class PlatformTrainer:
    """A trainer, to be opened.

    As an extension it is served with a platform: `open_platform(participants, extensions=[PlatformTrainer(folder)])`.

    Args:
        folder: where its database and the folders of runs are; it is made if it is not there. Whoever can submit runs
            can start programs on this machine.
        capacity: what runs share; by default, all of this machine.
        address: where it is served, as `host:port`; workers are told. Empty: they are told nothing.
        variables: further environment variables of workers, for example `COGMENT_ORCHESTRATOR`.
        full: what is accepted survives a loss of power; else the end of the process.
        config: limits and timeouts.
        workers: those of workers' processes.
        host: the clock, ids and files; the platform's unless given.
        metrics: receives measurements.
        spec: the types of payloads; the platform's unless given.
        access: makes each worker's token, where servers ask for tokens; None: workers get none.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        capacity: Capacity | None = None,
        address: str = "",
        variables: Mapping[str, str] | None = None,
        full: bool = True,
        config: TrainerConfig | None = None,
        workers: WorkersConfig | None = None,
        host: Host | None = None,
        metrics: TrainerMetrics | None = None,
        spec: Spec | None = None,
        access: AccessControl | None = None,
    ) -> None:
        self._access = access
        self._folder = os.path.abspath(folder)
        self._capacity = capacity
        self._surroundings = Surroundings(target=address, variables=variables or {})
        self._full = full
        self._config = config
        self._workers = workers
        self._host = host
        self._metrics = metrics
        self._spec = spec

    def open(self, platform: Platform) -> AbstractAsyncContextManager[OpenedExtension]:
        """See `trio_cogment.platform.Extension`."""
        spec = self._spec or platform.participants.spec
        datastore = None if platform.datastore is None else DatastoreClient(platform.channel, spec=spec)
        models = None if platform.model_registry is None else platform.model_registry_client()
        where = Where(platform.channel, datastore, DISCOVER, spec)
        return self.opened(where, models=models, host=platform.participants.host)

    @asynccontextmanager
    async def opened(
        self, where: Where | None = None, *, models: ModelRegistryClient | None = None, host: Host | None = None
    ) -> AsyncIterator[OpenedTrainer]:
        """Open it for the time of a block.

        Args:
            where: where trials are; None: it starts no trials.
            models: where the versions of models are that workers say they have saved; None: that is not checked.
            host: unless it was given one.

        Raises:
            FailedPreconditionError: its folder cannot be used.
            CogmentError: its database cannot be opened.
        """
        host = self._host or host or Host()
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise FailedPreconditionError(f"{self._folder}: {error.strerror or error}") from error
        workers: Starter = Workers(
            os.path.join(self._folder, RUNS), self._surroundings, self._workers, host, models, self._access
        )
        trials = external = None
        if where is not None:
            workers, trials, external = AttendedWorkers(workers, where), TrialRuns(where, host), ExternalRuns(where)
        capacity = self._capacity or this_machine()
        storage = f"sqlite:{os.path.join(self._folder, DATABASE)}"
        async with (
            RunDispatcher(capacity, workers=workers, trials=trials, external=external) as dispatcher,
            open_trainer(
                storage,
                full=self._full,
                config=self._config,
                host=host,
                dispatcher=dispatcher,
                access=self._access,
            ) as trainer,
        ):
            if self._metrics is not None:
                self._metrics.attach(trainer.gauges)
            yield OpenedTrainer(trainer, dispatcher, self._surroundings.target)


class OpenedTrainer:
    """A trainer that is open.

    Attributes:
        trainer: the trainer itself.
        services: the one service.
    """

    def __init__(self, trainer: Trainer, dispatcher: RunDispatcher, address: str) -> None:
        self.trainer = trainer
        self.services: Sequence[Service] = trainer_services(trainer, address=address)
        self._dispatcher = dispatcher

    async def stop(self) -> None:
        """See `trio_cogment.platform.OpenedExtension`: streams and workers end; runs do not by that."""
        self.trainer.stop()
        await self._dispatcher.close()
