"""A drain reaches everything of a server: what accepts, what has just come, and what is connected."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from trio_cogment.access import Identity
from trio_cogment.rpc._server_group import ServerGroup


class Connection:
    """Notes until when it is to be drained."""

    def __init__(self) -> None:
        self.deadlines: list[float] = []

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()

    def drain(self, deadline: float) -> None:
        self.deadlines.append(deadline)

    def end_calls_of_others(self, valid: Callable[[Identity], bool]) -> None:
        """It has none."""


async def test_who_is_connected_is_drained_and_a_shorter_grace_counts(autojump_clock: trio.testing.MockClock) -> None:
    drains: list[float] = []
    group = ServerGroup(lambda: drains.append(trio.current_time()))
    before, left, after = Connection(), Connection(), Connection()
    with group.connected(left):
        assert group.connections() == [left]
    with group.connected(before):
        group.drain(30)
        await trio.sleep(5)
        group.drain(100)
        group.drain(10)
        with group.connected(after):  # it was accepted just before
            assert group.connections() == [before, after]
    assert group.connections() == []
    assert before.deadlines == [30, 30, 15]
    assert after.deadlines == [15]
    assert left.deadlines == []
    assert drains == [0, 5, 5]


async def test_a_connection_that_fails_is_not_connected_any_more() -> None:
    group = ServerGroup()
    with pytest.raises(ZeroDivisionError), group.connected(Connection()):
        raise ZeroDivisionError
    assert group.connections() == []
    group.drain(1)


@pytest.mark.parametrize("late", [False, True])
async def test_a_drain_ends_the_accepting_and_the_looking(late: bool) -> None:
    """Also that which begins afterwards."""
    group = ServerGroup()
    ended: list[str] = []

    async def accept() -> None:
        with group.accepting():
            await trio.sleep_forever()
        ended.append("accepting")

    async def look() -> None:
        with group.beginning() as scope:
            await trio.Event().wait()
        assert scope.cancelled_caught
        ended.append("looking")

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            if late:
                group.drain(1)
            nursery.start_soon(accept)
            nursery.start_soon(look)
            await trio.testing.wait_all_tasks_blocked()
            if not late:
                assert ended == []
                group.drain(1)
    assert sorted(ended) == ["accepting", "looking"]
    assert not group._beginning  # there may be many of them in the life of a server
