"""The orchestrator: a Trio shell around the pure machines of `trio_cogment.trial`.

Each trial is a nursery, and its rules are a machine that does no I/O. What is left for this package is to bring the
machine its inputs and to perform its effects. There is no task that drives a trial: whoever has an input (a
participant's message, a timer, a request) feeds the machine in its own task, and the effects are performed before that
call returns. None of them waits, so inputs cannot interleave, nothing needs a lock, and a tick costs no task switch of
the orchestrator's. What cannot be done at once is handed to a queue with a task of its own: a stream that is full, a
data log that is slow.

A start does wait: for hooks, for endpoints, for room (`_starting`). It reserves the id before its first checkpoint, so
that two starts of one id cannot both succeed, and it is undone as a whole if it fails or is cancelled.

A trial is known from that reservation until it is forgotten (`Trial`). Streams, data log and tasks it has only while it
runs (`TrialRun`), so that remembering thousands of ended trials costs little. An exception anywhere in a trial ends
that trial; the boundary is in its run.
"""

from trio_cogment.servers.orchestrator._glance import Glance, ParticipantGlance
from trio_cogment.servers.orchestrator._orchestrator import Orchestrator
from trio_cogment.servers.orchestrator._services import orchestrator_services
from trio_cogment.servers.orchestrator._trial import Trial
from trio_cogment.servers.orchestrator.sinks import LocalSink, PromptSampleStream, SampleSink, SampleStream

__all__ = [
    "Glance",
    "LocalSink",
    "Orchestrator",
    "ParticipantGlance",
    "PromptSampleStream",
    "SampleSink",
    "SampleStream",
    "Trial",
    "orchestrator_services",
]
