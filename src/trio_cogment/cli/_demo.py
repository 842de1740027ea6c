"""Running the demo and showing what comes out."""

from __future__ import annotations

import logging
from functools import partial

import click
import trio
from rich.console import Console

from trio_cogment.cli._settings import Failure
from trio_cogment.demo.run import DEFAULT_TICKS, run_demo
from trio_cogment.demo.show import Progress, as_json, page
from trio_cogment.errors import CogmentError


def show_demo(*, grpc: bool, seed: int, ticks: int | None, learning: bool, json: bool) -> None:
    """Run the demo, for a person or for a program.

    Raises:
        Failure: the trial was broken off, or its sockets cannot be opened.
    """
    run = partial(run_demo, seed=seed, ticks=ticks or DEFAULT_TICKS, learning=learning, grpc=grpc)
    console = Console(highlight=False)
    # What matters is shown; without this, warnings about a trial that is interrupted would come in between.
    logging.getLogger("trio_cogment").addHandler(logging.NullHandler())
    try:
        if json:
            click.echo(as_json(trio.run(run)))
            return
        console.print("A speaker sees colours, a listener hears symbols; understanding is rewarded.")
        with Progress(console, ticks or DEFAULT_TICKS) as progress:
            result = trio.run(partial(run, on_tick=progress.on_tick))
        console.print()
        console.print(page(result, ascii_only=not console.encoding.startswith("utf")))
    except BrokenPipeError:
        raise  # nobody reads our output any more
    except (CogmentError, OSError) as error:
        raise Failure(f"demo: {error}") from error
    except BaseExceptionGroup as group:  # where Control-C lands, and that a reader of ours has left
        if group.subgroup(SystemExit) is not None:
            raise SystemExit(1) from None
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        raise
