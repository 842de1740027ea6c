"""Workers as sites of a run: started for it, told what to play, heard, and ended. The process of the run has this."""

from __future__ import annotations

import logging
import math
import os
import pickle
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import trio

from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError, MissingExtraError
from trio_cogment.base.host import Host, Runner
from trio_cogment.ray._worker import Told, Worker
from trio_cogment.rl.datasets.sources import open_source
from trio_cogment.rl.runner.results import TrialResult
from trio_cogment.rl.runner.sites import (
    Attempt,
    Casting,
    OpenSites,
    SiteDownError,
    SiteGroup,
    Started,
    Task,
    Verdict,
)
from trio_cogment.rpc import OwnNursery

#: How often the start of a cluster is tried: on a busy machine Ray's own programs wait too short a time for each other.
_STARTS = 3
#: How long workers may take to start, on machines where nothing of the package is in memory.
_START_SECONDS = 120.0
#: How long a worker that has failed may take to answer; it is asked again.
_PROBE_SECONDS = 10.0
#: How long a worker may take to close its platform, before it is killed.
_STOP_SECONDS = 10.0
#: How long a worker may take longer for a trial than the trial may: the whole process stands still then.
_HUNG_SECONDS = 30.0
#: How often to look for room that others hold, or for a worker, and how often at most for room.
_LOOK_SECONDS = 0.5
_ROOM_LOOKS = 20
#: Calls of a worker at the same time: one of them waits for news, whatever the others do.
_MAX_CALLS = 4

_log = logging.getLogger(__name__)


def workers(
    count: int,
    *,
    num_cpus: float = 1,
    num_gpus: float = 0,
    resources: Mapping[str, float] | None = None,
    placement: Any = "SPREAD",
    address: str | None = None,
) -> Workers:
    """Return workers of a Ray cluster, for the argument `on` of `run_trials`.

    They are started when the run begins, each with a platform, and ended with it. What the run is given (environment,
    arguments, seats, options) is pickled for them: functions of the program's own file by value, those of other modules
    by name, so these modules have to be there (`runtime_env` of `ray.init` brings them along).

    Args:
        count: how many workers.
        num_cpus: how many processors each takes for itself while the run lasts.
        num_gpus: how many GPUs each takes.
        resources: how much of the cluster's own resources each takes.
        placement: a scheduling strategy of Ray: "SPREAD" over the nodes, "DEFAULT", or an object of
            `ray.util.scheduling_strategies`.
        address: of the cluster. By default that to which this process is connected; else the one of `RAY_ADDRESS`; else
            one is started on this machine, and ended with the run.

    Raises:
        InvalidArgumentError: a number makes no sense.
    """
    if not (isinstance(count, int) and count >= 1):
        raise InvalidArgumentError(f"count: expected an integer, 1 or more, got {count!r}")
    needs = {"CPU": num_cpus, "GPU": num_gpus, **(resources or {})}
    for name, amount in needs.items():
        if not (isinstance(amount, int | float) and amount >= 0):
            raise InvalidArgumentError(f"resources: {name}: expected a number, 0 or more, got {amount!r}")
    return Workers(count, {name: float(amount) for name, amount in needs.items() if amount}, placement, address)


