"""Metadata of a call, as a participant reads it."""

from __future__ import annotations

from trio_cogment.base.errors import InvalidArgumentError, PermissionDeniedError
from trio_cogment.base.log_context import bind_trial
from trio_cogment.base.services import TRIAL_ID
from trio_cogment.rpc import ServerCall


def only(call: ServerCall, name: str) -> str:
    """Return the first value of metadata that a call must have.

    Raises:
        InvalidArgumentError: there is none.
    """
    values = call.metadata.texts(name)
    if not values:
        raise InvalidArgumentError(f"metadata {name}: expected one value")
    return values[0]


def trial_of(call: ServerCall) -> str:
    """Return the trial id of a call, and bind the log records of its handler to that trial.

    Raises:
        PermissionDeniedError: the caller's token is for other trials.
    """
    trial_id = only(call, TRIAL_ID)
    if not (call.identity.admin or call.identity.grant.names_trial(trial_id)):
        raise PermissionDeniedError(f"trial {trial_id!r}: not for this caller")
    bind_trial(trial_id)
    return trial_id
