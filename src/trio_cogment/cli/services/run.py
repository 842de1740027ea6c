"""Runs a server process: first what is quick, until its ports are open and announced, then everything else."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from trio_cogment.cli.opening import Early, EarlySignals
from trio_cogment.cli.services.start import Application, Start

#: New files are 0600 and new folders 0700.
_OWNER_ONLY = 0o077

if TYPE_CHECKING:
    from trio_cogment.cli.services.settings import ServerSettings


def run_server(settings: ServerSettings, application: Application) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order, and return.

    Raises:
        Failure: it cannot start.
    """
    # What is stored is its owner's: databases and what SQLite puts beside them, archives, runs, logs.
    os.umask(_OWNER_ONLY)
    # A log on stderr cannot fail, and takes a while to import; before it is there, nothing is logged.
    logging_later = settings.log.file is None and application.check is None
    if not logging_later:
        _set_up_logging(settings)
    context = click.get_current_context(silent=True)
    early = None if context is None else context.find_object(Early)
    start = Start(settings, application, early)
    try:
        # A status file comes first, and may be a FIFO whose opening waits for a reader: then Trio has to run already.
        if settings.status_file is None:
            start.prepare()
        with EarlySignals() if early is None else nullcontext(early.signals) as signals:
            if settings.status_file is None:
                start.announce()
            if logging_later:
                _set_up_logging(settings)
            from trio_cogment.cli.services.server import serve_until_signal

            serve_until_signal(start, signals)
    finally:
        start.ports.close()


def _set_up_logging(settings: ServerSettings) -> None:
    import logging

    from trio_cogment.cli.log_setup import set_up_logging
    from trio_cogment.cli.variables import warnings

    set_up_logging(settings.log)
    for text in warnings(os.environ):
        logging.getLogger(__name__).warning("%s", text)