@dataclass(frozen=True, slots=True)
class Workers(SiteGroup):
    """Workers that a run starts and ends; made by `workers`, which says what the attributes mean."""

    count: int
    needs: Mapping[str, float]
    placement: Any
    address: str | None

    @asynccontextmanager
    async def open(self, name: str, casting: Casting, host: Host) -> AsyncIterator[OpenSites]:
        """Start the workers for the time of an `async with` block; see `SiteGroup.open`.

        Raises:
            MissingExtraError: Ray is not installed.
            InvalidArgumentError: something cannot be pickled, or the store is one that a single process has to itself.
            FailedPreconditionError: the cluster has no room for the workers, or they cannot start what they are given.

        After `Cancelled` the workers are ended.
        """
        ray = _ray()
        store = casting.store
        if store is not None and (not isinstance(store, str) or store.partition(":")[0] in ("memory", "sqlite")):
            raise InvalidArgumentError(
                f"store: expected one that many processes can write to, the endpoint of a datastore (grpc://host:port) "
                f"or a storage such as postgresql://..., got {store!r}"
            )
        pickled = _pickled(casting)
        in_thread = host.runner(1)
        names = [f"{name}/{number}" if name else f"worker {number}" for number in range(self.count)]
        async with AsyncExitStack() as stack:
            datastore = None
            if store is not None and casting.name:  # it may have been there
                datastore = await stack.enter_async_context(open_source(store))
            if not ray.is_initialized():
                await in_thread(self._connect)
                stack.push_async_callback(_disconnect, in_thread)
            await self._require_room(in_thread)
            actors = await in_thread(self._start, names, pickled)
            sites = [_WorkerSite(name, actor) for name, actor in zip(names, actors, strict=True)]
            async with OwnNursery() as nursery:
                try:
                    for site in sites:
                        names_of_actors = await site.start()
                        nursery.start_soon(site.listen, name=f"news of {site.name}")
                        nursery.start_soon(site.give, name=f"trials for {site.name}")
                    yield OpenSites(names_of_actors, sites, datastore)
                finally:
                    nursery.cancel_scope.cancel()
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + _STOP_SECONDS):
                        async with OwnNursery() as closing:
                            for site in sites:
                                closing.start_soon(site.stop)
                    for site in sites:
                        ray.kill(site.handle, no_restart=True)

    def _connect(self) -> None:
        # Without an address Ray joins whatever cluster was started last on this machine.
        address = self.address or ("auto" if os.environ.get("RAY_ADDRESS") else "local")
        for left in reversed(range(_STARTS)):
            try:
                _ray().init(address=address, include_dashboard=None if address != "local" else False)
                return
            except Exception as error:  # Ray raises nothing more exact
                if address != "local" or not left:
                    raise FailedPreconditionError(f"address: expected a Ray cluster at {address!r}: {error}") from error

    async def _require_room(self, in_thread: Runner) -> None:
        """Raise if the workers do not fit: Ray would let them wait for ever."""
        if not self.needs:
            return
        bundles = await in_thread(_bundles, self.placement)
        if bundles is not None:
            # What others have of the group is not looked at, nor whether it has its place yet.
            self._check_room(self._room(bundles), "there is room for", "the placement group", "bundles to it")
            return
        # With a NodeAffinitySchedulingStrategy that is not soft.
        only = None if getattr(self.placement, "soft", True) else self.placement.node_id
        alive = [node for node in await in_thread(_ray().nodes) if node["Alive"] and only in (None, node["NodeID"])]
        where = ("the Ray cluster" if only is None else "that node"), "nodes"
        self._check_room(self._room([node["Resources"] for node in alive]), "there is room for", *where)
        for _ in range(_ROOM_LOOKS):
            # What another run had becomes free some time after its end.
            free = await in_thread(_free_resources)
            room = self._room([free.get(node["NodeID"], {}) for node in alive])
            if room >= self.count:
                return
            await trio.sleep(_LOOK_SECONDS)
        self._check_room(room, "others leave room for", *where)

    def _room(self, nodes: Sequence[Mapping[str, float]]) -> int:
        return sum(min(int(has.get(name, 0) / need + 1e-9) for name, need in self.needs.items()) for has in nodes)

    def _check_room(self, room: int, words: str, where: str, more: str) -> None:
        if room < self.count:
            asked = ", ".join(f"{need:g} {name}" for name, need in self.needs.items())
            raise FailedPreconditionError(
                f"workers: expected room for {self.count} of {asked} each in {where}, and {words} {room}: ask for "
                f"fewer workers, or smaller ones (num_cpus, num_gpus, resources), or add {more}"
            )

    def _start(self, names: list[str], pickled: bytes) -> list[Any]:
        needs = dict(self.needs)
        options = {
            "num_cpus": needs.pop("CPU", 0),
            "num_gpus": needs.pop("GPU", 0),
            "resources": needs or None,
            "scheduling_strategy": self.placement,
            "max_restarts": -1,
            "max_task_retries": 0,
            "max_concurrency": _MAX_CALLS,
            # The dashboard has nothing to say of calls that only carry trials, and each would cost a report.
            "enable_task_events": False,
        }
        try:
            made = _ray().remote(**options)(Worker)
            actors = [made.remote(name, number, pickled) for number, name in enumerate(names)]
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(f"placement: {error}") from error
        for actor in actors:
            actor.open.remote()  # all at once; each is waited for later
        return actors


