from __future__ import annotations

import pytest

from trio_cogment.gateways.openenv.gathering import Lobby
from trio_cogment.gateways.openenv.messages import RefusedError, Reset

AGENTS = ["player_0", "player_1", "player_2"]


def test_a_single_agent_needs_no_name() -> None:
    gathering, seat = Lobby(["player_0"]).join("me", Reset(seed=3))
    assert (gathering.complete, seat, gathering.seed) == (True, "player_0", 3)


def test_the_others_may_be_given() -> None:
    lobby = Lobby(AGENTS, {"player_0", "player_2"})
    assert lobby.join("me", Reset())[1] == "player_1"
    gathering, seat = Lobby(AGENTS, AGENTS).join("me", Reset())
    assert (seat, gathering.complete) == ("player_0", True)
    assert Lobby(AGENTS, AGENTS).join("me", Reset(seat="player_2"))[1] == "player_2"


def test_a_seat_where_nobody_sits_needs_a_name() -> None:
    with pytest.raises(RefusedError, match="nobody sits at 'player_0', 'player_2'; or serve the environment with"):
        Lobby(AGENTS).join("me", Reset(seat="player_1"))
    # A socket may sit where the server has somebody, but then the one without anybody is free still.
    with pytest.raises(RefusedError, match="nobody sits at 'player_1'"):
        Lobby(["player_0", "player_1"], {"player_0"}).join("me", Reset(seat="player_0"))


def test_pictures_are_for_those_who_stay() -> None:
    lobby = Lobby(AGENTS, {"player_2"})
    gathering, seat = lobby.join("a", Reset(trial="duel", frames=True))
    lobby.join("b", Reset(trial="other", frames=True))
    assert gathering.frames_for == {seat}
    lobby.leave(gathering, seat)
    again, seat = lobby.join("c", Reset(trial="duel"))
    lobby.join("d", Reset(trial="duel", frames=True))
    assert again.frames_for == {"player_1"} != {seat}


def test_a_trial_waits_for_its_sockets() -> None:
    lobby = Lobby(AGENTS, {"player_2"})
    first, seat = lobby.join("a", Reset(trial="duel", seat="player_1", seed=5))
    assert (seat, first.complete, first.free) == ("player_1", False, ["player_0"])
    second, seat = lobby.join("b", Reset(trial="duel", episode_id="e", options={"x": 1}))
    assert second is first
    assert (seat, first.complete) == ("player_0", True)
    assert first.taken == {"player_1": "a", "player_0": "b"}
    assert (first.seed, first.episode_id, first.options) == (5, "e", {"x": 1})
    # The name is free for the next trial.
    third, _ = lobby.join("a", Reset(trial="duel"))
    assert third is not first
    assert not third.complete


def test_the_first_socket_may_say_which_seats_are_sockets() -> None:
    lobby = Lobby(AGENTS, AGENTS)
    gathering, seat = lobby.join("a", Reset(trial="t", seats=("player_2", "player_0")))
    assert (gathering.seats, seat) == (["player_0", "player_2"], "player_0")
    assert lobby.join("b", Reset(trial="t", seats=("player_0", "player_2")))[1] == "player_2"
    with pytest.raises(RefusedError, match="seats: expected 'player_1', too, where the server has nobody else"):
        Lobby(AGENTS, {"player_2"}).join("a", Reset(trial="t", seats=("player_0",)))


@pytest.mark.parametrize(
    ("reset", "words"),
    [
        (Reset(trial="t", seed=2), "trial 't': seed: expected 1, as its other sockets have it"),
        (Reset(trial="t", episode_id="f"), "episode_id: expected 'e'"),
        (Reset(trial="t", options={"b": 1}), "options: expected {'a': 1}"),
        (Reset(trial="t", seats=("player_0",)), "seats: expected 'player_0', 'player_1'"),
        (Reset(trial="t", seat="player_0"), "'player_0' is taken; free: 'player_1'"),
        (Reset(trial="t", seat="player_9"), "seat: expected one of 'player_1'; got 'player_9'"),
        (Reset(trial="u", seat="player_9"), "seat: expected one of 'player_0', 'player_1'; got 'player_9'"),
        (Reset(trial="u", seats=("x",)), "got 'x'"),
    ],
)
def test_who_does_not_fit_is_refused_and_changes_nothing(reset: Reset, words: str) -> None:
    lobby = Lobby(AGENTS[:2])
    gathering, _ = lobby.join("a", Reset(trial="t", seat="player_0", seed=1, episode_id="e", options={"a": 1}))
    with pytest.raises(RefusedError, match=words):
        lobby.join("b", reset)
    assert gathering.taken == {"player_0": "a"}
    assert lobby.join("b", Reset(trial="t"))[0].complete


def test_who_leaves_frees_the_seat_and_the_last_one_the_name() -> None:
    lobby = Lobby(AGENTS)
    gathering, seat = lobby.join("a", Reset(trial="t", seed=1))
    lobby.join("b", Reset(trial="t"))
    lobby.leave(gathering, seat)
    assert gathering.free == ["player_0", "player_2"]
    lobby.leave(gathering, "player_1")
    # The next one may want another seed.
    assert lobby.join("c", Reset(trial="t", seed=2))[0] is not gathering


def test_own_trials_do_not_meet() -> None:
    lobby = Lobby(["player_0"])
    assert lobby.join("a", Reset())[0] is not lobby.join("b", Reset())[0]
