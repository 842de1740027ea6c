"""Which trial a line of the log is about.

Two things tell: a message whose format begins with `trial %s: ` and has the id as its first argument, and otherwise the
trial that the running task works for, if it said so by `bind_trial`. The first is for code that runs in whatever task
brings an input, the second for tasks of a trial and handlers of its participants, the user's own code included.

`TrialFilter` puts the id into each record; our command line uses it, and any other program may.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: What the format of a message about a trial begins with; the id is the first argument.
PREFIX = "trial %s: "

_current: ContextVar[str] = ContextVar("trio_cogment_trial", default="")


def bind_trial(trial_id: str) -> None:
    """Say that the running task, and those it starts from now on, work for this trial; an empty id: for none."""
    _current.set(trial_id)


@contextmanager
def trial_bound(trial_id: str) -> Iterator[None]:
    """Do the same for the time of a `with` block, in a task that is somebody else's."""
    token = _current.set(trial_id)
    try:
        yield
    finally:
        _current.reset(token)


def bound_trial() -> str:
    """Return the trial that the running task works for; an empty text for none."""
    return _current.get()


class TrialFilter(logging.Filter):
    """Sets `trial_id` of every record; an empty text for lines about no trial. Nothing is filtered out."""

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter.filter`."""
        about = isinstance(record.msg, str) and record.msg.startswith(PREFIX)
        if about and isinstance(record.args, tuple) and record.args:
            record.trial_id = str(record.args[0])
        else:
            record.trial_id = bound_trial()
        return True
