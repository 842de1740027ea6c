"""Games for people in a browser: `python -m tests.interop.browser.play_server`.

Prints its port, and the links of its lobbies; with the end of its standard input it ends, and prints what the actors of
each game have done.
"""

from __future__ import annotations

import json
import sys
from functools import partial

import trio

from tests.play.pages import SPEC, Counting, params, seven
from trio_cogment import open_platform
from trio_cogment.play.games import Game
from trio_cogment.play.lobby_machine import LobbyRules, Shortage
from trio_cogment.play.routes import lobby_link, play_routes
from trio_cogment.play.server import open_play
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.seats.presence import Outcome, SeatRules
from trio_cogment.web import PageAccess, WebSide

#: A page of a project that shows observations, and tries what it must not.
RENDERER = b"""<!doctype html><title>renderer</title><p id="seen">nothing</p><button>nine</button><script>
let reached = "nothing";
try { reached = parent.document.title; } catch { reached = "no parent"; }
fetch("/").then(() => { reached += ", the server"; }, () => { reached += ", no server"; });
addEventListener("message", (event) => {
  document.getElementById("seen").textContent = `${event.data.parts[0].text}, reached ${reached}`;
});
document.querySelector("button").onclick = () => parent.postMessage({ type: "act", action: { value: "9" } }, "*");
parent.postMessage({ type: "ready" }, "*");
</script>"""
GRACE_SECONDS = 1.5
#: For so long a group waits that does not get enough people.
WAIT_SECONDS = 5.0
TICKS = 8


def games() -> list[Game]:
    """Return the games: one for each outcome, and one for each shortage."""
    pair = LobbyRules(seats=2, wait_seconds=60, away_seconds=30)
    found = [
        Game(
            name=outcome.value,
            params=params("ann", "bob", agents=["agent"]),
            bot="seven",
            lobby=pair,
            seat=SeatRules(grace_seconds=GRACE_SECONDS, outcome=outcome),
            title="Counting",
            text="Count <b>together</b>.",
        )
        for outcome in Outcome
    ]
    # However long a page takes to load again.
    patient = SeatRules(grace_seconds=60, outcome=Outcome.LOSS)
    people = params("ann", "bob", agents=["agent"])
    found.append(Game(name="patient", params=people, bot="seven", lobby=pair, seat=patient, title="Counting"))
    for shortage in Shortage:
        rules = LobbyRules(seats=2, wait_seconds=WAIT_SECONDS, away_seconds=30, shortage=shortage)
        name = f"too-few-{shortage.value.replace(' ', '-')}"
        found.append(Game(name=name, params=params("ann", "bob"), bot="seven", lobby=rules, title="Counting"))
    found.append(Game(name="alone", params=params("ann"), title="Counting", renderer=RENDERER))
    return found


async def main() -> None:
    access = PageAccess()
    made = games()
    environments = {game.name: Counting(TICKS) for game in made}
    for game in made:
        game.params.environment.implementation = game.name
    async with open_platform(SPEC) as platform, open_play(platform, made) as server:
        for name, environment in environments.items():
            platform.participants.register_environment(environment, name)
        platform.participants.register_actor(seven, "seven", ["player"])
        side = WebSide(routes=partial(play_routes, server, access), access=access)
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")
            serving = await nursery.start(partial(serve, web=side), platform.services, listeners)
            print(serving.port, flush=True)
            links = {game.name: lobby_link(access, 3600, game.name) for game in made}
            print(json.dumps(links), flush=True)
            await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
            await platform.stop()
            await serving.drain(2)
    print(json.dumps({name: environment.actions for name, environment in environments.items()}), flush=True)


if __name__ == "__main__":
    trio.run(main)
