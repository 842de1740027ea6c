"""Workers as sites of a run: started for it, told what to play, heard, and ended. The process of the run has this."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import trio

from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError, MissingExtraError
from trio_cogment.base.host import Host, Runner
from trio_cogment.ray._worker import Worker
from trio_cogment.rl.datasets.sources import open_source
from trio_cogment.rl.runner.orchestrators import is_endpoint
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
from trio_cogment.sdk import DatastoreClient, connect

#: How long workers may take to start, on machines where nothing of the package is in memory.
_START_SECONDS = 120.0
#: How long a worker that has failed may take to answer; it is asked again.
_PROBE_SECONDS = 10.0
#: How long a worker may take to close its platform, before it is killed.
_STOP_SECONDS = 10.0
#: How long a worker may take longer for a trial than the trial may: the whole process stands still then.
_HUNG_SECONDS = 30.0
#: So long a worker gathers which trials have begun.
_NEWS_SECONDS = 0.2
#: How often to look for room that others hold, or for a worker, and how often at most for room.
_LOOK_SECONDS = 0.5
_ROOM_LOOKS = 20
#: Trials of a worker at the same time, each with a thread that waits for it; more of them wait until one has ended.
_MAX_TRIALS = 256
#: Calls that are no trials have threads of their own, so that none of them waits for trials.
_CONTROL = "control"

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
                f"or a storage such as postgresql://..., got {casting.store!r}"
            )
        pickled = _pickled(casting)
        in_thread = host.runner(1)
        names = [f"{name}/{number}" if name else f"worker {number}" for number in range(self.count)]
        async with AsyncExitStack() as stack:
            datastore = await _datastore(stack, casting, host)
            if not ray.is_initialized():
                await in_thread(self._connect)
                stack.push_async_callback(_disconnect, in_thread)
            await self._require_room(in_thread)
            actors = await in_thread(self._start, names, pickled, casting.parallel or self.count)
            sites = [_WorkerSite(name, actor) for name, actor in zip(names, actors, strict=True)]
            async with OwnNursery() as nursery:
                try:
                    await _start_all(sites)
                    for site in sites:
                        nursery.start_soon(site.listen, name=f"news of {site.name}")
                    yield OpenSites(sites[0].actors, sites, datastore)
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
        try:
            _ray().init(address=address, include_dashboard=None if address != "local" else False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise FailedPreconditionError(f"address: expected a Ray cluster at {address!r}: {error}") from error

    async def _require_room(self, in_thread: Runner) -> None:
        """Raise if the workers do not fit: Ray would let them wait for ever."""
        ray = _ray()
        if not isinstance(self.placement, str):
            return  # a placement group has reserved what it needs
        nodes = [node["Resources"] for node in await in_thread(ray.nodes) if node["Alive"]]
        self._check(self._room(nodes), "there is room for")
        free = 0
        for _ in range(_ROOM_LOOKS):
            # What another run had becomes free some time after its end.
            free = self._room([await in_thread(ray.available_resources)])
            if free >= self.count:
                return
            await trio.sleep(_LOOK_SECONDS)
        self._check(free, "others leave room for")

    def _room(self, nodes: Sequence[Mapping[str, float]]) -> int:
        if not self.needs:
            return self.count
        return sum(min(int(has.get(name, 0) / need + 1e-9) for name, need in self.needs.items()) for has in nodes)

    def _check(self, room: int, words: str) -> None:
        if room < self.count:
            asked = ", ".join(f"{need:g} {name}" for name, need in self.needs.items())
            raise FailedPreconditionError(
                f"workers: expected room for {self.count} of {asked} each in the Ray cluster, and {words} {room}: ask "
                "for fewer workers, or smaller ones (num_cpus, num_gpus, resources), or add nodes"
            )

    def _start(self, names: list[str], pickled: bytes, parallel: int) -> list[Any]:
        needs = dict(self.needs)
        options = {
            "num_cpus": needs.pop("CPU", 0),
            "num_gpus": needs.pop("GPU", 0),
            "resources": needs or None,
            "scheduling_strategy": self.placement,
            "max_restarts": -1,
            "max_task_retries": 0,
            "max_concurrency": min(parallel, _MAX_TRIALS),
            "concurrency_groups": {_CONTROL: 4},
        }
        try:
            made = _ray().remote(**options)(Worker)
            return [made.remote(name, number, pickled) for number, name in enumerate(names)]
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(f"placement: {error}") from error


async def _start_all(sites: Sequence[_WorkerSite]) -> None:
    try:
        async with trio.open_nursery() as nursery:
            for site in sites:
                nursery.start_soon(site.start)
    except ExceptionGroup as group:
        # Most likely all of them fail alike.
        raise group.exceptions[0] from None


async def _disconnect(in_thread: Runner) -> None:
    with trio.CancelScope(shield=True, deadline=trio.current_time() + _START_SECONDS):
        await in_thread(_ray().shutdown)


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingExtraError.of("ray", "ray") from None
    return ray


async def _datastore(stack: AsyncExitStack, casting: Casting, host: Host) -> DatastoreClient | None:
    """Return a client of the store, if the run has a name and may have been there."""
    if casting.store is None or not casting.name:
        return None
    if is_endpoint(casting.store):
        client = await stack.enter_async_context(connect(casting.store, host=host))
        return await client.datastore()
    return await stack.enter_async_context(open_source(casting.store))


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


class _Call:
    """A call of a worker, and its result, without a thread that waits for it.

    Args:
        reference: of the result.

    Attributes:
        begun: the worker has said that the trial has begun.
        over: there is a result, or an error.
    """

    def __init__(self, reference: Any) -> None:
        self.begun = self.over = False
        self._changed = trio.Event()
        self._future = reference.future()
        token = trio.lowlevel.current_trio_token()

        def done(_future: Any) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._end)

        self._future.add_done_callback(done)

    def begin(self) -> None:
        self.begun = True
        self._changed.set()

    def _end(self) -> None:
        self.over = True
        self._changed.set()

    async def change(self) -> None:
        """Wait until it has begun, or is over."""
        await self._changed.wait()
        self._changed = trio.Event()

    async def result(self) -> Any:
        """Return the result, or raise whatever Ray or the worker raised."""
        while not self.over:
            await self.change()
        return self._future.result()


class _WorkerSite:
    """A `Site`: a worker, which may be another process than a moment ago.

    Attributes:
        name: of the worker.
        handle: what Ray knows it by.
        actors: of the trials, when it has started.
    """

    def __init__(self, name: str, handle: Any) -> None:
        self.name = name
        self.handle = handle
        self.actors: tuple[str, ...] = ()
        #: It has answered, and Ray has said nothing else since.
        self._up = trio.Event()
        self._calls: dict[str, _Call] = {}

    async def start(self) -> None:
        """Wait until the worker is there.

        Raises:
            FailedPreconditionError: it does not come, or cannot start what it was given.
        """
        with trio.move_on_after(_START_SECONDS):
            while True:
                try:
                    self.actors = await self._opened()
                except SiteDownError as error:
                    _log.warning("%s", error)
                    await trio.sleep(_LOOK_SECONDS)
                else:
                    return
        raise FailedPreconditionError(
            f"{self.name}: expected it to start within {_START_SECONDS:g} s: the cluster may have no room for it, or "
            "its nodes cannot import what it needs; `ray status` and the logs of Ray tell more"
        )

    async def _opened(self) -> tuple[str, ...]:
        try:
            found = await _Call(self._control(self.handle.open)).result()
        except Exception as error:
            raise SiteDownError(f"{self.name}: {_words(error)}") from error
        if isinstance(found, CogmentError):
            raise found
        self._up.set()
        actors: tuple[str, ...] = found
        return actors

    def _control(self, method: Any, *arguments: Any) -> Any:
        return method.options(concurrency_group=_CONTROL).remote(*arguments)

    async def probe(self) -> None:
        """See `Site.probe`."""
        with trio.move_on_after(_PROBE_SECONDS):
            try:
                await self._opened()
            except SiteDownError:
                raise
            except CogmentError as error:
                raise SiteDownError(f"{self.name}: {error}") from error
            return
        raise SiteDownError(f"{self.name}: no answer within {_PROBE_SECONDS:g} s")

    async def attempt(self, task: Task, started: Started) -> Attempt:
        """See `Site.attempt`."""
        result = TrialResult(task.index, task.trial_id, task.seed, self.name)
        if not self._up.is_set():
            return Attempt(replace(result, error=f"{self.name}: it is being started again"), Verdict.NOT_STARTED)
        # Plain values: Ray does not pickle them.
        played = self.handle.play.remote(task.index, task.seed, task.trial_id, task.timeout_seconds)
        call = self._calls[task.trial_id] = _Call(played)
        limit = task.timeout_seconds + _HUNG_SECONDS
        told = False
        try:
            with trio.move_on_after(limit):
                await call.change()
                if not call.over:
                    told = True
                    await started()
                try:
                    attempt: Attempt = pickle.loads(await call.result())
                except Exception as error:  # noqa: BLE001  whatever Ray raises, or the worker
                    return self._lost(result, _words(error), begun=call.begun)
                if not told and attempt.verdict is not Verdict.NOT_STARTED:
                    await started()
                return attempt
        finally:
            del self._calls[task.trial_id]
        # It would have ended the trial by itself, long ago: Ray is to start another process.
        _ray().kill(self.handle, no_restart=False)
        return self._lost(result, f"no answer within {limit:g} s", begun=True)

    def _lost(self, result: TrialResult, why: str, *, begun: bool) -> Attempt:
        self._down()
        text = f"{self.name}: the trial was lost: {why}"
        return Attempt(replace(result, error=text), Verdict.SITE_LOST if begun else Verdict.IN_DOUBT)

    def _down(self) -> None:
        if self._up.is_set():
            self._up = trio.Event()

    async def listen(self) -> None:
        """Hear which trials have begun, for as long as the run lasts."""
        while True:
            await self._up.wait()
            try:
                begun: list[str] = await _Call(self._control(self.handle.news)).result()
            except Exception:  # noqa: BLE001  whatever Ray raises; the next attempt tells more
                self._down()
                continue
            for trial_id in begun:
                if trial_id in self._calls:
                    self._calls[trial_id].begin()
            await trio.sleep(_NEWS_SECONDS)

    async def end_trials(self, *, hard: bool) -> None:
        """See `Site.end_trials`."""
        if self._calls and self._up.is_set():
            with trio.move_on_after(_STOP_SECONDS):
                try:
                    await _Call(self._control(self.handle.end_trials, hard)).result()
                except Exception as error:  # noqa: BLE001  whatever Ray raises
                    _log.warning("%s: its trials cannot be ended: %s", self.name, _words(error))

    async def stop(self) -> None:
        """Let the worker close its platform, with all that its participants have to do at the end."""
        with suppress(Exception):  # it is gone
            await _Call(self._control(self.handle.stop)).result()


def _words(error: BaseException) -> str:
    """Return what happened in one line: Ray's errors have the tracebacks and pids of several processes."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return f"{type(cause).__name__}: {cause}"
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
