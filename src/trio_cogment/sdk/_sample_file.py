"""The reference's format for files of trial samples, without I/O.

A file begins with `COGMENTTRIALS001`. Frames follow: a length (four bytes, little-endian) and a protobuf message of
that length. The first message is a `TrialSamplesFileHeader`, all others are `StoredTrialSample`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from trio_cogment.api.common_pb2 import TrialParams, VersionInfo
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample, TrialSamplesFileHeader
from trio_cogment.base.errors import InvalidArgumentError

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
