"""The orchestrator: a Trio shell around the pure machines of `trio_cogment.trial`."""

from trio_cogment.orchestrator._glance import Glance as Glance
from trio_cogment.orchestrator._glance import ParticipantGlance as ParticipantGlance
from trio_cogment.orchestrator._orchestrator import Orchestrator as Orchestrator
from trio_cogment.orchestrator._services import orchestrator_services as orchestrator_services
from trio_cogment.orchestrator._trial import Trial as Trial
from trio_cogment.orchestrator.sinks import LocalSink as LocalSink
from trio_cogment.orchestrator.sinks import PromptSampleStream as PromptSampleStream
from trio_cogment.orchestrator.sinks import SampleSink as SampleSink
from trio_cogment.orchestrator.sinks import SampleStream as SampleStream
