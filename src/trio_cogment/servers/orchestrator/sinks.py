"""Sinks of samples: one interface for a data log elsewhere and for a sink in this process.

Whoever sits in the same process implements `SampleSink` and is given to `open_platform(store=...)`; a trial whose
data log is `cogment://discover` then hands it the very objects the trial made: nothing is copied or serialised. A data
log elsewhere is behind the same interface (`_remote_sink.py`). Nobody has to inherit from these classes, their shape is
enough.

Who owns what: a sample belongs to the sink as soon as `write` is called with it, and may be kept, changed or passed on;
the orchestrator does not look at it again, except that it writes the same object once more if the stream breaks before
the sample was taken. The trial's parameters stay the orchestrator's: whoever keeps them makes a copy, nobody changes
them.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import NoReturn, Protocol

from typing_extensions import override

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import CallOpener, MetadataLike, Method


class SampleStream(Protocol):
    """The samples of one trial, in the order they are written. All of it is called from one task.

    One that has an attribute `lease_seconds` says with it for how long nobody else goes on with the trial after the
    stream has broken; the trial waits before that is over. Without it, or with None, nobody ever does.
    """

    @property
    def unconfirmed(self) -> int:
        """How many of the samples written last would be lost if this stream broke now.

        They are written again to the next one, the newest `max_queued_samples` of them at most. Where `write` returns
        when a sample has been taken it is 0. A stream that has an attribute `on_confirmed` gets a function there, to be
        called whenever this has become less: the trial forgets the samples at once, and not with the next one.
        """
        return 0

    async def write(self, sample: DatalogSample) -> None:
        """Take a sample; it is the sink's from now on.

        Waiting is back-pressure: the trial goes on until its queue is full, then it waits too. An exception breaks the
        stream: it is left, and another one is opened later. After `Cancelled` the sample counts as not taken.
        """

    async def complete(self) -> None:
        """Learn that there are no more samples; return when all of them are as safe as this sink makes them.

        An exception says that they are not: the stream has broken.
        """


class PromptSampleStream(SampleStream, Protocol):
    """A stream that saves its trial a task switch for most samples: what it can take at once never waits in a queue.

    Whether a stream is one is seen by its having the method.
    """

    def write_nowait(self, sample: DatalogSample) -> bool:
        """Take a sample as `write` does, if that needs no waiting; False: it was not taken, and `write` gets it.

        It is called within the trial's tick, in whatever task that runs; never while `write` or `complete` runs, or
        samples wait for it. It must return at once and not raise; an exception is logged, and `write` gets the sample.
        """


class SampleSink(Protocol):
    """Where streams of samples are opened: one for a trial, and another whenever the last one broke."""

    def open(
        self, trial_id: str, user_id: str, params: TrialParams
    ) -> AbstractAsyncContextManager[SampleStream, bool | None]:
        """Open a trial's stream for the time of an `async with` block.

        The same trial comes again after its stream broke, with samples that may have been seen: a sink tells them by
        their tick. A block that is left without `complete` is all there is of this stream. The sink may end the block
        itself when it cannot go on: by cancelling a scope around it, and raising the reason.
        """


class LocalSink(CallOpener):
    """A sink of this process as what discovery finds; it is not a service, so calls to it are refused."""

    def __init__(self, sink: SampleSink) -> None:
        self.sink = sink

    @override
    def call(
        self,
        method: Method,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> NoReturn:
        raise RpcError(StatusCode.UNIMPLEMENTED, f"{method.path}: this is a sink for the samples of trials only")
