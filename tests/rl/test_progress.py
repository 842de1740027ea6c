"""The argument `progress`, which is the same in all long calls: a bar, a function, or nothing."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rl.datasets.recorded import Duel, play, recording
from tests.rl.runner.worlds import answering, countdown
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.rl import export_async, run_trials_async
from trio_cogment.rl.progress import shown
from trio_cogment.rl.runner import Progress
from trio_cogment.rl.runner.progress import bar_of


class Terminal(io.StringIO):
    """Where a bar is shown."""

    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return what is standard error from now on; pytest puts its own there after the fixtures."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    return found


async def exporting(progress: Any, folder: Path) -> None:
    game = Duel()
    async with recording(game) as platform:
        await play(platform, game)
        await export_async(platform, parquet=folder / "data", progress=progress)


async def running(progress: Any, _folder: Path) -> None:
    await run_trials_async(2, environment=countdown(), seats={"player_0": answering}, progress=progress)


CALLS = pytest.mark.parametrize(("call", "end"), [(exporting, "7/7"), (running, "2/2")])


@CALLS
async def test_a_bar_in_a_terminal(
    call: Callable[[Any, Path], Any], end: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    terminal = terminal_of(monkeypatch)
    await call(True, tmp_path)
    assert end in terminal.getvalue()


@CALLS
async def test_no_bar_elsewhere(
    call: Callable[[Any, Path], Any], end: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, (stderr, progress) in enumerate(((io.StringIO(), True), (Terminal(), False), (Terminal(), None))):
        monkeypatch.setattr(sys, "stderr", stderr)
        await call(progress, tmp_path / str(number))
        assert stderr.getvalue() == ""


@CALLS
async def test_a_function_instead(
    call: Callable[[Any, Path], Any], end: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    terminal = terminal_of(monkeypatch)
    seen: list[Any] = []
    await call(seen.append, tmp_path)
    assert seen
    assert terminal.getvalue() == ""


@CALLS
async def test_nothing_else(call: Callable[[Any, Path], Any], end: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"progress: expected True, False or a function, got .*'bar'"):
        await call("bar", tmp_path)
    assert not (tmp_path / "data").exists()


def test_the_bar_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with shown(True, bar_of) as show:
        show(Progress(done=3, total=9, running=1, failed=2, paused=True))
    assert "trials, 2 failed, paused" in terminal.getvalue()
    assert "3/9" in terminal.getvalue()
