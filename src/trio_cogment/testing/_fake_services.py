"""Fake pre-trial hooks and data logs."""

from __future__ import annotations

from collections.abc import Callable

import trio
from purerpc import Service

from trio_cogment.api import datalog_pb2, hooks_pb2
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.datalog_pb2 import RunTrialDatalogOutput
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.rpc import ServerCall, bind
from trio_cogment.testing._behaviour import FROM_START, Behave, Behaviour, Misbehaviour, Part
from trio_cogment.testing._world import World


class FakeHook:
    """A pre-trial hook.

    Args:
        world: for the history, the randomness and the counters.
        behave: how it behaves; the participant's name is "hook". WRONG_TICK returns parameters that are no good.
        change: makes the parameters that it returns from those that came; they stay as they are without.
    """

    def __init__(
        self, world: World, behave: Behave | None = None, *, change: Callable[[TrialParams], TrialParams] | None = None
    ) -> None:
        self._world = world
        self._behave = behave or Behaviour()
        self._change = change

    def service(self) -> Service:
        """Return `TrialHooksSP`, to be served."""
        return bind(hooks_pb2.DESCRIPTOR.services_by_name["TrialHooksSP"], self)

    async def OnPreTrial(self, request: PreTrialParams, call: ServerCall) -> PreTrialParams:
        """Answer with the parameters."""
        (trial_id,) = call.metadata.texts("trial-id")
        part = Part(self._world, self._behave, trial_id, "hook", "hook")
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


class FakeDatalog:
    """A data log: it notes the ticks of what it gets, and acknowledges each sample.

    Args:
        world: for the history, the randomness and the counters.
        behave: how it behaves in each trial; the participant's name is "datalog". NEVER_ACK does not end its stream.
    """

    def __init__(self, world: World, behave: Behave | None = None) -> None:
        self._world = world
        self._behave = behave or Behaviour()

    def service(self) -> Service:
        """Return `DatalogSP`, to be served."""
        return bind(datalog_pb2.DESCRIPTOR.services_by_name["DatalogSP"], self)

    async def RunTrialDatalog(self, call: ServerCall) -> None:
        """Take a trial's samples."""
        (trial_id,) = call.metadata.texts("trial-id")
        part = Part(self._world, self._behave, trial_id, "datalog", "datalog")
        tick_id = FROM_START
        with part.session(raising=True):
            async for message in call:
                if message.HasField("sample"):
                    info = message.sample.info
                    tick_id = max(tick_id, info.tick_id)
                    part.record("afterthought" if info.out_of_sync else "sample", tick=info.tick_id, state=info.state)
                if await part.think(tick_id) and not part.does(Misbehaviour.NEVER_ACK, tick_id):
                    await call.send(RunTrialDatalogOutput())
            if part.does(Misbehaviour.NEVER_ACK, tick_id):
                await trio.sleep_forever()
            part.record("complete")
