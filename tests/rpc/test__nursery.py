"""The nursery of an object: what a user's block raises goes on as it is."""

from __future__ import annotations

from types import TracebackType

import pytest
import trio
import trio.testing

from trio_cogment.rpc._nursery import OwnNursery


class Owner:
    """An object with a nursery."""

    def __init__(self) -> None:
        self.tasks = OwnNursery()

    async def __aenter__(self) -> trio.Nursery:
        return await self.tasks.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return await self.tasks.__aexit__(kind, value, traceback)


async def fail() -> None:
    raise KeyError


async def test_an_exception_of_the_block_is_no_group_and_ends_the_tasks() -> None:
    error = ZeroDivisionError()
    ended = trio.Event()

    async def wait() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async def use() -> None:
        async with Owner() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            raise error

    with pytest.raises(ZeroDivisionError) as caught:
        await use()
    assert caught.value is error
    assert ended.is_set()


async def test_what_tasks_raise_is_a_group() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with Owner() as nursery:
            nursery.start_soon(fail)
    assert [type(error) for error in caught.value.exceptions] == [KeyError]


async def test_an_exception_of_the_block_beside_one_of_a_task_is_in_the_group() -> None:
    async def use() -> None:
        async with Owner() as nursery:
            nursery.start_soon(fail)
            try:
                await trio.sleep_forever()
            finally:
                raise ZeroDivisionError

    with pytest.raises(BaseExceptionGroup) as caught:
        await use()
    assert {type(error) for error in caught.value.exceptions} == {KeyError, ZeroDivisionError}


async def test_cancellation_of_its_scope_is_no_error() -> None:
    async with Owner() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.cancel_scope.cancel()
    assert not nursery.child_tasks


async def test_cancellation_from_outside_goes_on() -> None:
    with trio.CancelScope() as scope:
        async with Owner() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
