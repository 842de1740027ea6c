"""One trial of a view: the environment's part, and what becomes of it when the environment fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import trio

from trio_cogment.environments.episode import Turn
from trio_cogment.rl.views.rounds import Round
from trio_cogment.rl.views.seating import Seating
from trio_cogment.sdk import EnvironmentSession


class Here:
    """A driver that does what it is told at once."""

    def notify(self) -> None:
        """Nobody waits."""

    def exposed(self, function: Callable[..., Turn], *args: Any, **kwargs: Any) -> Turn:
        return function(*args, **kwargs)


class Broken:
    """An environment that cannot be reset."""

    def begin(self, _seed: int | None, _options: object) -> Turn:
        raise ZeroDivisionError("broken")


class Session:
    """As much of a session as the environment's part needs; its trial goes on until `over` is set."""

    def __init__(self) -> None:
        self.over = trio.Event()

    def take_up(self) -> None:
        pass

    async def start(self) -> None:
        await trio.lowlevel.checkpoint()

    async def handle_contents(self, *_arguments: object, **_options: object) -> None:
        await self.over.wait()


@pytest.mark.parametrize(
    ("fails", "is_discarded", "raises"),
    [(False, False, False), (False, True, False), (True, False, True), (True, True, False)],
)
async def test_the_environments_part_raises_what_the_environment_has_raised(
    fails: bool, is_discarded: bool, raises: bool
) -> None:
    """So that the trial ends with it; not if the view has given the trial up, when it is nobody's error any more."""
    seating = Seating("Broken", {}, None)
    episode, here = cast(Any, Broken()), cast(Any, Here())
    round_ = Round("t", [], environment="Broken", episode=episode, actors=[], seating=seating, around=here)
    session, raised = Session(), list[Exception]()

    async def play() -> None:
        try:
            await round_.play_environment(cast("EnvironmentSession[Any, Any, Any]", session))
        except ZeroDivisionError as error:
            raised.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(play)
        await trio.testing.wait_all_tasks_blocked()
        if is_discarded:
            round_.discard()
        if fails:
            round_.begin(None, None)
        else:
            session.over.set()
    assert raised == ([round_.failure] if raises else [])
    assert (round_.failure is not None) == fails
