"""A person's seat beside a view: what the page shows, and what the loop is told when the page is closed."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import trio

from tests.play.pages import read_message
from tests.web.peers import HOST, Tab
from trio_cogment import rl as tc

SECONDS = 60


async def sees(link: str) -> dict[str, Any]:
    """Take the seat, return what the page shows when it is the person's turn, and close the page."""
    url = urlsplit(link)
    with trio.fail_after(SECONDS):
        async with await trio.open_tcp_stream("127.0.0.1", url.port or 0) as stream:
            lobby = Tab(stream)
            await lobby.open(f"{url.path}socket", origin=f"http://{HOST}")
            await lobby.send(b'{"type": "hello", "ticket": ""}')
            await lobby.send(b'{"type": "ready"}')
            while not (seat := read_message(await lobby.message()).get("link")):
                pass
            async with await trio.open_tcp_stream("127.0.0.1", url.port or 0) as other:
                page = Tab(other)
                await page.open(f"{seat}socket", origin=f"http://{HOST}")
                while (state := read_message(await page.message())).get("asked") is None:
                    pass
                return state


def played(human: tc.Seat, links: queue.Queue[str], make: Any = tc.make_parallel) -> tuple[dict[str, Any], str]:
    """Play beside a person who goes; return what the page showed, and what was raised in the loop."""
    raised: list[str] = []

    def learn() -> None:
        game = make("tictactoe_v3", seats={"player_2": human})
        try:
            observations, _ = game.reset(seed=1)
            while game.agents:
                mask = observations["player_1"]["action_mask"]
                observations, *_ = game.step({"player_1": int(np.flatnonzero(mask)[0]) if mask.any() else 0})
        except tc.EpisodeFailedError as error:
            raised.append(str(error))
        finally:
            game.close()

    learner = threading.Thread(target=learn)
    learner.start()
    state = trio.run(sees, links.get(timeout=SECONDS))
    learner.join(SECONDS)
    assert not learner.is_alive()
    return state, "".join(raised)


@pytest.mark.parametrize("absent", [None, tc.random(3)])
def test_the_page_shows_what_is_rendered_and_its_end_is_explained(absent: tc.Seat | None) -> None:
    links: queue.Queue[str] = queue.Queue()
    others: dict[str, Any] = {} if absent is None else {"absent": absent}
    state, raised = played(tc.human("Ann", port=0, page=links.put, grace_seconds=0.1, **others), links)
    assert state["parts"][0]["kind"] == "image"
    assert state["blob"][0].startswith(b"\x89PNG")
    if absent is None:
        assert "participant_left" in raised
        assert "closed for longer than grace_seconds=0.1: with human(absent=random()) others play" in raised
        assert "human(default=ACTION)" in raised
    else:
        assert raised == ""


def test_a_client_is_sent_no_pictures() -> None:
    game = tc.make_parallel("rps_v2", seats={"player_1": tc.human()})
    try:
        assert game.unwrapped.metadata.get("render_mode") is None
    finally:
        game.close()


def test_a_person_takes_a_seat_of_a_branch(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'trials.db'}"
    game = tc.make_aec("tictactoe_v3", store=store)
    game.reset(seed=1)
    for cell in (0, 4, 8):
        game.step(cell)
    trial_id = game.trial_id
    game.close()
    links: queue.Queue[str] = queue.Queue()
    human = tc.human("Ann", port=0, page=links.put, grace_seconds=0.1, absent=tc.random(3))
    moves: list[int] = []

    def learn() -> None:
        branch = tc.branch(store, trial_id, tick=2, seats={"player_2": human}, seat="player_1")
        assert isinstance(branch, tc.TrialEnv)
        try:
            value, _ = branch.reset()
            ended = cut = False
            while not (ended or cut):
                moves.append(int(np.flatnonzero(value["action_mask"])[0]))
                value, _, ended, cut, _ = branch.step(moves[-1])
        finally:
            branch.close()

    learner = threading.Thread(target=learn)
    learner.start()
    state = trio.run(sees, links.get(timeout=SECONDS))
    learner.join(SECONDS)
    assert not learner.is_alive()
    assert state["tick"] == 3, "the branch begins at tick 2, and it is the other one's turn there"
    assert moves[0] == 1, "the cells 0 and 4 are taken"
