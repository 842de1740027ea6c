"""Views and the processes and threads around them."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import trio_cogment.rl as tc
from tests.rl.views.environments import Counter
from trio_cogment.base.errors import FailedPreconditionError

PROGRAM = """
import os
import sys

import gymnasium as gym
import trio_cogment.rl as tc


def make():
    return tc.make("CartPole-v1")


def compare(context):
    ours = gym.vector.AsyncVectorEnv([make] * 2, context=context)
    bare = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    assert (ours.reset(seed=3)[0] == bare.reset(seed=3)[0]).all()
    bare.action_space.seed(1)
    for _ in range(60):
        actions = bare.action_space.sample()
        assert (ours.step(actions)[0] == bare.step(actions)[0]).all()
    ours.close()


def inherit():
    held = make()
    held.reset(seed=1)
    child = os.fork()
    if child == 0:
        for use in (held.reset, lambda: held.step(0), held.close):
            try:
                use()
            except Exception as error:
                print(error)
        own = make()
        own.reset()
        print(own.step(0)[1])
        own.close()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    print(held.step(0)[1])
    held.close()


if __name__ == "__main__":
    {"fork": lambda: compare("fork"), "spawn": lambda: compare("spawn"), "inherit": inherit}[sys.argv[1]]()
"""


def run(tmp_path: Path, what: str) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, str(program), what], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.soak)])
def test_views_in_the_processes_of_an_async_vector_env(tmp_path: Path, context: str) -> None:
    run(tmp_path, context)


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_view_that_was_inherited_is_refused(tmp_path: Path) -> None:
    refused = "the view was made before this process was forked: make it in the process that uses it"
    assert run(tmp_path, "inherit") == [refused, refused, refused, "1.0", "1.0"]


def test_a_view_in_a_thread_of_its_own() -> None:
    found: list[float] = []

    def play() -> None:
        env = tc.make(Counter)
        env.reset()
        found.append(env.step(1)[1])
        env.close()

    before = threading.active_count()
    thread = threading.Thread(target=play)
    thread.start()
    thread.join()
    assert found == [0.1]
    assert threading.active_count() == before


def test_a_view_of_another_thread_is_refused() -> None:
    refusals: list[str] = []
    env = tc.make(Counter)
    env.reset()

    def use() -> None:
        try:
            env.step(1)
        except FailedPreconditionError as error:
            refusals.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    env.close()
    assert refusals == ["the view was made in another thread: make it in the thread that uses it, or with thread=True"]


def test_a_view_with_a_thread_is_for_any_thread() -> None:
    env = tc.make(Counter, thread=True)
    env.reset()
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(env.step(1)[1]))
    thread.start()
    thread.join()
    assert found == [0.1]
    assert any(each.name == "trio-cogment view" for each in threading.enumerate())
    env.close()
    assert not any(each.name == "trio-cogment view" for each in threading.enumerate())


@pytest.mark.parametrize("thread", [False, True])
def test_nothing_is_left_after_close(thread: bool) -> None:
    files = Path("/proc/self/fd")
    if not files.exists():
        pytest.skip("no /proc")

    def play() -> None:
        env = tc.make(Counter, thread=thread, store="memory:")
        for _ in range(3):
            env.reset()
            env.step(1)
        env.close()

    play()  # what is made once remains
    before = (len(list(files.iterdir())), threading.active_count())
    play()
    assert (len(list(files.iterdir())), threading.active_count()) == before
