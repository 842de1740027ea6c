"""The page of a `human` seat, in Chromium, when the program of its run is killed and started again: it comes back."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium
import pytest

from tests.cli.process import environment_variables
from tests.interop.test_play_page import Person, browser, people
from tests.ports import free_port

__all__ = ["browser"]

pytestmark = pytest.mark.browser

_PROGRAM = """
import sys
import trio_cogment.rl as tc

port, folder = int(sys.argv[1]), sys.argv[2]
person = tc.human(port=port, page=lambda link: print(link, flush=True), secret_file=f"{folder}/people.secret")
store = f"sqlite:{folder}/trials.db"
run = {"environment": "CartPole-v1", "seats": {"player_0": person}, "seeds": [7], "store": store}
results = tc.run_trials(1, name="study", resume=True, **run)
print("over", results.trial_ids[0], results.trials[0].ticks, flush=True)
"""


@contextmanager
def program(port: int, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Have the program of a run, and the link of its page; it is killed in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(port), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment_variables(),
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def act(person: Person, tick: int) -> None:
    """Push the cart to the left when this tick asks."""
    person.page.locator(".tag", has_text=re.compile(rf"^tick {tick}$")).wait_for()
    person.turn()
    person.page.get_by_label("Your action").get_by_role("button").first.click()


def last_tick() -> int:
    """Return the last tick that asks, if the cart is always pushed to the left."""
    cart, tick = gymnasium.make("CartPole-v1"), 0
    cart.reset(seed=7)
    while not cart.step(0)[2]:
        tick += 1
    return tick


def test_a_person_is_back_in_the_trial_that_goes_on(browser: object, tmp_path: Path) -> None:
    port = free_port()
    with people(browser, 1) as [person]:  # type: ignore[arg-type]  # the fixture's
        with program(port, tmp_path) as (process, link):
            person.ready(link)
            for tick in range(5):
                act(person, tick)
            person.page.locator(".tag", has_text="tick 5").wait_for()
            before = person.page.url
            process.kill()
            person.page.get_by_text("connection lost, trying again").wait_for()
        with program(port, tmp_path) as (process, _):
            # By itself: first to the lobby, by the link of before, and then to the seat of the trial that goes on.
            person.page.wait_for_function("(before) => !location.hash && location.href !== before", arg=before)
            person.turn()
            first = person.tick()
            assert 2 <= first <= 5
            for tick in range(first, last_tick() + 1):
                act(person, tick)
            assert process.stdout is not None
            ticks = last_tick() + 2  # with the last observation
            assert process.stdout.readline().split() == ["over", "study-0-2", str(ticks)]
