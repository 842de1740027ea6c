"""From what a handler raised to what its caller is told."""

from __future__ import annotations

import logging

from purerpc import RpcFailedError

from trio_cogment.base.errors import STATUS_DETAILS, CogmentError, InvalidArgumentError, RpcError, StatusCode, status_of
from trio_cogment.rpc.metadata import Metadata

_log = logging.getLogger(__name__)


def outcome_of(error: Exception, where: str) -> RpcError:
    """Return the status for an exception that ended a handler; what nobody expected is logged here, with its traceback.

    A group that holds a single exception (a nursery always wraps) counts as that exception.
    """
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
        cause = cause.exceptions[0]
    if isinstance(cause, RpcError):
        return _sendable(cause, where) if cause.trailing_metadata else cause
    if isinstance(cause, RpcFailedError):
        return RpcError(StatusCode(cause.status.int_value), cause.status.status_message)
    if not isinstance(cause, CogmentError):
        _log.error("%s: the handler failed", where, exc_info=error)
    code, text = status_of(cause if isinstance(cause, Exception) else error)
    return RpcError(code, text)


def _sendable(error: RpcError, where: str) -> RpcError:
    """Check an error's metadata as a call's is, but for the one reserved name that may travel."""
    checked: list[tuple[str, str | bytes]] = []
    try:
        for name, value in error.trailing_metadata:
            known = name == STATUS_DETAILS and isinstance(value, bytes)
            checked.extend([(name, value)] if known else Metadata([(name, value)]))
    except InvalidArgumentError:
        _log.exception("%s: metadata of an error cannot be sent", where)
        checked = []  # the status still says more than that about it
    return RpcError(error.code, error.message, checked)
