"""Pre-trial hooks: they receive the parameters of a trial that is about to start, and may change them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from trio_cogment.api.common_pb2 import TrialParams


class PreTrialSession:
    """One call of a pre-trial hook.

    Attributes:
        trial_id: the trial that will start.
        user_id: the user who starts it.
        params: the parameters; changes in place take effect when the hook returns.
    """

    def __init__(self, trial_id: str, user_id: str, params: TrialParams) -> None:
        self.trial_id = trial_id
        self.user_id = user_id
        self.params = params


PreTrialHook: TypeAlias = Callable[[PreTrialSession], Awaitable[None]]
