"""Views that are pickled and copied, as wrappers and workers of the field's libraries do."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

import trio_cogment.rl as tc
from tests.environments._games import Countdown, Rps
from tests.rl.views.environments import Counter
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.rl.views.copies import NotPicklableError
from trio_cogment.rl.views.gymnasium import TrialEnv
from trio_cogment.servers.datastore._memory import MemoryStore

WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda view: pickle.loads(pickle.dumps(view)),
    "cloudpickle": lambda view: cloudpickle.loads(cloudpickle.dumps(view)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
WRAPPED = ("make, wrapped", "copy")
SEAT: Any = tc.policy(lambda _: 0)
VIEWS: dict[str, Callable[..., Any]] = {
    "make": lambda **options: tc.make("CartPole-v1", **options),
    "make, wrapped": lambda **options: gymnasium.wrappers.TimeLimit(tc.make("Pendulum-v1", g=5.0, **options), 20),
    "make, of an object": lambda **options: tc.make(gymnasium.make("CartPole-v1"), **options),
    "make, with seats": lambda **options: tc.make(
        Rps, seat="player_1", seats={"player_0": tc.random(seed=3)}, rounds=5, **options
    ),
    "make_vec": lambda **options: tc.make_vec("CartPole-v1", 3, autoreset_mode="SameStep", **options),
    "make_parallel": lambda **options: tc.make_parallel("rps_v2", num_actions=5, **options),
    "make_aec": lambda **options: tc.make_aec(lambda: Countdown(9, "info"), seats={"p_1": SEAT}, **options),
}


@pytest.fixture
def opened() -> Iterator[Callable[[Any], Any]]:
    """Closes views in the end."""
    with ExitStack() as stack:

        def keep(view: Any) -> Any:
            stack.callback(view.close)
            return view

        yield keep


def episode(view: Any, seed: int = 3) -> list[Any]:
    """Return what a short episode shows; the same for equal views."""
    generator, found = np.random.default_rng(seed), []
    found.append(view.reset(seed=seed))
    if hasattr(view, "agent_iter"):
        for agent in view.agent_iter(12):
            *_, terminated, truncated, info = told = view.last()
            found.append((agent, *told))
            view.step(None if terminated or truncated else int(np.flatnonzero(info["action_mask"])[0]))
        return found
    for _ in range(5):
        if hasattr(view, "agents"):
            for agent in view.agents:
                view.action_space(agent).seed(int(generator.integers(100)))
            found.append(view.step({agent: view.action_space(agent).sample() for agent in view.agents}))
        else:
            view.action_space.seed(int(generator.integers(100)))
            found.append(view.step(view.action_space.sample()))
    return found


# A shallow copy of a wrapper is one around the same view.
@pytest.mark.parametrize(("kind", "way"), [(kind, way) for kind in VIEWS for way in WAYS if (kind, way) != WRAPPED])
def test_a_copy_plays_as_its_original(kind: str, way: str, opened: Callable[[Any], Any]) -> None:
    view = opened(VIEWS[kind]())
    expected = episode(view)
    copied = opened(WAYS[way](view))
    assert type(copied.unwrapped) is type(view.unwrapped)
    assert data_equivalence(episode(copied), expected)
    # The one goes on, whatever becomes of the other.
    view.reset(seed=3)
    copied.close()
    assert data_equivalence(episode(view), expected)
    again = opened(WAYS[way](view))
    view.close()
    assert data_equivalence(episode(again), expected)


def test_several_copies_in_one_loop_are_apart(opened: Callable[[Any], Any]) -> None:
    """As `supersuit.concat_vec_envs_v1` makes them of `pettingzoo_env_to_vec_env_v1`."""
    first = opened(tc.make_parallel(Rps, rounds=4))
    games = [opened(cloudpickle.loads(cloudpickle.dumps(first))) for _ in range(3)]
    for game in games:
        game.reset(seed=1)
    for number, game in enumerate(games):
        for _ in range(number + 1):
            game.step({"player_0": 0, "player_1": 1})
    assert [game.environment.round for game in games] == [1, 2, 3]
    assert len({game.trial_id for game in games}) == 3
    assert first.trial_id == ""


@pytest.mark.parametrize("thread", [False, True])
def test_copies_share_the_store(tmp_path: Path, thread: bool) -> None:
    """One process has a file at a time."""
    store = f"sqlite:{tmp_path / 'trials.db'}"
    views: list[Any] = [tc.make(Counter, store=store, thread=thread)]
    views += [WAYS[way](views[0]) for way in WAYS]
    vector = tc.make_vec(Counter, 2, platform=views[0])
    views += [vector, copy.deepcopy(vector)]
    views[0].close()  # the others have the store open still
    for view in views[1:]:
        view.reset()
        for _ in range(5):
            view.step(view.action_space.sample())
        view.close()
    assert tc.export(store, parquet=tmp_path / "data").trials == 4 + 2 * 2
    # When nobody has it open, it is opened again.
    content = pickle.dumps(views[0])
    with pytest.raises(FailedPreconditionError, match="closed"):
        views[0].reset()
    last = pickle.loads(content)
    last.reset()
    last.close()


def test_models_are_loaded_by_the_copy(tmp_path: Path, opened: Callable[[Any], Any]) -> None:
    load = {"bot": lambda data: lambda _: int(data)}["bot"]
    seats = {"player_1": tc.model("bot", load=load)}
    view = opened(tc.make_parallel(Rps, rounds=9, seats=seats, model_registry=tmp_path / "models"))
    view.store_model("bot", b"2")
    expected = episode(view)
    copied = opened(copy.deepcopy(view))
    assert data_equivalence(episode(copied), expected)
    copied.store_model("bot", b"1")
    view.reset()
    assert view.step({"player_0": 0})[0] == {"player_0": 1}


def test_in_another_thread_a_copy_has_a_platform_of_its_own(opened: Callable[[Any], Any]) -> None:
    view, found = opened(tc.make("CartPole-v1", store="memory:")), []
    content, expected = pickle.dumps(view), episode(view)

    def play() -> None:
        own = pickle.loads(content)
        found.append(episode(own))
        own.close()

    thread = threading.Thread(target=play)
    thread.start()
    thread.join(60)
    assert data_equivalence(found, [expected])
    assert data_equivalence(episode(view), expected)


CHILD = """
import pickle
import sys

