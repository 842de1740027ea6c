"""`trio-cogment demo`: a small trial, and its result."""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import json_option

T = TypeVar("T")


@click.command()
@click.option("--grpc", is_flag=True, help="Run over sockets on this machine instead of within the process.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed; the same seed gives the same result.")
@click.option("--ticks", type=click.IntRange(min=20), default=None, help="Length of the trial.")
@click.option("--no-learning", is_flag=True, help="The actors keep guessing.")
@json_option()
def demo(grpc: bool, seed: int, ticks: int | None, no_learning: bool, as_json: bool) -> None:
    """Run a small trial: two actors invent a code for colours."""
    import trio
    from rich.console import Console

    from trio_cogment.cli.demonstration import show
    from trio_cogment.cli.demonstration.run import DEFAULT_TICKS, run_demo

    run = partial(run_demo, seed=seed, ticks=ticks or DEFAULT_TICKS, learning=not no_learning, grpc=grpc)
    console = Console(highlight=False)
    # Keeps warnings about an interrupted trial out of the output.
    logging.getLogger("trio_cogment").addHandler(logging.NullHandler())
    try:
        if as_json:
            click.echo(show.as_json(trio.run(until_control_c, run)))
            return
        console.print("A speaker sees colours, a listener hears symbols; understanding is rewarded.")
        console.print("The trial is not stored.")
        with show.Progress(console, ticks or DEFAULT_TICKS) as progress:
            result = trio.run(until_control_c, partial(run, on_tick=progress.on_tick))
        console.print()
        console.print(show.page(result, ascii_only=not console.encoding.startswith("utf")))
    except BrokenPipeError:
        raise  # the reader of the output has gone
    except (CogmentError, OSError) as error:
        raise Failure(f"demo: {error}") from error
    except BaseExceptionGroup as group:  # the end of the output's reader, or Control-C at the very beginning
        if group.subgroup(SystemExit) is not None:
            raise SystemExit(1) from None
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        raise


async def until_control_c(run: Callable[[], Awaitable[T]]) -> T:
    """Run a function. Control-C cancels it, and is raised when it has ended: as an exception it may hit Trio itself."""
    import trio

    interrupted = False
    with trio.open_signal_receiver(signal.SIGINT) as signals, trio.CancelScope() as scope:

        async def watch() -> None:
            nonlocal interrupted
            async for _ in signals:
                interrupted = True
                scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            result = await run()
            nursery.cancel_scope.cancel()
    if interrupted:
        raise KeyboardInterrupt
    return result
