"""A fake data log, which can keep its samples in a file."""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any

import trio
from purerpc import Service

from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogOutput
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.host.files import Files, OpenFile, replace_durably, write_whole
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import ServerCall, bind
from trio_cogment.testing.fakes.behaviour import (
    FROM_START,
    Behave,
    Behaviour,
    Misbehaviour,
    Part,
    Sees,
    check_behaviour,
    see_nothing,
)
from trio_cogment.testing.fakes.contents import as_text
from trio_cogment.testing.sim.world import World

# The file in which a fake data log keeps the ticks of its samples, synced before they are acknowledged.

_TICK = struct.Struct(">qI")  # with a checksum, which shows a torn entry


class SyncedLog:
    """The ticks of a trial's samples, durable one by one, each at most once.

    Args:
        files: the file system.
        path: the file; what a loss of power has left of it is read first.

    Attributes:
        ticks: those that are durable.

    Raises:
        OSError: it cannot be read or made.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self.ticks = read_ticks(files, path)
        # Begins with a file that has nothing else in it: what follows torn bytes could not be told from them.
        replace_durably(files, path, b"".join(map(_entry, self.ticks)))
        self._file: OpenFile = files.open(path, append=True)

    def add(self, tick_id: int) -> None:
        """Keep a tick; it is durable when this returns. One that is there already is not written again.

        Raises:
            OSError: it may be there or not, and this object is of no use any more: make another one.
        """
        if tick_id not in self.ticks:
            try:
                write_whole(self._file, _entry(tick_id))
                self._file.sync()
            except OSError:
                self._file.close()
                raise
            self.ticks.append(tick_id)

    def close(self) -> None:
        """Close the file; nothing is added any more."""
        self._file.close()


def read_ticks(files: Files, path: str) -> list[int]:
    """Return the ticks in a file, up to what was torn; none if there is no file. Raises OSError."""
    if os.path.basename(path) not in files.names(os.path.dirname(path) or "."):
        return []
    data = files.read(path)
    ticks = []
    for start in range(0, len(data) - _TICK.size + 1, _TICK.size):
        entry = data[start : start + _TICK.size]
        tick_id = int(_TICK.unpack(entry)[0])
        if entry != _entry(tick_id):
            break
        ticks.append(tick_id)
    return ticks


def _entry(tick_id: int) -> bytes:
    return _TICK.pack(tick_id, zlib.crc32(str(tick_id).encode()))


#: Misbehaviours that make no sense for a data log: it has no ticks or messages of its own.
DATALOGS_CANNOT = frozenset({Misbehaviour.DUPLICATE, Misbehaviour.FLOOD, Misbehaviour.WRONG_TICK})
#: How a sample reports earlier ones that were dropped.
_LOST = re.compile(r"(\d+) samples? before this one (?:was|were) lost: ")


class FakeDatalog:
    """A data log: it records the tick of each sample, and acknowledges it.

    Args:
        world: for the history, the randomness and the counters.
        behave: how it behaves in each trial; the participant's name is "datalog". NEVER_ACK does not end its stream.
        files: gives a trial's file system: samples are kept there, and acknowledged when they are durable ("stored").
            Where that fails, the stream ends with UNAVAILABLE, and the next one finds what is there. Without it no
            sample is kept.
        sees: see `FakeActor`.

    Raises:
        ValueError: it cannot misbehave so; see `FakeHook`.
    """

    def __init__(
        self,
        world: World,
        behave: Behave | None = None,
        *,
        files: Callable[[str], Files] | None = None,
        sees: Sees = see_nothing,
    ) -> None:
        self._world = world
        self._sees = sees
        self._behave = behave = behave or Behaviour()
        check_behaviour(behave, "data log", DATALOGS_CANNOT)
        self._files_of = files
        self._open_files: dict[str, SyncedLog] = {}
        self._failed: set[str] = set()

    def service(self) -> Service:
        """Return `DatalogSP`, to be served."""
        return bind(SERVICES[ServiceKind.DATALOG].descriptor(), self)

    async def RunTrialDatalog(self, call: ServerCall) -> None:
        """Take a trial's samples."""
        (trial_id,) = call.metadata.texts(TRIAL_ID)
        part = Part(self._world, self._behave, trial_id, "datalog", "datalog", cannot=DATALOGS_CANNOT)
        tick_id = FROM_START
        answers = False
        with part.session(raising=True):
            async for message in call:
                self._sees(part, message)
                if message.HasField("sample"):
                    info = message.sample.info
                    tick_id = max(tick_id, info.tick_id)
                    lost = sum(int(found[1]) for found in map(_LOST.match, info.special_events) if found)
                    what = "late sample" if info.out_of_sync else "sample"
                    part.record(what, tick=info.tick_id, state=info.state, lost=lost, **_told(message.sample))
                    if self._files_of is not None and not info.out_of_sync:
                        self._store(part, self._files_of(trial_id), info.tick_id)
                if await part.think(tick_id) and not part.does(Misbehaviour.NEVER_ACK, tick_id):
                    await call.send(RunTrialDatalogOutput())
                    if not answers:
                        part.record("answers")
                    answers = True
            if part.does(Misbehaviour.NEVER_ACK, tick_id):
                await trio.sleep_forever()
            part.record("complete")

    def _store(self, part: Part, files: Files, tick_id: int) -> None:
        trial_id = part.trial_id
        try:
            if trial_id not in self._open_files:
                self._open_files[trial_id] = SyncedLog(files, _path(trial_id))
            self._open_files[trial_id].add(tick_id)
        except OSError as error:
            self._open_files.pop(trial_id, None)
            self._failed.add(trial_id)
            part.record("not stored", tick=tick_id, error=error.strerror)
            raise RpcError(StatusCode.UNAVAILABLE, f"the disk: {error.strerror}") from error
        part.record("stored", tick=tick_id)
        if trial_id in self._failed:
            self._failed.remove(trial_id)
            self._world.sometimes("datalog: stored after its disk had failed")

    def close(self) -> None:
        """Close the files, which are open from a trial's first sample on; what comes later opens its own again."""
        for log in self._open_files.values():
            log.close()
        self._open_files.clear()

    def note_kept(self) -> None:
        """Note what each trial's file has in it now ("kept"), for the checkers.

        Raises:
            OSError: it cannot be read.
            RuntimeError: this data log keeps nothing.
        """
        if self._files_of is None:
            raise RuntimeError("a FakeDatalog without `files` keeps nothing")
        opened = [event for event in self._world.history if event.what == "opened"]
        for trial_id in {event.trial_id: None for event in opened if event.who == "datalog datalog"}:
            ticks = read_ticks(self._files_of(trial_id), _path(trial_id))
            self._world.history.record("datalog datalog", "kept", trial_id, ticks=ticks)


def _told(sample: DatalogSample) -> dict[str, Any]:
    """Return the details of a sample, but for its tick, for the history."""
    return {
        "observations": len(sample.observations.observations),
        "actions": [as_text(action.content) for action in sample.actions],
        "rewards": [as_text(source.user_data.value) for reward in sample.rewards for source in reward.sources],
        "messages": [as_text(message.payload.value) for message in sample.messages],
    }


def _path(trial_id: str) -> str:
    return f"{trial_id}.samples"
