"""Export from a datastore to a file of samples, and import from one, as streams of any size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import trio
from google.protobuf.message import DecodeError, Message

from trio_cogment.api.common_pb2 import TrialParams, VersionInfo
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample, TrialSamplesFileHeader
from trio_cogment.base.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from trio_cogment.sdk._datastore import DatastoreClient, SampleAdder, SampleIterator

# The reference's format for files of trial samples, without I/O.
#
# A file begins with `COGMENTTRIALS001`. Frames follow: a length (four bytes, little-endian) and a protobuf message of
# that length. The first message is a `TrialSamplesFileHeader`, all others are `StoredTrialSample`.

MAGIC = b"COGMENTTRIALS001"
_LENGTH_BYTES = 4

#: A longer frame means that the file is broken.
MAX_FRAME_BYTES = 256 * 1024 * 1024

_MessageT = TypeVar("_MessageT", bound=Message)


def encode_header(params: Mapping[str, TrialParams], *, version: str, timestamp: int) -> bytes:
    """Return the beginning of a file.

    Args:
        params: the parameters of every trial that has samples in the file, by trial id.
        version: the version of the program that writes the file.
        timestamp: the current time, in nanoseconds since the epoch.
    """
    header = TrialSamplesFileHeader(export_timestamp=timestamp, trial_params=params)
    # The only name that the reference writes.
    header.version_info.versions.append(VersionInfo.Version(name="cogment", version=version))
    return MAGIC + _frame(header)


def encode_sample(sample: StoredTrialSample) -> bytes:
    """Return a sample as a frame."""
    return _frame(sample)


def _frame(message: Message) -> bytes:
    data = message.SerializeToString()
    return len(data).to_bytes(_LENGTH_BYTES, "little") + data


class SampleFileReader:
    """Parses the bytes of a file, in pieces of any size, into its header and its samples.

    Attributes:
        header: the file's header, once it has been read.
        samples: how many samples have been returned.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._offset = 0
        self._magic_read = False
        self.header: TrialSamplesFileHeader | None = None
        self.samples = 0

    def feed(self, data: bytes) -> Iterator[StoredTrialSample]:
        """Parse the next bytes of the file; yield the samples that they complete. Exhaust it before the next call.

        Raises:
            InvalidArgumentError: the file is of another format, or broken; the text says where.
        """
        self._buffer += data
        if not self._magic_read and not self._read_magic():
            return
        start = 0
        try:
            while (end := self._frame_end(start)) is not None:
                content = bytes(self._buffer[start + _LENGTH_BYTES : end])
                place, start = self._offset, end
                self._offset += _LENGTH_BYTES + len(content)
                if self.header is None:
                    self.header = _parse(TrialSamplesFileHeader, content, "header", place)
                    continue
                sample = _parse(StoredTrialSample, content, f"sample {self.samples}", place)
                if sample.trial_id not in self.header.trial_params:
                    raise InvalidArgumentError(
                        f"sample {self.samples} (at byte {place}): its trial {sample.trial_id!r} is not in the header"
                    )
                self.samples += 1
                yield sample
        finally:
            del self._buffer[:start]

    def finish(self) -> TrialSamplesFileHeader:
        """Signal the end of the file; return its header.

        Raises:
            InvalidArgumentError: the file ends within the header or a sample.
        """
        if not self._magic_read or self.header is None or self._buffer:
            raise InvalidArgumentError(
                f"the file is cut off: it ends {len(self._buffer)} bytes after byte {self._offset}, in the middle of "
                + ("its header" if self.header is None else f"sample {self.samples}")
            )
        return self.header

    def _read_magic(self) -> bool:
        if not MAGIC.startswith(self._buffer[: len(MAGIC)]):
            raise InvalidArgumentError(f"not a file of trial samples: expected it to begin with {MAGIC.decode()}")
        if len(self._buffer) < len(MAGIC):
            return False
        del self._buffer[: len(MAGIC)]
        self._offset = len(MAGIC)
        self._magic_read = True
        return True

    def _frame_end(self, start: int) -> int | None:
        if len(self._buffer) - start < _LENGTH_BYTES:
            return None
        length = int.from_bytes(self._buffer[start : start + _LENGTH_BYTES], "little")
        if length > MAX_FRAME_BYTES:
            place = f"the file is broken at byte {self._offset}"
            raise InvalidArgumentError(f"{place}: expected a length of at most {MAX_FRAME_BYTES}, got {length}")
        end = start + _LENGTH_BYTES + length
        return end if len(self._buffer) >= end else None


