"""The page that people play on, in Chromium, when its server is killed and started again: it comes back by itself."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.process import environment_variables
from tests.interop.test_play_page import Person, browser, people
from tests.ports import free_port

__all__ = ["browser"]

pytestmark = pytest.mark.browser

#: After the restart of their server people are back in their games within this time, one after the other.
_BACK_SECONDS = 10.0

_LINK = re.compile(r"^play +(http://localhost:\d+/~\S+/play/)$", re.MULTILINE)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trio_cogment", *arguments]


@contextmanager
def playing(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Have a server of games, and the link of its lobby; it is killed in the end."""
    with subprocess.Popen(
        command("play", "CartPole-v1", "--resume", "--labels=left,right", *flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment_variables(),
    ) as process:
        assert process.stdout is not None
        try:
            said = ""
            while not (found := _LINK.search(said)):
                line = process.stdout.readline()
                assert line, said
                said += line
            yield process, found[1]
        finally:
            process.kill()


def act(person: Person) -> int:
    """Act for the tick that asks, wait for the next one, and return it."""
    person.turn()
    tick = person.tick()
    person.page.get_by_role("button", name="left" if tick % 2 else "right").first.click()
    person.page.locator(".tag", has_text=f"tick {tick + 1}").wait_for()
    return tick + 1


def interrupted(chromium: object, folder: Path, count: int) -> float:
    """Kill a server under the pages of people and start it again; return how long it took until all had acted."""
    secret, port = folder / "secret", free_port()
    subprocess.run(command("token", "init", f"--auth_secret_file={secret}"), check=True, env=environment_variables())
    flags = [f"--port={port}", f"--auth_secret_file={secret}", f"--storage=sqlite:{folder}/trials.db"]
    with people(chromium, count) as persons:  # type: ignore[arg-type]  # the fixture's
        with playing(*flags) as (process, link):
            for person in persons:
                person.ready(link)
            for person in persons:
                for _ in range(5):
                    reached = act(person)
            addresses = [person.page.url for person in persons]
            process.kill()
            for person in persons:
                person.page.get_by_text("connection lost, trying again").wait_for()
        began = time.monotonic()
        with playing(*flags):
            for person, address in zip(persons, addresses, strict=True):
                # At the last tick that was stored: the trial itself holds two of them back.
                person.page.get_by_role("alert").wait_for(state="detached")
                person.turn()
                assert reached - 3 <= person.tick() <= reached
                assert act(person)
                assert person.page.url == address
            return time.monotonic() - began


def test_a_page_comes_back_to_its_game(browser: object, tmp_path: Path) -> None:
    interrupted(browser, tmp_path, 1)


@pytest.mark.soak
def test_ten_pages_come_back_to_their_games(browser: object, tmp_path: Path) -> None:
    seconds = interrupted(browser, tmp_path, 10)
    print(f"10 people had acted again {seconds:.2f} s after the restart")
    assert seconds <= _BACK_SECONDS
