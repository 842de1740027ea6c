"""Failures of implementations: a record in the log, and a few words for the orchestrator.

The log gets the whole traceback, once, unless a caller in this process gets the exception itself. The orchestrator gets
the type and the first line of the exception, as a gRPC server of the published SDK gives them: they are for whoever
started the trial, and for the other participants. Lines of the traceback show the inside of a program, so they are only
sent to an orchestrator of the same process, or where `Participants` were told to.
"""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress
from typing import Any

import trio

from trio_cogment.api.common_pb2 import ActorRunTrialOutput
from trio_cogment.base.errors import TRACEBACK, CogmentError, ResourceExhaustedError, RpcError, StatusCode, status_of
from trio_cogment.rpc import ClientCall
from trio_cogment.sdk._stream import END, StreamLostError

_log = logging.getLogger(__name__)

#: Of a traceback, and of the text of an exception.
_LINES = 24
_LINE_CHARACTERS = 300
#: What leaves an orchestrator that does not answer to a client's goodbye.
_GOODBYE_SECONDS = 2.0

#: Statuses that would say that the connection failed, not the implementation.
_NOT_ITS_OWN = frozenset({StatusCode.OK, StatusCode.UNAVAILABLE, StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED})


def cause_of(error: Exception) -> Exception:
    """Return the exception that a group holds, if it is only one: a nursery always wraps."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def words_for(error: Exception) -> str:
    """Return the type and the first line of an exception; of several that were raised together, of the first."""
    first, others = cause_of(error), 0
    while isinstance(first, ExceptionGroup):
        others += len(first.exceptions) - 1
        first = cause_of(first.exceptions[0])
    line = next(iter(str(first).splitlines()), "")
    text = f"{type(first).__name__}: {line}" if line else type(first).__name__
    return text[:_LINE_CHARACTERS] + (f" (and {others} more)" if others else "")


def last_lines(error: Exception) -> str:
    """Return the last lines of an exception's traceback."""
    lines = "".join(traceback.format_exception(cause_of(error))).splitlines()[-_LINES:]
    return "\n".join(line[:_LINE_CHARACTERS] for line in lines)


def failure_of(error: Exception, trial_id: str, who: str, *, tracebacks: bool, has_caller: bool = False) -> RpcError:
    """Log what an implementation raised, and return the status that its orchestrator gets.

    If it raised because its stream broke, there is nobody to get a status, and nothing to find in a traceback.

    Args:
        error: what it raised.
        trial_id: for the log.
        who: for the log.
        tracebacks: send the last lines of the traceback, too.
        has_caller: a caller in this process gets the exception itself, and the log need not have it.
    """
    cause = cause_of(error)
    if isinstance(cause, StreamLostError):
        _log.warning("trial %s: %s: the connection to the orchestrator was lost: %s", trial_id, who, cause)
        return RpcError(cause.code, cause.message)
    # There is nothing to find in a traceback either.
    is_elsewhere = isinstance(cause, ResourceExhaustedError) or getattr(cause, "is_of_peer", False)
    if has_caller:
        _log.debug("trial %s: %s failed: %s", trial_id, who, words_for(error))
    elif is_elsewhere:
        _log.warning("trial %s: %s: %s", trial_id, who, cause)
    else:
        _log.error("trial %s: %s failed", trial_id, who, exc_info=error)
    code, text = status_of(cause)
    if code is StatusCode.UNKNOWN or code in _NOT_ITS_OWN:
        code, text = StatusCode.UNKNOWN, words_for(error)
    return RpcError(code, text, ((TRACEBACK, last_lines(error).encode()),) if tracebacks and not is_elsewhere else ())


async def say_goodbye(call: ClientCall, words: str = "") -> None:
    """Leave a trial as a client actor, and say why if it failed: a client has no status to send.

    Returns when the orchestrator has ended the stream, or does not; never raises.
    """
    with trio.move_on_after(_GOODBYE_SECONDS), suppress(CogmentError):
        if words:
            farewell: Any = ActorRunTrialOutput(state=END, details=words)
            await call.send(farewell)
        await call.done_sending()
        while await call.receive() is not None:
            pass
