"""People in trials: seats that a server holds, pages that come and go, and lobbies in which people wait."""

from trio_cogment.play.games import Game
from trio_cogment.play.house import PlayHouse, open_house
from trio_cogment.play.lobby_machine import LobbyRules, Shortage
from trio_cogment.play.routes import lobby_link, play_routes, seat_link
from trio_cogment.play.seat_machine import Outcome, SeatRules
from trio_cogment.play.seat_parts import SeatSettings

__all__ = [
    "Game",
    "LobbyRules",
    "Outcome",
    "PlayHouse",
    "SeatRules",
    "SeatSettings",
    "Shortage",
    "lobby_link",
    "open_house",
    "play_routes",
    "seat_link",
]
