"""A fake pre-trial hook."""

from __future__ import annotations

from collections.abc import Callable

import trio
from purerpc import Service

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import ServerCall, bind
from trio_cogment.testing.fakes.behaviour import FROM_START, Behave, Behaviour, Misbehaviour, Part, check_behaviour
from trio_cogment.testing.sim.world import World

#: Misbehaviours that make no sense for a hook: it answers once, and has no ticks or messages of its own.
HOOKS_CANNOT = frozenset({Misbehaviour.DUPLICATE, Misbehaviour.FLOOD, Misbehaviour.NEVER_ACK})


class FakeHook:
    """A pre-trial hook.

    Args:
        world: for the history, the randomness and the counters.
        behave: how it behaves; the participant's name is "hook". WRONG_TICK returns invalid parameters.
        change: makes the parameters that it returns from those it gets; without it they are returned unchanged.

    Raises:
        ValueError: it cannot misbehave so. (If `behave` is a function that says so later, the simulated run fails.)
    """

    def __init__(
        self, world: World, behave: Behave | None = None, *, change: Callable[[TrialParams], TrialParams] | None = None
    ) -> None:
        self._world = world
        self._behave = behave = behave or Behaviour()
        check_behaviour(behave, "hook", HOOKS_CANNOT)
        self._change = change

    def service(self) -> Service:
        """Return `TrialHooksSP`, to be served."""
        return bind(SERVICES[ServiceKind.PRE_TRIAL_HOOK].descriptor(), self)

    async def OnPreTrial(self, request: PreTrialParams, call: ServerCall) -> PreTrialParams:
        """Answer with the parameters."""
        (trial_id,) = call.metadata.texts(TRIAL_ID)
        part = Part(self._world, self._behave, trial_id, "hook", "hook", cannot=HOOKS_CANNOT)
        params = request.params
        with part.session(raising=True):
            if not await part.think(FROM_START):
                await trio.sleep_forever()
            if self._change is not None:
                params = self._change(params)
            if part.does(Misbehaviour.WRONG_TICK, FROM_START):
                params = TrialParams()
            part.record("answered")
        return PreTrialParams(params=params)
