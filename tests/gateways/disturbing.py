"""Faults that simulated runs of gateways and browsers have in common."""

from __future__ import annotations

import random
from collections.abc import Callable

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.platform import Platform


async def terminate_one(platform: Platform, draw: random.Random, chosen: Callable[[str], bool]) -> bool:
    """End a trial that runs, one of the ids that are chosen, hard or not; return whether there was one."""
    running = [
        info.trial_id
        for info in await platform.controller.trial_infos()
        if info.state != TrialState.ENDED and chosen(info.trial_id)
    ]
    if running:
        await platform.controller.terminate_trial(draw.choice(running), hard=draw.random() < 0.5)
    return bool(running)


def is_loud(trial_id: str) -> bool:
    """Whether a trial is not the neighbour's, which nothing may disturb."""
    return not trial_id.startswith("quiet")
