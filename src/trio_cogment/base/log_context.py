"""The context of log records: the trial that each is about, and the trace that it belongs to.

A message whose format begins with `trial %s: ` has the id as its first argument. Any other message is about the trial
that the current task was bound to with `bind_trial`. The first form is for code that runs in the task that delivers
an input; the second is for tasks of a trial and handlers of its participants, including the user's code.

`TrialFilter` puts the id into each record. The command line installs it, and any other program may.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from typing_extensions import override

#: The prefix of the format of a message about a trial; the id is the first argument.
PREFIX = "trial %s: "

_current: ContextVar[str] = ContextVar("trio_cogment_trial", default="")


def bind_trial(trial_id: str) -> None:
    """Bind the current task, and tasks that it starts from now on, to a trial; an empty id: to none."""
    _current.set(trial_id)


@contextmanager
def trial_bound(trial_id: str) -> Iterator[None]:
    """Bind the current task to a trial for a `with` block."""
    token = _current.set(trial_id)
    try:
        yield
    finally:
        _current.reset(token)


def bound_trial() -> str:
    """Return the id of the trial that the current task is bound to; empty if none."""
    return _current.get()


#: Returns the ids of the trace and of the span that a record belongs to, given its trial; None: there are no traces.
_spans: Callable[[str], tuple[str, str]] | None = None


@contextmanager
def see_spans(ids: Callable[[str], tuple[str, str]]) -> Iterator[None]:
    """Have records of this process carry the ids of traces for a `with` block; see `trio_cogment.base.tracing`."""
    global _spans  # noqa: PLW0603  filters are called in any thread, and have nothing else to ask
    before, _spans = _spans, ids
    try:
        yield
    finally:
        _spans = before


def with_trial(record: logging.LogRecord) -> str:
    """Return the message of a record that `TrialFilter` has seen; if it is about a trial it begins with the id."""
    trial_id = getattr(record, "trial_id", "")
    prefix = PREFIX % trial_id
    return record.message if not trial_id or record.message.startswith(prefix) else prefix + record.message


class TrialFormatter(logging.Formatter):
    """Begins the message of each record that is about a trial with its id, where `TrialFilter` has seen it."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = with_trial(record)
        return super().formatMessage(record)


class TrialFilter(logging.Filter):
    """Sets `trial_id`, `trace_id` and `span_id` of every record; empty: it belongs to none. No record is dropped."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        about = isinstance(record.msg, str) and record.msg.startswith(PREFIX)
        named = about and isinstance(record.args, tuple) and record.args
        trial_id = str(named[0]) if named else bound_trial()
        record.trial_id = trial_id
        record.trace_id, record.span_id = ("", "") if _spans is None else _spans(trial_id)
        return True
