"""The orchestrator: a Trio shell around the pure machines of `trio_cogment.trial`."""

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