async def _disconnect(in_thread: Runner) -> None:
    with trio.CancelScope(shield=True, deadline=trio.current_time() + _START_SECONDS):
        await in_thread(_ray().shutdown)


def _bundles(placement: Any) -> list[Mapping[str, float]] | None:
    """Return the bundles of a placement group in which workers are to be; None: they need not be in one."""
    group = getattr(placement, "placement_group", None)
    bundles: list[Mapping[str, float]] | None = getattr(group, "bundle_specs", None)  # the group may be a word, too
    index = getattr(placement, "placement_group_bundle_index", -1)
    return bundles if bundles is None or index < 0 else bundles[index : index + 1]


def _free_resources() -> Mapping[str, Mapping[str, float]]:
    """Return, by the id of a node, what is free there: what Ray offers openly is the sum over all nodes."""
    from ray._private.state import available_resources_per_node

    found: Mapping[str, Mapping[str, float]] = available_resources_per_node()
    return found


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingExtraError.of("ray", "ray") from None
    return ray


def _pickled(casting: Casting) -> bytes:
    """Return what the workers are given.

    Raises:
        InvalidArgumentError: a part of it cannot be pickled; the text names it.
    """
    from ray import cloudpickle

    seeds = sorted(casting.seeds)
    casting = replace(casting, seeds=[seeds[0], seeds[-1]] if seeds else [])
    parts = {one.name: getattr(casting, one.name) for one in fields(casting)}
    for name, value in parts.items():
        for key, part in value.items() if isinstance(value, Mapping) else [("", value)]:
            try:
                cloudpickle.dumps(part)
            except Exception as error:
                where = f"{name}: {key!r}" if key else name
                raise InvalidArgumentError(
                    f"{where}: expected what can be pickled for the workers, got {type(part).__name__}: {error}. Give "
                    "a function or a class that makes it there, or the id of an environment; models come with "
                    "model('name@-1', load) and model_registry='grpc://...', and an actor elsewhere with endpoint(...)"
                ) from error
    found: bytes = cloudpickle.dumps(casting)
    return found


async def _result(reference: Any) -> Any:
    """Return the result of a call, or raise whatever Ray or the worker raised; no thread waits for it."""
    done = trio.Event()
    token = trio.lowlevel.current_trio_token()
    future = reference.future()

    def on_done(_future: Any) -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(done.set)

    future.add_done_callback(on_done)
    await done.wait()
    return future.result()


