"""The service `TrialDatastoreSP`: reading trials and samples, and adding and deleting them by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import chain
from operator import attrgetter
from types import TracebackType
from typing import cast

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import (
    AddSamplesReply,
    AddTrialReply,
    AddTrialRequest,
    DeleteTrialsReply,
    DeleteTrialsRequest,
    RetrieveSampleReply,
    RetrieveSamplesRequest,
    RetrieveTrialsReply,
    RetrieveTrialsRequest,
    StoredTrialInfo,
    StoredTrialSample,
)
from trio_cogment.base.about import About
from trio_cogment.base.config import DatastoreConfig
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError, QuotaError, ResourceExhaustedError
from trio_cogment.base.services import TRIAL_ID
from trio_cogment.base.shared_message import varint
from trio_cogment.budget.transfer_slots import Transfer, TransferSlots, transfer_of
from trio_cogment.rpc import ServerCall, SharedMessage
from trio_cogment.servers.datastore._conversion import ENVIRONMENT
from trio_cogment.servers.datastore._following import Follower, find_trials, replies
from trio_cogment.servers.datastore._group_commit import GroupCommit, WriteStream
from trio_cogment.servers.datastore._intake import check_actors
from trio_cogment.servers.datastore._owners import Owners, check_reached
from trio_cogment.servers.datastore._protobuf_wire import tag
from trio_cogment.servers.datastore._retention import Retention
from trio_cogment.servers.datastore._selection import Selection
from trio_cogment.servers.datastore._write_rules import MAX_NUMBER
from trio_cogment.servers.datastore.storage import (
    OutcomeWrite,
    SampleWrite,
    StoredTrial,
    TrialEnd,
    TrialStore,
    TrialWrite,
    WriteKind,
    reached_at,
)

# Turns to read samples: of all calls, only a few hold a page that their clients have not taken.


class ReadingTurn:
    """The turns of one call, as an asynchronous context manager: each is for a page, from reading it to sending it.

    Args:
        slots: of the datastore.
        call: whose client gets the samples.
    """

    def __init__(self, slots: TransferSlots, call: ServerCall) -> None:
        self._slots = slots
        self._call = call
        self._given = 0
        self._transfer: Transfer | None = None
        self._held = AsyncExitStack()

    async def begin(self) -> None:
        """Wait until a page may be read; if one may be already, nothing happens."""
        if self._transfer is None:
            transfer = transfer_of(self._call, lambda: self._given)
            await self._held.enter_async_context(self._slots.slot(transfer))
            self._transfer = transfer

    async def end(self) -> None:
        """The page is sent, or there was nothing in it."""
        self._transfer = None
        await self._held.aclose()

    async def send(self, reply: SharedMessage, size: int) -> None:
        """Send a sample of the page, whose bytes are not copied while they wait for the client.

        Raises:
            ResourceExhaustedError: the client takes next to nothing, and others wait.
        """
        call, transfer = self._call, self._transfer
        assert transfer is not None
        self._given += size
        try:
            # Reading the next page is a checkpoint in any case.
            call.send_shared_nowait(reply)
        except trio.WouldBlock:
            with trio.CancelScope() as scope, transfer.clients_turn(scope):
                await call.send_shared(reply)
            self._slots.check(transfer)

    async def __aenter__(self) -> ReadingTurn:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.end()


#: Trials that are read from the storage in one step.
_TRIALS_AT_ONCE = 256
#: Entries of a sample that are checked in one step.
_CHECKED_AT_ONCE = 1000
#: Properties that trials may be asked for by; SQLite takes a statement with not many more.
_MAX_PROPERTIES = 500
_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
_STATES = frozenset(TrialState.values())
_MAX_UINT32 = 2**32 - 1
_SAMPLE_TAG = bytes((tag(RetrieveSampleReply, "trial_sample"),))
#: What a trial takes in a reply beside itself, at most.
_FRAME_BYTES = 6


class TrialService(About):
    """The service, in front of a storage.

    Args:
        store: read from.
        writer: written through.
        owners: see to it that nobody writes over somebody else's trial.
        retention: is told of deleted trials.
        config: limits.
        trouble_of: see `Datastore.trouble_of`.
    """

    def __init__(
        self,
        store: TrialStore,
        writer: GroupCommit,
        owners: Owners,
        retention: Retention,
        config: DatastoreConfig,
        trouble_of: Callable[[str], str],
    ) -> None:
        self._trouble_of = trouble_of
        self._owners = owners
        self._retention = retention
        self._store = store
        self._writer = writer
        self._config = config
        self._reading = TransferSlots(config.max_reading, config)

    async def RetrieveTrials(self, request: RetrieveTrialsRequest, call: ServerCall) -> RetrieveTrialsReply:
        """Return a page of trials; with a timeout, once it is full or the time is over."""
        after = _position(request.trial_handle)
        self._check_named(request.trial_ids)
        if len(request.properties) > _MAX_PROPERTIES:
            raise InvalidArgumentError(f"properties: expected at most {_MAX_PROPERTIES}, got {len(request.properties)}")
        if not request.timeout:
            return (await self._page(request, after, call))[0]
        deadline = trio.current_time() + request.timeout / 1000
        async with self._store.watch() as watch:
            while True:
                reply, complete = await self._page(request, after, call)
                if complete:
                    return reply
                with trio.move_on_at(deadline) as waiting:
                    await watch.changed()
                if waiting.cancelled_caught:
                    return reply

    async def _page(
        self, request: RetrieveTrialsRequest, after: int, call: ServerCall
    ) -> tuple[RetrieveTrialsReply, bool]:
        """Return what there is now, and whether more can come that was asked for."""
        ids = frozenset(request.trial_ids) or None
        count = request.trials_count or _MAX_UINT32 + 1
        everybody_came = False
        if ids is not None and request.timeout:
            # Whether they match or were in an earlier page: they are there, none of them is still to come. This is seen
            # before the page is read: who comes in between is in no page, and would count as having been in one.
            everybody_came = len(await self._store.trials(after=0, limit=len(ids), ids=ids)) == len(ids)
        reply = RetrieveTrialsReply()
        size, last = 0, after
        while (missing := count - len(reply.trial_infos)) > 0:
            limit = min(missing, _TRIALS_AT_ONCE)
            trials = await self._store.trials(after=last, limit=limit, ids=ids, properties=dict(request.properties))
            for trial in trials:
                last = trial.number
                if not call.identity.reaches(call.method.path, trial.owner):
                    continue
                info = _info(trial)
                if trial.end == TrialEnd.OPEN:
                    info.storage_trouble = self._trouble_of(trial.trial_id)
                size += info.ByteSize() + _FRAME_BYTES
                if size > self._config.max_reply_bytes and reply.trial_infos:
                    raise ResourceExhaustedError(
                        f"trials_count: the trials asked for make a reply of more than {self._config.max_reply_bytes} "
                        f"bytes; the first {len(reply.trial_infos)} of them fit"
                    )
                reply.trial_infos.append(info)
            if len(trials) < limit:
                break
        reply.next_trial_handle = str(last)
        return reply, everybody_came or len(reply.trial_infos) >= count

    async def RetrieveSamples(self, request: RetrieveSamplesRequest, call: ServerCall) -> None:
        """Send the samples of trials, those to come too, until all of the trials have ended."""
        self._check_named(request.trial_ids)
        selection = Selection(request)
        trials = await find_trials(self._store, request)
        check_reached(call, trials)
        await call.send_initial_metadata()
        most = max(1, request.max_reply_samples)
        with self._writer.followed(trials):
            async with (
                ReadingTurn(self._reading, call) as turn,
                Follower(self._store, selection, self._config, trials, turn) as follower,
            ):
                # By itself, so that who waits for a turn holds nothing of the page before.
                while await _send_page(follower, selection, turn, most):
                    pass

    async def AddTrial(self, request: AddTrialRequest, call: ServerCall) -> AddTrialReply:
        """Store a trial, or give one other parameters and another owner."""
        trial_id = _only_trial_id(call)
        if not request.HasField("trial_params"):
            raise InvalidArgumentError("trial_params: expected the parameters of the trial")
        check_actors(request.trial_params, self._config.max_trial_actors)
        account = "" if call.identity.by_address else call.identity.account
        async with self._owners.writing(trial_id, "" if call.identity.admin else account):
            write = TrialWrite(trial_id, request.user_id, request.trial_params, logged=False, owner=account)
            async with self._writer.accounts.writing(account, call.identity.grant.quotas.stored_bytes) as purse:
                await self._writer.write(write, purse=purse)
        return AddTrialReply()

    async def AddSample(self, call: ServerCall) -> AddSamplesReply:
        """Store samples; each takes the place of one of the same tick. After an error, those before it are stored."""
        trial_id = _only_trial_id(call)
        trial = await self._store.trial(trial_id)
        if trial is None:
            raise NotFoundError(f"metadata {TRIAL_ID}: there is no trial {trial_id!r}")
        check_reached(call, [trial])
        limit = call.identity.grant.quotas.stored_bytes if trial.owner == call.identity.account else None
        async with self._writer.accounts.writing(trial.owner, limit) as purse:
            await self._take_samples(call, trial_id, len(trial.params.actors), self._writer.stream(purse=purse))
        return AddSamplesReply()

    async def _take_samples(self, call: ServerCall, trial_id: str, actors: int, stream: WriteStream) -> None:
        async for request in call:
            sample = request.trial_sample
            try:
                if not request.HasField("trial_sample"):
                    raise InvalidArgumentError("trial_sample: expected a sample")
                if sample.trial_id not in ("", trial_id):
                    raise InvalidArgumentError(f"trial_sample.trial_id: expected {trial_id!r}, got {sample.trial_id!r}")
                for _ in checking(sample, actors):
                    await trio.lowlevel.checkpoint()
            except InvalidArgumentError:
                await stream.flush()
                raise
            sample.trial_id = trial_id
            data = sample.SerializeToString()
            try:
                await stream.put(
                    SampleWrite(trial_id, sample.tick_id, sample.timestamp, sample.state, data, WriteKind.STORED)
                )
                if sample.HasField("end"):
                    await stream.put(OutcomeWrite(trial_id, sample.end.SerializeToString()))
            except QuotaError:
                await stream.flush()
                raise
        await stream.flush()

    async def DeleteTrials(self, request: DeleteTrialsRequest, call: ServerCall) -> DeleteTrialsReply:
        """Delete trials and their samples; unknown ones are passed over."""
        self._check_named(request.trial_ids)
        if request.trial_ids:
            ids = frozenset(request.trial_ids)
            if call.identity.admin:
                deleted = await self._store.delete(ids)
            else:
                trials = await self._store.trials(after=0, limit=len(ids), ids=ids)
                check_reached(call, trials)
                # Not one that somebody has created meanwhile.
                deleted = await self._store.delete(ids, numbers={trial.number for trial in trials})
            self._retention.forget(deleted)
        return DeleteTrialsReply()

    def _check_named(self, trial_ids: Sequence[str]) -> None:
        most = self._config.max_request_trials
        if len(trial_ids) > most:
            raise ResourceExhaustedError(f"trial_ids: {len(trial_ids)}; max_request_trials is {most}")


async def _send_page(follower: Follower, selection: Selection, turn: ReadingTurn, most: int) -> bool:
    found = await follower.page()
    if found is None:
        return False
    cursor, page = found
    samples: Iterable[bytes] = map(attrgetter("data"), page)
    if not selection.everything:
        samples = (_selected(data, selection, cursor.actors) for data in samples)
    if most > 1:
        for payload, size in replies(samples, most):
            await turn.send(SharedMessage(RetrieveSampleReply, b"", payload), size)
    else:
        for data in samples:  # their bytes as they are
            await turn.send(SharedMessage(RetrieveSampleReply, _SAMPLE_TAG + varint(len(data)), data), len(data))
    await turn.end()
    return True


def _selected(data: bytes, selection: Selection, actors: frozenset[int] | None) -> bytes:
    sample = StoredTrialSample.FromString(data)
    selection.apply(sample, actors)
    return sample.SerializeToString()


def check_sample(sample: StoredTrialSample, actors: int) -> None:
    """Check that everything in a stored sample points to something.

    Args:
        sample: to be stored.
        actors: how many the trial has.

    Raises:
        InvalidArgumentError: naming the field.
    """
    for _ in checking(sample, actors):
        pass


def checking(sample: StoredTrialSample, actors: int) -> Iterator[None]:
    """Do what `check_sample` does in steps of some milliseconds, and yield between them."""
    if sample.tick_id > MAX_NUMBER or sample.timestamp > MAX_NUMBER:
        raise InvalidArgumentError("trial_sample: expected tick_id and timestamp to be less than 2**63")
    if sample.state not in _STATES:
        raise InvalidArgumentError(f"trial_sample.state: {sample.state} is not a trial state")
    for number, _ in enumerate(_checking_entries(sample, actors), 1):
        if not number % _CHECKED_AT_ONCE:
            yield


def _checking_entries(sample: StoredTrialSample, actors: int) -> Iterator[None]:
    """Yield after each entry."""
    payloads = len(sample.payloads)
    for number, actor in enumerate(sample.actor_samples):
        where = f"trial_sample.actor_samples[{number}]"
        _check(f"{where}.actor", actor.actor, 0, actors)
        if actor.HasField("observation"):
            _check(f"{where}.observation", actor.observation, 0, payloads)
        if actor.HasField("action"):
            _check(f"{where}.action", actor.action, 0, payloads)
        yield
        for reward in chain(actor.received_rewards, actor.sent_rewards):
            _check(f"{where}: sender of a reward", reward.sender, ENVIRONMENT, actors)
            _check(f"{where}: receiver of a reward", reward.receiver, ENVIRONMENT, actors)
            if reward.HasField("user_data"):
                _check(f"{where}: user_data of a reward", reward.user_data, 0, payloads)
            yield
        for message in chain(actor.received_messages, actor.sent_messages):
            _check(f"{where}: sender of a message", message.sender, ENVIRONMENT, actors)
            _check(f"{where}: receiver of a message", message.receiver, ENVIRONMENT, actors)
            _check(f"{where}: payload of a message", message.payload, 0, payloads)
            yield
    for name, indexes in (
        ("default_actors", sample.default_actors),
        ("unavailable_actors", sample.unavailable_actors),
        ("held_actors", sample.held_actors),
    ):
        for index in indexes:
            _check(f"trial_sample.{name}", index, 0, actors)
            yield


def _check(field: str, value: int, least: int, end: int) -> None:
    if not least <= value < end:
        raise InvalidArgumentError(f"{field}: expected {least} to {end - 1}, got {value}")


def _info(trial: StoredTrial) -> StoredTrialInfo:
    info = StoredTrialInfo(
        trial_id=trial.trial_id,
        last_state=cast("TrialState", trial.last_state),
        user_id=trial.user_id,
        samples_count=min(trial.samples_count, _MAX_UINT32),
        params=trial.params,
        ended_abnormally=trial.end == TrialEnd.ABNORMAL,
        orchestrator=reached_at(trial.endpoint),
        stored_bytes=trial.stored_bytes,
        raw_bytes=trial.raw_bytes,
    )
    # Of a trial that is run again, it is what was said of the run before.
    if trial.outcome and trial.end == TrialEnd.ENDED:
        info.end.ParseFromString(trial.outcome)
    return info


def _position(handle: str) -> int:
    """Return after which trial a page begins: a handle is a trial's number, in decimal digits.

    Raises:
        InvalidArgumentError: it is none.
    """
    if not handle:
        return 0
    if not _INTEGER.fullmatch(handle):
        raise InvalidArgumentError(f"trial_handle: expected an integer, got {handle[:100]!r}")
    return min(max(int(handle), 0), MAX_NUMBER)


def _only_trial_id(call: ServerCall) -> str:
    trial_ids = call.metadata.texts(TRIAL_ID)
    if len(trial_ids) != 1 or not trial_ids[0]:
        raise InvalidArgumentError(f"metadata {TRIAL_ID}: expected exactly one id, got {len(trial_ids)}")
    return trial_ids[0]
