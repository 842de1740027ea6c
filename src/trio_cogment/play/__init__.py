"""People in trials: seats that a server holds, pages that come and go, and lobbies in which people wait.

A trial expects an actor that answers in time. A person closes the laptop, loses the network, opens a second tab, or
comes late. So it is the server that takes part in the trial, from its start to its end, and a page is only a view of
the seat that it has at the moment. When the page goes, the seat is kept for a while; when that time is over, the
default action or a bot acts, and a person who comes back takes over again. Which page counts and who acts is one table
without time and I/O (`trio_cogment.seats.presence`).

Before a trial there may be nobody. In a lobby people wait until a group is complete, or until its time is over and the
rules say to fill it with bots, to start without them, or to give up (`lobby_machine`, `lobby_table`).

Both are machines: what happens goes in, effects come out, and a Trio shell performs them in that order. A page is shown
the newest state and not every state, so one that never reads costs its trial nothing (`page`). What an observation
looks like, and which controls an action has, comes from the payload's type or space (`codecs`), so a trial needs no
page of its own.
"""

from trio_cogment._old_places import old_names as _old_names
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

__getattr__ = _old_names(__name__, {"PlayHouse": "play.PlayServer", "open_house": "play.open_play"})
