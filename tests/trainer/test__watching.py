"""The changes of all runs, as those who watch them see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from tests.trainer.test_runs import a_run
from trio_cogment.api.trainer.trainer_pb2 import RunRecord
from trio_cogment.base.host import run_inline
from trio_cogment.rpc import ServerCall
from trio_cogment.trainer import _watching
from trio_cogment.trainer.storage import Batch, MemoryDatabase, Row, RunWrite


class Slow:
    """A call whose client is slow."""

    def __init__(self, meanwhile: Callable[[int], object]) -> None:
        self.sent: list[int] = []
        self._meanwhile = meanwhile

    async def send(self, record: RunRecord) -> None:
        self.sent.append(record.seq_id)
        self._meanwhile(len(self.sent))
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("when", ["while the runs are sent", "while changes are read"])
async def test_a_slow_watcher_of_what_is_forgotten_begins_anew(
    when: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(_watching, "_FORGOTTEN_AT_ONCE", 1)
    monkeypatch.setattr(_watching, "_RECENT", 1)
    database = MemoryDatabase()
    kept = 2 if when == "while the runs are sent" else 6

    async def read(function: Callable[..., Any], *args: Any) -> Any:
        if when == "while changes are read":
            change(12)
        return await run_inline(function, *args)

    events = _watching.Events(1, 0, database, read, kept)

    def change(last: int) -> None:
        while events._stored < last:
            row = Row(events.take_number(), b"")
            row = Row(row.seq, RunRecord(run_id="a", seq_id=row.seq).SerializeToString())
            database.write(Batch(runs=[RunWrite(1, a_run(), row)], telemetry=[]))
            events.on_stored(row)
            database.forget_events(events.outdated())

    change(4)
    snapshots = list[int]()

    def snapshot() -> list[RunRecord]:
        snapshots.append(events._stored)
        return [RunRecord(run_id="a"), RunRecord(run_id="b")]

    # The snapshot is of 4; more than are kept come while it is sent, or while what follows it is read.
    more = {1: 12} if when == "while the runs are sent" else {1: 8}
    call = Slow(lambda count: change(more.get(count, 0)))
    with trio.move_on_after(1):
        await events.follow(cast(ServerCall, call), 0, frozenset([0]), snapshot)
    assert snapshots == [4, 12]
    assert call.sent == [0, 0, 0, 0]
