"""Games: what has to go together, and the parameters of trials with fewer people than seats."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.play.pages import params
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.endpoints import CLIENT, DISCOVER
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.games import Game, with_bots, with_fewer
from trio_cogment.play.lobby_machine import LobbyRules, Shortage
from trio_cogment.seats.presence import Outcome, SeatRules


def game(*people: str, **options: Any) -> Game:
    options.setdefault("lobby", LobbyRules(seats=len(people)))
    options.setdefault("params", params(*people, agents=["robot"]))
    return Game(**{"name": "chess", "bot": "seven", **options})


def without_default() -> TrialParams:
    found = params("ann")
    found.actors[0].ClearField("default_action")
    return found


def limited(**limits: float) -> TrialParams:
    found = params("ann")
    if "max_inactivity" in limits:
        found.max_inactivity = int(limits["max_inactivity"])
    found.actors[0].response_timeout = limits.get("response_timeout", 0.0)
    return found


@pytest.mark.parametrize("name", ["a", "chess-2_b", "x" * 64])
def test_names(name: str) -> None:
    assert game("ann", name=name).name == name


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"name": ""}, "name: expected letters a to z, digits, - and _; got ''$"),
        ({"name": "x" * 65}, "name: expected letters"),
        ({"name": "a/b"}, "name: expected letters"),
        ({"params": params(agents=["robot"])}, f"params: expected an actor whose endpoint is {CLIENT}$"),
        ({"lobby": LobbyRules(seats=2)}, "lobby: expected 1 seats, as many as people, got 2$"),
        ({"bot": "", "lobby": LobbyRules(seats=1, shortage=Shortage.BOTS)}, "bot: expected the implementation of bots"),
        ({"bot": "", "seat": SeatRules(outcome=Outcome.BOT)}, "bot: expected the implementation of bots, got none$"),
        (
            {"params": without_default(), "seat": SeatRules(outcome=Outcome.DEFAULT)},
            "params: actor 'ann': expected a default action$",
        ),
        (
            {"params": limited(max_inactivity=5), "seat": SeatRules(outcome=Outcome.LOSS)},
            r"params: max_inactivity: expected 0, no limit, because people have any time for an action "
            r"\(action_seconds\); got 5$",
        ),
        (
            {"params": limited(response_timeout=5), "seat": SeatRules(outcome=Outcome.LOSS, action_seconds=5)},
            r"params: actor 'ann': response_timeout: expected 0, or more than 5, because people have 5 s for an action",
        ),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{expected}"):
        game("ann", **options)


def test_limits_that_are_longer_than_people_have() -> None:
    rules = SeatRules(outcome=Outcome.LOSS, action_seconds=5)
    assert rules.action_seconds < math.inf
    assert game("ann", params=limited(max_inactivity=6, response_timeout=5.5), seat=rules).people()[0].name == "ann"


def test_no_bot_is_needed_where_none_plays() -> None:
    lobby = LobbyRules(seats=1, shortage=Shortage.FEWER)
    assert game("ann", bot="", lobby=lobby, seat=SeatRules(outcome=Outcome.LOSS)).bot == ""


def test_people_are_who_may_come() -> None:
    found = params("ann", "bob", agents=["robot"])
    found.actors[1].endpoint = f" {CLIENT} "
    made = game("ann", "bob", params=found)
    assert [actor.name for actor in made.people()] == ["ann", "bob"]


def test_bots_take_the_seats_that_are_left() -> None:
    made = game("ann", "bob", "cid")
    found, people = with_bots(made, 1)
    assert people == ["ann"]
    assert [(actor.name, actor.endpoint, actor.implementation) for actor in found.actors] == [
        ("ann", CLIENT, ""),
        ("bob", DISCOVER, "seven"),
        ("cid", DISCOVER, "seven"),
        ("robot", made.params.actors[3].endpoint, "seven"),
    ]
    assert [actor.endpoint for actor in made.params.actors[:3]] == [CLIENT] * 3


def test_a_trial_may_have_fewer_actors() -> None:
    made = game("ann", "bob", "cid")
    found, people = with_fewer(made, 2)
    assert people == ["ann", "bob"]
    assert [actor.name for actor in found.actors] == ["ann", "bob", "robot"]
    assert found.environment == made.params.environment
    assert len(made.params.actors) == 4


def test_everybody_is_there() -> None:
    made = game("ann", "bob")
    for with_ in (with_bots, with_fewer):
        found, people = with_(made, 2)
        assert (found, people) == (made.params, ["ann", "bob"])
