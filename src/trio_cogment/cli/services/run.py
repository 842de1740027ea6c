"""The run of a server process: what can be checked is checked, then what serves is imported, and serves."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from trio_cogment.cli.log_setup import set_up_logging
from trio_cogment.cli.services.early_signals import EarlySignals
from trio_cogment.cli.services.garbage import postponed
from trio_cogment.cli.services.start import Application, Start
from trio_cogment.cli.variables import warnings

if TYPE_CHECKING:
    from trio_cogment.cli.services.settings import ServerSettings

#: New files are 0600 and new folders 0700.
_OWNER_ONLY = 0o077


def run_server(settings: ServerSettings, application: Application) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order, and return.

    Raises:
        Failure: it cannot start.
    """
    # What is stored is its owner's: databases and what SQLite puts beside them, archives, runs, logs.
    os.umask(_OWNER_ONLY)
    with postponed():
        _run(settings, application)


def _run(settings: ServerSettings, application: Application) -> None:
    set_up_logging(settings.log)
    for text in warnings(os.environ):
        logging.getLogger(__name__).warning("%s", text)
    start = Start(settings, application)
    try:
        # A status file comes first, and may be a FIFO whose opening waits for a reader: then Trio has to run already.
        if settings.status_file is None:
            start.prepare()
        with EarlySignals() as signals:
            from trio_cogment.cli.services.server import serve_until_signal

            serve_until_signal(start, signals)
    finally:
        start.ports.close()