class _WorkerSite:
    """A `Site`: a worker, which may be another process than a moment ago.

    Attributes:
        name: of the worker.
        handle: what Ray knows it by.
    """

    def __init__(self, name: str, handle: Any) -> None:
        self.name = name
        self.handle = handle
        #: It has answered, and Ray has said nothing else since.
        self._up = trio.Event()
        #: Of the trials that it has been given, or will be: who hears of them.
        self._trials: dict[str, trio.MemorySendChannel[Told]] = {}
        self._to_give: list[Task] = []
        self._has_tasks = trio.Event()

    async def start(self) -> tuple[str, ...]:
        """Wait until the worker is there; return the names of the trials' actors.

        Raises:
            FailedPreconditionError: it does not come, or cannot start what it was given.
        """
        with trio.move_on_after(_START_SECONDS):
            while True:
                try:
                    return await self._opened()
                except SiteDownError as error:
                    _log.warning("%s", error)
                await trio.sleep(_LOOK_SECONDS)
        raise FailedPreconditionError(
            f"{self.name}: expected it to start within {_START_SECONDS:g} s: the cluster may have no room for it, or "
            "its nodes cannot import what it needs; `ray status` and the logs of Ray tell more"
        )

    async def _opened(self) -> tuple[str, ...]:
        try:
            found: tuple[str, ...] | CogmentError = await _result(self.handle.open.remote())
        except Exception as error:
            raise SiteDownError(f"{self.name}: {_words(error)}") from error
        if isinstance(found, CogmentError):
            raise found
        self._up.set()
        return found

    async def probe(self) -> None:
        """See `Site.probe`."""
        with trio.move_on_after(_PROBE_SECONDS):
            try:
                await self._opened()
            except CogmentError as error:
                raise SiteDownError(str(error)) from error
            return
        raise SiteDownError(f"{self.name}: no answer within {_PROBE_SECONDS:g} s")

    async def attempt(self, task: Task, started: Started) -> Attempt:
        """See `Site.attempt`."""
        if not self._up.is_set():
            return self._failed(task, "it is being started again", Verdict.NOT_STARTED)
        hear, heard = trio.open_memory_channel[Told](math.inf)
        self._trials[task.trial_id] = hear
        self._to_give.append(task)
        self._has_tasks.set()
        limit = task.timeout_seconds + _HUNG_SECONDS
        begun = False
        try:
            with trio.move_on_after(limit):
                while (told := await heard.receive()) is None:
                    begun = True
                    await started()
                if isinstance(told, Attempt):
                    return told
                return self._failed(
                    task, f"the trial was lost: {told}", Verdict.SITE_LOST if begun else Verdict.IN_DOUBT
                )
        finally:
            del self._trials[task.trial_id]
        # It would have ended the trial by itself, long ago: Ray is to start another process.
        self._down()
        _ray().kill(self.handle, no_restart=False)
        return self._failed(task, f"the trial was lost: no answer within {limit:g} s", Verdict.SITE_LOST)

    def _failed(self, task: Task, why: str, verdict: Verdict) -> Attempt:
        result = TrialResult(task.index, task.trial_id, task.seed, self.name, error=f"{self.name}: {why}")
        return Attempt(result, verdict)

    def _down(self) -> None:
        if self._up.is_set():
            self._up = trio.Event()

    def _lose(self, trial_ids: Iterable[str], error: Exception) -> None:
        """Ray has said that the worker is gone, or something else that tells nothing of these trials."""
        self._down()
        for trial_id in trial_ids:
            if trial_id in self._trials:
                self._trials[trial_id].send_nowait(_words(error))

    async def give(self) -> None:
        """Give trials to the worker, for as long as the run lasts: at once all that have come since the last time."""
        while True:
            await self._has_tasks.wait()
            self._has_tasks = trio.Event()
            tasks, self._to_give = self._to_give, []
            try:
                # Pickled, once for all of them: Ray would take much longer.
                await _result(self.handle.give.remote(pickle.dumps(tasks)))
            except Exception as error:  # noqa: BLE001  whatever Ray raises
                self._lose([task.trial_id for task in tasks], error)

    async def listen(self) -> None:
        """Hear what the worker tells of its trials, for as long as the run lasts."""
        while True:
            await self._up.wait()
            try:
                news: list[tuple[str, Told]] = pickle.loads(await _result(self.handle.news.remote()))
            except Exception as error:  # noqa: BLE001  whatever Ray raises
                self._lose(list(self._trials), error)
                continue
            for trial_id, told in news:
                if trial_id in self._trials:
                    self._trials[trial_id].send_nowait(told)

    async def end_trials(self, *, hard: bool) -> None:
        """See `Site.end_trials`."""
        if self._trials and self._up.is_set():
            with trio.move_on_after(_STOP_SECONDS):
                try:
                    await _result(self.handle.end_trials.remote(hard))
                except Exception as error:  # noqa: BLE001  whatever Ray raises
                    _log.warning("%s: its trials cannot be ended: %s", self.name, _words(error))

    async def stop(self) -> None:
        """Let the worker close its platform, with all that its participants have to do at the end."""
        with suppress(Exception):  # it is gone
            await _result(self.handle.stop.remote())


def _words(error: BaseException) -> str:
    """Return what happened in one line: Ray's errors have the tracebacks and pids of several processes."""
    cause = getattr(error, "cause", None)
    told = cause if isinstance(cause, BaseException) else error
    first, *_ = str(told).strip().splitlines() or [""]
    return f"{type(told).__name__}: {first}"
