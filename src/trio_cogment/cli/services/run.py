"""Runs a server process: first what is quick, until its ports are open and announced, then everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio_cogment.cli.services.start import Application, EarlySignals, Start

if TYPE_CHECKING:
    from trio_cogment.cli.services.settings import ServerSettings


def run_server(settings: ServerSettings, application: Application) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order, and return.

    Raises:
        Failure: it cannot start.
    """
    # A log on stderr cannot fail, and takes a while to import; before it is there, nothing is logged.
    logging_later = settings.log.file is None and application.check is None
    if not logging_later:
        _set_up_logging(settings)
    start = Start(settings, application)
    try:
        # A status file comes first, and may be a FIFO whose opening waits for a reader: then Trio has to run already.
        if settings.status_file is None:
            start.prepare()
        with EarlySignals() as early:
            if settings.status_file is None:
                start.announce()
            if logging_later:
                _set_up_logging(settings)
            from trio_cogment.cli.services.server import serve_until_signal

            serve_until_signal(start, early)
    finally:
        start.close()


def _set_up_logging(settings: ServerSettings) -> None:
    from trio_cogment.cli.log_setup import set_up_logging

    set_up_logging(settings.log)
