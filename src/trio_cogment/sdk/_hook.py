"""Pre-trial hooks: they see the parameters of a trial about to start, and may change them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from trio_cogment.api.common_pb2 import TrialParams


class PreTrialSession:
    """One call of a hook.

    Attributes:
        trial_id: the trial that will start.
        user_id: who starts it.
        params: change them in place; what they are when the hook returns is what goes on.
    """

    def __init__(self, trial_id: str, user_id: str, params: TrialParams) -> None:
        self.trial_id = trial_id
        self.user_id = user_id
        self.params = params


PreTrialHook: TypeAlias = Callable[[PreTrialSession], Awaitable[None]]
