"""The demo: it always learns, it repeats itself exactly, and it is fast enough to be looked at."""

from __future__ import annotations

import json
import random
import re
import time
from io import StringIO
from typing import Any

import pytest
import trio
from rich.console import Console

from tests.cli.process import run_main
from trio_cogment.cli.demonstration import DemoResult, run_demo
from trio_cogment.cli.demonstration._game import COLOURS, SILENCE, SYMBOLS, Game
from trio_cogment.cli.demonstration.run import DEFAULT_TICKS, learners
from trio_cogment.cli.demonstration.show import Progress, as_json, chart, page

#: `nox -s soak` plays 200.
SEEDS = range(40)
#: By so much the last tenth's mean reward exceeds the first's if, and only if, the actors learn.
MARGIN = 0.4
TENTH = DEFAULT_TICKS // 10


def play(seed: int, *, ticks: int = DEFAULT_TICKS, learning: bool = True) -> list[float]:
    """Play the demo's game with its learners, without a platform: the same draws in the same order."""
    game = Game(random.Random(f"{seed} environment"))
    speaker, listener = learners(seed, ticks=ticks, learning=learning)
    rewards = []
    said = before = heard = (0, 0)
    for tick in range(ticks):
        before, said = said, (game.colour, speaker.choose(game.colour, tick))
        if game.symbol != SILENCE:
            heard = (game.symbol, listener.choose(game.symbol, tick))
        reward = game.step(said[1], heard[1])
        if reward is not None:
            rewards.append(reward)
            speaker.learn(*before, reward)
            listener.learn(*heard, reward)
    return rewards


def improvement(rewards: list[float]) -> float:
    return (sum(rewards[-TENTH:]) - sum(rewards[:TENTH])) / TENTH


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(range(200), marks=pytest.mark.soak)], ids=["some", "many"])
def test_it_learns_with_every_seed(seeds: range) -> None:
    worst = min(improvement(play(seed)) for seed in seeds)
    assert worst > MARGIN
    best = max(improvement(play(seed, learning=False)) for seed in seeds)
    assert best < MARGIN / 2, "and not without learning"


@pytest.mark.parametrize("seed", range(2))
async def test_the_platform_plays_the_same_game(seed: int) -> None:
    with trio.fail_after(60):
        result = await run_demo(seed=seed)
    assert list(result.rewards) == play(seed)
    assert result.last - result.first > MARGIN
    assert [result.meanings[symbol] for symbol in result.symbols] == list(range(len(COLOURS)))


async def test_over_sockets_it_is_the_same_to_the_last_reward() -> None:
    with trio.fail_after(60):
        here, there = await run_demo(seed=7, ticks=1500), await run_demo(seed=7, ticks=1500, grpc=True)
        other = await run_demo(seed=8, ticks=1500)
    assert (here.rewards, here.symbols, here.meanings) == (there.rewards, there.symbols, there.meanings)
    assert here.rewards != other.rewards


async def test_without_learning_the_platform_shows_none() -> None:
    with trio.fail_after(60):
        result = await run_demo(seed=1, learning=False)
    assert result.last - result.first < MARGIN / 2


@pytest.mark.parametrize("grpc", [False, True])
def test_the_command(grpc: bool) -> None:
    options = ["--grpc"] if grpc else []
    started = time.process_time()
    output = run_main("demo", "--seed", "3", *options, variables={"COLUMNS": "80"})
    assert time.process_time() - started < 10  # so many seconds are promised for a machine that does nothing else
    assert (output.code, output.err) == (0, "")
    assert "\x1b" not in output.out
    assert "The trial is not stored." in output.out
    first, last = re.findall(r"tenth (\d\.\d\d)", output.out)
    assert float(last) - float(first) > MARGIN
    assert output.out.count("recent mean reward") == 5
    for name in (*COLOURS, *SYMBOLS):
        assert name in output.out
    assert max(map(len, output.out.splitlines())) <= 80


def test_the_command_for_programs_repeats_itself() -> None:
    results = []
    for options in ([], ["--grpc"], []):
        output = run_main("demo", "--json", "--seed=4", "--ticks=400", *options)
        assert (output.code, output.err) == (0, "")
        results.append(json.loads(output.out))
    assert [result.pop("transport") for result in results] == ["in process", "grpc", "in process"]
    for result in results:
        assert result.pop("seconds") > 0
        assert result.pop("ticks_per_second") > 0
    assert results[0] == results[1] == results[2]
    assert results[0]["ticks"] == 400


def result(**changes: Any) -> DemoResult:
    values: dict[str, Any] = {
        "seed": 1, "ticks": 40, "learning": True, "grpc": False, "rewards": (0.0,) * 20 + (1.0,) * 19,
        "symbols": (0, 1, 2, 3, 3), "meanings": (0, 1, 2, 3, 4), "seconds": 2.0,
    }  # fmt: skip
    return DemoResult(**(values | changes))


def shown(console_options: dict[str, Any], *, ascii_only: bool = False) -> str:
    file = StringIO()
    console = Console(file=file, width=80, **console_options)
    with Progress(console, 40) as progress:
        for tick in range(40):
            progress.on_tick(tick, [1.0] * tick)
    console.print(page(result(), ascii_only=ascii_only))
    return file.getvalue()


def test_a_terminal_gets_a_line_that_changes() -> None:
    assert "\x1b[2K" in shown({"force_terminal": True})
    assert "\x1b" not in shown({})


def test_a_plain_page() -> None:
    text = shown({}, ascii_only=True)
    assert text.isascii()
    assert "purple -> lu -> yellow (misunderstood)" in text
    assert "first tenth 0.00 -> last tenth 1.00" in text
    assert "40 ticks in 2.00 s, 20 ticks/s, in process" in text


def test_the_page_without_learning_has_no_code() -> None:
    file = StringIO()
    Console(file=file, width=80).print(page(result(learning=False, grpc=True)))
    assert "agreed" not in file.getvalue()
    assert "over gRPC" in file.getvalue()


def test_chart() -> None:
    assert chart([0.0, 0.5, 1.0]) == "▁▅█"
    assert result().curve(4) == [0.0, 0.0, 0.9, 1.0]


def test_json() -> None:
    document = json.loads(as_json(result()))
    assert document["code"][4] == {"colour": "purple", "symbol": "lu", "understood_as": "yellow"}
    assert document["mean_reward_last_tenth"] == 1.0
