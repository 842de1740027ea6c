"""Data logs: they receive the parameters of a trial, then its samples as the ticks end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.datalog_pb2 import RunTrialDatalogOutput
from trio_cogment.rpc import RpcError, ServerCall
from trio_cogment.sdk._log_sample import LogSample
from trio_cogment.sdk._stream import StreamLostError
from trio_cogment.sdk.spec import Spec


class DatalogSession:
    """The log of one trial, as an asynchronous iterator over its samples: `async for sample in session`.

    The iteration ends with the trial's stream; the last sample of a complete log has the state ENDED. After `Cancelled`
    no sample is lost: the next request returns it.

    Attributes:
        trial_id: the trial.
        user_id: the user who started it.
        params: its parameters.
    """

    def __init__(
        self, call: ServerCall, trial_id: str, user_id: str, params: TrialParams, spec: Spec | None = None
    ) -> None:
        self._call = call
        self.trial_id = trial_id
        self.user_id = user_id
        self.params = params
        self._spec = spec or Spec()
        self._to_acknowledge = False

    def __aiter__(self) -> DatalogSession:
        return self

    async def __anext__(self) -> LogSample:
        try:
            if self._to_acknowledge:
                await self._call.send(RunTrialDatalogOutput())
                self._to_acknowledge = False
            message = await self._call.receive()
        except RpcError as error:
            raise StreamLostError(error.code, error.message, error.trailing_metadata) from error
        if message is None:
            raise StopAsyncIteration
        # Acknowledged when the next one is requested: only then has this one been processed.
        self._to_acknowledge = True
        return LogSample(message.sample, self.params, self._spec)


DatalogImplementation: TypeAlias = Callable[[DatalogSession], Awaitable[None]]
