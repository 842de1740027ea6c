"""Pre-trial hooks: they receive the parameters of a trial that is about to start, and may change them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.sdk._params import trial_config
from trio_cogment.sdk.spec import Spec


class PreTrialSession:
    """One call of a pre-trial hook.

    Attributes:
        trial_id: the trial that will start.
        user_id: the user who starts it.
        params: the parameters; changes in place take effect when the hook returns. The orchestrator checks them.
    """

    def __init__(self, trial_id: str, user_id: str, params: TrialParams, spec: Spec | None = None) -> None:
        self.trial_id = trial_id
        self.user_id = user_id
        self.params = params
        self._spec = spec or Spec()

    @property
    def trial_config(self) -> Any:
        """The config of the trial, of the type that the spec declares, or bytes; None if it has none."""
        return trial_config(self.params, self._spec)


PreTrialHook: TypeAlias = Callable[[PreTrialSession], Awaitable[None]]
