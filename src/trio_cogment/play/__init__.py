"""People in trials: seats that a server holds, pages that come and go, and lobbies in which people wait."""

from trio_cogment.play.games import Game as Game
from trio_cogment.play.house import PlayHouse as PlayHouse
from trio_cogment.play.house import open_house as open_house
from trio_cogment.play.lobby_machine import LobbyRules as LobbyRules
from trio_cogment.play.lobby_machine import Shortage as Shortage
from trio_cogment.play.routes import lobby_link as lobby_link
from trio_cogment.play.routes import play_routes as play_routes
from trio_cogment.play.routes import seat_link as seat_link
from trio_cogment.play.seat_machine import Outcome as Outcome
from trio_cogment.play.seat_machine import SeatRules as SeatRules
from trio_cogment.play.seat_parts import SeatSettings as SeatSettings