view = pickle.load(sys.stdin.buffer)
print(view.reset(seed=3)[0].tolist())
view.close()
"""


def test_in_another_process(opened: Callable[[Any], Any]) -> None:
    seats = {"player_0": tc.random(seed=1)}
    view = opened(tc.make("CartPole-v1", store="memory:"))
    opened(tc.make(Rps, seats=seats))
    ended = subprocess.run(
        [sys.executable, "-c", CHILD], input=pickle.dumps(view), capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert ended.stdout.decode().split("\n")[0] == str(view.reset(seed=3)[0].tolist())


class Locked(Counter):
    """Cannot be pickled."""

    def __init__(self, lock: Any = None) -> None:
        super().__init__()
        self.lock = lock or threading.Lock()


LOCK = "TypeError: cannot pickle '_thread.lock' object"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda lock: tc.make(Locked()), f"environment 'Locked': environment: .*; got Locked: {LOCK}"),
        (lambda lock: tc.make(Locked, lock=lock), f"environment 'Locked': lock: .*; got lock: {LOCK}"),
        (
            lambda lock: tc.make_parallel(Countdown, seats={"p_0": SEAT, "p_1": tc.policy(lambda _: bool(lock))}),
            rf"environment 'countdown_v0': seats\['p_1'\]: .*; got PolicySeat: {LOCK}",
        ),
        (
            lambda lock: tc.make_aec(Rps, seats={"player_1": tc.human(port=0)}),
            r"seats\['player_1'\]: .*; got HumanSeat: TypeError: human: port: expected None, because .*; got 0",
        ),
        (
            lambda lock: tc.make_vec(Counter, 2, store=MemoryStore(2**20)),
            "environment 'Counter': store: expected a text that says where it is, because .*; got ",
        ),
    ],
)
@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_what_cannot_be_made_again_is_named(
    make: Callable[[Any], Any], text: str, way: str, opened: Callable[[Any], Any]
) -> None:
    view = opened(make(threading.Lock()))
    with pytest.raises(NotPicklableError, match=text):
        WAYS[way](view)


def test_a_view_of_a_match(opened: Callable[[Any], Any]) -> None:
    view = opened(tc.make(Counter))
    with pytest.raises(NotPicklableError, match="TrialEnv: expected one that make, make_vec or the like has made"):
        pickle.dumps(TrialEnv(view._match))
