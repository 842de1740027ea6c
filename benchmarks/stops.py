"""How long a server takes to stop when it is asked to, and what could hold it up.

`python benchmarks/stops.py` starts `trio-cogment serve`, waits until a trial runs, and sends SIGTERM: with everybody
well-behaved; with an actor that stays when its trial has ended, and a connection that says nothing; with a directory
that does not answer. The bar is 5 s of real time for each of them, the median of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import trio
from _report import number, print_json, print_table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the scenarios, which are the tests'

from tests.cli.process import Endless, Server, listening, server
from tests.cli.test_serving import SERVE, stubborn_trial

from trio_cogment.rpc import Channel
from trio_cogment.sdk import Controller, actor_params, trial_params
from trio_cogment.testing.directory import FakeDirectory

BAR_SECONDS = 5.0


@asynccontextmanager
async def well_behaved(*flags: str) -> AsyncIterator[Server]:
    endless = Endless()
    async with server(*SERVE, *flags) as running, endless.served() as endpoint:
        async with Channel("127.0.0.1", running.port) as channel:
            params = trial_params([actor_params("a", "c", endpoint=endpoint)], environment_endpoint=endpoint)
            await endless.wait_running([await Controller(channel).start_trial(params)])
        yield running


@asynccontextmanager
async def actor_that_stays() -> AsyncIterator[Server]:
    async with stubborn_trial() as (running, _), await trio.open_tcp_stream("127.0.0.1", running.port):
        yield running


@asynccontextmanager
async def directory_that_hangs() -> AsyncIterator[Server]:
    fake = FakeDirectory()
    async with listening(fake.service()) as directory, well_behaved(f"--directory_endpoint={directory}") as running:
        await fake.wait_until(lambda: len(fake.entries) == 2)
        fake.hanging = {"Deregister", "Inquire"}
        yield running


async def _stop(case: Callable[[], AbstractAsyncContextManager[Server]]) -> float:
    async with case() as running:
        began = trio.current_time()
        if code := await running.stop():
            sys.exit(f"it ended with {code}: {running.err}")
        return trio.current_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON on the last line, too")
    parser.add_argument("--rounds", type=int, default=3, help="how often each of them is tried")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: expected at least 1")
    figures: dict[str, float | None] = {"bar_seconds": BAR_SECONDS}
    slow = []
    for case in (well_behaved, actor_that_stays, directory_that_hangs):
        seconds = statistics.median(trio.run(_stop, case) for _ in range(options.rounds))
        figures[f"{case.__name__}_seconds"] = seconds
        if seconds > BAR_SECONDS:
            slow.append(case.__name__)
    print_table(["figure", "value"], [[name, number(value)] for name, value in figures.items()])
    if options.json:
        print_json(figures)
    if slow:
        sys.exit(f"more than {BAR_SECONDS:g} s: {', '.join(slow)}")


if __name__ == "__main__":
    main()
