"""People in trials: seats that a server holds, pages that come and go, and lobbies in which people wait."""

import warnings
from typing import Any

from trio_cogment.play.games import Game
from trio_cogment.play.lobby_machine import LobbyRules, Shortage
from trio_cogment.play.routes import lobby_link, play_routes, seat_link
from trio_cogment.play.seat_parts import SeatSettings
from trio_cogment.play.server import PlayServer, open_play
from trio_cogment.seats.presence import Outcome, SeatRules

__all__ = [
    "Game",
    "LobbyRules",
    "Outcome",
    "PlayServer",
    "SeatRules",
    "SeatSettings",
    "Shortage",
    "lobby_link",
    "open_play",
    "play_routes",
    "seat_link",
]

#: What names of 0.2.0 are now.
_RENAMED = {"PlayHouse": "PlayServer", "open_house": "open_play"}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _RENAMED[name]
    text = f"{__name__}.{name} is {__name__}.{new} now; its old name goes with the next release"
    warnings.warn(text, DeprecationWarning, stacklevel=2)
    return globals()[new]
