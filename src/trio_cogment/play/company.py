"""The people of a trial that a lobby has started: when none of them is there any more, it ends."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import partial

from trio_util import AsyncValue, wait_any

from trio_cogment.play.seat import Seat


class Presence(enum.IntEnum):
    """Who is there of the people."""

    #: Somebody is, or has time to come.
    SOME = 0
    #: Nobody is, and who has gone may come back.
    NONE = 1
    #: Nobody is, and nobody will be.
    OVER = 2


class Company:
    """See the module.

    Args:
        seats: of the people; nobody else is told when their state is another one.
    """

    def __init__(self, seats: Sequence[Seat]) -> None:
        self._seats = seats
        self._presence = AsyncValue(Presence.SOME)
        for seat in seats:
            seat.on_change = self._look
        self._look()

    def _look(self) -> None:
        if all(seat.is_given_up for seat in self._seats):
            self._presence.value = Presence.OVER
        elif all(seat.is_vacant for seat in self._seats):
            self._presence.value = Presence.NONE
        else:
            self._presence.value = Presence.SOME

    async def gone(self, seconds: float) -> None:
        """Wait until nobody is there, for so long if somebody may come back."""
        nobody: Callable[[Presence], bool] = Presence.SOME.__lt__
        await wait_any(
            partial(self._presence.wait_value, Presence.OVER),
            partial(self._presence.wait_value, nobody, held_for=seconds),
        )
