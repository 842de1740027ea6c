"""A client of the trial datastore: trials as objects, and samples as asynchronous iterators."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TypeAlias

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.trial_datastore_pb2 import (
    AddSampleRequest,
    AddTrialRequest,
    DeleteTrialsRequest,
    RetrieveSamplesRequest,
    RetrieveTrialsReply,
    RetrieveTrialsRequest,
    StoredTrialSample,
    StoredTrialSampleField,
)
from trio_cogment.base.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    RpcError,
    StatusCode,
    TrialIncompleteError,
)
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.base.taking_up import branch_of
from trio_cogment.rpc import CallOpener, ClientCall, methods_of
from trio_cogment.sdk._stored import StoredSample, StoredTrial
from trio_cogment.sdk.spec import Spec

_DATASTORE = methods_of(SERVICES[ServiceKind.DATASTORE].descriptor())

#: A datastore of this project may put so many samples into a reply, which saves half of their cost.
_REPLY_SAMPLES = 256
#: How many trials are requested at a time.
_PAGE = 100

#: The fields of samples that can be selected, and their numbers in the API.
FIELDS = {
    "observation": StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_OBSERVATION,
    "action": StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_ACTION,
    "reward": StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_REWARD,
    "received_rewards": StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_RECEIVED_REWARDS,
    "sent_rewards": StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_SENT_REWARDS,
    "received_messages": StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_RECEIVED_MESSAGES,
    "sent_messages": StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_SENT_MESSAGES,
}

Trials: TypeAlias = str | StoredTrial | Iterable[str | StoredTrial]


class DatastoreClient:
    """A client of a trial datastore, in process or over the network.

    Args:
        opener: a channel to the datastore; for a platform with a store, `platform.channel`.
        spec: the types of observations and actions; without a spec they are bytes.

    Every method raises `RpcError` when the datastore refuses or cannot be reached.
    """

    def __init__(self, opener: CallOpener, *, spec: Spec | None = None) -> None:
        self._opener = opener
        self.spec = spec or Spec()

    async def trials(
        self,
        trial_ids: Collection[str] | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        wait_seconds: float = 0,
    ) -> list[StoredTrial]:
        """Return trials, in the order of their creation.

        Args:
            trial_ids: return only these, as far as they exist; None: all.
            properties: return only trials that have all of these properties, with equal values.
            wait_seconds: how long to wait for all of `trial_ids` to exist (with None: for any trial).
        """
        return [trial async for trial in self.all_trials(trial_ids, properties=properties, wait_seconds=wait_seconds)]

    async def all_trials(
        self,
        trial_ids: Collection[str] | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        wait_seconds: float = 0,
        page: int = _PAGE,
    ) -> AsyncGenerator[StoredTrial, None]:
        """Yield trials as `trials` returns them, requesting `page` of them at a time.

        If that many do not fit into a reply, fewer are requested.
        """
        wanted = math.inf if trial_ids is None else len(set(trial_ids))
        deadline = trio.current_time() + wait_seconds if wait_seconds else -math.inf
        if trial_ids is not None and wait_seconds:
            # The datastore ends its wait when as many trials exist as were requested.
            page = len(set(trial_ids))
        request = RetrieveTrialsRequest(trial_ids=trial_ids or (), properties=properties or {})
        while wanted:
            any_at_all = trial_ids is None and deadline > -math.inf
            request.trials_count = 1 if any_at_all else page
            request.timeout = round(max(0.0, deadline - trio.current_time()) * 1000)
            reply = await self.page_of_trials(request)
            for info in reply.trial_infos:
                yield StoredTrial.of(info)
            if len(reply.trial_infos) < request.trials_count:
                return
            request.trial_handle = reply.next_trial_handle
            wanted -= len(reply.trial_infos)
            if any_at_all:
                deadline = -math.inf
            else:
                page = request.trials_count

    async def page_of_trials(self, request: RetrieveTrialsRequest) -> RetrieveTrialsReply:
        """Return a page of trials as a message of the API.

        Args:
            request: the request; if the trials do not fit into a reply, its `trials_count` is lowered.
        """
        while True:
            try:
                reply: RetrieveTrialsReply = await self._opener.unary(_DATASTORE["RetrieveTrials"], request)
            except RpcError as error:
                if error.code is not StatusCode.RESOURCE_EXHAUSTED or request.trials_count <= 1:
                    raise
                request.trials_count //= 2
            else:
                return reply

    async def trial(self, trial_id: str) -> StoredTrial | None:
        """Return a trial; None if it does not exist."""
        found = await self.trials([trial_id])
        return found[0] if found else None

    def samples(
        self,
        trials: Trials,
        *,
        follow: bool = False,
        partial: bool = False,
        actor_names: Iterable[str] = (),
        actor_classes: Iterable[str] = (),
        actor_implementations: Iterable[str] = (),
        fields: Iterable[str] = (),
    ) -> SampleIterator:
        """Iterate over samples: `async for sample in store.samples(trial_id, follow=True)`.

        The samples of one trial come in order; those of several trials are interleaved in any order. To leave the loop
        early, use an `async with store.samples(...) as samples:` block, so that the call ends at once.

        Args:
            trials: one or more trials, by id or as `trials` returned them.
            follow: continue with samples that are stored later, until all of the trials have ended. Without it the
                trials must be complete (`StoredTrial.is_complete`), or the iteration raises `TrialIncompleteError`
                before the first sample.
            partial: accept trials that are not complete; the iteration ends with the samples that are stored when it
                begins.
            actor_names: return the data of these actors only; empty: of all.
            actor_classes: return the data of actors of these classes only; empty: of all.
            actor_implementations: return the data of actors with these implementations only; empty: of all.
            fields: return these fields only, keys of `FIELDS`; empty: all.

        Raises:
            InvalidArgumentError: a field does not exist.
        """
        request = RetrieveSamplesRequest(
            actor_names=actor_names, actor_classes=actor_classes, actor_implementations=actor_implementations
        )
        for name in fields:
            if name not in FIELDS:
                raise InvalidArgumentError(f"fields: expected some of {', '.join(FIELDS)}, got {name!r}")
            request.selected_sample_fields.append(FIELDS[name])
        chosen = [trials] if isinstance(trials, str | StoredTrial) else list(trials)
        request.trial_ids.extend(
            dict.fromkeys(trial.trial_id if isinstance(trial, StoredTrial) else trial for trial in chosen)
        )
        return SampleIterator(self, self._opener, request, follow=follow, partial=partial)

    async def samples_with_past(self, trial_id: str, *, partial: bool = False) -> AsyncGenerator[StoredSample, None]:
        """Yield the samples of a trial, after those that it has from the trial of which it is a branch, and so on.

        So every tick comes once, from the beginning; `StoredSample.trial` says whose it is. To leave the loop early,
        use `contextlib.aclosing`.

        Args:
            trial_id: of the trial; of one that is no branch come its own samples.
            partial: accept a trial that is not complete, as `samples` does. Of the others only what is needed counts.

        Raises:
            NotFoundError: one of the trials is not stored.
            TrialIncompleteError: the trial is not complete.
            DataLossError: a tick before a branch is not stored any more; the text names it.
        """
        lineage = [trial_id]
        ends: list[int | None] = [None]
        while True:
            trial = await self.trial(lineage[-1])
            found = None if trial is None else branch_of(trial.params.properties)
            if found is None or found[0] in lineage:
                break  # one that is not stored is named where its samples are asked for
            lineage.append(found[0])
            ends.append(found[1])
        expected = 0
        for name, end in zip(reversed(lineage), reversed(ends), strict=True):
            samples = self.samples(name, partial=partial or end is not None)
            try:
                async for sample in samples:
                    if end is not None and sample.tick_id >= end:
                        break
                    if end is not None and sample.tick_id != expected:
                        break
                    yield sample
                    expected = sample.tick_id + 1
            finally:
                samples.close()
            if end is not None and expected != end:
                raise DataLossError(f"trial {name!r}: tick {expected}: expected its sample, which is not stored")

    async def delete_trials(self, trial_ids: Iterable[str]) -> None:
        """Delete trials and their samples; unknown ids are ignored."""
        await self._opener.unary(_DATASTORE["DeleteTrials"], DeleteTrialsRequest(trial_ids=trial_ids))

    async def add_trial(self, trial_id: str, params: TrialParams, *, user_id: str = "trio-cogment") -> None:
        """Create a trial, or change its parameters and owner."""
        request = AddTrialRequest(user_id=user_id, trial_params=params)
        await self._opener.unary(_DATASTORE["AddTrial"], request, metadata=((TRIAL_ID, trial_id),))

    @asynccontextmanager
    async def adding(self, trial_id: str) -> AsyncIterator[SampleAdder]:
        """Add samples to a trial: `async with store.adding(trial_id) as adder: await adder.add(sample)`.

        When the block has been left without an exception, all samples are stored. After an exception or `Cancelled`
        some of them may be stored.
        """
        adder = await self.open_adder(trial_id)
        try:
            yield adder
            await adder.finish()
        finally:
            adder.cancel()

    async def open_adder(self, trial_id: str) -> SampleAdder:
        """Begin to add samples to a trial; the caller must call `finish` or `cancel`. See `adding`."""
        call = self._opener.call(_DATASTORE["AddSample"], metadata=((TRIAL_ID, trial_id),))
        return SampleAdder(await call.__aenter__())


class SampleAdder:
    """Adds samples to a trial; see `DatastoreClient.adding`."""

    def __init__(self, call: ClientCall) -> None:
        self._call = call

    async def add(self, sample: StoredTrialSample) -> None:
        """Send a sample; it replaces an existing sample of the same tick.

        Raises:
            RpcError: the datastore has refused a sample.
        """
        await self._call.send(AddSampleRequest(trial_sample=sample))

    async def finish(self) -> None:
        """Wait until all samples are stored.

        Raises:
            RpcError: not all samples were stored.
        """
        await self._call.done_sending()
        while await self._call.receive() is not None:
            pass

    def cancel(self) -> None:
        """End the call; unless `finish` has returned, some of the samples may be stored."""
        self._call.cancel()


def _check_complete(trials: Iterable[StoredTrial]) -> None:
    """Raise TrialIncompleteError if samples of some trial are not stored."""
    for trial in trials:
        if trial.is_complete:
            continue
        count = trial.samples_count
        stored = "1 sample is stored" if count == 1 else f"{count} samples are stored"
        if not trial.ended:
            text = (
                f"has not ended, {stored} so far: follow=True waits for the others, partial=True reads those there are"
            )
        elif trial.ended_abnormally:
            text = f"ended abnormally, its orchestrator went away: {stored}, and partial=True reads them"
        else:
            ticks = 0 if trial.outcome is None else trial.outcome.ticks
            lost = 0 if trial.outcome is None else trial.outcome.samples_lost
            what = "samples" if lost == 0 else "1 sample" if lost == 1 else f"{lost} samples"
            text = f"lost {what} on the way: {stored} of {ticks} ticks, and partial=True reads them"
        raise TrialIncompleteError(f"trial {trial.trial_id!r} {text}")


class SampleIterator:
    """An iteration over samples.

    It begins when its `async with` block is entered or, without one, when the first sample is requested. A deadline in
    effect at that time applies to the whole iteration. It ends with the last sample, with an error, or with `close`.

    Raises:
        NotFoundError: a trial does not exist.
        TrialIncompleteError: a trial is not complete; see `DatastoreClient.samples`.
    """

    def __init__(
        self,
        client: DatastoreClient,
        opener: CallOpener,
        request: RetrieveSamplesRequest,
        *,
        follow: bool,
        partial: bool,
    ) -> None:
        self._client = client
        self._opener = opener
        self._request = request
        self._follow = follow
        self._partial = partial
        self._call: ClientCall | None = None
        #: What the last reply has yet.
        self._further: Iterator[StoredTrialSample] = iter(())
        self._over = not request.trial_ids
        self._trials: dict[str, StoredTrial] = {}
        #: Without `follow`: how many samples of each trial are still to come.
        self._left: dict[str, int] = {}

    @property
    def trials(self) -> Sequence[StoredTrial]:
        """The trials, as they were when the iteration began; empty before that."""
        return tuple(self._trials.values())

    async def __aenter__(self) -> SampleIterator:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> SampleIterator:
        return self

    async def __anext__(self) -> StoredSample:
        if self._call is None:
            await self._begin()
            if self._call is None:
                raise StopAsyncIteration
        await trio.lowlevel.checkpoint_if_cancelled()
        message = next(self._further, None)
        if message is None:
            try:
                reply = await self._call.receive()
            except RpcError:
                self.close()
                raise
            if reply is None:
                self.close()
                raise StopAsyncIteration
            message = reply.trial_sample
            self._further = iter(reply.further_samples)
        if not self._follow:
            self._count(message.trial_id)
            if not self._left:
                self.close()
        return StoredSample(message, self._trials[message.trial_id], self._client.spec)

    def close(self) -> None:
        """End the iteration and its call."""
        self._over = True
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def __del__(self) -> None:
        # Abandoned in the middle of a loop: this is the last chance to end the call.
        if self._call is not None:
            with contextlib.suppress(RuntimeError):  # Trio runs no longer
                self._call.cancel()

    async def _begin(self) -> None:
        if self._over or self._call is not None:
            return
        ids = list(self._request.trial_ids)
        self._trials = {trial.trial_id: trial for trial in await self._client.trials(ids)}
        missing = [trial_id for trial_id in ids if trial_id not in self._trials]
        if missing:
            raise NotFoundError(f"trial_ids: {', '.join(map(repr, missing))}: not in the datastore")
        if not self._follow and not self._partial:
            _check_complete(self._trials.values())
        request = RetrieveSamplesRequest()
        request.CopyFrom(self._request)
        request.max_reply_samples = _REPLY_SAMPLES
        if not self._follow:
            self._left = {trial.trial_id: trial.samples_count for trial in self._trials.values() if trial.samples_count}
            if not self._left:
                self._over = True
                return
            del request.trial_ids[:]
            request.trial_ids.extend(self._left)
        call = self._opener.call(_DATASTORE["RetrieveSamples"])
        await call.__aenter__()
        try:
            await call.send(request)
            await call.done_sending()
            self._call = call
        finally:
            if self._call is None:
                call.cancel()

    def _count(self, trial_id: str) -> None:
        left = self._left.pop(trial_id, 0)
        if left > 1:
            self._left[trial_id] = left - 1
