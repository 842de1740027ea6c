"""Trials that a trainer has left behind: it was killed, and their orchestrator is another process."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import CogmentError
from trio_cogment.sdk import Controller
from trio_cogment.trainer.trials.naming import is_of
from trio_cogment.trainer.trials.where import Where

_log = logging.getLogger(__name__)

#: How long trials of a run that ends may take to end in good order.
GRACE_SECONDS = 5.0
#: How long an orchestrator may take to be told that trials are to end.
TELL_SECONDS = 5.0
#: How often it is asked for those that are left.
_LOOK_SECONDS = 0.2


async def end_left_behind(owners: Mapping[str, Collection[str]], where: Where) -> None:
    """End the trials of some runs: softly, and after a while hard. It never fails: who cannot be reached is logged.

    Args:
        owners: of each run, the accounts that may have started its trials; see `is_of`.
        where: where the trials are.
    """
    controller = Controller(where.opener, spec=where.spec)
    try:
        with trio.move_on_after(TELL_SECONDS + GRACE_SECONDS) as waiting:
            await _end(controller, owners)
    except CogmentError as error:
        _log.warning("trials of earlier runs may be left: %s", error)
    else:
        if waiting.cancelled_caught:
            _log.warning("trials of earlier runs may be left: the orchestrator is slow")


async def _end(controller: Controller, owners: Mapping[str, Collection[str]]) -> None:
    left = await _left(controller, owners)
    if not left:
        return
    _log.info("ending %d trials of earlier runs", len(left))
    await controller.terminate_trial(left)
    with trio.move_on_after(GRACE_SECONDS):
        while left:
            await trio.sleep(_LOOK_SECONDS)
            left = await _left(controller, owners)
    if left:
        await controller.terminate_trial(left, hard=True)


async def _left(controller: Controller, owners: Mapping[str, Collection[str]]) -> list[str]:
    infos = await controller.trial_infos()
    return [
        info.trial_id
        for info in infos
        if info.state < TrialState.ENDED and any(is_of(info, *run) for run in owners.items())
    ]
