"""Fixtures and settings of every test."""

import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis
import pytest

pytest_plugins = ["pytester"]

# A slow machine is not a failure; a hang is found by the timeout of the whole test.
hypothesis.settings.register_profile("patient", deadline=None)
# Where mutants are tried it is enough to know that something fails, and what was found for one is nothing to the next.
hypothesis.settings.register_profile(
    "mutants",
    deadline=None,
    database=None,
    derandomize=True,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile(os.environ.get("TRIO_COGMENT_TESTS_PROFILE", "patient"))

#: Not with the project's prefix: its commands warn about variables with it that they do not know.
_OUTLIVES_TERMINAL = "TESTS_OUTLIVE_TERMINAL"


def take_usual_surroundings() -> None:
    """Give this process, and all that it starts, the signals and the umask that a program has in a terminal.

    Who runs the tests under nohup, or in the background of a shell script, has them ignore signals, and with them all
    that they start; a service's umask keeps others from files that tests want to be too open.
    """
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Python itself ignores these two, and gives those it starts the usual ones.
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    # The tests still outlive the terminal, as do the processes that run them side by side; what they start does not: in
    # another program a signal that has a handler here is the usual one again.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or _OUTLIVES_TERMINAL in os.environ:
        os.environ[_OUTLIVES_TERMINAL] = "1"
        signal.signal(signal.SIGHUP, lambda *_: None)


take_usual_surroundings()


# Python looks at all objects again when there are a quarter more than at the last time, and in a simulated run only the
# run's own ones count. After one it would look at all that the tests consist of, a million objects, every few seconds,
# and stand still for half a second each time. What leaves much garbage, or wants it to be gone, collects it.
gc.set_threshold(*gc.get_threshold()[:2], 1000)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Nothing is logged: what fakes do on purpose would be logged as what it would be."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A folder of a file system in memory, where there is one: for tests whose syncs would only take time."""
    memory = "/dev/shm"
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)