def _parse(kind: type[_MessageT], content: bytes, what: str, place: int) -> _MessageT:
    try:
        return kind.FromString(content)
    except DecodeError:
        raise InvalidArgumentError(f"{what} (at byte {place}): {len(content)} bytes that cannot be parsed") from None


#: How many trials are written at the same time; for a further one, the least recently used is finished.
_OPEN_TRIALS = 16

#: The least size of the pieces of an export.
_PIECE_BYTES = 256 * 1024

#: How many trials an error text names at most.
_NAMED = 10

#: How long deleting an incomplete import may take.
_CLEAR_SECONDS = 5.0


@dataclass(slots=True)
class Transferred:
    """The progress or result of an export or an import.

    Attributes:
        samples: the number of samples by trial id (in the datastore).
        size_bytes: the size of the file.
    """

    samples: dict[str, int] = field(default_factory=dict)
    size_bytes: int = 0

    @property
    def samples_count(self) -> int:
        """The number of samples of all trials together."""
        return sum(self.samples.values())


class Export:
    """The content of a file, in pieces; can be iterated once. To stop early, use an `async with` block or `close`.

    Attributes:
        trial_ids: the trials in the file.
        samples_count: the number of samples that there will be.
        done: the progress so far.
    """

    def __init__(self, samples: SampleIterator, header: bytes, counts: dict[str, int]) -> None:
        self._samples = samples
        self._buffer = bytearray(header)
        self.trial_ids = list(counts)
        self.samples_count = sum(counts.values())
        self.done = Transferred(dict.fromkeys(counts, 0))

    def __aiter__(self) -> Export:
        return self

    async def __anext__(self) -> bytes:
        async for sample in self._samples:
            self._buffer += encode_sample(sample.message)
            self.done.samples[sample.trial_id] += 1
            if len(self._buffer) >= _PIECE_BYTES:
                break
        piece = bytes(self._buffer)
        if not piece:
            raise StopAsyncIteration
        self._buffer.clear()
        self.done.size_bytes += len(piece)
        return piece

    async def __aenter__(self) -> Export:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop, and end the call to the datastore."""
        self._samples.close()


async def export_trials(client: DatastoreClient, trial_ids: Sequence[str], *, version: str, timestamp: int) -> Export:
    """Prepare a file with the stored samples of some trials.

    Trials without samples are left out. Of a running trial, the file has the samples that were stored when this was
    called.

    Args:
        client: the datastore.
        trial_ids: the trials to export.
        version: the version of the program, for the header.
        timestamp: the current time in nanoseconds since the epoch, for the header.

    Raises:
        NotFoundError: a trial does not exist, or none has samples.
        RpcError: see `DatastoreClient`; also while iterating over what this returns.
    """
    wanted = list(dict.fromkeys(trial_ids))
    found = {trial.trial_id: trial for trial in await client.trials(wanted)}
    missing = [trial_id for trial_id in wanted if trial_id not in found]
    if missing:
        raise NotFoundError(f"not in the datastore: {', '.join(missing)}")
    trials = {trial_id: found[trial_id] for trial_id in wanted if found[trial_id].samples_count}
    if not trials:
        raise NotFoundError("none of the trials has samples")
    header = encode_header(
        {trial_id: trial.params for trial_id, trial in trials.items()}, version=version, timestamp=timestamp
    )
    counts = {trial_id: trial.samples_count for trial_id, trial in trials.items()}
    return Export(client.samples(list(trials), partial=True), header, counts)


async def import_samples(
    client: DatastoreClient,
    read: Callable[[], Awaitable[bytes]],
    *,
    prefix: str = "",
    user_id: str = "trio-cogment",
    on_progress: Callable[[Transferred], None] = lambda _: None,
) -> Transferred:
    """Store the trials of a file, either all of them or none.

    When this raises, or is cancelled, the trials that it has created are deleted again, unless the datastore cannot be
    reached within a few seconds.

    Args:
        client: the datastore.
        read: returns the next bytes of the file; none at its end.
        prefix: a prefix for every trial id.
        user_id: the user id of the new trials.
        on_progress: called from time to time with the progress.

    Raises:
        InvalidArgumentError: the file is of another format, broken or cut off.
        AlreadyExistsError: one of the trials exists already; nothing was changed.
        RpcError: see `DatastoreClient`.
    """
    one = _Import(client, prefix, user_id)
    whole = False
    try:
        while piece := await read():
            await one.take(piece)
            on_progress(one.done)
        await one.finish()
        whole = True
    finally:
        one.cancel()
        if not whole and one.created:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEAR_SECONDS):
                await client.delete_trials(one.created)
    return one.done


class _Import:
    """One import: the file's reader, and a call for each trial that is being written."""

    def __init__(self, client: DatastoreClient, prefix: str, user_id: str) -> None:
        self._client = client
        self._prefix = prefix
        self._user_id = user_id
        self._reader = SampleFileReader()
        self._adders: OrderedDict[str, SampleAdder] = OrderedDict()
        self.created: list[str] = []
        self.done = Transferred()

    async def take(self, piece: bytes) -> None:
        self.done.size_bytes += len(piece)
        for sample in self._reader.feed(piece):
            await self._create_trials()
            await self._add(sample)

    async def finish(self) -> None:
        self._reader.finish()
        await self._create_trials()
        while self._adders:
            await self._finish_oldest()

    def cancel(self) -> None:
        """End the calls that have not been finished."""
        for adder in self._adders.values():
            adder.cancel()

    async def _create_trials(self) -> None:
        header = self._reader.header
        if self.created or header is None:
            return
        ids = {trial_id: self._prefix + trial_id for trial_id in header.trial_params}
        for trial_id in ids.values():
            if not trial_id:
                raise InvalidArgumentError("the file's header has a trial without an id")
            if not (trial_id.isascii() and trial_id.isprintable()) or trial_id != trial_id.strip():
                raise InvalidArgumentError(
                    f"trial {trial_id!r}: expected an id of printable ASCII without blanks at its ends, "
                    "as it has to go into the metadata of calls"
                )
        there = await self._client.trials(list(ids.values()))
        if there:
            names = ", ".join(trial.trial_id for trial in there[:_NAMED])
            names += f" and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
            raise AlreadyExistsError(f"in the datastore already: {names}")
        for trial_id in sorted(ids):
            self.created.append(ids[trial_id])
            self.done.samples[ids[trial_id]] = 0
            await self._client.add_trial(ids[trial_id], header.trial_params[trial_id], user_id=self._user_id)

    async def _add(self, sample: StoredTrialSample) -> None:
        trial_id = self._prefix + sample.trial_id
        sample.trial_id = ""
        adder = await self._adder(trial_id)
        await adder.add(sample)
        self.done.samples[trial_id] += 1

    async def _adder(self, trial_id: str) -> SampleAdder:
        if trial_id in self._adders:
            self._adders.move_to_end(trial_id)
            return self._adders[trial_id]
        if len(self._adders) >= _OPEN_TRIALS:
            await self._finish_oldest()
        adder = self._adders[trial_id] = await self._client.open_adder(trial_id)
        return adder

    async def _finish_oldest(self) -> None:
        await next(iter(self._adders.values())).finish()
        self._adders.popitem(last=False)
