"""Other writers that count as gone, and from when on: with a session that is made up, in virtual time."""

from __future__ import annotations

import ast
import random
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import trio_cogment
from trio_cogment.base.host.blocking import run_inline
from trio_cogment.servers.datastore._postgresql_presence import (
    GONE_SECONDS,
    PAUSE_SECONDS,
    POLL_SECONDS,
    Gone,
    Presence,
    PresenceSession,
)
from trio_cogment.servers.datastore._watching import Watches

OWN = 7
#: The latest time after its death at which a writer counts as gone, if nothing has restarted.
LATEST = GONE_SECONDS + 2 * POLL_SECONDS


class FakeSession(PresenceSession):
    """A session in a database that has whatever a test says.

    Attributes:
        there: the writers, and which have a session.
        up_seconds: since the start of the database.
        ended: writers that were counted as gone, and when.
    """

    def __init__(self) -> None:
        super().__init__("postgresql://cogment@db/trials")
        self._sockets = socket.socketpair()
        self.there: dict[int, bool] = {}
        self.up_seconds = 1000.0
        self.ended: dict[int, float] = {}

    def open(self, *, renew: bool) -> None:
        self.number = OWN
        self.there[OWN] = True

    def fileno(self) -> int:
        return self._sockets[0].fileno()

    def changes_of(self, trial_ids: Collection[str]) -> dict[str, tuple[int, int]]:
        return {}

    def writers(self) -> tuple[float, dict[int, bool]]:
        return self.up_seconds, dict(self.there)

    def end_of(self, writer: int, *, releases: bool = False, adopts: bool = False) -> Gone | None:
        self.ended[writer] = trio.current_time()
        del self.there[writer]
        return Gone([f"trial of {writer}"], [f"adopted of {writer}"] if adopts else [])

    def close(self) -> None:
        for one in self._sockets:
            one.close()


@asynccontextmanager
async def watched_by(session: FakeSession, ended: list[str]) -> AsyncIterator[Presence]:
    """Keep a presence for the time of the block."""
    presence = Presence(session, run_inline, Watches(), ended.extend, random.Random(1))
    await presence.open()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(presence.run)
            yield presence
            nursery.cancel_scope.cancel()
    finally:
        session.close()


@pytest.mark.parametrize("seconds_of_life", [0.0, 0.3, 3.0])
async def test_a_writer_that_dies_counts_as_gone(seconds_of_life: float, autojump_clock: MockClock) -> None:
    """Also one that began and died between two looks of this process."""
    session = FakeSession()
    ended: list[str] = []
    async with watched_by(session, ended):
        await trio.sleep(0.1)
        session.there[8] = True
        await trio.sleep(seconds_of_life)
        session.there[8] = False
        died = trio.current_time()
        await trio.sleep(LATEST)
        assert died + GONE_SECONDS <= session.ended[8]
        assert ended == ["trial of 8"]
        assert session.there == {OWN: True}


async def test_who_takes_its_trials_is_told_of_them(autojump_clock: MockClock) -> None:
    session = FakeSession()
    ended: list[str] = []
    adopted: list[str] = []
    async with watched_by(session, ended) as presence:
        presence.adopts = adopted.extend
        session.there[8] = True
        await trio.sleep(3)
        session.there[8] = False
        await trio.sleep(LATEST)
        assert (ended, adopted) == (["trial of 8"], ["adopted of 8"])


async def test_a_writer_that_was_gone_before_is_left_to_the_leases(autojump_clock: MockClock) -> None:
    session = FakeSession()
    session.there = {3: False, 4: False, 5: True}
    async with watched_by(session, []):
        await trio.sleep(60)
        assert session.ended == {}
        # One that comes back, and dies, is as any other.
        session.there[4] = True
        await trio.sleep(2 * POLL_SECONDS)
        session.there.update({4: False, 5: False})
        await trio.sleep(LATEST)
        assert session.ended.keys() == {4, 5}


async def test_a_writer_that_is_away_for_a_moment_is_not_gone(autojump_clock: MockClock) -> None:
    session = FakeSession()
    async with watched_by(session, []):
        for _ in range(5):
            session.there[8] = False
            await trio.sleep(GONE_SECONDS - 2 * POLL_SECONDS)
            session.there[8] = True
            await trio.sleep(2 * POLL_SECONDS)
        assert session.ended == {}


async def test_nobody_is_gone_soon_after_the_start_of_the_database(autojump_clock: MockClock) -> None:
    session = FakeSession()
    async with watched_by(session, []):
        session.there[8] = True
        await trio.sleep(2)
        session.there[8] = False
        session.up_seconds = 0.0
        for _ in range(int(PAUSE_SECONDS)):
            await trio.sleep(1)
            assert session.ended == {}
            session.up_seconds += 1.0
        await trio.sleep(LATEST)
        assert session.ended.keys() == {8}


def test_nobody_waits_in_psycopgs_notifies() -> None:
    """It cannot be cancelled from another thread; that of libpq, `pgconn.notifies()`, gives what is there."""
    found = []
    for path in Path(trio_cogment.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "notifies" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "notifies":
                found.append(ast.unparse(node.func.value).rpartition(".")[2])
    assert found
    assert set(found) == {"pgconn"}
