"""`export` and `read_steps`: stored trials as a data set, streamed, and as tables.

What an export holds in memory does not depend on how many samples there are; for Minari it is the longest trial.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial as bound
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import trio

from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.errors import InvalidArgumentError, LocalProtocolError, NotFoundError, TrialIncompleteError
from trio_cogment.base.host import Host
from trio_cogment.base.object_store import is_object_url
from trio_cogment.rl.datasets.payloads import Payloads, payloads_of
from trio_cogment.rl.datasets.placing import put_in_place
from trio_cogment.rl.datasets.sources import Source, open_storage
from trio_cogment.rl.datasets.step_columns import ColumnBuilder
from trio_cogment.rl.datasets.steps import StepBuilder
from trio_cogment.rl.datasets.ticks import tick_of
from trio_cogment.rl.datasets.trials import TrialRecord, Writer, environment_of
from trio_cogment.rl.progress import BarState, shown
from trio_cogment.sdk import DatastoreClient, StoredSample, StoredTrial
from trio_cogment.sdk.spec import Spec
from trio_cogment.servers.datastore import storage
from trio_cogment.servers.datastore.columns import Page, TrialPages, pages
from trio_cogment.servers.datastore.storage import TrialEnd, TrialStore

#: Samples go to the worker thread together: this many, or about this many bytes.
_CHUNK_SAMPLES = 256
_CHUNK_BYTES = 4 * 1024 * 1024
#: As many trials are looked up at a time.
_TRIALS = 64
#: How arrays of a data set of Parquet may be written.
_TENSORS = ("fixed_size_list", "fixed_shape_tensor")
#: How many trial ids an error text names at most.
_NAMED = 10


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """How far an export is.

    Attributes:
        trials: how many trials are written.
        samples: how many samples (ticks) are written.
        total_trials: how many there are to write.
        total_samples: how many samples there are to write, those that the datastore had to drop included.
    """

    trials: int
    samples: int
    total_trials: int
    total_samples: int


@dataclass(slots=True)
class Exported:
    """What an export has written.

    Attributes:
        trials: how many trials.
        samples: how many samples (ticks).
        steps: how many steps of actors: rows with a reward.
        parquet: the folder, or the address in a bucket; None if none was asked for.
        chat: the folder of the chats; None if none was asked for.
        minari: the ids of the data sets; the first one of an environment is of its only actor, or of all together.
        skipped: the ids of the trials that still run, or have no samples.
    """

    trials: int = 0
    samples: int = 0
    steps: int = 0
    parquet: Path | str | None = None
    chat: Path | None = None
    minari: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


async def export_async(
    source: Source,
    *,
    parquet: str | os.PathLike[str] | None = None,
    minari: str | None = None,
    chat: str | os.PathLike[str] | None = None,
    chat_tools: bool = False,
    trials: Collection[str] | None = None,
    properties: Mapping[str, str] | None = None,
    spec: Spec | None = None,
    partial: bool = False,
    overwrite: bool = False,
    tensors: Literal["fixed_size_list", "fixed_shape_tensor"] = "fixed_size_list",
    minari_metadata: Mapping[str, Any] | None = None,
    progress: bool | Callable[[ExportProgress], None] | None = False,
    host: Host | None = None,
) -> Exported:
    """Write stored trials as a data set, in a program that runs Trio.

    A data set appears when it is whole. If this raises, or is cancelled, nothing is written, and a data set that was
    to be replaced is still there. A cancellation waits until the samples in hand are written (at most 4096).

    Args:
        source: where the trials are; see `sources.open_storage`.
        parquet: the folder of a data set of Parquet files, or a prefix of a bucket, `s3://bucket/prefix`; needs the
            extra `export`, and `s3` for a bucket.
        minari: the id of a data set of Minari, such as `rps/duel-v0`; needs the extra `minari`. If the trials are of
            several environments, each has data sets of its own, such as `rps/CartPole-v1/duel-v0`.
        chat: a folder for the trials as chats, one row for each actor of a trial (`messages`, `rewards`), as models of
            language learn from them; see docs/rl-language-models.md.
        chat_tools: an action in these chats is a call of the tool `act` of `environment_factory`, and what comes of it
            the tool's answer; the column `tools` describes it.
        trials: the ids of the trials; None: all.
        properties: only trials that have all of these properties.
        spec: the types of the project, for trials whose observations are not `trio_cogment.spaces.Observation`.
        partial: also trials that still run, as if they had been cut off with their newest sample.
        overwrite: replace a data set that is there.
        tensors: Arrow's type of arrays in Parquet: nested lists of a fixed size, which most readers give back with
            their shape, or `fixed_shape_tensor`, as PyArrow and Ray Data read arrays without copying; see
            docs/rl-datasets.md for what each reader makes of them. With the second, PyArrow 26 or newer.
        minari_metadata: what else to say of a data set of Minari: `author`, `author_email`, `algorithm_name`,
            `code_permalink`, `description`, `requirements`, as `minari.create_dataset_from_buffers` takes them.
        progress: True for a bar, if stderr is a terminal; or a function, which is called now and then.
        host: runs what blocks; by default in a worker thread.

    Raises:
        MissingExtraError: an extra is missing; the text has the command that installs it.
        InvalidArgumentError: there is neither `parquet` nor `minari` nor `chat`, or an argument is wrong.
        NotFoundError: there is no such trial, or there are none at all.
        TrialIncompleteError: a trial that is named still runs.
        AlreadyExistsError: there is such a data set.
        SpaceError: something does not fit into the data set: the text names trial, tick, actor and part.
        RpcError: the datastore cannot be reached, or refuses.
    """
    if parquet is None and minari is None and chat is None:
        raise InvalidArgumentError("export: expected a folder for parquet, an id for minari, or a folder for chat")
    if chat_tools and chat is None:
        raise InvalidArgumentError("export: chat_tools: expected a folder for chat, too")
    as_tensors = _as_tensors(tensors)
    run = (host or Host()).runner(1)
    writers: list[Writer] = []
    result = Exported()
    with shown(progress, _bar_of) as show:
        try:
            async with open_storage(source, spec=spec) as (client, store):
                plan = await _plan(client, trials, properties, partial)
                result.skipped = plan.skipped
                if is_object_url(parquet):
                    from trio_cogment.rl.datasets.bucket import BucketWriter

                    result.parquet = parquet
                    writers.append(await run(bound(BucketWriter, parquet, overwrite=overwrite, tensors=as_tensors)))
                elif parquet is not None:
                    from trio_cogment.rl.datasets.parquet import ParquetWriter

                    result.parquet = Path(parquet)
                    writers.append(await run(bound(ParquetWriter, parquet, overwrite=overwrite, tensors=as_tensors)))
                if minari is not None:
                    from trio_cogment.rl.datasets.minari import MinariWriter

                    opened = bound(MinariWriter, minari, environments=plan.environments, metadata=minari_metadata)
                    files = await run(bound(opened, overwrite=overwrite))
                    writers.append(files)
                    result.minari = files.ids
                if chat is not None:
                    from trio_cogment.rl.datasets.chat import ChatWriter

                    result.chat = Path(chat)
                    writers.append(await run(bound(ChatWriter, chat, overwrite=overwrite, tools=chat_tools)))
                    store = None  # chats are made of steps, not of columns
                one = _Export(writers, spec, result, plan, show, store)
                await one.take_all(client, trials, properties, partial, run)
            placements = [placement for writer in writers for placement in await run(writer.finish)]
            # In one call: no cancellation can come in between.
            await run(put_in_place, placements)
        finally:
            # No deadline: a thread cannot be left alone while it removes files.
            with trio.CancelScope(shield=True):
                for writer in writers:
                    await run(writer.close)
    return result


async def read_steps_async(
    source: Source,
    *,
    trials: Collection[str] | None = None,
    properties: Mapping[str, str] | None = None,
    spec: Spec | None = None,
    partial: bool = False,
    tensors: Literal["fixed_size_list", "fixed_shape_tensor"] = "fixed_size_list",
    host: Host | None = None,
) -> dict[str, Any]:
    """Return the steps of stored trials as tables of PyArrow, in a program that runs Trio; nothing is written.

    The tables are those of a data set of Parquet files, with the same columns. All of them are held in memory.

    Args:
        source: see `export_async`, as the others.
        trials: see above.
        properties: see above.
        spec: see above.
        partial: see above.
        tensors: see above.
        host: see above.

    Returns:
        A table by the name of its group: "default", if all actors have observations and actions of one form.

    Raises:
        MissingExtraError: an extra is missing; the text has the command that installs it.
        CogmentError: see `export_async`.
    """
    from trio_cogment.rl.datasets.step_groups import TableWriter

    writer = TableWriter(tensors=_as_tensors(tensors))
    run = (host or Host()).runner(1)
    async with open_storage(source, spec=spec) as (client, store):
        plan = await _plan(client, trials, properties, partial)
        one = _Export([writer], spec, Exported(), plan, lambda _progress: None, store)
        await one.take_all(client, trials, properties, partial, run)
    found: dict[str, Any] = await run(writer.tables)
    return found


def read_steps(source: Source, **options: Any) -> dict[str, Any]:
    """Return the steps of stored trials as tables of PyArrow, in a script or a notebook; see `read_steps_async`.

    Raises:
        LocalProtocolError: see `export`.
        CogmentError: see `export_async`.
    """
    _check_outside("read_steps")
    return trio.run(bound(read_steps_async, source, **options))


def export(source: Source, **options: Any) -> Exported:
    """Write stored trials as a data set, in a script or a notebook; the arguments are those of `export_async`.

    Raises:
        LocalProtocolError: Trio runs in this thread: `export_async` can be awaited there; or a view is open.
        CogmentError: see `export_async`.
    """
    _check_outside("export")
    return trio.run(bound(export_async, source, **options))


def _check_outside(name: str) -> None:
    if trio.lowlevel.in_trio_run() and not trio.lowlevel.in_trio_task():  # Trio is a guest here, as for a view
        raise LocalProtocolError(f"{name}: a view is open in this thread; close it (env.close()) first")
    if trio.lowlevel.in_trio_run():
        raise LocalProtocolError(f"{name}: expected it outside of Trio; within, await {name}_async(...)")


def _as_tensors(tensors: str) -> bool:
    if tensors not in _TENSORS:
        raise InvalidArgumentError(f"tensors: expected one of {', '.join(_TENSORS)}, got {tensors!r}")
    return tensors == "fixed_shape_tensor"


@dataclass(slots=True)
class _Plan:
    """What there is to write."""

    trials: int = 0
    samples: int = 0
    skipped: list[str] = field(default_factory=list)
    environments: dict[str, None] = field(default_factory=dict)


async def _plan(
    client: DatastoreClient, trials: Collection[str] | None, properties: Mapping[str, str] | None, partial: bool
) -> _Plan:
    plan = _Plan()
    found: set[str] = set()
    async with aclosing(client.all_trials(trials, properties=properties)) as stored:
        async for trial in stored:
            if trials is not None:
                found.add(trial.trial_id)
            if _is_ready(trial, partial):
                plan.environments.setdefault(environment_of(trial))
                plan.trials += 1
                plan.samples += trial.samples_count
            elif trials is not None and not (trial.ended or partial):
                raise TrialIncompleteError(
                    f"trial {trial.trial_id!r} has not ended: partial=True writes the samples that there are"
                )
            else:
                plan.skipped.append(trial.trial_id)
    missing = [trial_id for trial_id in trials or () if trial_id not in found]
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise NotFoundError(f"trials: {', '.join(map(repr, missing[:_NAMED]))}{more}: not in the datastore")
    if not plan.trials:
        raise NotFoundError("trials: there is none that has ended and has samples")
    return plan


def _is_ready(trial: StoredTrial, partial: bool) -> bool:
    return trial.samples_count > 0 and (partial or trial.ended)


class _Export:
    """An export that is under way."""

    def __init__(
        self,
        writers: Sequence[Writer],
        spec: Spec | None,
        result: Exported,
        plan: _Plan,
        show: Callable[[ExportProgress], None],
        store: TrialStore | None,
    ) -> None:
        self._store = store
        self._writers = writers
        self._spec = spec
        self._result = result
        self._plan = plan
        self._show = show

    async def take_all(
        self,
        client: DatastoreClient,
        trials: Collection[str] | None,
        properties: Mapping[str, str] | None,
        partial: bool,
        run: Any,
    ) -> None:
        """Write all trials of the plan that are there still."""
        # Once more and page by page, not kept from the plan: a datastore that runs deletes trials meanwhile.
        async with aclosing(client.all_trials(trials, properties=properties)) as stored:
            some: list[StoredTrial] = []
            async for trial in stored:
                if _is_ready(trial, partial):
                    some.append(trial)
                if len(some) == _TRIALS:
                    await self._take_some(client, some, run)
                    some = []
            await self._take_some(client, some, run)

    async def _take_some(self, client: DatastoreClient, trials: Sequence[StoredTrial], run: Any) -> None:
        """Write trials: those that can be read from their storage together, the others one by one."""
        found = await self._found(trials)
        for in_storage, some in groupby(trials, lambda trial: trial.trial_id in found):
            if in_storage:
                await self._take_pages(list(some), found, run)
            else:
                for trial in some:
                    await self._take(client, trial, run)

    async def _take(self, client: DatastoreClient, stored: StoredTrial, run: Any) -> None:
        """Write one trial, whose samples are asked for by calls."""
        trial, builder = await run(self._begin, stored)
        chunk: list[StoredSample] = []
        size = 0
        async with client.samples(stored, partial=True) as samples:
            async for sample in samples:
                chunk.append(sample)
                size += sample.message.ByteSize()
                if len(chunk) >= _CHUNK_SAMPLES or size >= _CHUNK_BYTES:
                    await run(self._feed, builder, chunk)
                    chunk, size = [], 0
                    self._report()
        await run(self._end, builder, chunk, trial)
        self._report()

    async def _take_pages(
        self, trials: Sequence[StoredTrial], found: Mapping[str, storage.StoredTrial], run: Any
    ) -> None:
        """Write trials page by page: several short ones in a single call, which costs as much as some hundred steps."""
        assert self._store is not None
        under_way: tuple[TrialRecord, StepBuilder, ColumnBuilder] | None = None

        def take(read: Sequence[TrialPages]) -> None:
            nonlocal under_way
            for place, opened, last in read:
                if under_way is None:
                    begun, steps = self._begin(trials[place])
                    under_way = begun, steps, ColumnBuilder(steps, begun.stored)
                trial, builder, columns = under_way
                for page in opened():
                    self._feed_page(builder, columns, page, trial.stored)
                if last:
                    self._end(builder, [], trial)
                    under_way = None

        async with aclosing(pages(self._store, [found[trial.trial_id] for trial in trials])) as several:
            async for read in several:
                await run(take, read)
                self._report()

    async def _found(self, trials: Sequence[StoredTrial]) -> dict[str, storage.StoredTrial]:
        """Return the trials that can be read from their storage, by their ids; the others are asked for by calls."""
        ended = [trial.trial_id for trial in trials if trial.ended]
        if self._store is None or not ended:
            return {}
        found = await self._store.trials(after=0, limit=len(ended), ids=ended)
        # Of one whose samples were dropped, or that is gone, a call says so.
        return {trial.trial_id: trial for trial in found if not trial.evicted and trial.end is not TrialEnd.OPEN}

    def _feed_page(self, builder: StepBuilder, columns: ColumnBuilder, page: Page, trial: StoredTrial) -> None:
        """Take a page, of which what looks alike is taken as columns."""
        spec = self._spec or Spec()

        def feed(start: int, stop: int) -> None:
            messages = map(StoredTrialSample.FromString, page.data(start, stop))
            self._feed(builder, [StoredSample(message, trial, spec) for message in messages])

        for run in page.runs():
            found = columns.take(run)
            if found is None and run.sample is not None:
                # What does not follow the sample before it may follow its own first one.
                feed(run.start, run.start + 1)
                run.skip_first()
                found = columns.take(run)
            if found is None:
                feed(run.start, run.stop)
                continue
            before, steps = found
            self._add(before)
            for writer in self._writers:
                writer.add_columns(steps)
            self._result.steps += sum(map(len, steps))
            self._result.samples += run.stop - run.start

    def _begin(self, stored: StoredTrial) -> tuple[TrialRecord, StepBuilder]:
        trial = TrialRecord.of(stored, self._result.trials)

        def reader_of(name: str, first: bytes) -> Payloads:
            return payloads_of(name, trial.actors[name].actor_class, first, self._spec)

        for writer in self._writers:
            writer.begin(trial)
        return trial, StepBuilder(reader_of, stored.trial_id)

    def _feed(self, builder: StepBuilder, chunk: Sequence[StoredSample]) -> None:
        for sample in chunk:
            steps = builder.feed(tick_of(sample))
            self._add(steps)
        self._result.samples += len(chunk)

    def _end(self, builder: StepBuilder, chunk: Sequence[StoredSample], trial: TrialRecord) -> None:
        self._feed(builder, chunk)
        self._add(builder.finish(environment_ended=trial.environment_ended))
        for writer in self._writers:
            writer.end()
        self._result.trials += 1

    def _add(self, steps: list[Any]) -> None:
        self._result.steps += sum(step.reward is not None for step in steps)
        for writer in self._writers:
            writer.add(steps)

    def _report(self) -> None:
        done = self._result
        # More may have come since they were counted.
        totals = max(done.trials, self._plan.trials), max(done.samples, self._plan.samples)
        self._show(ExportProgress(done.trials, done.samples, *totals))


def _bar_of(progress: ExportProgress) -> BarState:
    return BarState("ticks", progress.samples, progress.total_samples)
