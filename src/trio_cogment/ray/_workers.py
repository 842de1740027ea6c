"""Workers as sites of a run: started for it, told what to play, heard, and ended. The process of the run has this."""

from __future__ import annotations

import logging
import math
import os
import pickle
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any

import trio

from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    MissingExtraError,
    UnavailableError,
)
from trio_cogment.base.host import Host, Runner
from trio_cogment.ray._worker import Told, Worker
from trio_cogment.rl.runner.sites import Attempt, Casting, OpenSites, SiteGroup, Started, Task, Verdict
from trio_cogment.rpc import OwnNursery
from trio_cogment.sdk.bridges.call import result_of

#: How often the start of a cluster is tried: on a busy machine Ray's own programs wait too short a time for each other.
_STARTS = 3
#: How long workers may take to start, on machines where nothing of the package is in memory.
_START_SECONDS = 120.0
#: How long a worker may take to close its platform, before it is killed.
_STOP_SECONDS = 10.0
#: How long a worker may take longer for a trial than the trial may: the whole process stands still then.
_HUNG_SECONDS = 30.0
#: How often to look for room that others hold, or for a worker, and how often at most for room.
_LOOK_SECONDS = 0.5
_ROOM_LOOKS = 20
#: Calls of a worker at the same time: two of them are for trials and news.
_MAX_CALLS = 4
#: So long the run gathers trials to give: a call of Ray costs more than a short trial loses by it.
_GATHER_SECONDS = 0.001
#: The runs that use a connection which one of them has made: the last one ends it.
_connected: set[int] = set()
_connecting = threading.Lock()

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
            InvalidArgumentError: something cannot be pickled.
            FailedPreconditionError: the cluster has no room for the workers, or they cannot start what they are given;
                or this process is connected to another cluster than that of the address.

        After `Cancelled` the workers are ended.
        """
        ray = _ray()
        pickled = _pickled(casting)
        in_thread = host.runner(1)
        names = [f"{name}/{number}" if name else f"worker {number}" for number in range(self.count)]
        async with AsyncExitStack() as stack:
            stack.push_async_callback(_disconnect, in_thread, id(stack))
            await in_thread(self._connect, id(stack))
            await self._require_room(in_thread)
            handles = await in_thread(self._start, names, pickled)
            sites = [_WorkerSite(name, handle) for name, handle in zip(names, handles, strict=True)]
            async with OwnNursery() as nursery:
                try:
                    for site in sites:
                        actors = await site.start()
                        # While one of them waits for news, the other one can give trials.
                        nursery.start_soon(site.talk, name=f"trials and news of {site.name}")
                        nursery.start_soon(site.talk, name=f"news and trials of {site.name}")
                    yield OpenSites(actors, sites)
                finally:
                    nursery.cancel_scope.cancel()
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + _STOP_SECONDS):
                        async with OwnNursery() as closing:
                            for site in sites:
                                closing.start_soon(site.stop)
                    for handle in handles:
                        ray.kill(handle, no_restart=True)

    def _connect(self, run: int) -> None:
        ray = _ray()
        with _connecting:
            if not ray.is_initialized():
                self._begin()
                _connected.add(run)
                return
            if _connected:
                _connected.add(run)
            there = ray.get_runtime_context().gcs_address
        if self.address not in (None, "auto", there):
            raise FailedPreconditionError(
                f"address: expected {there!r}, to which this process is connected, or none, got {self.address!r}"
            )

    def _begin(self) -> None:
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
        for _ in range(_ROOM_LOOKS):
            where, more, *places = await in_thread(_places, self.placement)
            room, free = map(self._room, places)
            if free >= self.count:
                return
            if room < self.count:
                break
            await trio.sleep(_LOOK_SECONDS)  # what another run had becomes free some time after its end
        asked = ", ".join(f"{need:g} {name}" for name, need in self.needs.items()) or "nothing"
        there = f"there is room for {room}" if room < self.count else f"others leave room for {free}"
        raise FailedPreconditionError(
            f"workers: expected room for {self.count} of {asked} each in {where}, and {there}: ask for fewer workers, "
            f"or smaller ones (num_cpus, num_gpus, resources), or add {more}"
        )

    def _room(self, places: Sequence[Mapping[str, float]]) -> float:
        each = [[int(has.get(name, 0) / need + 1e-9) for name, need in self.needs.items()] for has in places]
        return sum(min(counts, default=math.inf) for counts in each)

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
            handles = [made.remote(name, number, pickled) for number, name in enumerate(names)]
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(f"placement: {error}") from error
        for handle in handles:
            handle.open.remote()  # all at once; each is waited for later
        return handles


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingExtraError.of("ray", "ray") from None
    return ray


async def _disconnect(in_thread: Runner, run: int) -> None:
    def disconnect() -> None:
        with _connecting:
            if run in _connected:
                _connected.remove(run)
                if not _connected:
                    _ray().shutdown()

    with trio.CancelScope(shield=True, deadline=trio.current_time() + _START_SECONDS):
        await in_thread(disconnect)


def _places(placement: Any) -> tuple[str, str, list[Mapping[str, float]], list[Mapping[str, float]]]:
    """Return where workers are to be, what else there could be, and what each place there has, in all and free."""
    group = getattr(placement, "placement_group", None)
    if (bundles := getattr(group, "bundle_specs", None)) is not None:  # the group may be a word, too
        index = placement.placement_group_bundle_index
        bundles = bundles if index < 0 else bundles[index : index + 1]
        # What others have of the group is not looked at, nor whether it has its place yet.
        return "the placement group", "bundles to it", bundles, bundles
    # With a NodeAffinitySchedulingStrategy that is not soft. Labels of nodes are not looked at.
    only = None if getattr(placement, "soft", True) else getattr(placement, "node_id", None)
    nodes = [node for node in _ray().nodes() if node["Alive"] and only in (None, node["NodeID"])]
    room = [node["Resources"] for node in nodes]
    try:
        # Openly Ray only offers the sum of what is free over all nodes.
        from ray._private.state import available_resources_per_node
    except ImportError:  # in another version
        free = room
    else:
        by_node = available_resources_per_node()
        free = [by_node.get(node["NodeID"], {}) for node in nodes]
    return "the Ray cluster" if only is None else "that node", "nodes", room, free


def _pickled(casting: Casting) -> bytes:
    """Return what the workers are given.

    Raises:
        InvalidArgumentError: a part of it cannot be pickled; the text names it.
    """
    from ray import cloudpickle

    for name, value in ((one.name, getattr(casting, one.name)) for one in fields(casting)):
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


class _WorkerSite:
    """A `Site`: a worker, which may be another process than a moment ago.

    Attributes:
        name: of the worker.
    """

    def __init__(self, name: str, handle: Any) -> None:
        self.name = name
        self._handle = handle
        #: It has answered, and Ray has said nothing else since.
        self._up = trio.Event()
        #: Of the trials that it has been given, or will be: who hears of them.
        self._trials: dict[str, trio.MemorySendChannel[Told]] = {}
        self._to_give: list[Task] = []
        #: How many calls are at the worker, and how many of its news have been heard.
        self._calls = self._heard = 0
        #: There are trials to give, or there is no call at the worker.
        self._due = trio.Event()
        self._due.set()
        self._turn = trio.Lock()

    async def _call(self, method: str, *args: Any) -> Any:
        """Call the worker.

        Raises:
            UnavailableError: it is gone, or the call has failed there.
        """
        try:
            return await result_of(getattr(self._handle, method).remote(*args).future())
        except Exception as error:  # whatever Ray raises
            # In one line: Ray's errors have the tracebacks and pids of several processes.
            cause = getattr(error, "cause", None)
            told = cause if isinstance(cause, BaseException) else error
            first, *_ = str(told).strip().splitlines() or [""]
            raise UnavailableError(f"{type(told).__name__}: {first}") from error

    async def _opened(self) -> tuple[str, ...]:
        found: tuple[str, ...] | CogmentError = await self._call("open")
        if isinstance(found, CogmentError):
            raise found
        self._up.set()
        return found

    async def start(self) -> tuple[str, ...]:
        """Wait until the worker is there; return the names of the trials' actors.

        Raises:
            FailedPreconditionError: it does not come, or cannot start what it was given.
        """
        with trio.move_on_after(_START_SECONDS):
            while True:
                try:
                    return await self._opened()
                except UnavailableError as error:
                    _log.warning("%s: %s", self.name, error)
                await trio.sleep(_LOOK_SECONDS)
        raise FailedPreconditionError(
            f"{self.name}: expected it to start within {_START_SECONDS:g} s: the cluster may have no room for it, or "
            "its nodes cannot import what it needs; `ray status` and the logs of Ray tell more"
        )

    async def probe(self) -> None:
        """See `Site.probe`."""
        await self._opened()

    async def attempt(self, task: Task, started: Started) -> Attempt:
        """See `Site.attempt`."""
        if not self._up.is_set():
            return self._failed(task, "it is being started again", Verdict.NOT_STARTED)
        hear, heard = trio.open_memory_channel[Told](math.inf)
        self._trials[task.trial_id] = hear
        self._to_give.append(task)
        self._due.set()
        limit = task.timeout_seconds + _HUNG_SECONDS
        lost = Verdict.IN_DOUBT
        try:
            with trio.move_on_after(limit):
                while (told := await heard.receive()) is None:
                    lost = Verdict.SITE_LOST
                    await started()
                return told if isinstance(told, Attempt) else self._failed(task, f"the trial was lost: {told}", lost)
        finally:
            self._trials.pop(task.trial_id, None)
        # It would have ended the trial by itself, long ago: Ray is to start another process.
        why = f"no answer within {limit:g} s"
        self._lose(UnavailableError(why))
        _ray().kill(self._handle, no_restart=False)
        return self._failed(task, f"the trial was lost: {why}", Verdict.SITE_LOST)

    def _failed(self, task: Task, why: str, verdict: Verdict) -> Attempt:
        return Attempt.failed(task, self.name, f"{self.name}: {why}", verdict)

    def _lose(self, error: UnavailableError) -> None:
        """Ray has said that the worker is gone, or something else that tells nothing of its trials."""
        if self._up.is_set():
            self._up = trio.Event()
        self._heard = 0
        self._tell([(trial_id, str(error)) for trial_id in self._trials])

    def _tell(self, news: Iterable[tuple[str, Told]]) -> None:
        for trial_id, told in news:
            # Nothing follows how it ended, and nobody gives a trial that is lost.
            hear = self._trials.get(trial_id) if told is None else self._trials.pop(trial_id, None)
            if hear is not None:
                hear.send_nowait(told)

    async def talk(self) -> None:
        """Give trials to the worker, and hear of them, for as long as the run lasts. Two tasks do it by turns.

        One call takes along all trials that are to begin, and waits at the worker for news. Another one is made when
        it has returned, or at once if there are more trials; then the first one returns, without news.
        """
        while True:
            async with self._turn:
                await self._up.wait()
                await self._due.wait()
                await trio.sleep(_GATHER_SECONDS)
                if not self._up.is_set():
                    continue
                self._due = trio.Event()
                up, self._calls = self._up, self._calls + 1
                tasks, self._to_give = [task for task in self._to_give if task.trial_id in self._trials], []
            try:
                reply = await self._call("exchange", self._heard, pickle.dumps(tasks))
            except UnavailableError as error:
                if self._up is up:  # or the other call has told it
                    self._lose(error)
            else:
                if self._up is up:
                    first, news = pickle.loads(reply)
                    # The other call may have returned before with some of them.
                    self._tell(news[max(0, self._heard - first) :])
                    self._heard = max(self._heard, first + len(news))
            self._calls -= 1
            if not self._calls:
                self._due.set()

    async def end_trials(self, *, hard: bool) -> None:
        """See `Site.end_trials`."""
        tasks, self._to_give = self._to_give, []
        self._tell((task.trial_id, self._failed(task, "it was not begun", Verdict.NOT_STARTED)) for task in tasks)
        if self._trials and self._up.is_set():
            await self._call("end_trials", hard)

    async def stop(self) -> None:
        """Let the worker close its platform, with all that its participants have to do at the end."""
        with suppress(UnavailableError):  # it is gone
            await self._call("stop")
